"""Batches that are leased: consumed, given back, cancelled or too old meanwhile."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from generate_workers import Engine
from muster import DeadlineExceeded
from muster.generate import Groups, Scheduler
from test_generate import WAIT_S, check

Make = Callable[..., Any]


class ConsumerDied(Exception):
    pass


def submit(sched: Scheduler, count: int) -> None:
    for key in range(count):
        sched.submit([key], n=2, key=key, max_new_tokens=9, sampling={"length": 5})


def failed(sched: Scheduler, groups: int) -> Groups:
    """What a consumer had that died with it."""
    with pytest.raises(ConsumerDied):
        with sched.lease(groups, timeout=WAIT_S) as batch:
            raise ConsumerDied
    return batch


def test_given_back_if_the_body_raises(cluster: Make) -> None:
    with Scheduler(cluster(Engine, 2)) as sched:
        submit(sched, 3)
        had = {group.key for group in failed(sched, 3)}
        assert sched.stats()["delivered"] == 0 and sched.stats()["ready"] == 3
        with sched.lease(3, timeout=WAIT_S) as batch:
            assert {group.key for group in batch} == had == {0, 1, 2}
            for group in batch:
                check(group, 5, 2)
            assert len(batch.to_batch()) == 6
            with pytest.raises(DeadlineExceeded, match="1 finished groups"):
                sched.get_batch(1, timeout=0.05)  # none is handed out twice
        assert sched.stats()["delivered"] == 3 and sched.stats()["groups"] == 0
        assert list(sched) == []


def test_given_back_is_there_for_all_who_wait(cluster: Make) -> None:
    """A group that was given back can be awaited, iterated over and pulled."""
    with Scheduler(cluster(Engine, 1)) as sched:
        submit(sched, 3)
        mine = failed(sched, 3)[0]
        assert mine.done() and mine.result(WAIT_S) is mine
        check(mine, 5, 2)
        assert len(list(sched)) == 2

        async def leases() -> None:
            group = sched.submit([1], max_new_tokens=9, sampling={"length": 5})
            with pytest.raises(ConsumerDied):
                async with sched.lease(timeout=WAIT_S):
                    raise ConsumerDied
            async with sched.lease(timeout=WAIT_S) as batch:
                assert batch == [group]
            with pytest.raises(DeadlineExceeded, match="1 finished groups"):
                async with sched.lease(timeout=0.05):
                    pass

        asyncio.run(leases())


def test_cancelled_or_too_old_while_it_is_leased(cluster: Make) -> None:
    with Scheduler(cluster(Engine, 1), max_staleness=0) as sched:
        submit(sched, 3)
        with pytest.raises(ConsumerDied):
            with sched.lease(3, timeout=WAIT_S) as batch:
                sched.cancel(batch[0])
                check(batch[0], 5, 2)  # it stays what it was for who has it
                raise ConsumerDied
        assert sched.stats()["ready"] == 2
        with pytest.raises(ConsumerDied):
            with sched.lease(2, timeout=WAIT_S):
                with sched.weights(version=1):
                    pass
                raise ConsumerDied
        assert list(sched) == []  # what is too old does not come again
        assert sched.stats()["dropped"] == 3 and sched.stats()["groups"] == 0
        submit(sched, 1)
        with sched.lease(timeout=WAIT_S) as batch:
            sched.close()  # the end of a lease does not mind
        check(batch[0], 5, 2)
