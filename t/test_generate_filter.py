"""Groups that a filter judges, groups that take their place, and groups that fail beside them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from generate_workers import Engine
from muster.generate import Group, GroupDropped, Scheduler
from test_generate import WAIT_S, check, until

Make = Callable[..., Any]
BAD: dict[str, Any] = {"max_new_tokens": 9, "sampling": {"raise": "no way"}}


def test_a_failure_is_raised_to_whoever_asks_for_it(cluster: Make) -> None:
    async def main(sched: Scheduler) -> None:
        bad = sched.submit([1], **BAD)
        good = sched.submit([2], n=2, max_new_tokens=20)
        until(lambda: sched.stats()["failed"] == 1)
        check(await asyncio.wait_for(good, WAIT_S), 10, 2)
        with pytest.raises(GroupDropped, match="no way") as caught:
            sched.get_batch(1, timeout=WAIT_S)
        assert caught.value.group is bad

    with Scheduler(cluster(Engine, 3), filter=bool) as sched:
        asyncio.run(main(sched))


def test_a_refill_that_raises_is_asked_again(cluster: Make) -> None:
    asked: list[int] = []

    def refill() -> dict[str, Any]:
        asked.append(len(asked))
        if len(asked) == 1:
            raise RuntimeError("no prompt yet")
        return {"prompt": [100 + len(asked)], "max_new_tokens": 10}

    def keep(group: Group) -> bool:
        return group.prompt[0] >= 100

    with Scheduler(cluster(Engine, 2), filter=keep, refill=refill) as sched:
        for i in range(3):
            sched.submit([i], max_new_tokens=10)
        until(lambda: sched.stats()["running"] + sched.stats()["queued"] == 0)
        with pytest.raises(RuntimeError, match="no prompt yet"):
            sched.get_batch(3, timeout=WAIT_S)
        assert len(sched.get_batch(3, timeout=5)) == 3


def test_a_group_that_is_cancelled_while_it_is_judged(cluster: Make) -> None:
    with Scheduler(cluster(Engine, 2), filter=lambda group: shown(group)) as sched:
        # the third never ends by itself: the group has a request when it is judged
        sampling = {"length": 10, "hang_seq": 2}
        group = sched.submit([1], n=2, surplus=1, max_new_tokens=20, sampling=sampling)

        def shown(_: Group) -> bool:
            group.cancel()
            return True

        with pytest.raises(GroupDropped, match="cancelled"):
            group.result(WAIT_S)


def test_failures_that_are_skipped_are_not_kept(cluster: Make) -> None:
    with Scheduler(cluster(Engine, 1), poison=1, failed="skip") as sched:
        sched.submit([1], **BAD)
        until(lambda: sched.stats()["failed"] == 1)
        good = sched.submit([2], max_new_tokens=10)
        assert sched.get_batch(1, timeout=WAIT_S)[0] is good
        assert not sched._delivery.failed
