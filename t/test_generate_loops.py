"""One scheduler and many event loops."""

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest
from generate_workers import Engine
from muster import MusterError
from muster.generate import Scheduler
from test_generate import WAIT_S

Make = Callable[..., Any]
LOOPS = 20  # more than a scheduler has listeners


def test_many_loops_one_after_the_other(cluster: Make) -> None:
    async def one(sched: Scheduler) -> None:
        group = sched.submit([1], max_new_tokens=10)
        await asyncio.wait_for(group, WAIT_S)

    with Scheduler(cluster(Engine, 1)) as sched:
        for _ in range(LOOPS):
            asyncio.run(one(sched))
        assert len(sched._waiter.listeners) == 1


def test_close_in_the_loop_leaves_no_descriptor(cluster: Make) -> None:
    """The loop does not watch a number that is another file's by now."""

    async def main(sched: Scheduler) -> None:
        group = sched.submit([1], max_new_tokens=9, sampling={"length": 9, "hold": 3})
        waiter = asyncio.ensure_future(group)
        await asyncio.sleep(0)  # it begins to listen
        (listener,) = sched._waiter.listeners.values()
        sched.close()
        r, w = os.pipe()
        try:
            assert not asyncio.get_running_loop().remove_reader(listener._fd)
            with pytest.raises(MusterError, match="closed"):
                await asyncio.wait_for(waiter, WAIT_S)
        finally:
            os.close(r)
            os.close(w)

    with Scheduler(cluster(Engine, 1)) as sched:
        asyncio.run(main(sched))
