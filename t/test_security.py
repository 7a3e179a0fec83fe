"""Everything that listens, against those who should not get in.

Each listener is a real one: of a worker and of a head, unix sockets and TCP. After each
attack it must serve those who may, hold no more descriptors than before, and have said
nothing.
"""

import contextlib
import os
import random
import select
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import muster
import plain_client
import pytest
from cli_rig import CLI, Daemon, Home
from helpers import DEADLINE_S, MARK, processes
from protocol_workers import Echo
from security_rig import (
    Listener,
    call,
    find_daemon,
    find_listeners,
    hello,
    rest,
    send,
    who_refuses_a_stranger,
)

HANDSHAKE_S = 10.0  # MS_HANDSHAKE_NS
HELLO, ANSWER, PROOF = 56, 80, 32
CHUNK_MAX, MESSAGE_MAX, CONTROL_MAX = 64 << 10, 8 << 30, 16 << 20


@pytest.fixture(scope="module")
def talker(session: Any) -> Iterator[Any]:
    one = muster.Cluster("talker", Echo, world_size=1)
    assert one.execute_all_sync("upper", b"x") == [b"X"]
    yield one
    one.destroy(grace=0.2)


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    path = Path(tempfile.mkdtemp(prefix="msec-", dir="/tmp"))
    one = Daemon(Home(path))
    yield one
    one.close()
    shutil.rmtree(path)


@pytest.fixture(
    params=["head-unix", "worker-unix", "worker-tcp", "daemon-unix", "daemon-tcp"]
)
def listener(
    session: Any, talker: Any, daemon: Daemon, request: Any
) -> Iterator[Listener]:
    """Serves before and after, with as many descriptors."""
    found = find_listeners(session, talker) | find_daemon(daemon)
    one = found[request.param]
    one.serves()
    before = one.descriptors()
    yield one
    one.serves()
    assert one.wait_descriptors(before)


# ---- who does not know the secret -----------------------------------------------------------


def test_without_a_proof(listener: Listener) -> None:
    for proof in (bytes(PROOF), os.urandom(PROOF)):
        with listener.connect() as s:
            send(s, hello() + proof + call())
            assert len(rest(s)) == ANSWER  # its hello, and not a byte more


def test_wrong_secret(listener: Listener) -> None:
    with listener.connect() as s, pytest.raises(PermissionError):
        plain_client.Client(s, os.urandom(32))
    wrong = bytes([listener.secret[0] ^ 1]) + listener.secret[1:]
    with listener.connect() as s:
        asked = hello()
        s.sendall(asked)
        answer = s.recv(ANSWER, socket.MSG_WAITALL)
        nonce = asked[8:40]
        send(s, plain_client.prove(wrong, b"client" + answer + nonce) + call())
        assert rest(s) == b""


def test_what_is_no_hello(listener: Listener) -> None:
    for text in (
        b"MSTX" + hello()[4:],
        bytes(HELLO),
        b"\xff" * 4096,
        b"SSH-2.0-x\r\n" * 9,
        b"\x16\x03\x01\x00\x04\x01\0\0\0" + bytes(96),  # as TLS begins
    ):
        with listener.connect() as s:
            send(s, text)
            assert listener.secret not in rest(s)
    with listener.connect() as s:
        send(s, hello(major=9) + bytes(PROOF) + call())
        refusal = rest(s)
        assert refusal[:4] == b"MSTR" and refusal[5] == 1
        assert refusal[48:] == bytes(PROOF)  # nothing is proven to who speaks otherwise


class Recorder:
    """A socket that remembers what was sent."""

    def __init__(self, s: socket.socket) -> None:
        self.socket, self.sent = s, b""

    def sendall(self, data: bytes) -> None:
        self.sent += data
        self.socket.sendall(data)

    def recv(self, size: int) -> bytes:
        return self.socket.recv(size)


def test_replayed_handshake(listener: Listener) -> None:
    with listener.connect() as s:
        recorder: Any = Recorder(s)
        assert plain_client.Client(recorder, listener.secret).health()[1] == [b"ok"]
    for _ in range(3):
        with listener.connect() as s:
            send(s, recorder.sent)
            assert len(rest(s)) == ANSWER


