"""Jobs by HTTP: each verb that the command line has."""

import hmac
import http.client
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_rig import CLI
from daemon_rig import Process
from helpers import MARK, leftovers, new_mark, until

JOB = """
name: web
nodes: [{name: n0, cpus: 8}]
roles:
  side: {command: [sh, -c, "echo from $RANK; exec sleep 1000"], world_size: "1:3"}
driver: [sh, -c, "echo begun; while [ ! -e done ]; do sleep 0.05; done; echo over"]
"""


class Web:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        env = os.environ | {"MUSTER_HOME": str(folder), MARK: new_mark()}
        self.mark = env[MARK]
        args = ["head", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        self.head = Process(args, env)
        self.at = self.head.wait_line("HTTP on").rpartition(" ")[2]
        secret = bytes.fromhex((folder / "head" / "secret").read_text().strip())
        self.token = hmac.new(secret, b"muster http token", "sha256").hexdigest()

    def ask(self, method: str, path: str, body: Any = None, code: int = 200) -> Any:
        conn = http.client.HTTPConnection(self.at, timeout=60)
        head = {"Authorization": f"Bearer {self.token}"}
        if body is not None:
            head["Content-Type"] = "application/json"
        data = None if body is None else json.dumps(body)
        at = path if path == "/check" else f"/jobs{path}"
        conn.request(method, f"/api/v1{at}", data, headers=head)
        answer = conn.getresponse()
        said = answer.read()
        conn.close()
        assert answer.status == code, (answer.status, said)
        return json.loads(said)

    def get(self, path: str, code: int = 200) -> Any:
        return self.ask("GET", path, None, code)

    def post(self, path: str, body: Any = None, code: int = 200) -> Any:
        return self.ask("POST", path, body or {}, code)

    def submit(self, code: int = 200) -> Any:
        env = [f"{name}={value}" for name, value in os.environ.items()]
        job = {"text": JOB, "folder": str(self.folder), "context": {"env": env}}
        return self.post("", job, code)

    def running(self, count: int) -> Any:
        def look() -> Any:
            job = self.get("/web")
            assert not job["is_over"], (job, self.get("/web/events"))
            good = job["stage"] == "running" and job["driver_runs"]
            return job if good and job["roles"][0]["running"] == count else None

        return until(look)

    def end(self) -> None:
        self.head.signal(signal.SIGTERM)
        self.head.end()
        until(lambda: not leftovers(self.mark))


@pytest.fixture
def web() -> Iterator[Web]:
    folder = Path(tempfile.mkdtemp(prefix="muster-w-", dir="/tmp"))
    one = Web(folder)
    yield one
    one.end()
    shutil.rmtree(folder)


def test_a_job_by_http(web: Web) -> None:
    assert web.get("") == {"jobs": []}
    assert web.submit()["name"] == "web"
    assert "already" in web.submit(409)["detail"]
    assert web.running(3)["nodes"] == ["web.n0"]
    assert [job["name"] for job in web.get("")["jobs"]] == ["web"]
    assert not web.get("/web/wait?wait=0.1")["is_over"]
    assert web.post("/web/scale", {"role": "side", "count": 1})["name"] == "web"
    web.running(1)
    assert "side" in web.post("/web/scale", {"role": "side", "count": 9}, 400)["detail"]
    web.post("/web/restart", {"role": "side", "one_rank": True, "rank": 0})
    until(lambda: web.get("/web")["roles"][0]["restarts"] == 1)
    web.running(1)
    web.post("/web/suspend", {"reason": "others need it"})
    until(lambda: web.get("/web")["stage"] == "suspended")
    web.post("/web/resume")
    assert web.running(1)["attempt"] == 2
    (web.folder / "done").write_text("")
    job = until(lambda: (found := web.get("/web/wait?wait=20"))["is_over"] and found)
    assert (job["stage"], job["code"]) == ("succeeded", 0)
    events = web.get("/web/events")
    assert events["is_over"]
    assert any("others need it" in e["text"] for e in events["events"])
    numbers = [e["number"] for e in events["events"]]
    later = web.get(f"/web/events?after={numbers[1]}")
    assert [e["number"] for e in later["events"]] == numbers[2:]

    logs = web.get("/web/logs")  # its agent has ended
    assert "web.driver/0@web.n0: over" in logs["lines"]
    assert "web.side/2@web.n0: from 2" in logs["lines"]
    assert not logs["is_cut"] and logs["times"] == sorted(logs["times"])
    assert web.get("/web/logs?lines=1")["lines"] == ["web.driver/0@web.n0: over"]

    assert web.ask("DELETE", "/web")["name"] == "web"
    until(lambda: web.get("") == {"jobs": []})
    for path in ("/web", "/web/wait", "/web/events", "/web/logs"):
        assert "there is no job 'web'" in web.get(path, 404)["detail"]


def test_stop_by_http_and_what_is_refused(web: Web) -> None:
    (web.folder / "other").mkdir()
    web.submit()
    web.running(3)
    assert "from 0" in " ".join(web.get("/web/logs")["lines"])
    web.post("/web/stop", {"reason": "enough"})
    job = until(lambda: (found := web.get("/web/wait"))["is_over"] and found)
    assert (job["stage"], job["code"]) == ("stopped", 143)
    for body in ({"text": "name: x\n"}, {"text": "nme: x\n", "folder": "/tmp"}):
        web.post("", body, 400)
    web.post("/web/scale", {"role": "nobody", "count": 1}, 404)
    web.get("/web/logs?since=never", 400)


def test_a_file_is_checked(web: Web) -> None:
    said = web.post("/check", {"text": JOB})
    assert (said["name"], said["nodes"], said["roles"]) == ("web", 1, 1)
    assert said["created_by_the_controller"] == 1 and said["driver"]
    file = web.folder / "job.yaml"
    file.write_text(JOB)
    by_command = subprocess.run(
        [CLI, "check", str(file), "--json"], capture_output=True, check=True
    )
    assert said | {"file": str(file)} == json.loads(by_command.stdout)
    wrong = JOB.replace("command:", "comand:")
    assert (
        "web.yaml:5:10: "
        in (web.post("/check", {"text": wrong, "file": "web.yaml"}, 400)["detail"])
    )
    narrow = JOB.replace("{command:", "{num_cpus: 9, command:")
    for path in ("/check", ""):  # what is refused there is not taken
        body = {"text": narrow} | ({} if path else {"folder": str(web.folder)})
        said = web.post(path, body, 507)
        assert "cluster 'side'" in said["detail"], said
    assert web.get("") == {"jobs": []}
