"""Jobs that a head hosts: what `muster submit`, `wait`, `events`, ... do, from Python.

The head is the one that the commands find: MUSTER_ADDRESS, that of a job on Ray, or this
user's daemon. It is asked directly, and no session is needed. `submit` runs the command
`muster submit`, which starts a head if there is none.
"""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from muster import _core
from muster._session.programs import find_executable
from muster.errors import MusterError

__all__ = ["Job", "check", "get", "jobs", "submit"]

_WAIT_S = 1.0  # of one question: Ctrl-C is seen after it


def _ask(verb: str, **fields: Any) -> Any:
    return json.loads(_core.ask_jobs(verb, fields, _core.HEAD_ANSWER_S))


class Job:
    """One job, by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Job({self.name!r})"

    def status(self) -> dict[str, Any]:
        """What `muster get job/NAME --json` says."""
        found: dict[str, Any] = _ask("get_job", name=self.name)
        return found

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, when it is over. TimeoutError: it is not."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _WAIT_S if until is None else min(_WAIT_S, until - time.monotonic())
            wait_ns = max(1, _core.ns(left))
            job = _ask("wait_job", name=self.name, wait_ns=wait_ns)
            if job["is_over"]:
                return int(job["code"])
            if left <= 0:
                raise TimeoutError(
                    f"job {self.name!r} is {job['stage']} after {timeout} s"
                )

    def events(self, follow: bool = False) -> Iterator[dict[str, Any]]:
        """What happened so far, and why; with `follow` also what happens until its end."""
        after, is_over = 0, False
        wait_ns = _core.ns(_WAIT_S) if follow else 0
        while not is_over:
            found = _ask("job_events", name=self.name, after=after, wait_ns=wait_ns)
            yield from found["events"]
            is_over = found["is_over"] or not (follow or found["events"])
            if found["events"]:
                after = found["events"][-1]["number"]

    def logs(
        self,
        follow: bool = False,
        *,
        lines: int | None = None,
        since: str | None = None,
        grep: str | None = None,
    ) -> Iterator[dict[str, Any]]:
        """What its roles and driver have printed, a line each ("cluster", "rank", "line" and
        more); with `follow` also what they print until its end. The last `lines` of each;
        `since` as "10m"; `grep`: those with a match of this expression."""
        command = [find_executable(), "logs", "--job", self.name, "--json"]
        command += ["--follow"] if follow else []
        for option, value in (("lines", lines), ("since", since), ("grep", grep)):
            command += [] if value is None else [f"--{option}={value}"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as program:
            assert program.stdout is not None and program.stderr is not None
            try:
                for text in program.stdout:
                    if text == "{\n":  # not a line of a log, but an error over several
                        said = json.loads(text + program.stdout.read())
                        raise MusterError(said["error"]["message"])
                    yield json.loads(text)
                if program.wait():
                    raise MusterError(program.stderr.read().strip())
            finally:
                program.kill()

    def scale(self, role: str, count: int) -> None:
        _ask("scale_job", name=self.name, role=role, count=count)

    def restart(self, role: str | None = None, rank: int | None = None) -> None:
        """A rank, a role, the driver (role "driver"), or all of it."""
        fields = {} if rank is None else {"one_rank": True, "rank": rank}
        _ask("restart_job", name=self.name, role=role or "", **fields)

    def suspend(self, reason: str = "") -> None:
        """The reason stands in the events."""
        _ask("suspend_job", name=self.name, reason=reason)

    def resume(self) -> None:
        _ask("resume_job", name=self.name)

    def stop(self, reason: str = "") -> None:
        _ask("stop_job", name=self.name, reason=reason)

    def delete(self) -> None:
        """End it if it runs, and forget it."""
        _ask("delete_job", name=self.name)


def submit(
    file: str | os.PathLike[str],
    name: str | None = None,
    *,
    on: str | None = None,
    address: str | None = None,
) -> Job:
    """Have a job hosted; it runs in this folder, with this environment. `on="ray"` with the
    address of Ray's dashboard: on that cluster, where its head lives too."""
    return Job(_run("submit", file, name=name, on=on, address=address)["name"])


def check(
    file: str | os.PathLike[str], name: str | None = None, *, on: str | None = None
) -> dict[str, Any]:
    """What `muster check --json` says of a file that is right, and whose roles fit on its
    nodes; else MusterError with what is wrong, and where. No head is asked."""
    return _run("check", file, name=name, on=on)


def _run(
    verb: str, file: str | os.PathLike[str], **options: str | None
) -> dict[str, Any]:
    command = [find_executable(), verb, os.fspath(file), "--json"]
    for option, value in options.items():
        command += [f"--{option}", value] if value else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        said: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise MusterError(done.stderr.strip() or f"muster {verb} failed") from None
    if done.returncode:
        raise MusterError(said["error"]["message"])
    return said


def get(name: str) -> Job:
    """A job that there is."""
    job = Job(name)
    job.status()
    return job


def jobs() -> list[Job]:
    """All that the head has, and those whose head is elsewhere."""
    elsewhere = [] if os.environ.get("MUSTER_ADDRESS") else _core.jobs_elsewhere()
    try:
        here = [one["name"] for one in _ask("list_jobs")["jobs"]]
    except MusterError:
        if not elsewhere:
            raise
        here = []
    return [Job(name) for name in here + elsewhere]