def test_reflected_proofs(listener: Listener) -> None:
    """What the server itself proves is of no use to prove something to it."""
    with listener.connect() as one, listener.connect() as two:
        asked = hello()
        one.sendall(asked)
        answer = one.recv(ANSWER, socket.MSG_WAITALL)
        two.sendall(answer[:8] + answer[8:40] + asked[40:])  # its nonce as ours
        other = two.recv(ANSWER, socket.MSG_WAITALL)
        send(one, other[48:] + call())
        send(two, answer[48:] + call())
        assert rest(one) == b"" and rest(two) == b""


# ---- who takes time ----------------------------------------------------------------------------


def test_slow_connections(listener: Listener) -> None:
    """Hundreds that never end their handshake disturb nobody, and are cut in time, also
    those that send a byte now and then."""
    poll = select.poll()
    slow: dict[int, socket.socket] = {}
    text = hello()
    began = time.monotonic()
    for i in range(200):
        s = listener.connect()
        s.setblocking(False)
        s.sendall(text[: i % HELLO])
        slow[s.fileno()] = s
        poll.register(s, select.POLLIN | select.POLLHUP)
    dripping = list(slow.values())[:20]
    listener.serves()
    while slow and time.monotonic() - began < HANDSHAKE_S * 2:
        for s in dripping:  # never enough for a hello
            if s.fileno() >= 0 and time.monotonic() - began < HANDSHAKE_S - 1:
                send(s, b"M" if s.fileno() % 2 else b"")
        for fd, _ in poll.poll(500):
            poll.unregister(fd)
            slow.pop(fd).close()
    took = time.monotonic() - began
    left = len(slow)
    for s in slow.values():
        s.close()
    assert left == 0
    assert took < HANDSHAKE_S + 5


# ---- who knows the secret and misbehaves ------------------------------------------------------


def test_random_bytes(listener: Listener) -> None:
    """Noise instead of frames. (A million frames are in src/wire/random_test.c.)"""
    dice = random.Random(20261115)
    for i in range(300):
        with listener.connect() as s:
            if i % 3:
                with contextlib.suppress(ConnectionError, PermissionError):
                    plain_client.Client(s, listener.secret)
            send(s, dice.randbytes(dice.randrange(1, 4096)))
            with contextlib.suppress(OSError):  # TCP: it was reset already
                s.shutdown(socket.SHUT_WR)
            rest(s)
    listener.serves()


@pytest.mark.parametrize(
    "kind, length, total",
    [
        (plain_client.CALL, CHUNK_MAX + 1, CHUNK_MAX + 1),
        (plain_client.CALL, 0xFFFFFFFF, 0xFFFFFFFF),
        (plain_client.CALL, 1, MESSAGE_MAX + 1),
        (plain_client.CALL, 1, (1 << 64) - 1),
        (plain_client.METHOD, 513, 513),
        (plain_client.CANCEL, 1, CONTROL_MAX),
        (9, 1, 1),  # CONTROL: not on this lane
        (13, 0, 0),
    ],
)
def test_lengths_beyond_the_limits(
    listener: Listener, kind: int, length: int, total: int
) -> None:
    with listener.connect() as s:
        plain_client.Client(s, listener.secret)
        head = (0xA7, 1, kind, 0, 16, 0, length, 0, 1, total, 0, 0)
        send(s, plain_client.HEAD.pack(*head) + bytes(min(length, 1024)))
        assert rest(s) == b""  # closed, not answered


def test_promised_memory_is_not_taken(listener: Listener) -> None:
    """A call that promises 8 GiB and sends a byte takes no memory for the rest."""
    before = listener.resident()
    with listener.connect() as s:
        plain_client.Client(s, listener.secret)
        head = (0xA7, 1, plain_client.CALL, 0, 1, 0, 1, 0, 1, MESSAGE_MAX, 0, 0)
        send(s, plain_client.HEAD.pack(*head) + b"x")
        listener.serves()
        assert listener.resident() - before < 32 << 20


# ---- names ------------------------------------------------------------------------------------

