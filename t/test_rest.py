"""The head by HTTP, and its description against the running server."""

import base64
import concurrent.futures
import http.client
import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import muster
import pytest
from cli_rig import lasting
from conftest import _started
from helpers import until

ROOT = Path(__file__).parent.parent
API = "/api/v1"


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    yield from _started(num_gpus=4, http="127.0.0.1:0")


def address() -> tuple[str, int]:
    at = muster.http_address()
    assert at is not None
    host, _, port = at.rpartition(":")
    return host, int(port)


def ask(
    path: str,
    method: str = "GET",
    token: str | None = "",
    headers: dict[str, str] | None = None,
    body: Any = None,
) -> tuple[int, http.client.HTTPMessage, bytes]:
    """Status, headers and body; token "": the right one, None: none."""
    head = dict(headers or {})
    data = body if body is None or isinstance(body, bytes) else json.dumps(body)
    if data is not None:
        head.setdefault("Content-Type", "application/json")
    if token is not None:
        head["Authorization"] = f"Bearer {token or muster.http_token()}"
    conn = http.client.HTTPConnection(*address(), timeout=20)
    try:
        conn.request(method, path, data, headers=head)
        answer = conn.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        conn.close()


def get(path: str) -> Any:
    status, headers, body = ask(API + path)
    assert status == 200, body
    assert headers["Content-Type"] == "application/json"
    return json.loads(body)


def change(path: str, method: str, body: Any = None) -> Any:
    status, headers, answer = ask(API + path, method, body=body)
    assert status == 200, answer
    assert headers["Content-Type"] == "application/json"
    return json.loads(answer)


def problem(path: str, status: int, **more: Any) -> Any:
    got, headers, body = ask(path, **more)
    assert got == status, body
    assert headers["Content-Type"] == "application/problem+json"
    what = json.loads(body)
    assert what["status"] == status
    assert what["detail"]
    return what


class Talker:
    def say(self, *lines: str) -> int:
        for line in lines:
            print(line, flush=True)
        return os.getpid()

    def exit(self) -> None:
        sys.exit(3)


