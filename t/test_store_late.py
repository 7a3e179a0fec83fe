"""Results that nobody waits for any more give their memory back at once."""

import gc
import time
from collections.abc import Iterator
from typing import Any

import muster
import numpy as np
import pytest
from conftest import _started
from helpers import until

MIB = 1 << 20


class Worker:
    def late(self, mib: int, seconds: float) -> Any:
        time.sleep(seconds)
        return np.ones(mib * MIB, np.uint8)

    def late_ref(self, mib: int, seconds: float) -> Any:
        time.sleep(seconds)
        return [muster.put(np.ones(mib * MIB, np.uint8))]

    def now(self, mib: int) -> Any:
        return np.ones(mib * MIB, np.uint8)

    def used(self) -> int:
        return int(muster.store_stats()["used"])


class AsyncWorker(Worker):
    async def nothing(self) -> None:
        pass


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    yield from _started(num_nodes=2, store_limit="100MiB", spill=False)


@pytest.fixture(scope="module", params=[Worker, AsyncWorker])
def workers(nodes: Any, request: Any) -> Iterator[Any]:
    """Rank 0 on the driver's node, rank 1 on the other."""
    with muster.Cluster("late", request.param, world_size=2) as cluster:
        yield cluster


def empty(cluster: Any) -> bool:
    gc.collect()
    return bool(cluster.execute_all_sync("used") == [0, 0])


@pytest.mark.parametrize("method", ["late", "late_ref"])
@pytest.mark.parametrize("rank", [0, 1])
def test_deadlines(workers: Any, rank: int, method: str) -> None:
    hasty = workers.options(timeout=0.05)
    for _ in range(15):  # more than the store has
        with pytest.raises(muster.DeadlineExceeded):
            hasty.execute_rank_sync(rank, method, 8, 0.1)
    until(lambda: empty(workers), muster.stored_objects, 20)


@pytest.mark.parametrize("rank", [0, 1])
def test_cancelled(workers: Any, rank: int) -> None:
    futures = [workers.execute_rank_async(rank, "late", 8, 0.02) for _ in range(12)]
    futures[0].result()
    for future in futures:
        future.cancel()
    del futures, future
    until(lambda: empty(workers), muster.stored_objects, 20)


@pytest.mark.parametrize("rank", [0, 1])
def test_answers_that_cross_a_cancel(workers: Any, rank: int) -> None:
    for i in range(40):
        future = workers.execute_rank_async(rank, "now", 4)
        time.sleep(i * 0.0005)
        future.cancel()
        del future
    until(lambda: empty(workers), muster.stored_objects, 20)


def test_dropped_unread(workers: Any) -> None:
    for rank in (0, 1):
        for _ in range(12):
            workers.execute_rank_async(rank, "late", 4, 0.01)
    until(lambda: empty(workers), muster.stored_objects, 20)