BAD_NAMES = [
    "../x", "..", ".", "", "a/b", "/etc/passwd", "a\0b", "a\nb", "x" * 65, "-x", "a b",
    "\x1b[31m", "é", "%s%n", "a\\b",
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_of_clusters(session: Any, talker: Any, name: str) -> None:
    before = sorted(Path(session.head.session_dir).rglob("*"))
    with pytest.raises((ValueError, TypeError, muster.MusterError)):
        muster.Cluster(name, Echo, world_size=1)
    assert sorted(Path(session.head.session_dir).rglob("*")) == before


@pytest.mark.parametrize("name", [n for n in BAD_NAMES if "\0" not in n])
def test_names_on_the_command_line(session: Any, talker: Any, name: str) -> None:
    for args in (
        ["logs", "--", name],
        ["logs", f"--session={name}"],
        ["status", f"--session={name}"],
        ["stack", "--", name],
        ["stack", "--", f"{name}/0"],
        ["get", "--", f"cluster/{name}"],
        ["get", "--", f"worker/{name}/0"],
        ["stop", "--", "cluster", name],
    ):
        done = subprocess.run([CLI, *args], capture_output=True, timeout=DEADLINE_S)
        assert done.returncode in (2, 3, 5), (args, done)
        assert done.stdout == b"" and b"root:" not in done.stderr
        assert b"\x1b" not in done.stderr and done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_to_a_head(session: Any, talker: Any, name: str) -> None:
    """The operation that ends clusters, asked by somebody who knows the secret."""
    head = find_listeners(session, talker)["head-unix"]
    text = name.encode()
    with head.connect() as s:
        client = plain_client.Client(s, head.secret)
        body = b"\x0a" + bytes([len(text)]) + text if text else b"\x0a\x01/"
        with pytest.raises(plain_client.Failed):
            client.wait(client.start(65, body))
    assert talker.execute_all_sync("upper", b"a") == [b"A"]


# ---- other users ------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize("where", ["head-unix", "worker-unix"])
def test_foreign_users(session: Any, talker: Any, where: str) -> None:
    path = find_listeners(session, talker)[where].path

    assert who_refuses_a_stranger(path) == ("the folder", "the peer")


# ---- where the secret is not -----------------------------------------------------------------


def test_nothing_is_open_to_others(session: Any, talker: Any) -> None:
    top = Path(session.head.session_dir)
    found = [top, *top.rglob("*")]
    assert any(f.is_socket() for f in found) and (top / "secret") in found
    for f in found:
        mode = stat.S_IMODE(f.lstat().st_mode)
        assert f.is_symlink() or mode & 0o077 == 0, (f, oct(mode))


def test_the_secret_is_in_one_file(session: Any, talker: Any) -> None:
    top = Path(session.head.session_dir)
    text = (top / "secret").read_text().strip()
    forms = [text.encode(), text.upper().encode(), bytes.fromhex(text)]
    talker.execute_all_sync("upper", b"said")
    for args in (
        ["status", "--json"],
        ["stack", "--all", "--json"],
        ["list", "sessions"],
    ):
        done = subprocess.run([CLI, *args], capture_output=True, timeout=DEADLINE_S)
        assert done.returncode == 0
        assert not any(form in done.stdout + done.stderr for form in forms), args
    for f in top.rglob("*"):
        if f.is_file() and f.name != "secret":
            content = f.read_bytes()
            assert not any(form in content for form in forms), f
    ours = [*processes(os.environ[MARK]), os.getpid()]
    assert len(ours) >= 3  # driver, agent, worker
    for pid in ours:
        for name in ("cmdline", "environ"):
            content = Path(f"/proc/{pid}/{name}").read_bytes()
            assert not any(form in content for form in forms), (pid, name)


def test_errors_do_not_tell_the_secret(
    session: Any, talker: Any, tmp_path: Path
) -> None:
    top = Path(session.head.session_dir)
    right = (top / "secret").read_text().strip()
    almost = tmp_path / "secret"
    for content in (right[:-1], right + "0", right[:-1] + "x", "0" * 64):
        almost.write_text(content)
        almost.chmod(0o600)
        command = [CLI, "status", "--head", str(top / "head.sock"), "--secret-file"]
        done = subprocess.run([*command, str(almost)], capture_output=True, text=True)
        assert done.returncode in (1, 4)
        assert right[:16] not in done.stdout + done.stderr
