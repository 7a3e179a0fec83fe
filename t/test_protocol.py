"""A client of plain Python, written from doc/protocol.md, against real workers."""

import json
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import plain_client
import pytest
from cli_rig import CLI
from helpers import DEADLINE_S, Bell
from protocol_workers import Echo

CANCELLED, NO_METHOD = 5, 3  # kinds of failures


class Target:
    """A worker, and where it listens."""

    def __init__(self, session: Any, cluster: Any) -> None:
        folder = Path(session.head.session_dir)
        self.secret = bytes.fromhex((folder / "secret").read_text())
        command = [CLI, "get", f"worker/{cluster.name}/0", "--json"]
        told = subprocess.run(command, capture_output=True, check=True).stdout
        worker = json.loads(told)
        self.uid = int(worker["uid"], 16)
        self.addresses = worker["address"].split(",")

    def connect(self, how: str) -> socket.socket:
        if how == "unix":
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(DEADLINE_S)
            s.connect(self.addresses[0].split(":")[-1])
            return s
        host, _, port = self.addresses[-1].rpartition(":")
        return socket.create_connection((host, int(port)), DEADLINE_S)

    def client(self, how: str, **options: Any) -> plain_client.Client:
        return plain_client.Client(self.connect(how), self.secret, **options)


@pytest.fixture
def target(session: Any, cluster: Callable[..., Any]) -> Target:
    made = cluster(Echo)
    assert made.execute_all_sync("upper", b"x") == [b"X"]
    return Target(session, made)


@pytest.fixture(params=["unix", "tcp"])
def client(target: Target, request: Any) -> Iterator[plain_client.Client]:
    one = target.client(request.param)
    yield one
    one.socket.close()


def test_health(target: Target, client: plain_client.Client) -> None:
    assert client.identity == target.uid
    health = client.health()
    assert health[1] == [b"ok"] and health[2] == [target.uid]
    assert health[6] == [b"default"]


def test_calls(client: plain_client.Client) -> None:
    assert client.wait(client.start_method("default", "upper", b"hello")) == b"HELLO"
    big = bytes(range(256)) * 4096
    assert client.wait(client.start_method("default", "upper", big)) == big.upper()
    assert client.wait(client.start_method("default", "upper", b"")) == b""
    assert client.ping()


def test_failures(client: plain_client.Client) -> None:
    with pytest.raises(plain_client.Failed) as raised:
        client.wait(client.start_method("default", "fail", b"really"))
    assert raised.value.args[1:] == (b"builtins.ValueError", b"no: really")
    with pytest.raises(plain_client.Failed) as raised:
        client.wait(client.start_method("default", "nothing", b""))
    assert raised.value.args[0] == NO_METHOD
    assert client.ping()


def test_cancel(
    target: Target, client: plain_client.Client, bell: Callable[[], Bell]
) -> None:
    began = bell()
    other = target.client("unix")
    other.start_method("default", "hang", began.path.encode())
    began.hear()
    waiting = client.start_method("default", "upper", b"never")
    client.send(plain_client.CANCEL, waiting, 0)
    with pytest.raises(plain_client.Failed) as raised:
        client.wait(waiting)
    assert raised.value.args[0] == CANCELLED
    assert client.health()[9] == [b"default.hang"]  # told while the engine hangs
    other.socket.close()


def test_a_method_runs_once_for_a_call(client: plain_client.Client) -> None:
    """Sent again on the same connection, a call id is a mistake: the server closes."""
    first = client.start_method("default", "upper", b"a")
    assert client.wait(first) == b"A"
    client.send(plain_client.CALL, first, plain_client.FIRST_METHOD, b"a")
    with pytest.raises(ConnectionError):
        client.receive()


@pytest.mark.parametrize("how", ["unix", "tcp"])
def test_newer_minor_is_understood(target: Target, how: str) -> None:
    client = target.client(how, version=b"\1\xfe")
    assert client.wait(client.start_method("default", "upper", b"a")) == b"A"
    client.socket.close()


@pytest.mark.parametrize("how", ["unix", "tcp"])
@pytest.mark.parametrize("major", [0, 2, 255])
def test_other_major_is_refused(target: Target, how: str, major: int) -> None:
    with pytest.raises(PermissionError, match="it speaks 1"):
        target.client(how, version=bytes([major, 0]))


@pytest.mark.parametrize("how", ["unix", "tcp"])
def test_wrong_secret_is_refused(target: Target, how: str) -> None:
    with pytest.raises(PermissionError, match="does not know the secret"):
        plain_client.Client(target.connect(how), bytes(32))
