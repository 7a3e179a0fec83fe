"""HTTP on a worker's port beside other calls, and from those who may not or are many."""

import http.client
import json
import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any

import muster
import pytest
from helpers import Bell, until, wait_gone
from http_rig import Client, Engine

Make = Callable[..., Any]


@pytest.fixture
def client(cluster: Make) -> Client:
    return Client(cluster(Engine).http_urls[0])


# ---- order, cancel, end -------------------------------------------------------------------


def start_hold(one: Any, bell: Callable[[], Bell]) -> tuple[Any, str]:
    """A native call that holds the engine; make the path exist to end it."""
    begun = bell()
    go = begun.path + "-go"
    held = one.execute_rank_zero("hold", begun.path, go)
    begun.hear()
    return held, go


def wait_queued(one: Any, count: int) -> None:
    until(lambda: one.health(0)["calls_queued"] == count)


def queue_log(one: Any, client: Client, word: str) -> Any:
    """The connection of a call that waits behind the one that holds the engine."""
    conn = client.connect()
    body = {"method": "log", "engine_name": "default", "args": [word]}
    client.send(conn, "/call", body)
    wait_queued(one, 1)
    return conn


def test_order_with_native_calls(cluster: Make, bell: Callable[[], Bell]) -> None:
    one = cluster(Engine)
    client = Client(one.http_urls[0])
    held, go = start_hold(one, bell)
    conn = queue_log(one, client, "http")
    native = one.execute_rank_zero("log", "native")
    wait_queued(one, 2)
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
    queue_log(one, client, "gone").close()
    wait_queued(one, 0)
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
    Client(url).fails("/nothing", {}, 404, "nothing")


def test_open(cluster: Make) -> None:
    with pytest.warns(UserWarning, match="http_open"):
        one = cluster(Engine, http_open=True)
    client = Client(one.http_urls[0], None)
    assert client.call("add", 2) == 2
    with pytest.raises(ValueError, match="http_open"):
        muster.WorkerConfig(http_open="yes")  # type: ignore[arg-type]


def test_many_at_once_at_an_open_worker(cluster: Make) -> None:
    """AReaL's clients connect for each call: none is cut for the next, said or unsaid."""
    with pytest.warns(UserWarning, match="http_open"):
        one = cluster(Engine, http_open=True)
    at = Client(one.http_urls[0], None).at
    assert at.hostname and at.port
    body = json.dumps({"method": "add", "engine_name": "default", "args": [1]}).encode()
    head = b"POST /call HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
    made = [socket.create_connection((at.hostname, at.port), 20) for _ in range(300)]
    for s in made:
        s.sendall(head + body)
    results = []
    for s in made:
        with s, s.makefile("rb") as answer:
            assert answer.readline() == b"HTTP/1.1 200 OK\r\n"
            results.append(
                json.loads(answer.read().rpartition(b"\r\n\r\n")[2])["result"]
            )
    assert sorted(results) == list(range(1, 301))


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
