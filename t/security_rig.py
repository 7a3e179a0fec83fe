"""Listeners of a running session: how to reach them, and what they hold."""

import json
import os
import socket
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
