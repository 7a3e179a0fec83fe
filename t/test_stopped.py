"""Processes that are stopped (SIGSTOP) hold up nobody without end."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import muster
import pytest
from daemon_rig import Daemon, daemon  # noqa: F401  (fixture)
from helpers import (
    MARK,
    Driver,
    agents_of,
    below,
    name_of,
    processes,
    until,
    wait_gone,
)
from workers import Echo

SOON_S = 15.0

SCRIPT = """
import sys
import muster
from workers import Echo
muster.init()
c = muster.Cluster("c", Echo, world_size=2)
print(*c.execute_all_sync("pid"), flush=True)
sys.stdin.read()
"""


def _is_stopped(pid: int) -> bool:
    """All of its threads are: each runs on until it is told."""
    stats = [stat.read_text() for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] in "TZ" for stat in stats)


@contextmanager
def stopped(*pids: int) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    until(lambda: all(map(_is_stopped, pids)))
    try:
        yield
    finally:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass  # it was killed because it was stopped


def supervisors_of(pids: list[int]) -> list[int]:
    return [pid for pid in pids if name_of(pid) == "muster-superv"]


@pytest.mark.parametrize("who", ["agent", "supervisor", "both", "worker", "all"])
def test_a_killed_driver_leaves_nothing_while_stopped_is(
    tmp_path: Path, who: str
) -> None:
    driver = Driver(SCRIPT, tmp_path)
    workers = [int(pid) for pid in driver.line().split()]
    known = below(driver.process.pid)
    agents, supervisors = agents_of(known), supervisors_of(known)
    pids = {
        "agent": agents,
        "supervisor": supervisors,
        "both": agents + supervisors,
        "worker": workers,
        "all": agents + workers,
    }[who]
    with stopped(*pids):
        driver.signal(signal.SIGKILL)
        driver.process.wait()
        if who == "both":  # nobody runs who could notice: until one of them goes on
            os.kill(supervisors[0], signal.SIGCONT)
        assert driver.left(SOON_S) == []


@pytest.mark.parametrize("who", ["agent", "supervisor", "worker"])
def test_shutdown_ends_while_stopped_is(own_session: Any, who: str) -> None:
    c = muster.Cluster("c", Echo, world_size=1)
    known = below(os.getpid())
    pids = {
        "agent": agents_of(known),
        "supervisor": supervisors_of(known),
        "worker": c.pids,
    }[who]
    mark = os.environ[MARK]
    before = processes(mark)
    with stopped(*pids):
        start = time.monotonic()
        muster.shutdown()
        assert time.monotonic() - start < SOON_S
        assert wait_gone(before, SOON_S) == []


def test_a_call_to_a_stopped_worker_has_its_deadline(own_session: Any) -> None:
    c = muster.Cluster("c", Echo, world_size=1)
    with stopped(*c.pids):
        start = time.monotonic()
        with pytest.raises(muster.DeadlineExceeded):
            c.options(timeout=1.0).execute_rank_zero_sync("rank")
        assert time.monotonic() - start < SOON_S


def test_a_cluster_at_a_stopped_agent_has_its_deadline(own_session: Any) -> None:
    with stopped(*agents_of(below(os.getpid()))):
        start = time.monotonic()
        with pytest.raises((muster.MusterError, TimeoutError)):
            muster.Cluster("c", Echo, world_size=1, start_timeout=2.0)
        assert time.monotonic() - start < SOON_S


def test_a_stopped_head_daemon(daemon: Daemon, tmp_path: Path) -> None:  # noqa: F811
    daemon.agent("n1")
    with stopped(daemon.head.pid):
        start = time.monotonic()
        with pytest.raises(muster.MusterError):
            muster.init(
                address=daemon.address, secret_file=daemon.secret_file, timeout=2.0
            )
        assert time.monotonic() - start < SOON_S
    until(lambda: "n1" in daemon.run("status", "--session", "head").stdout)
