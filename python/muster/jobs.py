"""Jobs that a head hosts: what `muster submit`, `wait`, `events`, ... do, from Python.

Each function runs the program's command of the same name with --json, so the head is the one
that the command finds: MUSTER_ADDRESS, or this user's daemon; `submit` starts one where there
is none. No session is needed.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

from muster._session.programs import find_executable
from muster.errors import MusterError

__all__ = ["Job", "get", "jobs", "submit"]


def _command(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [find_executable(), *args, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )


def _ask(*args: str) -> Any:
    done = _command(*args)
    try:
        said = json.loads(done.stdout)
    except ValueError:
        raise MusterError(done.stderr.strip() or f"muster {args[0]} failed") from None
    if done.returncode and "error" in said:
        raise MusterError(said["error"]["message"])
    return said


class Job:
    """One job, by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Job({self.name!r})"

    def status(self) -> dict[str, Any]:
        """What `muster get job/NAME --json` says."""
        found: dict[str, Any] = _ask("get", f"job/{self.name}")
        return found

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, when it is over. TimeoutError: it is not."""
        limit = [] if timeout is None else ["--timeout", str(max(1, round(timeout)))]
        done = _command("wait", self.name, *limit)
        said = json.loads(done.stdout) if done.stdout.strip() else {}
        if said.get("is_over"):
            return int(said["code"])
        if timeout is not None and not self.status()["is_over"]:
            raise TimeoutError(f"job {self.name!r} is not over after {timeout} s")
        raise MusterError(
            done.stderr.strip() or f"job {self.name!r} cannot be waited for"
        )

    def events(self) -> Iterator[dict[str, Any]]:
        """What happened so far, and why."""
        done = _command("events", self.name)
        if done.returncode:
            raise MusterError(done.stderr.strip() or done.stdout.strip())
        for line in done.stdout.splitlines():
            yield json.loads(line)

    def scale(self, role: str, count: int) -> None:
        _ask("scale", self.name, f"{role}={count}")

    def restart(self, role: str | None = None, rank: int | None = None) -> None:
        """A rank, a role, the driver (role "driver"), or all of it."""
        parts = (
            [self.name]
            + ([role] if role else [])
            + ([] if rank is None else [str(rank)])
        )
        _ask("restart", "/".join(parts))

    def suspend(self) -> None:
        _ask("suspend", self.name)

    def resume(self) -> None:
        _ask("resume", self.name)

    def stop(self) -> None:
        _ask("stop", "job", self.name)

    def delete(self) -> None:
        """End it if it runs, and forget it."""
        _ask("delete", self.name)


def submit(file: str | os.PathLike[str], name: str | None = None) -> Job:
    """Have a job hosted; it runs in this folder, with this environment."""
    said = _ask("submit", os.fspath(file), *(["--name", name] if name else []))
    return Job(said["name"])


def get(name: str) -> Job:
    """A job that there is."""
    job = Job(name)
    job.status()
    return job


def jobs() -> list[Job]:
    """All that the head has."""
    return [Job(one["name"]) for one in _ask("list", "jobs")]
