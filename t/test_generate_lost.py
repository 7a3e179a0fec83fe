"""Replicas that are lost, and come back late or otherwise than one hopes."""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from generate_workers import Engine
from muster import DeadlineExceeded, MusterError
from muster.generate import Scheduler
from test_generate import WAIT_S, check, until

Make = Callable[..., Any]


def kill(c: Any, rank: int) -> None:
    pid = c[rank].execute_all_sync("seen")[0]["pid"]
    os.kill(pid, signal.SIGKILL)


def test_the_only_replica_comes_back_late(cluster: Make) -> None:
    c = cluster(Engine, 1)
    with Scheduler(c) as sched:
        kill(c, 0)
        group = sched.submit([1], n=2, max_new_tokens=10)
        until(lambda: sched.stats()["replicas"][0]["state"] == "down")
        with pytest.raises(DeadlineExceeded, match="0 of 1 replicas are up"):
            sched.get_batch(1, timeout=4)  # it was asked for several times
        c.replace(0)
        check(group.result(WAIT_S), 10, 2)


def test_what_waits_ends_with_close(cluster: Make) -> None:
    c = cluster(Engine, 1)
    sched = Scheduler(c)
    kill(c, 0)
    sched.submit([1], max_new_tokens=10)
    until(lambda: sched.stats()["replicas"][0]["state"] == "down")
    sched.close()
    with pytest.raises(MusterError, match="closed"):
        sched.restored(0, timeout=5)


def test_a_drained_replica_and_a_smaller_cluster(cluster: Make) -> None:
    c = cluster(Engine, 3)
    with Scheduler(c) as sched:
        sched.drain([2])
        sched.resize(2)
        assert len(c) == 2
        sched.drain([0])
        with pytest.raises(ValueError, match="not drained"):
            sched.resize(1)  # none that is used would be left
        assert len(c) == 2
        c.replace(1)
        sched.restored(1)  # the first of two: the other one is drained
        check(sched.submit([1], n=2, max_new_tokens=10).result(WAIT_S), 10, 2)
        c.resize(1)  # and the one that is left is drained
        sched.undrain([0])
        check(sched.submit([1], n=2, max_new_tokens=10).result(WAIT_S), 10, 2)
