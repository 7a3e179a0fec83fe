"""Staleness, tasks and batches with AReaL's names; AReaL is not needed."""

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from helpers import until
from muster.areal import (
    AsyncTaskRunner,
    BatchTaskDispatcher,
    Rollouts,
    RolloutStat,
    StalenessManager,
    TaskQueueFullError,
)


class Version:
    """Of the model."""

    def __init__(self) -> None:
        self.number = 0

    def get_version(self) -> int:
        return self.number


def manager(running: int = 8, batch: int = 4, staleness: int = 1) -> StalenessManager:
    return StalenessManager(Version(), running, batch, staleness)


# ---- staleness ------------------------------------------------------------------------


def test_capacity() -> None:
    one = manager(running=3, batch=4, staleness=0)
    assert (one.get_capacity(), one.get_pending_limit()) == (3, 4)
    for _ in range(4):
        one.on_rollout_enqueued()
        one.on_rollout_submitted()
        one.on_rollout_accepted()
    assert one.get_capacity() == 0  # a batch of this version is complete
    one.version_provider.number = 1  # type: ignore[attr-defined]
    assert one.get_capacity() == 3
    one.on_rollout_enqueued()
    one.on_rollout_submitted()
    assert one.get_capacity() == 2
    one.on_rollout_rejected()
    assert one.get_capacity() == 3
    assert one.get_stats() == RolloutStat(0, 0, 4, 1)


def test_recovery_is_no_burst() -> None:
    one = manager(running=100, batch=4, staleness=1)
    one.version_provider.number = 50  # type: ignore[attr-defined]
    one.on_version_recovered(50)
    assert one.get_capacity() == 8


# ---- tasks ----------------------------------------------------------------------------


@pytest.fixture
def runner() -> Iterator[AsyncTaskRunner[Any]]:
    made: AsyncTaskRunner[Any] = AsyncTaskRunner(max_queue_size=8)
    made.initialize()
    yield made
    made.destroy()
    assert made.thread is not None and not made.thread.is_alive()


async def later(value: Any, seconds: float = 0) -> Any:
    await asyncio.sleep(seconds)
    return value


async def fail() -> None:
    raise ValueError("on purpose")


def test_tasks_run_side_by_side(runner: Any) -> None:
    begun = time.monotonic()
    for i in range(8):
        assert runner.submit(later, i, seconds=0.5, task_id=i) == i
    assert sorted(runner.wait(8, timeout=10)) == list(range(8))
    assert time.monotonic() - begun < 3


def test_what_is_wrong_with_a_task(runner: Any) -> None:
    runner.submit(fail, task_id=1)
    [one] = runner.wait(1, timeout=10, with_timing=True)
    assert (one.data, one.task_id) == (None, 1)
    runner.submit(later, "x", 5, task_id=2)
    with pytest.raises(ValueError, match="2"):
        runner.submit(later, "y", task_id=2)
    with pytest.raises(TimeoutError, match="0 of 1"):
        runner.wait(1, timeout=0.05)
    runner.submit(later, 3, task_id=3)
    with pytest.raises(TimeoutError, match="1 of 2"):
        runner.wait(2, timeout=0.5)
    assert runner.wait(1, timeout=10) == [3]  # it stayed


def test_pause(runner: Any) -> None:
    runner.submit(later, "runs", 0.3, task_id=0)
    until(lambda: runner.get_input_queue_size() == 0)
    runner.pause()
    for i in range(1, 9):
        runner.submit(later, i, task_id=i)
    with pytest.raises(TaskQueueFullError):
        runner.submit(later, 9, task_id=9)
    assert runner.wait(1, timeout=10) == ["runs"]
    assert runner.get_input_queue_size() == 8
    runner.resume()
    assert sorted(runner.wait(8, timeout=10)) == list(range(1, 9))
    runner.submit(later, 9, task_id=9)
    assert runner.wait(1, timeout=10) == [9]