def test_half_requests_keep_nobody_out(session: Any) -> None:
    """More than there may be connections, each with the beginning of a request."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(4096, hard)), hard))
    half = b"GET /api/v1/status HTTP/1.1\r\nHost: x\r\n"
    crowd: list[socket.socket] = []
    try:
        for i in range(1100):
            crowd.append(socket.create_connection(address(), timeout=20))
            crowd[-1].sendall(half)
            if i % 100 == 99:
                assert ask(API + "/status")[0] == 200
        assert ask(API + "/health", token=None)[0] == 200
    finally:
        for one in crowd:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_is_there(cluster: Callable[..., Any]) -> None:
    one = cluster(Talker, 2, name="talkers")
    pids = one.execute_all_sync("say", "hello")
    assert get("/version")["version"] == muster.__version__
    status = get("/status")
    assert (status["nodes"], status["clusters"], status["pid"]) == (1, 1, os.getpid())
    (node,) = get("/nodes")["nodes"]
    assert (node["state"], node["gpus"]) == ("alive", 4)
    assert get(f"/nodes/{node['name']}") == node
    assert get("/drivers") == {"drivers": []}
    (found,) = get("/clusters")["clusters"]
    again = get("/clusters/talkers")
    listed = lasting(found["workers"])
    assert lasting(again["workers"]) == listed
    assert found | {"workers": []} == again | {"workers": []}
    assert [w["pid"] for w in listed] == pids
    assert {w["state"] for w in listed} == {"running"}
    assert {w["activity"]["doing"] for w in found["workers"]} == {"idle"}
    assert lasting(get("/clusters/talkers/workers")["workers"]) == listed
    assert lasting([get("/clusters/talkers/workers/1")]) == listed[1:]
    assert lasting([get("/clusters/t%61lkers/workers/1")]) == listed[1:]


def test_how_a_worker_ended(cluster: Callable[..., Any]) -> None:
    one = cluster(Talker, name="mortal")
    with pytest.raises(muster.WorkerDied):
        one.execute_rank_zero_sync("exit")
    worker = get("/clusters/mortal/workers/0")
    assert worker["state"] == "exited"
    assert (worker["exit"]["code"], worker["exit"]["signaled"]) == (3, False)
    problem(f"{API}/clusters/mortal/workers/0/stack", 409)


def test_stack(cluster: Callable[..., Any]) -> None:
    cluster(Talker, name="shown")
    stack = get("/clusters/shown/workers/0/stack")
    assert "muster/_worker/" in stack["python"]
    assert "#0" in stack["native"]


def test_logs(cluster: Callable[..., Any]) -> None:
    one = cluster(Talker, name="wordy")
    one.execute_rank_zero_sync("say", *(f"line {i}" for i in range(200)), "\udcff end")
    log = Path(get("/clusters/wordy/workers/0")["log_path"])

    # the agent copies what came through the pipe
    until(lambda: b" end" in log.read_bytes())
    shown = get("/clusters/wordy/workers/0/logs?lines=2")
    assert len(shown["lines"]) == 2
    assert shown["lines"][0].endswith("line 199")
    assert shown["is_cut"]
    assert len(get("/clusters/wordy/workers/0/logs")["lines"]) == 100
    everything = get("/clusters/wordy/workers/0/logs?lines=10000")
    assert not everything["is_cut"]
    assert len(everything["lines"]) == 201
    assert len(everything["times"]) == 201
    assert everything["times"] == sorted(everything["times"])
    since = everything["times"][-1]
    newest = get(f"/clusters/wordy/workers/0/logs?lines=10000&since={since}")
    assert newest["times"][0] == since and not newest["is_cut"]
    assert newest["lines"] == everything["lines"][-len(newest["lines"]) :]
    assert get("/clusters/wordy/workers/0/logs?since=1h") == get(
        "/clusters/wordy/workers/0/logs"
    )
    assert get("/clusters/wordy/workers/0/logs?since=2100-01-01")["lines"] == []
    for bad in ("0", "10001", "-1", "x", "", "99999999999999999999999"):
        problem(f"{API}/clusters/wordy/workers/0/logs?lines={bad}", 400)
    for bad in ("", "x", "10", "%00", "2026-13-01"):
        problem(f"{API}/clusters/wordy/workers/0/logs?since={bad}", 400)


def test_ending_a_cluster(session: Any) -> None:
    one = muster.Cluster("doomed", Talker, world_size=2)
    status, _, body = ask(f"{API}/clusters/doomed?grace=1", "DELETE")
    assert (status, body) == (204, b"")
    problem(f"{API}/clusters/doomed", 404)
    problem(f"{API}/clusters/doomed", 404, method="DELETE")
    with pytest.raises(muster.MusterError):
        one.execute_rank_zero_sync("say")


def test_stopping_a_cluster(session: Any) -> None:
    muster.Cluster("halted", Talker, world_size=2)
    path = f"{API}/clusters/halted/stop"
    refused: list[Any] = [{"grace": -1}, {"grace": "x"}, {"cluster": "x"}, {"grase": 1}]
    for bad in (*refused, [], 1):
        problem(path, 400, method="POST", body=bad)
    problem(path, 400, method="POST", body=b"{")
    done = change("/clusters/halted/stop", "POST", {"grace": 0.5, "head": True})
    assert done == {"clusters": 1, "workers": 2, "head": False}  # it is no daemon
    problem(f"{API}/clusters/halted", 404)
    problem(path, 404, method="POST")


def test_key_value_store(session: Any) -> None:
    value = base64.b64encode(b"\0\xff bytes").decode()
    first = change("/kv/a%2Fb%20%C3%A4", "POST", {"value": value})
    assert first["done"]
    assert muster.kv.get("a/b \u00e4") == b"\0\xff bytes"
    entry = get("/kv/a%2Fb%20%C3%A4")
    assert (entry["key"], entry["value"], entry["codec"]) == ("a/b \u00e4", value, 0)
    assert entry["revision"] == first["revision"]
    again = change("/kv/a%2Fb%20%C3%A4", "POST", {"only_if_absent": True})
    assert not again["done"]
    muster.kv.put("a/c", {"of": "Python"})
    keys = get("/kv?prefix=a%2F")
    assert [(k["key"], k["codec"]) for k in keys["keys"]] == [
        ("a/b \u00e4", 0),
        ("a/c", 1),
    ]
    assert len(get("/kv?prefix=a%2Fb+")["keys"]) == 1  # a plus is a space
    assert change("/kv/a%2Fc", "DELETE")["done"]
    assert not change("/kv/a%2Fc", "DELETE")["done"]
    problem(f"{API}/kv/a%2Fc", 404)
    assert muster.kv.get("a/c", "gone") == "gone"


def test_waiting_for_a_key(session: Any) -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waits = pool.submit(get, "/kv/awaited?wait=20")
        change("/kv/awaited", "POST", {"value": "AAAA"})
        assert waits.result(20)["value"] == "AAAA"
    problem(f"{API}/kv/never?wait=0.01", 404)


def test_what_cannot_be_put(session: Any) -> None:
    path = f"{API}/kv/refused"
    for bad in (
        {"value": "no base64!"},
        {"value": 7},
        {"key": "x"},
        {"owner": "KV_WORKER"},
        {"codec": 1},  # whoever reads it would unpickle it
        {"codec": "x"},
        {"only_if_absent": 1},
    ):
        problem(path, 400, method="POST", body=bad)
    problem(path, 400, method="POST", body=b'{"value": "AAAA", "value": "AAAA"}')
    problem(path, 413, method="POST", body={"value": "A" * (1 << 20)})
    problem(f"{path}?key=x", 400, method="DELETE")
    problem(f"{path}?nothing=x", 400)
    problem(f"{API}/kv/{'k' * 513}", 400)
    problem(path, 404)


def test_who_may_change(session: Any) -> None:
    path = f"{API}/kv/mine"
    for method in ("POST", "DELETE"):
        problem(path, 401, method=method, token=None)
        problem(path, 401, method=method, token="0" * 64)
        problem(path, 403, method=method, headers={"Origin": "http://evil.example"})
    text = {"Content-Type": "text/plain"}
    problem(path, 415, method="POST", headers=text, body=b'{"value": ""}')
    _, headers, _ = ask(path, "PUT")
    assert set(headers["Allow"].split(", ")) == {"GET", "HEAD", "POST", "DELETE"}
    _, headers, _ = ask(f"{API}/clusters/x/stop")
    assert headers["Allow"] == "POST"
    assert get("/kv?prefix=mine")["keys"] == []


def test_what_is_not_there(session: Any) -> None:
    for path in (
        "/",
        "/api",
        "/api/v1",
        "/api/v1/",
        "/api/v2/status",
        "/api/v1/status/",
        "/api/v1//status",
        "/api/v1/nodes/",
        "/api/v1/nodes/nobody",
        "/api/v1/nodes/%2e%2e",
        "/api/v1/nodes/%00",
        "/api/v1/nodes/%",
        "/api/v1/nodes/%2fetc%2fpasswd",
        "/api/v1/../../etc/passwd",
        "/api/v1/clusters/none",
        "/api/v1/clusters/none/workers",
        "/api/v1/clusters/none/workers/0/logs",
        f"/api/v1/clusters/{'a' * 5000}",
    ):
        problem(path, 404)
    problem("/" + "a" * 9000, 414)
    _, headers, _ = ask(f"{API}/status", "POST")
    assert headers["Allow"] == "GET, HEAD"
    problem(f"{API}/status", 405, method="DELETE")
    problem(f"{API}/clusters/none", 405, method="PUT")


def test_who_may(session: Any) -> None:
    assert ask(f"{API}/health", token=None)[0] == 200
    wrong = "0" * 64
    for path in ("/status", "/nodes", "/openapi.json", "/nothing"):
        for token in (None, wrong, muster.http_token()[:-1], muster.http_token() + "0"):
            problem(API + path, 401, token=token)
    problem("/metrics", 401, token=None)
    problem(f"{API}/clusters/x", 401, method="DELETE", token=None)
    headers = {"Origin": "http://evil.example"}
    problem(f"{API}/clusters/x", 403, method="DELETE", headers=headers)


def test_head_has_no_body(session: Any) -> None:
    status, headers, body = ask(f"{API}/version", "HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["Content-Length"]) > 0


def test_a_client_that_goes_while_it_waits(session: Any) -> None:
    one = muster.Cluster("left", Talker, world_size=1)
    with socket.create_connection(address()) as s:
        s.sendall(
            f"DELETE {API}/clusters/left HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {muster.http_token()}\r\n\r\n".encode()
        )
    one.destroy()  # whoever is first: both are told that it has ended
    assert get("/status")["clusters"] == 0


def test_not_asked_for() -> None:
    code = (
        "import muster; muster.init(num_gpus=0); print(muster.http_address()); "
        "muster.shutdown()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "None\n", done.stderr
    code = "import muster; muster.init(num_gpus=0, http='256.0.0.1:x')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert "cannot serve HTTP" in done.stderr


# ---- with other people's tools ----------------------------------------------------------


@pytest.fixture(scope="module")
def tools() -> str:
    """The python of an environment that has them."""
    made = subprocess.run(
        [ROOT / "tools/rest-venv"], capture_output=True, text=True, timeout=600
    )
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def test_openapi_is_served(session: Any) -> None:
    assert get("/openapi.json") == json.loads((ROOT / "doc/openapi.json").read_text())


@pytest.mark.timeout(300)
def test_openapi_against_the_server(
    tools: str, cluster: Callable[..., Any], tmp_path: Path
) -> None:
    cluster(Talker, 2, name="described")
    muster.kv.put("here", b"value")
    host, port = address()
    command = [
        *(tools, "-m", "schemathesis.cli", "run", str(ROOT / "doc/openapi.json")),
        *("--url", f"http://{host}:{port}", "--seed", "1", "--no-color"),
        *("--header", f"Authorization: Bearer {muster.http_token()}"),
        *("--max-examples", "10"),
    ]
    short = tmp_path / "short.toml"  # no answer waits
    short.write_text('[parameters]\n"query.wait" = 0\n')
    real = tmp_path / "real.toml"  # names that are there
    real.write_text(
        '[parameters]\n"path.name" = "described"\n"path.rank" = [0, 1]\n'
        '"path.key" = "here"\n"query.wait" = 0\n'
        '[[operations]]\ninclude-path = "/api/v1/nodes/{name}"\n'
        f'parameters = {{ "path.name" = "{get("/nodes")["nodes"][0]["name"]}" }}\n'
    )
    answers = "not_a_server_error,status_code_conformance,content_type_conformance"
    runs = (
        [
            *(*command[:3], "--config-file", str(short), *command[3:]),
            *("--checks", "all"),
            *("--exclude-path", "/api/v1/check"),  # not any text is a job
        ],
        [
            *(*command, "--include-path", "/api/v1/check"),
            *("--checks", f"{answers},response_schema_conformance"),
        ],
        [
            *(*command[:3], "--config-file", str(real), *command[3:]),
            *("--include-method", "GET", "--include-path-regex", "{"),
            *("--checks", f"{answers},response_schema_conformance"),
        ],
    )
    for run in runs:
        done = subprocess.run(
            run, capture_output=True, text=True, timeout=240, cwd=tmp_path
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        assert "Tested: " in done.stdout


PARSE = """
import json, sys
from prometheus_client.parser import text_string_to_metric_families as parse
out = {}
for family in parse(sys.stdin.read()):
    assert family.documentation and family.type in ("gauge", "counter", "histogram"), family
    for s in family.samples:
        out[s.name + json.dumps(s.labels, sort_keys=True)] = s.value
print(json.dumps(out))
"""


def test_metrics(tools: str, cluster: Callable[..., Any]) -> None:
    cluster(Talker, 3, name="counted")
    status, headers, body = ask("/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    done = subprocess.run(
        [tools, "-c", PARSE], input=body, capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found['muster_nodes{"state": "alive"}'] == 1
    assert found['muster_workers{"cluster": "counted", "state": "running"}'] == 3
    assert found["muster_clusters{}"] == 1
    assert found[f'muster_build_info{{"version": "{muster.__version__}"}}'] == 1
    assert found["process_resident_memory_bytes{}"] > 1 << 20
    assert found["process_cpu_seconds_total{}"] > 0
    assert found["muster_http_requests_total{}"] > 0
    of = '{"cluster": "counted", "rank": "2"}'
    assert found[f"muster_worker_busy{of}"] == found[f"muster_worker_silent{of}"] == 0
    assert found[f"muster_worker_memory_bytes{of}"] > 1 << 20
