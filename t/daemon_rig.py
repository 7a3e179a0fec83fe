"""A daemon head and its agents, as processes that leave nothing behind."""

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import (
    DEADLINE_S,
    MARK,
    agents_of,
    below,
    leftovers,
    new_mark,
    wait_gone,
)

CLI = (
    os.environ.get("MUSTER_CLI")
    or os.environ.get("MUSTER_BIN")  # of tools/package-run
    or str(Path(sys.executable).parent / "muster")
)


class Process:
    """One that says on a line that it is ready."""

    def __init__(self, args: list[str], env: dict[str, str]) -> None:
        self.said = ""  # all that it has printed
        self.orphans: list[int] = []
        self.process = subprocess.Popen(
            [CLI, *args],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_line(self, part: str) -> str:
        """The next line with this in it."""
        assert self.process.stdout is not None
        out = self.process.stdout.fileno()
        seen = 0
        while True:
            for line in self.said[seen:].splitlines(keepends=True):
                if not line.endswith("\n"):
                    break
                seen += len(line)
                if part in line:
                    return line.rstrip("\n")
            ready, _, _ = select.select([out], [], [], DEADLINE_S)
            assert ready, f"no line with {part!r}; {self.said}"
            more = os.read(out, 65536)
            assert more, f"ended before it said {part!r}; {self.said}"
            self.said += more.decode()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        code = self.process.wait(DEADLINE_S)
        if self.process.stdout is not None and not self.process.stdout.closed:
            with self.process.stdout:
                self.said += self.process.stdout.read().decode()
        return code

    def kill(self) -> None:
        """With SIGKILL; of an agent not its supervisor."""
        self.orphans = below(self.pid)
        os.kill(next(iter(agents_of(self.orphans)), self.pid), signal.SIGKILL)
        self.end()


class Daemon:
    """`muster head` on a free port of loopback."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = new_mark()
        self.env = os.environ | {"MUSTER_HOME": str(folder), MARK: self.mark}
        for name in ("MUSTER_ADDRESS", "MUSTER_SECRET_FILE"):
            self.env.pop(name, None)
        self.agents: dict[str, Process] = {}
        self.begun: list[Process] = []  # agents
        self.address = "127.0.0.1:0"
        self.more: list[str] = []  # options of the head, from its next start on
        self.start()

    def start(self) -> None:
        """Also once more, at the same address."""
        args = ["head", "--listen", self.address, "--link-grace", "4", *self.more]
        self.head = Process(args, self.env)
        self.address = self.head.wait_line("listening on").rpartition(" ")[2]
        self.secret_file = str(self.folder / "head" / "secret")

    def agent(self, node: str, gpus: int = 2, tls: str = "auto") -> Process:
        """One more, which has joined when this returns."""
        one = self.begin_agent(node, gpus, tls=tls)
        one.wait_line("has joined")
        self.agents[node] = one
        return one

    def begin_agent(
        self, node: str, gpus: int = 2, secret: str = "", tls: str = "auto"
    ) -> Process:
        args = ["agent", "--head", self.address, "--node-name", node]
        args += ["--secret-file", secret or self.secret_file]
        args += ["--num-gpus", str(gpus), "--bind", "127.0.0.1", "--tls", tls]
        self.begun.append(Process(args, self.env))
        return self.begun[-1]

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [CLI, *args],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )

    def end(self) -> None:
        """In order: head and agents end, and all that they started."""
        if self.head.process.poll() is None:
            self.head.signal(signal.SIGTERM)
        self.head.end()
        for agent in self.agents.values():
            if agent.process.poll() is None:
                assert wait_gone([agent.pid]) == [], agent.said
            agent.end()
        assert wait_gone(pid for agent in self.begun for pid in agent.orphans) == []
        assert leftovers(self.mark) == []


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    # short: the path of a socket has 107 characters
    folder = tempfile.mkdtemp(prefix="muster-d-", dir="/tmp")
    one = Daemon(Path(folder))
    yield one
    one.end()
    shutil.rmtree(folder)
