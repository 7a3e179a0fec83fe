"""Engines that stand still for an update or a pause go on when it is over, however it ends."""

from collections.abc import Callable
from typing import Any

import pytest
from generate_workers import (
    HesitatingEngine,
    PausableEngine,
    RefusingEngine,
    SlowPausableEngine,
)
from muster import DeadlineExceeded, MusterError
from muster.generate import Group, Scheduler
from test_generate import WAIT_S, check, until

Make = Callable[..., Any]


def held(sched: Scheduler) -> Group:
    """A group of two that waits after five tokens."""
    sampling = {"length": 10, "hold": 5}
    group = sched.submit([1], n=2, max_new_tokens=99, sampling=sampling)
    until(lambda: sum(one["tokens"] for one in sched.stats()["replicas"]) == 10)
    return group


def states(sched: Scheduler) -> list[str]:
    return [one["state"] for one in sched.stats()["replicas"]]


def stands(c: Any) -> list[bool]:
    return [one["stands"] for one in c.execute_all_sync("seen")]


def test_a_pause_that_is_answered_after_the_update_was_given_up(cluster: Make) -> None:
    c = cluster(SlowPausableEngine, 2)
    with Scheduler(c) as sched:
        group = held(sched)
        late = sched.weights(version=1, mode="keep", timeout=0.5)
        with pytest.raises(DeadlineExceeded, match="version 1"), late:
            pass
        c.execute_all_sync("let_pause")
        c.execute_all_sync("release")
        check(group.result(WAIT_S), 10, 2)


def test_a_replica_that_comes_during_an_update_that_fails_is_used(
    cluster: Make,
) -> None:
    c = cluster(PausableEngine, 2)
    with Scheduler(c) as sched:
        with pytest.raises(RuntimeError, match="lost"), sched.weights(version=1):
            c.replace(1)
            until(lambda: states(sched)[1] == "waits for weights")
            raise RuntimeError("the weights are lost")
        until(lambda: states(sched) == ["up", "up"])
        group = sched.submit([1], n=8, max_new_tokens=10).result(WAIT_S)
        assert {one.replica for one in group.samples} == {0, 1}


def test_a_pause_in_another_mode(cluster: Make) -> None:
    c = cluster(PausableEngine, 2)
    with Scheduler(c) as sched:
        group = held(sched)
        sched.pause("keep")
        assert stands(c) == [True, True]
        sched.pause("abort")
        sched.resume()
        check(group.result(WAIT_S), 10, 2)


def test_an_update_while_it_is_paused(cluster: Make) -> None:
    c = cluster(PausableEngine, 2)
    with Scheduler(c) as sched:
        group = held(sched)
        sched.pause("keep")
        with sched.weights(version=1, mode="keep"):
            c.execute_all_sync("set_weights", 1)
        assert stands(c) == [True, True]
        sched.resume()
        check(group.result(WAIT_S), 10, 2)


def test_a_replica_that_is_drained_while_it_stands_still(cluster: Make) -> None:
    c = cluster(PausableEngine, 2)
    with Scheduler(c) as sched:
        group = held(sched)
        sched.pause("keep")
        sched.drain([1])
        sched.undrain([1])
        sched.resume()
        until(lambda: stands(c) == [False, False])
        c.execute_all_sync("release")
        check(group.result(WAIT_S), 10, 2)


def test_an_engine_that_cannot_pause_says_so(cluster: Make) -> None:
    c = cluster(RefusingEngine, 2)
    with Scheduler(c) as sched:
        group = held(sched)
        kept = sched.weights(version=1, mode="keep")
        with pytest.raises(MusterError, match=r"still: .*cannot stand still"), kept:
            raise AssertionError("its weights would change while it generates")
        with pytest.raises(MusterError, match=r"still: .*cannot stand still"):
            sched.pause("keep")
        sched.resume()
        assert sched.version == 0
        c.execute_all_sync("release")
        check(group.result(WAIT_S), 10, 2)


@pytest.mark.parametrize("times", [2, 4])
def test_an_engine_that_does_not_resume_at_once(cluster: Make, times: int) -> None:
    """It is asked again; after three times its replica is down, until it answers."""
    c = cluster(HesitatingEngine, 1, args=(times,))
    with Scheduler(c) as sched:
        group = held(sched)
        with sched.weights(version=1, mode="keep"):
            c.execute_all_sync("set_weights", 1)
        check(group.result(WAIT_S), 10, 2)
        assert {one.attempt for one in group.samples} == {1 if times < 3 else 2}