def test_results_that_nobody_takes_hold_up_the_rest(runner: Any) -> None:
    """Twice the size of a queue: then no more begin."""
    for i in range(24):
        until(lambda: runner.get_input_queue_size() < 8)
        runner.submit(later, i, task_id=i)
    until(lambda: runner.get_output_queue_size() == 16)
    assert runner.get_input_queue_size() == 8
    assert len(runner.wait(16, timeout=10)) == 16
    assert sorted(runner.wait(8, timeout=10)) == list(range(16, 24))


def test_the_end_of_a_runner() -> None:
    one: AsyncTaskRunner[Any] = AsyncTaskRunner(4)
    with pytest.raises(RuntimeError, match="initialize"):
        one.submit(later, 1, task_id=1)
    one.initialize()
    one.submit(later, 1, 1000, task_id=1)
    failures: list[Exception] = []

    def wait() -> None:
        try:
            one.wait(1)
        except Exception as e:
            failures.append(e)

    thread = threading.Thread(target=wait)
    thread.start()
    one.destroy()
    thread.join(10)
    assert "ends" in str(failures[0])
    one.initialize()  # again
    one.submit(later, 2, task_id=1)
    assert one.wait(1, timeout=10) == [2]
    one.destroy()


# ---- batches --------------------------------------------------------------------------


class Bench:
    """A dispatcher whose tasks end when they are told to."""

    def __init__(self, **limits: int) -> None:
        self.manager = manager(**limits)
        self.loop: Any = None
        self.doors: dict[int, asyncio.Event] = {}
        self.dispatcher: BatchTaskDispatcher[Any, int] = BatchTaskDispatcher(
            64, self.task, self.manager, shuffle=False
        )
        self.dispatcher.initialize()

    def task(self, one: Any) -> Any:
        async def run() -> int | None:
            self.loop = asyncio.get_running_loop()
            door = self.doors[one.task_id] = asyncio.Event()
            await door.wait()
            if one.verdict == "raises":
                raise ValueError("on purpose")
            if one.verdict == "rejected":
                self.manager.on_rollout_rejected()
                return None
            self.manager.on_rollout_accepted()
            return int(one.task_id)

        return run

    def submit(self, number: int, verdict: str = "accepted") -> None:
        self.dispatcher.submit_task_input(
            SimpleNamespace(task_id=number, verdict=verdict)
        )

    def end(self, *numbers: int) -> None:
        for number in numbers:
            until(lambda number=number: number in self.doors)
            self.loop.call_soon_threadsafe(self.doors[number].set)

    @property
    def stats(self) -> RolloutStat:
        return self.manager.get_stats()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench(running=2, batch=2, staleness=1)
    yield made
    made.dispatcher.destroy()


def test_no_more_run_than_staleness_allows(bench: Bench) -> None:
    for i in range(8):
        bench.submit(i)
    until(lambda: bench.stats.running == 2)
    bench.end(0, 1)
    until(lambda: bench.stats == RolloutStat(4, 2, 2, 0))
    bench.end(2, 3)
    until(lambda: bench.stats.accepted == 4)
    assert bench.stats == RolloutStat(4, 0, 4, 0)  # two batches are complete
    bench.manager.version_provider.number = 1  # type: ignore[attr-defined]
    bench.dispatcher.wake()
    until(lambda: bench.stats == RolloutStat(2, 2, 4, 0))


def test_rejected_ones_give_their_capacity_back(bench: Bench) -> None:
    for i, verdict in enumerate(["rejected", "raises", "accepted", "accepted"]):
        bench.submit(i, verdict)
    bench.end(0, 1)
    until(lambda: bench.stats == RolloutStat(0, 2, 0, 2))
    assert bench.dispatcher.wait_results(2, timeout=10) == [None, None]
    bench.end(2, 3)
    assert bench.dispatcher.wait_results(2, timeout=10) == [2, 3]


