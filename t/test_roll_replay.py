"""ReplayBuffer under ROLL's name: budgets, refunds, order, collection, waits."""

import asyncio
import inspect
import math
import random
from collections.abc import Awaitable, Callable
from typing import Any

import muster
import pytest
from muster.roll import ExperienceItem, ReplayBuffer


class Bar:
    """What tqdm is asked."""

    def __init__(self) -> None:
        self.count = 0

    def update(self, more: int) -> None:
        self.count += more


def items(prompt: int, step: int, count: int = 1) -> list[ExperienceItem]:
    return [ExperienceItem(prompt, "math", step) for _ in range(count)]


def run(test: Callable[[], Awaitable[Any]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(60) as limit:
            await test()
        assert not limit.expired()  # a test that expects CancelledError has taken it

    asyncio.run(whole())


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def polled(buffer: ReplayBuffer) -> tuple[list[int], "asyncio.Task[int]"]:
    """All prompts that are admitted now, and the one that waits."""
    ids: list[int] = []
    while True:
        task = asyncio.ensure_future(buffer.poll())
        await settle()
        if not task.done():
            return ids, task
        ids.append(task.result())


@pytest.mark.parametrize(("ratio", "places"), [(0, 4), (0.5, 6), (1, 8), (2.5, 14)])
def test_budget(ratio: float, places: int) -> None:
    async def test() -> None:
        buffer = ReplayBuffer(ratio, False, 0)
        early = asyncio.ensure_future(buffer.poll())
        await settle()
        assert not early.done()  # no step has begun
        buffer.advance_step(0, 4)
        ids, waiting = await polled(buffer)
        assert [await early, *ids] == list(range(places))
        assert buffer.batch_size == buffer.running_prompts == places
        buffer.advance_step(1, 4)  # adds a batch, no more
        more, waiting_too = await polled(buffer)
        assert len(more) + 1 == 4 and await waiting == places
        waiting_too.cancel()

    run(test)


@pytest.mark.parametrize(("most", "additional"), [(4, 0), (6, 2)])
def test_additional_prompts(most: int, additional: int) -> None:
    async def test() -> None:
        buffer = ReplayBuffer(0, True, most)
        buffer.advance_step(0, 4)
        ids, waiting = await polled(buffer)
        assert len(ids) == 4 + additional
        assert buffer.running_extra_prompts == additional
        waiting.cancel()

    run(test)


def test_abort_gives_the_place_back() -> None:
    async def test() -> None:
        buffer = ReplayBuffer(0, False, 0)
        buffer.advance_step(3, 2)
        (first, second), waiting = await polled(buffer)
        assert await buffer.begin(first) == 3
        buffer.abort(first)  # filtered out
        buffer.abort(first)  # again is nothing
        third = await waiting
        assert third == 2 and buffer.used_prompts == 3
        for prompt in (second, third):
            assert await buffer.begin(prompt) == 3
            buffer.commit(prompt, items(prompt, 3))
        bar = Bar()
        batch = await buffer.get_batch(2, bar)
        assert [item.prompt_id for item in batch] == [second, third]
        assert bar.count == 2 and buffer.completed_prompts == 2
        with pytest.raises(asyncio.CancelledError):
            buffer.commit(first, items(first, 3))

    run(test)


def test_order_of_a_batch() -> None:
    """Older steps first, and their stragglers are waited for."""

    async def test() -> None:
        buffer = ReplayBuffer(1, False, 0)
        buffer.advance_step(0, 2)
        ids, waiting = await polled(buffer)
        for prompt in ids:
            await buffer.begin(prompt)
        buffer.commit(ids[2], items(2, 0))
        buffer.commit(ids[0], items(0, 0))
        assert [i.prompt_id for i in await buffer.get_batch(2, None)] == [2, 0]
        assert buffer.gc() == []
        buffer.advance_step(1, 2)
        newer = await waiting
        assert await buffer.begin(newer) == 1
        buffer.commit(newer, items(newer, 1))
        batch = asyncio.ensure_future(buffer.get_batch(2, None))
        await settle()
        assert not batch.done()  # though a newer sample is there
        buffer.commit(ids[1], items(1, 0))
        await settle()
        assert not batch.done()
        buffer.abort(ids[3])
        assert [i.prompt_id for i in await batch] == [1, newer]
        assert {i.sampling_start_step for i in await batch} == {0, 1}

    run(test)


def test_collection() -> None:
    async def test() -> None:
        buffer = ReplayBuffer(0, False, 0)
        buffer.advance_step(0, 3)
        ids, waiting = await polled(buffer)
        for prompt in ids[:2]:
            await buffer.begin(prompt)
        buffer.commit(ids[0], items(0, 0))
        await buffer.get_batch(1, None)
        assert buffer.gc() == [ids[1]]
        with pytest.raises(asyncio.CancelledError):
            await buffer.begin(ids[1])  # it was collected
        late = asyncio.ensure_future(buffer.begin(ids[2]))
        await settle()
        assert not late.done()  # step 0 has ended
        buffer.advance_step(1, 1)
        assert await late == 1
        with pytest.raises(AssertionError, match="began at step 1"):
            buffer.commit(ids[2], items(2, 0))
        waiting.cancel()

    run(test)


def test_waits_have_deadlines() -> None:
    async def test() -> None:
        buffer = ReplayBuffer(0, False, 0)
        buffer.advance_step(0, 2)
        first, second = [await buffer.poll(timeout=0.01) for _ in range(2)]
        with pytest.raises(muster.DeadlineExceeded, match=r"no place .* within 0.01 s"):
            await buffer.poll(timeout=0.01)
        await buffer.begin(first)
        buffer.commit(first, items(first, 0))
        await buffer.get_batch(1, None)
        buffer.gc()  # step 0 has ended
        with pytest.raises(muster.DeadlineExceeded, match=r"prompt 1 .* within 0.01 s"):
            await buffer.begin(second, timeout=0.01)
        buffer.abort(second)
        buffer.advance_step(1, 0)
        assert await buffer.poll() == 3  # what 1 and 2 gave up has room for it
        for wait in (buffer.poll, buffer.get_batch, buffer.begin):
            assert inspect.signature(wait).parameters["timeout"].default == 7200

    run(test)


def test_a_batch_that_is_given_up_is_not_lost() -> None:
    async def test() -> None:
        buffer = ReplayBuffer(0, False, 0)
        buffer.advance_step(0, 2)
        ids, waiting = await polled(buffer)
        await buffer.begin(ids[0])
        buffer.commit(ids[0], items(0, 0))
        with pytest.raises(
            muster.DeadlineExceeded, match=r"2 samples .* within 0.01 s"
        ):
            await buffer.get_batch(2, None, timeout=0.01)
        await buffer.begin(ids[1])
        buffer.commit(ids[1], items(1, 0))
        assert [i.prompt_id for i in await buffer.get_batch(2, None)] == [0, 1]
        waiting.cancel()

    run(test)


def test_shutdown_ends_all_waits() -> None:
    async def test() -> None:
        buffer = ReplayBuffer(0, False, 0)
        buffer.advance_step(0, 1)
        _, waiting = await polled(buffer)
        batch = asyncio.ensure_future(buffer.get_batch(1, None))
        await settle()
        buffer.shutdown()
        for task in (waiting, batch):
            with pytest.raises(asyncio.CancelledError):
                await task

    run(test)


def test_wrong_use() -> None:
    async def test() -> None:
        with pytest.raises(AssertionError):
            ReplayBuffer(-1, False, 0)
        with pytest.raises(AssertionError):
            ReplayBuffer(0, True, 0)
        buffer = ReplayBuffer(0, False, 0)
        assert buffer.gc() == []
        with pytest.raises(AssertionError):
            await buffer.begin(0)
        buffer.advance_step(1, 1)
        with pytest.raises(AssertionError):
            buffer.advance_step(1, 1)
        prompt = await buffer.poll()
        with pytest.raises(RuntimeError):
            buffer.commit(prompt, [])
        assert "budget 1" in buffer.info()

    run(test)


@pytest.mark.parametrize("ratio", [0, 0.5, 1, 2.5])
def test_histories(ratio: float) -> None:
    """Prompts that end in any order, some filtered: each batch is whole and not stale."""

    async def test() -> None:
        chance = random.Random(ratio)
        buffer = ReplayBuffer(ratio, False, 0)
        seen: set[int] = set()

        async def prompt(number: int) -> None:
            step = await buffer.begin(number)
            for _ in range(chance.randrange(8)):
                await asyncio.sleep(0)
            if chance.random() < 0.2:
                buffer.abort(number)
            else:
                buffer.commit(number, items(number, step, 2))

        async def send() -> None:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    tasks.create_task(prompt(await buffer.poll()))

        sender = asyncio.ensure_future(send())
        for step in range(60):
            buffer.advance_step(step, 5)
            batch = await buffer.get_batch(10, None, timeout=30)
            assert len(batch) == 10
            oldest = min(i.sampling_start_step or 0 for i in batch)
            assert oldest >= step - math.ceil(ratio)
            numbers = {i.prompt_id for i in batch}
            assert len(numbers) == 5 and not numbers & seen
            seen |= numbers
            buffer.gc()
        buffer.shutdown()
        with pytest.raises(asyncio.CancelledError):
            await sender

    run(test)
