"""The two doors of a node's store, against those who should not get in: the unix socket of
the processes of its node, and the port of the stores of other nodes."""

import contextlib
import hmac
import os
import random
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import plain_client
import pytest
from daemon_rig import Daemon
from helpers import DEADLINE_S, agents_of, below
from security_rig import call, hello, rest, send, who_refuses_a_stranger

ANSWER, PROOF = 80, 32
HANDSHAKE_S = 10.0  # MS_HANDSHAKE_NS
PACKETS = socket.SOCK_SEQPACKET
ASK_HELLO = bytes([8, 7, 0x12, 5, 8, 99, 0x12, 1, ord("x")])  # StoreAsk: 7, StoreHello


class Store:
    def __init__(self, daemon: Daemon, node: str) -> None:
        self.agent = daemon.agents[node]
        (path,) = daemon.folder.glob(f"*@{node}/store-*.sock")
        self.path = str(path)
        (agent,) = agents_of(below(self.agent.pid))
        (self.port,) = listening(agent)
        secret = daemon.folder / path.parent.name.partition("@")[0] / "secret"
        self.secret = bytes.fromhex(secret.read_text())

    def packets(self) -> socket.socket:
        s = socket.socket(socket.AF_UNIX, PACKETS)
        s.settimeout(DEADLINE_S)
        s.connect(self.path)
        return s

    def stream(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), DEADLINE_S)

    def serves(self) -> None:
        """Both doors let those in who know the secret."""
        with self.packets() as s:
            prove(s, self.secret)
            s.sendall(ASK_HELLO)
            assert plain_client.parse(s.recv(4096)).keys() == {1, 2}  # a welcome
        with (
            self.stream() as s,
            pytest.raises(plain_client.Failed, match="stores alone"),
        ):
            plain_client.Client(s, self.secret).health()
        assert self.agent.process.poll() is None


def listening(pid: int) -> list[int]:
    """The TCP ports on which a process listens."""
    own = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            own.add(os.readlink(fd))
    ports = []
    tables = [Path(f"/proc/{pid}/net/{name}") for name in ("tcp", "tcp6")]
    for table in filter(Path.exists, tables):  # a kernel may have no IPv6
        for line in table.read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                ports.append(int(fields[1].rpartition(":")[2], 16))
    return ports


def prove(s: socket.socket, secret: bytes) -> None:
    asked = hello(lane=2)
    s.sendall(asked)
    answer = s.recv(ANSWER, socket.MSG_WAITALL)
    proof = plain_client.prove(secret, b"server" + asked + answer[:48])
    assert hmac.compare_digest(answer[48:], proof)
    s.sendall(plain_client.prove(secret, b"client" + answer + asked[8:40]))


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    folder = tempfile.mkdtemp(prefix="muster-d-", dir="/tmp")
    daemon = Daemon(Path(folder))
    daemon.agent("n0")
    yield Store(daemon, "n0")
    daemon.end()
    shutil.rmtree(folder)


Connect = Callable[[], socket.socket]


@pytest.fixture(params=["packets", "stream"])
def connect(store: Store, request: pytest.FixtureRequest) -> Iterator[Connect]:
    store.serves()
    yield getattr(store, request.param)
    store.serves()


def test_without_a_proof(connect: Connect) -> None:
    for proof in (bytes(PROOF), os.urandom(PROOF)):
        with connect() as s:
            send(s, hello(lane=2))
            assert len(s.recv(ANSWER, socket.MSG_WAITALL)) == ANSWER
            send(s, proof)
            send(s, call())
            assert rest(s) == b""


def test_a_wrong_secret(connect: Connect) -> None:
    with connect() as s, pytest.raises(AssertionError):
        prove(s, os.urandom(32))  # it does not prove itself to us either


def test_a_replayed_handshake(store: Store, connect: Connect) -> None:
    with connect() as s:
        asked = hello(lane=2)
        s.sendall(asked)
        answer = s.recv(ANSWER, socket.MSG_WAITALL)
        proof = plain_client.prove(store.secret, b"client" + answer + asked[8:40])
        s.sendall(proof)
    with connect() as s:
        send(s, asked)
        assert s.recv(ANSWER, socket.MSG_WAITALL) != answer
        send(s, proof)
        assert rest(s) == b""


def test_random_bytes(store: Store, connect: Connect) -> None:
    """Before the proof and behind it."""
    dice = random.Random(20261116)
    for i in range(100):
        with connect() as s:
            if i % 2:
                prove(s, store.secret)
            for _ in range(3):
                with contextlib.suppress(OSError):
                    send(s, dice.randbytes(dice.randrange(1, 4096)))
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_WR)
            rest(s)


def test_slow_connections(store: Store) -> None:
    """Who never ends its handshake is cut in time, and disturbs nobody meanwhile. (The
    port is a server as all others are: test_security.py.)"""
    began = time.monotonic()
    slow = [store.packets() for _ in range(20)]
    for i, s in enumerate(slow):
        if i % 2:
            s.sendall(hello(lane=2))
    store.serves()
    for s in slow:
        with s:
            assert len(rest(s)) in (0, ANSWER)
    assert time.monotonic() - began < HANDSHAKE_S + 5


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_a_foreign_user(store: Store) -> None:
    assert who_refuses_a_stranger(store.path, PACKETS) == ("the folder", "the peer")
    store.serves()
