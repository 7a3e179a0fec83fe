"""Whatever is killed in whatever combination, nothing of a session stays."""

import contextlib
import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import muster
import pytest
from helpers import Driver, agents_of, below, describe, name_of, processes, until

KINDS = ("agent", "supervisor", "worker", "driver")
COMBINATIONS = [
    kinds
    for count in range(1, len(KINDS) + 1)
    for kinds in itertools.combinations(KINDS, count)
]

SCRIPT = """
import os, subprocess, sys, time
import muster

class Starts:
    def start(self, name):
        subprocess.Popen(["setsid", "bash", "-c", f"exec -a {name}-plain sleep 1001"])
        subprocess.Popen(
            ["bash", "-c", f"setsid bash -c 'exec -a {name}-left sleep 1001' &"]
        ).wait()
        subprocess.Popen(
            ["env", "-i", "/bin/bash", "-c",
             f"setsid bash -c 'exec -a {name}-bare sleep 1001' &"]
        ).wait()
        if os.fork() == 0:  # a daemon that executes nothing
            os.setsid()
            if os.fork() == 0:
                open("/proc/self/comm", "w").write("forked-left")
                time.sleep(1001)
            os._exit(0)
        os.wait()
        return os.getpid()

muster.init()
c = muster.Cluster("c", Starts, world_size=2)
print(*c.execute_all_sync("start", sys.argv[0].rpartition("/")[2]), flush=True)
sys.stdin.read()
"""


def command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def daemons(name: str) -> list[int]:
    """By their command: one of them has no environment."""
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdecimal()]
    return [pid for pid in pids if command(pid).startswith(name)]


def may_make_groups() -> bool:
    """Without a control group one that clears its environment is not found, when all
    who could have inherited it were killed at once."""
    return os.access("/sys/fs/cgroup/unified/cgroup.procs", os.W_OK) or os.access(
        "/sys/fs/cgroup/cgroup.procs", os.W_OK
    )


class Session:
    """A driver's session with daemons of its workers, by kind of process."""

    def __init__(self, tmp_path: Path) -> None:
        self.driver = Driver(SCRIPT, tmp_path)
        workers = [int(pid) for pid in self.driver.line().split()]
        self.name = Path(self.driver.process.args[1]).name  # type: ignore[index]
        known = below(self.driver.process.pid)
        self.pids = {
            "driver": [self.driver.process.pid],
            "supervisor": [pid for pid in known if name_of(pid) == "muster-superv"],
            "agent": agents_of(known),
            "worker": workers,
        }
        assert [len(self.pids[kind]) for kind in KINDS] == [1, 1, 2, 1], self.pids
        until(lambda: len(daemons(self.name)) == 6, lambda: daemons(self.name))
        self.bare = [pid for pid in daemons(self.name) if "-bare" in command(pid)]

    def kill(self, kinds: tuple[str, ...]) -> None:
        """All at once: none of them sees another one's death."""
        assert KINDS[0] == "agent"  # the supervisor's death would wake it
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in (pid for kind in kinds for pid in self.pids[kind]):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def left(self) -> list[int]:
        """Its processes; not the driver, if that was not killed."""
        found = set(processes(self.driver.mark)) | set(daemons(self.name))
        found -= {self.driver.process.pid}
        return sorted(found if may_make_groups() else found - set(self.bare))

    def is_gone(self) -> bool:
        return not self.left()

    def say(self) -> list[str]:
        return [describe(pid) for pid in self.left()]


@pytest.fixture
def session_of_driver(tmp_path: Path) -> Iterator[Session]:
    s = Session(tmp_path)
    yield s
    s.kill(("driver", "worker"))
    s.driver.process.communicate()
    for pid in {*s.left(), *s.bare}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("kinds", COMBINATIONS[:-1], ids="+".join)
def test_somebody_is_left_to_clean_up(
    session_of_driver: Session, kinds: tuple[str, ...]
) -> None:
    s = session_of_driver
    s.kill(kinds)
    if kinds == ("worker",):
        s.driver.process.kill()  # else its session goes on
    until(s.is_gone, s.say)


def test_the_next_session_cleans_up(session_of_driver: Session, tmp_path: Path) -> None:
    s = session_of_driver
    other = Session(tmp_path)  # that lives, and is not touched
    before = other.left()
    s.kill(KINDS)
    assert s.left()
    muster.init()
    try:
        until(s.is_gone, s.say)
        assert other.left() == before
    finally:
        muster.shutdown()
        other.driver.process.kill()
        other.driver.process.communicate()
    until(other.is_gone, other.say)
