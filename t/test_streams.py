"""Generators of workers, read while they run."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import muster
import pytest
from corner_workers import OddAsync
from helpers import Bell, until
from muster._worker.async_server import LOST_S
from workers import AsyncEcho, Echo

Make = Callable[..., Any]
Bells = Callable[[], Bell]
WINDOW = 256  # MS_STREAM_WINDOW


def test_stream(cluster: Make) -> None:
    c = cluster(Echo, 2)
    stream = c.execute_rank_zero_sync("count", 2000)
    assert isinstance(stream, muster.Stream)
    assert list(stream) == list(range(2000)) and list(stream) == []
    assert list(c.execute_rank_zero_sync("count", 0)) == []
    both = c.execute_all_sync("count", 3)
    assert [list(s) for s in both] == [[0, 1, 2]] * 2
    future = c.execute_rank_zero_async("count", 3)
    assert future.result() is future.result() and future.exception() is None
    assert list(future.result()) == [0, 1, 2]


def test_stream_that_raises(cluster: Make) -> None:
    stream = cluster(Echo).execute_rank_zero_sync("count_then_raise", 3)
    assert [next(stream) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="no more"):
        next(stream)
    assert list(stream) == []


def test_an_async_engine_goes_on_when_its_window_opens(cluster: Make) -> None:
    """It is told so: it does not look from time to time."""
    windows = 20
    stream = cluster(AsyncEcho).execute_rank_zero_sync("count", 256 * windows)
    assert next(stream) == 0
    began = time.monotonic()
    assert sum(1 for _ in stream) == 256 * windows - 1
    assert time.monotonic() - began < windows * LOST_S / 2


def test_an_item_that_waited_comes_before_later_answers(cluster: Make) -> None:
    """A call that is made after the window has opened is answered behind the item that it
    held up: a generator that stands still has nothing left to send then."""
    c = cluster(OddAsync)
    for _ in range(20):
        stream = c.execute_rank_zero_sync("count", WINDOW + 1)
        until(lambda: c.execute_rank_zero_sync("get_counted") == WINDOW)
        assert [next(stream) for _ in range(WINDOW)] == list(range(WINDOW))
        c.execute_rank_zero_sync("let_go_on")
        assert stream._call.try_item() == (1, WINDOW)
        assert list(stream) == []
        c.execute_rank_zero_sync("forget_count")


def test_stream_in_asyncio(cluster: Make) -> None:
    c = cluster(Echo)

    async def main() -> list[int]:
        stream = await c.execute_rank_zero_async("count", 1000)
        got = [item async for item in stream]
        bad = await c.execute_rank_zero_async("count_then_raise", 1)
        with pytest.raises(ValueError, match="no more"):
            async for _ in bad:
                pass
        return got

    assert asyncio.run(main()) == list(range(1000))


@pytest.mark.parametrize("how", ["close", "with", "drop", "aclose"])
def test_leaving_a_stream_closes_the_generator(
    cluster: Make, bell: Bells, how: str
) -> None:
    c = cluster(Echo)
    closed = bell()
    stream = c.execute_rank_zero_sync("endless", closed.path)
    assert next(stream) == 0
    if how == "close":
        stream.close()
        stream.close()
    elif how == "with":
        with stream:
            pass
    elif how == "aclose":
        asyncio.run(stream.aclose())
    else:
        del stream
    closed.hear()
    assert c.execute_rank_zero_sync("echo", 1) == 1
