"""A failure that was handled keeps nothing: no frame of its caller, and no worker."""

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import muster
import pytest
from corner_workers import Odd
from dispatch_workers import Picky
from helpers import DEADLINE_S
from workers import Echo

Make = Callable[..., Any]
BAD = ValueError("bad")


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Held:
    """A local variable of the frame in which a failure is handled."""


class Refuses(Echo):
    @muster.register(muster.Dispatch.ONE_TO_ALL, blocking=False)
    def refuse(self) -> None:
        raise ValueError("bad")


class Unmakable:
    def __init__(self) -> None:
        raise ValueError("bad")


def all_at_once(c: Any) -> None:
    c.execute_all_sync("fail", BAD)


def one_at_once(c: Any) -> None:
    c.execute_rank_zero_sync("fail", BAD)


def get_all(c: Any) -> None:
    futures = c.execute_all_async("fail", BAD)
    muster.get(futures)


def get_twice(c: Any) -> None:
    future = c.execute_rank_zero_async("fail", BAD)
    with pytest.raises(ValueError, match="bad"):
        future.result()
    future.result()


def keep_what_is_returned(c: Any) -> None:
    future = c.execute_rank_zero_async("fail", BAD)
    kept = future.exception(DEADLINE_S)
    raise ValueError(str(kept))


def of_registered(c: Any) -> None:
    future = c.refuse()
    kept = future.exception(DEADLINE_S)
    future.result()
    raise AssertionError(kept)


def stream(c: Any) -> None:
    items = c.execute_rank_zero_sync("count_then_raise", 2)
    for _ in items:
        pass


def travelled(c: Any) -> None:
    failed = c.execute_rank_zero_async("fail", BAD)
    came = c.execute_rank_zero_sync("echo", [failed])[0]
    came.result()


def an_engine_of_all(c: Any) -> None:
    c.create_engine("bad", Unmakable)


def a_cluster(c: Any) -> None:
    muster.Cluster("picky", Picky, world_size=4)


@pytest.mark.parametrize(
    "fail",
    [
        *(all_at_once, one_at_once, get_all, get_twice, keep_what_is_returned),
        *(of_registered, stream, travelled, an_engine_of_all, a_cluster),
    ],
)
def test_what_the_callers_frame_held_goes(cluster: Make, fail: Any) -> None:
    c = cluster(Refuses, 2)

    def step() -> weakref.ref[Held]:
        held = Held()
        with pytest.raises((ValueError, KeyError, muster.RemoteError)):
            fail(c)
        return weakref.ref(held)

    assert step()() is None


def test_a_result_that_cannot_be_read(cluster: Make) -> None:
    c = cluster(Odd)

    def step() -> weakref.ref[Held]:
        held = Held()
        future = c.execute_rank_zero_async("unreadable")
        for _ in range(2):
            with pytest.raises(RuntimeError, match="cannot be read"):
                future.result(DEADLINE_S)
        return weakref.ref(held)

    assert step()() is None


def test_in_a_task(cluster: Make) -> None:
    c = cluster(Echo)

    async def step() -> weakref.ref[Held]:
        held = Held()
        future = c.execute_rank_zero_async("fail", BAD)
        with pytest.raises(ValueError, match="bad"):
            await future
        return weakref.ref(held)

    async def steps() -> None:
        assert (await step())() is None

    asyncio.run(steps())


def test_each_time_it_is_raised_it_is_new(cluster: Make) -> None:
    """Its traceback is of this time alone, and so are the notes that a caller adds."""
    future = cluster(Echo).execute_rank_zero_async("fail", BAD)
    depths = []
    for _ in range(3):
        with pytest.raises(ValueError, match="bad") as caught:
            future.result(DEADLINE_S)
        assert not hasattr(caught.value, "__notes__")
        caught.value.add_note("seen")
        depths.append(len(caught.traceback))
    assert len(set(depths)) == 1


def test_the_failures_of_all_ranks_have_that_which_is_raised() -> None:
    first, second = muster.WorkerDied("one"), muster.WorkerDied("two")
    raised = muster.errors.together({3: first, 5: second})
    assert raised is first
    assert raised.failures[5] is second and str(raised.failures[3]) == "one"
    assert raised.failures[3] is not raised  # it would keep itself