def test_the_oldest_first(bench: Bench) -> None:
    bench.submit(0)
    until(lambda: bench.stats.running == 1)
    bench.submit(1)
    bench.end(1)
    until(lambda: bench.stats.accepted == 1)
    with pytest.raises(TimeoutError, match="1 of 2"):
        bench.dispatcher.wait_results(2, timeout=0.05)
    assert bench.dispatcher.wait_results(2, timeout=0.05, raise_timeout=False) == []
    bench.end(0)
    assert bench.dispatcher.wait_results(2, timeout=10) == [0, 1]


def test_wait_for_a_task(bench: Bench) -> None:
    bench.submit(0)
    bench.submit(1)
    with pytest.raises(ValueError, match="0"):
        bench.submit(0)  # and nothing ends of it
    with pytest.raises(ValueError, match="never"):
        bench.dispatcher.wait_for_task(7)
    with pytest.raises(TimeoutError):
        bench.dispatcher.wait_for_task(1, timeout=0.05)
    assert bench.dispatcher.wait_for_task(1, 0.05, raise_timeout=False) is None
    bench.end(1, 0)
    assert bench.dispatcher.wait_for_task(1, timeout=10) == 1
    assert bench.dispatcher.wait_for_task(0, timeout=10) == 0


def test_pause_of_a_dispatcher(bench: Bench) -> None:
    bench.submit(0)
    until(lambda: bench.stats.running == 1)
    bench.dispatcher.pause()
    assert bench.dispatcher.is_paused()
    bench.submit(1)
    bench.end(0)
    assert bench.dispatcher.wait_for_task(0, timeout=10) == 0
    assert bench.stats == RolloutStat(1, 0, 1, 0)
    bench.dispatcher.resume()
    bench.end(1)
    assert bench.dispatcher.wait_for_task(1, timeout=10) == 1


# ---- engines --------------------------------------------------------------------------


class Scheduler:
    """As much of one as rollouts need."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def get_workers(self, role: str) -> list[Any]:
        return [SimpleNamespace(id=f"{role}/{i}") for i in (0, 1)]

    async def async_call_engine(
        self, worker: str, method: str, engine: str, data: int, **how: Any
    ) -> int | None:
        assert (method, engine, how["max_retries"]) == ("episode", worker, 1)
        self.calls.append(worker)
        await asyncio.sleep(0.002)
        if data % 10 == 7:
            raise RuntimeError("on purpose")
        return None if data % 5 == 0 else data


class Loader:
    batch_size = 6

    def __iter__(self) -> Iterator[list[int]]:
        yield from ([i, i + 1, i + 2] for i in range(0, 30, 3))


@pytest.fixture
def rollouts() -> Iterator[Rollouts]:
    made = Rollouts(Scheduler(), "rollout", "episode", manager(8, 6, 2), shuffle=False)
    yield made
    made.destroy()


def test_batches_of_rollouts(rollouts: Rollouts) -> None:
    assert rollouts.rollout_batch(range(1, 10)) == [1, 2, 3, 4, 6, 8, 9]
    assert rollouts.rollout_batch([]) == []
    number = rollouts.submit(11)
    assert rollouts.wait_for_task(number, timeout=10) == 11
    assert set(rollouts.scheduler.calls) == {"rollout/0", "rollout/1"}


def test_prepare_batch(rollouts: Rollouts) -> None:
    provider = rollouts.staleness_manager.version_provider
    for step in range(6):
        batch = rollouts.prepare_batch(Loader())
        assert len(batch) == 6 and all(one % 5 and one % 10 != 7 for one in batch)
        rollouts.pause()
        provider.number = step + 1  # type: ignore[attr-defined]
        rollouts.resume()
    whole = rollouts.prepare_batch(Loader(), batch_size=10, dynamic_bs=True)
    assert 5 <= len(whole) < 10  # those that were rejected count too


def test_inputs_that_end(rollouts: Rollouts) -> None:
    few = itertools.islice(rollouts._endless(Loader()), 3)
    with pytest.raises(RuntimeError, match="endless"):
        rollouts.dispatcher.active_submit_and_wait(few, 6)
    with pytest.raises(ValueError, match="max_queue_size"):
        rollouts.dispatcher.active_submit_and_wait(few, 1000)
