"""Surplus: more samples, or more groups, than are wanted; what was begun goes on later."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from muster.generate import Group, Scheduler
from test_generate import WAIT_S, until

Make = Callable[..., Any]
WHOLE = list(range(1, 31))
UNEVEN = {"uneven": True}


class Counting:
    """Counts to 30. Of an uneven group sample 0 ends with one token, when it is released, and
    those that began before that stand still at 20."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.version = 0

    async def release(self) -> None:
        self.released.set()

    async def generate(self, request):
        begun = len(request["tokens"])
        uneven = (request["sampling"] or {}).get("uneven") and not begun
        if uneven and request["seq"] == 0:
            await self.released.wait()
            yield {"tokens": [99], "finish_reason": "stop"}
            return
        for token in range(begun + 1, 31):
            yield {"tokens": [token], "logprobs": [-float(token)]}
            if uneven and token == 20 and not self.released.is_set():
                await asyncio.sleep(3600)

    async def set_weights(self, version: int) -> None:
        self.version = version


def leave_surplus(c: Any, sched: Scheduler, **options: Any) -> None:
    """A group of one, whose other sample has 20 tokens when it is over."""
    options = {"keep_surplus": True, "sampling": UNEVEN} | options
    group = sched.submit([5], surplus=1, key="five", max_new_tokens=30, **options)
    other = sched._core.rid(group.id, 1)
    until(lambda: sched.explain(other)["generated"] == 20)
    c.execute_all_sync("release")
    assert [one.tokens for one in group.result(WAIT_S).samples] == [[99]]
    until(lambda: sched.stats()["live"] == 0)


def again(sched: Scheduler, n: int = 1, prompt: Any = (5,), **options: Any) -> Group:
    options = {"sampling": UNEVEN} | options
    group = sched.submit(list(prompt), n=n, key="five", max_new_tokens=30, **options)
    return group.result(WAIT_S)


def test_surplus_goes_on_when_its_prompt_comes_again(cluster: Make) -> None:
    c = cluster(Counting, 1)
    with Scheduler(c) as sched:
        leave_surplus(c, sched)
        assert sched.stats()["surplus_held"] == sched.stats()["surplus_kept"] == 1
        with sched.weights(version=1):
            c.execute_all_sync("set_weights", 1)
        first, second = again(sched, n=2, sampling=UNEVEN).samples
        assert first.tokens == second.tokens == WHOLE
        assert first.versions == [0] * 20 + [1] * 10
        assert first.logprobs == [-float(token) for token in WHOLE]
        stats = sched.stats()
        assert (stats["surplus_held"], stats["surplus_resumed"]) == (0, 1)
        assert second.versions == [1] * 30  # there was one, and it was used once


@pytest.mark.parametrize(
    "other",
    [
        {"sampling": None},
        {"prompt": (6,)},
        {"max_new_tokens": 20},
        {"key": "six"},
    ],
)
def test_only_the_same_goes_on(cluster: Make, other: dict[str, Any]) -> None:
    c = cluster(Counting, 1)
    with Scheduler(c) as sched:
        leave_surplus(c, sched)
        options = {"prompt": [5], "key": "five", "max_new_tokens": 30} | other
        options = {"sampling": UNEVEN} | options
        sched.submit(options.pop("prompt"), **options).result(WAIT_S)
        stats = sched.stats()
        assert (stats["surplus_held"], stats["surplus_resumed"]) == (1, 0)


def test_surplus_is_not_kept_unasked_or_for_too_long(cluster: Make) -> None:
    c = cluster(Counting, 1)
    with Scheduler(c, max_staleness=1) as sched:
        leave_surplus(c, sched, keep_surplus=False)
        assert sched.stats()["surplus_held"] == 0
        assert sched.stats()["surplus_tokens"] == 20
    c = cluster(Counting, 1)
    with Scheduler(c, max_staleness=1) as sched:
        leave_surplus(c, sched)
        for version in (1, 2):
            assert sched.stats()["surplus_held"] == 1
            with sched.weights(version=version):
                c.execute_all_sync("set_weights", version)
        assert sched.stats()["surplus_held"] == 0


def test_a_sample_that_is_too_old_ends_and_its_group_goes_on(cluster: Make) -> None:
    c = cluster(Counting, 1)
    with Scheduler(c, max_staleness=0) as sched:
        group = sched.submit(
            [5],
            surplus=1,
            key="five",
            max_new_tokens=30,
            sampling=UNEVEN,
            keep_surplus=True,
        )
        other = sched._core.rid(group.id, 1)
        until(lambda: sched.explain(other)["generated"] == 20)
        with sched.weights(version=1):
            c.execute_all_sync("set_weights", 1)
        until(lambda: sched.stats()["live"] == 1)
        c.execute_all_sync("release")
        (only,) = group.result(WAIT_S).samples
        assert (only.tokens, only.versions) == ([99], [1])
        assert sched.stats()["surplus_kept"] == 0


def test_surplus_of_a_later_turn_is_not_kept(cluster: Make) -> None:
    c = cluster(Counting, 1)
    with Scheduler(c) as sched, sched.session() as talk:
        sched.submit([5], max_new_tokens=30, session=talk).result(WAIT_S)
        leave_surplus(c, sched, session=talk)
        assert sched.stats()["surplus_kept"] == 0


def test_what_was_cancelled_is_not_kept(cluster: Make) -> None:
    c = cluster(Counting, 1)
    with Scheduler(c) as sched:
        group = sched.submit(
            [5], n=2, max_new_tokens=30, sampling=UNEVEN, keep_surplus=True
        )
        other = group.rids[1]
        until(lambda: sched.explain(other)["generated"] == 20)
        sched.cancel(other)
        c.execute_all_sync("release")
        assert [one.tokens for one in group.result(WAIT_S).samples] == [[99]]
        assert sched.stats()["surplus_kept"] == 0


def test_groups_beyond_a_batch_go_on_in_the_next_step(cluster: Make) -> None:
    """More prompts than a batch takes: what is not over stops and goes on, behind its
    tokens, before the prompts of the next step."""
    c = cluster(Counting, 1)
    with Scheduler(c, slots=4, max_staleness=1) as sched:
        late = sched.submit([1], n=2, max_new_tokens=30, sampling=UNEVEN)
        until(lambda: sched.explain(late.rids[1])["generated"] == 20)
        for i in range(2, 5):
            sched.submit([i], max_new_tokens=30)
        batch = sched.get_batch(3, timeout=WAIT_S)
        assert [group.prompt for group in batch] == [[2], [3], [4]]
        with sched.weights(version=1):
            c.execute_all_sync("release")
        (first,) = sched.get_batch(1, timeout=WAIT_S)
        assert first.id == late.id
        assert first.samples[1].tokens == WHOLE
        assert first.samples[1].versions == [0] * 20 + [1] * 10


def test_max_bias_is_a_share(cluster: Make) -> None:
    c = cluster(Counting, 1)
    for wrong in (0, -1, 1.1):
        with pytest.raises(ValueError, match="max_bias"):
            Scheduler(c, max_bias=wrong)
