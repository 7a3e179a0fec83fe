"""Listeners of a running session: how to reach them, and what they hold."""

import contextlib
import json
import os
import socket
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import plain_client
from cli_rig import CLI, Daemon
from helpers import DEADLINE_S


class Listener:
    def __init__(self, where: str, pid: int, secret: bytes) -> None:
        self.where, self.pid, self.secret = where, pid, secret

    @property
    def path(self) -> str:
        return self.where.split(":")[-1]

    def connect(self) -> socket.socket:
        if "/" in self.where:
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(DEADLINE_S)
            s.connect(self.path)
            return s
        host, _, port = self.where.rpartition(":")
        return socket.create_connection((host.strip("[]"), int(port)), DEADLINE_S)

    def serves(self) -> None:
        """Somebody who knows the secret is answered."""
        with self.connect() as s:
            assert plain_client.Client(s, self.secret).health()[1] == [b"ok"]

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def wait_descriptors(self, most: int) -> bool:
        """Until it has closed what the other side has closed."""
        end = time.monotonic() + DEADLINE_S
        while self.descriptors() > most and time.monotonic() < end:
            self.serves()
        return self.descriptors() <= most

    def resident(self) -> int:
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


def find_listeners(session: Any, cluster: Any) -> dict[str, Listener]:
    folder = Path(session.head.session_dir)
    secret = bytes.fromhex((folder / "secret").read_text())
    command = [CLI, "get", f"worker/{cluster.name}/0", "--json"]
    told = subprocess.run(command, capture_output=True, check=True).stdout
    worker = json.loads(told)
    addresses = worker["address"].split(",")
    assert len(addresses) >= 2
    return {
        "head-unix": Listener(str(folder / "head.sock"), os.getpid(), secret),
        "worker-unix": Listener(addresses[0], worker["pid"], secret),
        "worker-tcp": Listener(addresses[1], worker["pid"], secret),
    }


def find_daemon(daemon: Daemon) -> dict[str, Listener]:
    secret = bytes.fromhex(Path(daemon.secret).read_text())
    pid = daemon.process.pid
    return {
        "daemon-unix": Listener(
            str(Path(daemon.secret).parent / "head.sock"), pid, secret
        ),
        "daemon-tcp": Listener(daemon.address, pid, secret),
    }


# ---- what those say who should not get in ------------------------------


def hello(major: int = 1, lane: int = 0) -> bytes:
    return b"MSTR" + bytes([major, lane, 0, 0]) + os.urandom(32 + 16)


def call(op: int = plain_client.HEALTH) -> bytes:
    head = (0xA7, 1, plain_client.CALL, 3, op, 0, 0, 0, 1, 0, 0, 0)
    return plain_client.HEAD.pack(*head)


def rest(s: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    data = b""
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        while more := s.recv(65536):
            data += more
    return data


def send(s: socket.socket, data: bytes) -> None:
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        s.sendall(data)


STRANGER = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
s = socket.socket(socket.AF_UNIX, int(sys.argv[2]))
s.settimeout(20)
try:
    s.connect(sys.argv[1])
except PermissionError:
    print("the folder")
    sys.exit()
try:
    s.sendall(b"MSTR" + bytes([1, 0, 0, 0]) + bytes(48))
    print("the peer" if s.recv(1) == b"" else "nobody")
except (ConnectionResetError, BrokenPipeError):
    print("the peer")
"""


def who_refuses_a_stranger(
    path: str, kind: int = socket.SOCK_STREAM
) -> tuple[str, str]:
    """Another user: as it is, and where all folders and the socket are open to everybody:
    then the kernel still says who it is."""

    def refused_by() -> str:
        command = ["/usr/bin/env", "python3", "-c", STRANGER, path, str(int(kind))]
        done = subprocess.run(command, capture_output=True, text=True, cwd="/")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    first = refused_by()
    folders = [Path(path), *list(Path(path).parents)[:3]]
    modes = [stat.S_IMODE(f.stat().st_mode) for f in folders]
    try:
        for folder in folders:
            if folder != Path("/tmp"):
                folder.chmod(0o777)
        return first, refused_by()
    finally:
        for folder, mode in zip(folders, modes, strict=True):
            folder.chmod(mode)
