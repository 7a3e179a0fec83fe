"""Processes that zygotes have forked ahead: used, killed, and gone with their zygote."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import muster
import pytest
from helpers import is_spare, until, wait_gone


class Forked:
    def pid(self) -> int:
        return os.getpid()

    def zygote(self) -> int:
        return os.getppid()

    def numbers(self) -> tuple[float, float]:
        import random

        import numpy as np

        return random.random(), float(np.random.random())

    def group(self) -> int:
        return os.getpgrp()

    def variable(self) -> str:
        return os.environ["OF_THE_ROLE"]


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def _spares(zygote: int) -> list[int]:
    return [pid for pid in _children(zygote) if is_spare(pid)]


def _wait_for_spares(zygote: int, count: int) -> None:
    until(lambda: len(_spares(zygote)) == count, lambda: _spares(zygote))


@pytest.fixture
def zygote() -> Iterator[int]:
    """One that has had four workers, and so has four spares."""
    muster.init()
    used = muster.Cluster("used", Forked, world_size=4)
    pid = used.execute_rank_zero_sync("zygote")
    used.destroy()
    _wait_for_spares(pid, 4)
    yield pid
    muster.shutdown()


def test_spares_become_workers(zygote: int) -> None:
    ready = _spares(zygote)
    workers = muster.Cluster("next", Forked, world_size=4)
    assert sorted(workers.execute_all_sync("pid")) == sorted(ready)
    assert workers.execute_all_sync("group") == workers.execute_all_sync("pid")
    drawn = workers.execute_all_sync("numbers")
    assert len({a for a, _ in drawn}) == len({b for _, b in drawn}) == 4


def test_more_workers_than_spares(zygote: int) -> None:
    workers = muster.Cluster("more", Forked, world_size=7)
    assert len(set(workers.execute_all_sync("pid"))) == 7
    assert set(workers.execute_all_sync("zygote")) == {zygote}


def test_there_are_at_most_eight(zygote: int) -> None:
    muster.Cluster("many", Forked, world_size=12).destroy()
    _wait_for_spares(zygote, 8)
    assert len(_children(zygote)) == 8


def test_killed_spares_are_not_missed(zygote: int) -> None:
    for pid in _spares(zygote)[:3]:
        os.kill(pid, signal.SIGKILL)
    workers = muster.Cluster("next", Forked, world_size=4)
    assert len(set(workers.execute_all_sync("pid"))) == 4


def test_spares_that_die_of_the_request(zygote: int) -> None:
    """Stopped, so that they are told of requests and never read them; then killed."""
    stopped = _spares(zygote)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    workers = muster.Cluster("next", Forked, world_size=4, blocking=False)
    for pid in stopped:
        os.kill(pid, signal.SIGKILL)
    workers.wait()
    assert not set(stopped) & set(workers.execute_all_sync("pid"))


def test_stopped_spares_hold_nothing_up(zygote: int) -> None:
    """Requests that they were told of are read by the zygote."""
    stopped = _spares(zygote)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    workers = muster.Cluster("next", Forked, world_size=4)
    assert not set(stopped) & set(workers.execute_all_sync("pid"))
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    others = muster.Cluster("others", Forked, world_size=4)
    assert len(set(others.execute_all_sync("pid"))) == 4


def test_spares_go_with_their_zygote(zygote: int) -> None:
    ready = _spares(zygote)
    os.kill(zygote, signal.SIGKILL)
    assert wait_gone(ready) == []


def test_workers_that_were_spares_outlive_their_zygote(zygote: int) -> None:
    workers = muster.Cluster("next", Forked, world_size=4)
    before = workers.execute_all_sync("pid")
    os.kill(zygote, signal.SIGKILL)
    assert workers.execute_all_sync("pid") == before


def test_the_environment_of_another_role(zygote: int) -> None:
    """Another environment is another zygote: its workers are no spares of this one."""
    ready = set(_spares(zygote))
    env = {"OF_THE_ROLE": "a=b,c"}
    workers = muster.Cluster("other", Forked, world_size=2, env=env)
    assert workers.execute_all_sync("variable") == ["a=b,c"] * 2
    assert ready == set(_spares(zygote))


def test_a_replacement_is_a_spare(zygote: int) -> None:
    workers = muster.Cluster("next", Forked, world_size=2)
    os.kill(workers.execute_all_sync("pid")[1], signal.SIGKILL)
    _wait_for_spares(zygote, 3)
    ready = _spares(zygote)
    workers.replace(1)
    assert workers.execute_all_sync("pid")[1] in ready
