"""A folder with a job, the head that `muster submit` starts, and what runs below it."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_rig import CLI, Home
from helpers import MARK, leftovers, new_mark, processes

PATIENCE_S = 120.0

WORKERS = """
import os


class Echo:
    def __init__(self, n=0):
        self.n = n

    def pid(self):
        return os.getpid()

    def fail(self):
        os._exit(3)
"""


def until(what: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """The first true answer."""
    deadline = time.monotonic() + patience_s
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)
    return found


class Jobs:
    """Commands about jobs, in a folder of their own."""

    def __init__(self, home: Home, folder: Path) -> None:
        self.home = home
        self.folder = folder
        self.mark = new_mark()
        home.env[MARK] = self.mark
        for name in ("MUSTER_ADDRESS", "MUSTER_SECRET_FILE", "MUSTER_JOB"):
            home.env.pop(name, None)
        (folder / "jobs_workers.py").write_text(WORKERS)

    def write(self, text: str, name: str = "job.yaml") -> None:
        (self.folder / name).write_text(text)

    def run(self, *args: str, code: int = 0, timeout_s: float = PATIENCE_S) -> str:
        done = subprocess.run(
            [CLI, *args],
            env=self.home.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        assert done.returncode == code, (
            args,
            done.returncode,
            done.stdout,
            done.stderr,
        )
        if "--json" in args and code == 0:
            return done.stdout  # on stderr may be that it waits for the head
        return done.stdout + done.stderr

    def submit(self, text: str) -> str:
        """Its name; the first one starts the head, and says so on stderr."""
        self.write(text)
        return self.run("submit", "job.yaml").splitlines()[0]

    def get(self, name: str) -> Any:
        return json.loads(self.run("get", f"job/{name}", "--json"))

    def events(self, name: str) -> list[Any]:
        return [
            json.loads(line) for line in self.run("events", name, "--json").splitlines()
        ]

    def texts(self, name: str) -> str:
        return "\n".join(
            f"{e['role']}/{e['rank']}: {e['text']}" for e in self.events(name)
        )

    def wait_stage(self, name: str, stage: str) -> Any:
        return until(lambda: (found := self.get(name))["stage"] == stage and found)

    def wait_running(self, name: str, patience_s: float = PATIENCE_S) -> Any:
        """All ranks of all roles, and the driver."""

        def whole() -> Any:
            job = self.get(name)
            assert not job["is_over"], (job, self.texts(name))
            roles = job["roles"]
            good = job["stage"] == "running" and job["driver_runs"]
            good = good and not job["is_recovering"]
            return (
                job
                if good and all(r["running"] == r["wanted"] for r in roles)
                else None
            )

        return until(whole, patience_s)

    def workers(self) -> dict[str, int]:
        """Name and process of each that lives."""
        found = json.loads(self.run("list", "workers", "--session", "jobs", "--json"))
        return {
            f"{w['cluster']}/{w['rank']}": w["pid"]
            for w in found
            if w["state"] == "running"
        }

    def agents(self, node: str) -> list[int]:
        """The agent of a node, and its supervisor."""
        found = []
        for pid in processes(self.mark):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                if "--node-name" in words and node in words:
                    found.append(pid)
        return found

    def kill_agent(self, node: str) -> None:
        for pid in self.agents(node):
            with contextlib.suppress(ProcessLookupError):  # its supervisor has ended it
                os.kill(pid, signal.SIGKILL)

    def head_pid(self) -> int:
        return int((self.home.path / "jobs" / "driver").read_text().split()[0])

    def kill_head(self) -> None:
        before = self.head_pid()
        os.kill(before, signal.SIGKILL)

        def is_another() -> bool:
            with contextlib.suppress(OSError):  # between the two there is none
                return self.head_pid() != before
            return False

        until(is_another)

    def end(self) -> None:
        if (self.home.path / "jobs").exists():
            subprocess.run(
                [CLI, "stop", "session", "--session", "jobs", "--yes"],
                env=self.home.env,
                capture_output=True,
                timeout=PATIENCE_S,
            )
        try:
            until(lambda: not leftovers(self.mark))
        finally:
            for pid in processes(self.mark):  # a failed test leaves the next one alone
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def jobs(home: Home, tmp_path: Path) -> Iterator[Jobs]:
    made = Jobs(home, tmp_path)
    yield made
    made.end()
