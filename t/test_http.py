"""HTTP on a worker's port: what AReaL's clients send and expect, and who may not."""

import base64
import dataclasses
import enum
import http.client
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any
from urllib.parse import urlsplit

import muster
import numpy as np
import pytest
from helpers import DEADLINE_S, Bell, wait_gone

Make = Callable[..., Any]


class Color(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Config:
    seed: int
    name: str = "x"
    inner: Any = None

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError("never made again from what was sent")


class Engine:
    def __init__(self, start: int = 0, config: Any = None) -> None:
        if start < 0:
            raise ValueError("cannot begin there")
        self.value = start
        self.config = config
        self.calls: list[str] = []

    def add(self, n: int, *, twice: bool = False) -> int:
        self.value += 2 * n if twice else n
        return self.value

    def echo(self, *args: Any, **kwargs: Any) -> Any:
        return [args, kwargs]

    def describe(self, value: Any) -> str:
        return f"{type(value).__name__} {value!r}"

    def env(self, name: str) -> str | None:
        return os.environ.get(name)

    def configured(self) -> Any:
        return muster.worker_config()

    def fail(self) -> None:
        raise AttributeError("inside of it")

    def later(self) -> Any:
        done: Future[str] = Future()
        done.set_result("later")
        return done

    def odd(self) -> Any:
        return {1, 2}

    def exit(self) -> None:
        sys.exit(4)

    def log(self, what: str) -> list[str]:
        self.calls.append(what)
        return self.calls

    def hold(self, begun: str, go: str) -> None:
        """Hold the interpreter's lock, as far as one can, until `go` is there."""
        self.calls.append("hold")
        with open(begun, "wb") as f:
            f.write(b"!")
        sys.setswitchinterval(1000)
        try:
            while not os.path.exists(go):
                pass
        finally:
            sys.setswitchinterval(0.005)


class Trainer(Engine):
    """It would have groups of torch, but torch is not here."""

    initialized = False
    context_and_model_parallel_group = None

    def current_data_parallel_head(self) -> int:
        return 0

    def initialize(self) -> None:
        self.initialized = True


class AsyncEngine:
    async def double(self, n: int) -> int:
        return 2 * n

    async def fail(self) -> None:
        raise KeyError("lost")


class Client:
    """Sends what AReaL's clients send."""

    def __init__(self, url: str, token: str | None = "") -> None:
        self.at = urlsplit(url)
        self.token = muster.http_token() if token == "" else token

    def connect(self) -> http.client.HTTPConnection:
        assert self.at.hostname
        return http.client.HTTPConnection(self.at.hostname, self.at.port, timeout=20)

    def send(self, conn: http.client.HTTPConnection, path: str, body: Any) -> None:
        headers = {"Content-Type": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        conn.request("POST", path, data, headers)

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        conn = self.connect()
        try:
            self.send(conn, path, body)
            answer = conn.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            conn.close()

    def get(self, path: str) -> tuple[int, Any]:
        conn = self.connect()
        try:
            conn.request("GET", path)
            answer = conn.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            conn.close()

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        body = {"method": method, "engine_name": "default", "args": list(args)}
        status, answer = self.post("/call", body | {"kwargs": kwargs, "rpc_meta": None})
        assert status == 200, answer
        assert answer["status"] == "success"
        return answer["result"]

    def fails(self, path: str, body: Any, status: int, part: str) -> Any:
        got, answer = self.post(path, body)
        assert (got, answer["status"]) == (status, "error"), answer
        assert part in answer["error"]
        return answer


@pytest.fixture
def client(cluster: Make) -> Client:
    return Client(cluster(Engine).http_urls[0])


def test_health(cluster: Make) -> None:
    one = cluster(Engine, 2)
    for url in one.http_urls:
        status, health = Client(url, None).get("/health")
        assert status == 200
        assert health == {
            "status": "healthy",
            "forked_children": 0,
            "engine_count": 1,
            "engines": ["default"],
        }
    assert len(set(one.http_urls)) == 2


def test_arguments_are_not_broadcast_without_groups(cluster: Make) -> None:
    call = {"method": "add", "engine_name": "default", "args": [1]}
    told = call | {"rpc_meta": {"broadcast": True}}
    plain = Client(cluster(Engine).http_urls[0])
    answer = plain.fails("/call", told, 501, "'context_and_model_parallel_group'")
    assert "'current_data_parallel_head'" in answer["error"]
    assert plain.post("/call", call | {"rpc_meta": {"broadcast": False}})[0] == 200
    trainer = Client(cluster(Trainer).http_urls[0])
    trainer.fails("/call", told, 501, "torch is not loaded")
    assert trainer.call("add", 1) == 1
    trainer.call("initialize")  # from now on it is what is done if nothing is said
    trainer.fails("/call", call, 501, "torch is not loaded")


def test_a_trainer_begins(client: Client) -> None:
    """As a controller does: configure, environment, engine, calls."""
    config = {
        "type": "dataclass",
        "class_path": "test_http.Config",
        "data": {"seed": -7, "name": "exp", "inner": None},
    }
    status, answer = client.post(
        "/configure", {"config": config, "role": "actor", "rank": 0}
    )
    assert (status, answer["status"], answer["result"]) == (200, "success", None)
    env = {"RANK": 0, "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    assert client.post("/set_env", {"env": env}) == (200, {"status": "success"})
    assert client.call("env", "RANK") == "0"
    body = {
        "engine": "test_http.Engine",
        "engine_name": "actor/0",
        "init_args": [5],
        "init_kwargs": {"config": config},
    }
    status, answer = client.post("/create_engine", body)
    assert (status, answer["status"]) == (200, "success")
    assert answer["engine_name"] == "actor/0"
    assert client.get("/health")[1]["engines"] == ["default", "actor/0"]
    body = {"method": "add", "engine_name": "actor/0", "args": [2]}
    status, answer = client.post("/call", body | {"kwargs": {"twice": True}})
    assert (status, answer) == (200, {"status": "success", "result": 9})
    assert client.call("configured")["data"]["seed"] == -7


def test_what_goes_wrong(client: Client) -> None:
    call = {"method": "add", "engine_name": "default"}
    client.fails("/call", call | {"engine_name": "no"}, 404, "no engine 'no'")
    client.fails("/call", call | {"method": "no"}, 400, "no method 'no'")
    client.fails("/call", call | {"method": "value"}, 400, "no method 'value'")
    client.fails("/call", {"method": "add"}, 400, "engine_name")
    client.fails("/call", call | {"args": {}}, 400, "'args' must be a list")
    client.fails("/call", call | {"kwargs": []}, 400, "'kwargs' must be an object")
    client.fails("/call", call | {"rpc_meta": 3}, 400, "rpc_meta")
    client.fails("/call", call | {"rpc_meta": {"broadcast": True}}, 501, "broadcast")
    client.fails("/call", call | {"rpc_meta": {"broadcast": 1}}, 400, "true or false")
    raised = client.fails("/call", call | {"method": "fail"}, 500, "inside of it")
    assert raised["type"] == "builtins.AttributeError"
    assert "in fail" in raised["traceback"]
    client.fails("/call", call | {"method": "odd"}, 500, "JSON")
    make = {"engine": "test_http.Engine", "engine_name": "default"}
    client.fails("/create_engine", make, 400, "already")
    make["engine_name"] = "other"
    client.fails("/create_engine", make | {"init_args": [-1]}, 500, "begin there")
    client.fails("/create_engine", make | {"engine": "no.Such"}, 400, "imported")
    client.fails("/create_engine", make | {"engine": "os.nope"}, 400, "nope")
    client.fails("/create_engine", make | {"engine": "os.sep"}, 400, "no class")
    client.fails("/set_env", {"env": []}, 400, "'env' must be an object")
    client.fails("/set_env", {"env": {"A=B": 1}}, 400, "A=B")
    client.fails("/configure", {"rank": 0}, 400, "config")
    client.fails("/configure", {"config": {}}, 400, "rank")
    for bad in (b"", b"{", b"[]", b"3", b"\xff", b"[" * 100000):
        client.fails("/call", bad, 400, "JSON")
    assert client.call("add", 1) == 1


def test_types(client: Client) -> None:
    array = np.arange(6, dtype="<i2").reshape(2, 3)
    sent = {
        "type": "ndarray",
        "data": base64.b64encode(array.tobytes()).decode(),
        "shape": [2, 3],
        "dtype": "<i2",
    }
    assert client.call("describe", sent) == f"ndarray {array!r}"
    assert client.call("echo", sent) == [[sent], {}]
    color = {"type": "enum", "class_path": "test_http.Color", "value": 1}
    assert client.call("describe", color) == f"Color {Color.RED!r}"
    assert client.call("echo", k=color) == [[], {"k": color}]
    nested = {
        "type": "dataclass",
        "class_path": "test_http.Config",
        "data": {"seed": -1, "name": "n", "inner": [sent, color]},
    }
    assert client.call("echo", nested) == [[nested], {}]
    some = {"type": "bytes", "data": base64.b64encode(b"\0\xff").decode()}
    assert client.call("describe", some) == "bytes b'\\x00\\xff'"
    assert client.call("echo", k=some) == [[], {"k": some}]
    assert client.call("later") == "later"
    # an object of the user that only looks like one
    for plain in ({"type": "tensor"}, {"type": "enum", "value": 2}, {"type": 3}):
        assert client.call("echo", plain) == [[plain], {}]


def test_types_that_are_refused(client: Client) -> None:
    call = {"method": "echo", "engine_name": "default"}
    for value, part in (
        ({"type": "enum", "class_path": "os.system", "value": "true"}, "enumeration"),
        ({"type": "dataclass", "class_path": "os.system", "data": {}}, "no dataclass"),
        ({"type": "dataclass", "class_path": "no.such", "data": {}}, "not here"),
        ({"type": "dataclass", "class_path": "Config", "data": {}}, "path of a class"),
        ({"type": "enum", "class_path": "test_http.Color", "value": 9}, "decoded"),
        ({"type": "ndarray", "data": "!", "shape": [1], "dtype": "<f4"}, "decoded"),
        ({"type": "ndarray", "data": "", "shape": [0], "dtype": "O"}, "objects"),
        ({"type": "bytes", "data": "AA==\n"}, "decoded"),
        ({"type": "ray_object_ref", "data": "gASVAA=="}, "does not travel"),
        ({"type": "tokenizer", "data": "", "name_or_path": "x"}, "does not travel"),
    ):
        client.fails("/call", call | {"args": [[value]]}, 400, part)


def test_tensors(client: Client) -> None:
    torch = pytest.importorskip("torch")
    data = base64.b64encode(np.float32([1.5, 2]).tobytes()).decode()
    for dtype in ("torch.float32", "torch.bfloat16"):
        sent = {"type": "tensor", "data": data, "shape": [2], "dtype": dtype}
        assert client.call("echo", sent) == [[sent], {}]
    meta = {"type": "tensor", "data": None, "shape": [7], "dtype": "torch.int64"}
    assert client.call("echo", meta) == [[meta], {}]
    assert torch.__name__ == "torch"


def test_without_torch(client: Client) -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        sent = {"type": "tensor", "data": "", "shape": [0], "dtype": "torch.int64"}
        body = {"method": "echo", "engine_name": "default", "args": [sent]}
        client.fails("/call", body, 400, "torch is not here")
    else:
        pytest.skip("torch is here")


def test_an_async_engine(cluster: Make) -> None:
    client = Client(cluster(Engine).http_urls[0])
    body = {"engine": "test_http.AsyncEngine", "engine_name": "default2"}
    assert client.post("/create_engine", body)[0] == 200
    call = {"engine_name": "default2", "method": "double", "args": [4]}
    assert client.post("/call", call)[1]["result"] == 8
    client.fails("/call", call | {"method": "fail", "args": []}, 500, "lost")
    assert client.call("add", 3) == 3
    assert client.call("later") == "later"


def test_ports(client: Client) -> None:
    status, answer = client.post("/alloc_ports", {"count": 3})
    assert (status, answer["status"], answer["host"]) == (200, "success", "127.0.0.1")
    assert len(set(answer["ports"])) == 3
    for port in answer["ports"]:
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(("127.0.0.1", port))
            s.listen()
    client.fails("/alloc_ports", {"count": 0}, 400, "count")


# ---- children -----------------------------------------------------------------------------


def test_children(cluster: Make, bell: Callable[[], Bell]) -> None:
    client = Client(cluster(Engine, env={"OWN": "1"}).http_urls[0])
    client.post("/set_env", {"env": {"SET": "2"}})
    ring = bell()
    script = (
        "import os, sys, signal\n"
        "assert os.environ['OWN'] + os.environ['SET'] + os.environ['MORE'] == '123'\n"
        f"open({ring.path!r}, 'wb').write(b'!')\n"
        "signal.pause()"
    )
    body = {
        "role": "proxy",
        "worker_index": 0,
        "raw_cmd": [sys.executable, "-c", script],
        "env": {"MORE": "3"},
    }
    status, answer = client.post("/fork", body)
    assert (status, answer["status"], answer["host"]) == (200, "success", "127.0.0.1")
    ring.hear()
    assert client.get("/health")[1]["forked_children"] == 1
    client.fails("/fork", body, 409, "already")
    name = {"role": "proxy", "worker_index": 0}
    status, answer = client.post("/kill_forked_worker", name)
    assert (status, answer["status"]) == (200, "success")
    assert wait_gone([client_pid(answer["message"])]) == []
    assert client.get("/health")[1]["forked_children"] == 0
    client.fails("/kill_forked_worker", name, 404, "no child")
    client.fails("/fork", body | {"raw_cmd": ["/no/such/program"]}, 500, "no/such")
    client.fails("/fork", body | {"role": "../x"}, 400, "role")


def client_pid(message: str) -> int:
    return int(message.rpartition("pid ")[2].rstrip(")"))


def test_children_end_with_their_worker(cluster: Make) -> None:
    one = cluster(Engine)
    client = Client(one.http_urls[0])
    body = {"role": "kid", "worker_index": "1", "raw_cmd": ["sleep", "1000"]}
    status, answer = client.post("/fork", body)
    assert status == 200
    one.destroy(grace=0.2)
    assert wait_gone([answer["pid"]]) == []


# ---- order, cancel, end -------------------------------------------------------------------


def start_hold(one: Any, bell: Callable[[], Bell]) -> tuple[Any, str]:
    """A native call that holds the engine; make the path exist to end it."""
    begun = bell()
    go = begun.path + "-go"
    held = one.execute_rank_zero("hold", begun.path, go)
    begun.hear()
    return held, go


def queued(client: Client, one: Any) -> int:
    return int(one.health(0)["calls_queued"])


def wait_queued(client: Client, one: Any, count: int) -> None:
    end = time.monotonic() + DEADLINE_S
    while queued(client, one) != count:
        assert time.monotonic() < end


def test_order_with_native_calls(cluster: Make, bell: Callable[[], Bell]) -> None:
    one = cluster(Engine)
    client = Client(one.http_urls[0])
    held, go = start_hold(one, bell)
    conn = client.connect()
    body = {"method": "log", "engine_name": "default", "args": ["http"]}
    client.send(conn, "/call", body)
    wait_queued(client, one, 1)
    native = one.execute_rank_zero("log", "native")
    wait_queued(client, one, 2)
    assert client.get("/health")[0] == 200  # while the lock is held
    open(go, "wb").close()
    held.result()
    assert json.loads(conn.getresponse().read())["result"] == ["hold", "http"]
    assert native.result() == ["hold", "http", "native"]
    conn.close()


def test_a_caller_that_goes(cluster: Make, bell: Callable[[], Bell]) -> None:
    one = cluster(Engine)
    client = Client(one.http_urls[0])
    held, go = start_hold(one, bell)
    conn = client.connect()
    body = {"method": "log", "engine_name": "default", "args": ["gone"]}
    client.send(conn, "/call", body)
    wait_queued(client, one, 1)
    conn.close()
    wait_queued(client, one, 0)
    open(go, "wb").close()
    held.result()
    assert client.call("log", "next") == ["hold", "next"]


def test_the_end_of_a_worker(cluster: Make, bell: Callable[[], Bell]) -> None:
    one = cluster(Engine)
    client = Client(one.http_urls[0])
    conn = client.connect()
    client.send(conn, "/call", {"method": "exit", "engine_name": "default"})
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        conn.getresponse()  # the end of the process is the answer
    assert wait_gone(one.pids) == []
    with pytest.raises(ConnectionError):
        client.get("/health")


# ---- who may not --------------------------------------------------------------------------

PATHS = (
    "/call",
    "/configure",
    "/set_env",
    "/create_engine",
    "/alloc_ports",
    "/fork",
    "/kill_forked_worker",
    "/nothing",
    "/data/batch",
)


def test_without_the_token(cluster: Make) -> None:
    url = cluster(Engine).http_urls[0]
    right = muster.http_token()
    wrong = [None, "0" * 64, right[:-1], right + "0", right.upper(), "x"]
    for path in PATHS:
        for token in wrong:
            Client(url, token).fails(path, {"count": 1}, 401, "token")
    assert Client(url).post("/alloc_ports", {"count": 1})[0] == 200
    Client(url).fails("/data/batch", {"shard_ids": []}, 501, "data plane")
    Client(url).fails("/nothing", {}, 404, "nothing")


def test_open(cluster: Make) -> None:
    with pytest.warns(UserWarning, match="http_open"):
        one = cluster(Engine, http_open=True)
    client = Client(one.http_urls[0], None)
    assert client.call("add", 2) == 2
    with pytest.raises(ValueError, match="http_open"):
        muster.WorkerConfig(http_open="yes")  # type: ignore[arg-type]


def raw(client: Client, data: bytes) -> bytes:
    """Send, and read until the worker closes."""
    got = b""
    assert client.at.hostname and client.at.port
    with socket.create_connection((client.at.hostname, client.at.port), 20) as s:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        try:
            while part := s.recv(65536):
                got += part
        except ConnectionResetError:
            pass
    return got


def test_bad_requests(client: Client) -> None:
    auth = f"Authorization: Bearer {client.token}\r\n".encode()
    start = (
        b"POST /alloc_ports HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    )
    for headers, status in (
        (b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", b"400"),
        (b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", b"400"),
        (b"Content-Length : 2\r\n\r\n{}", b"400"),
        (b"X: a\r\n b\r\n\r\n", b"400"),
        (b"X: a\rb\r\n\r\n", b"400"),
        (b"Host: y\r\n\r\n", b"400"),
        (b"X: " + b"a" * 9000 + b"\r\n\r\n", b"431"),
        (b"X: a\r\n" * 100 + b"\r\n", b"431"),
        (b"Content-Length: 99999999999\r\n\r\n", b"413"),
        (b"Transfer-Encoding: gzip\r\n\r\n", b"501"),
        (b"Expect: a cake\r\n\r\n", b"417"),
    ):
        got = raw(client, start + auth + headers)
        assert got.startswith(b"HTTP/1.1 " + status), (headers[:60], got)
        assert got.count(b"HTTP/1.1") == 1  # nothing was smuggled in
    assert client.get("/health")[0] == 200


def test_the_body_is_not_read_before_the_token(cluster: Make) -> None:
    """A stranger cannot make the worker keep a gigabyte."""
    client = Client(cluster(Engine).http_urls[0], None)
    head = (
        b"POST /call HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Expect: 100-continue\r\nContent-Length: 1000000000\r\n\r\n"
    )
    got = raw(client, head)
    assert got.startswith(b"HTTP/1.1 401")
    assert b"100 Continue" not in got


def test_ten_thousand_together(client: Client) -> None:
    count = 10000
    assert client.at.hostname and client.at.port
    with socket.create_connection((client.at.hostname, client.at.port), 20) as s:
        request = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
        sender = threading.Thread(target=s.sendall, args=(request * count,))
        sender.start()
        got = 0
        rest = b""
        while got < count:
            part = s.recv(1 << 20)
            assert part
            rest += part
            got += rest.count(b"HTTP/1.1 200 OK\r\n")
            rest = rest[-len(b"HTTP/1.1 200 OK\r\n") + 1 :]
        sender.join()
    assert got == count


def test_a_big_body(client: Client) -> None:
    text = "x" * (8 << 20)
    assert client.call("echo", text) == [[text], {}]


def test_many_idle_connections(client: Client) -> None:
    assert client.at.hostname and client.at.port
    idle = [
        socket.create_connection((client.at.hostname, client.at.port), 20)
        for _ in range(100)
    ]
    for s in idle:
        s.sendall(b"POST /call HTTP/1.1\r\nHost:")  # and no more
    assert client.get("/health")[0] == 200
    for s in idle:
        s.close()


def test_a_stopped_client_holds_nobody(client: Client) -> None:
    """A process that is killed in the middle of its request."""
    assert client.at.hostname
    pid = os.fork()
    if pid == 0:
        s = socket.create_connection((client.at.hostname, client.at.port or 0), 20)
        s.sendall(b"POST /call HTTP/1.1\r\n")
        signal.pause()
        os._exit(0)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert client.call("add", 1) == 1
