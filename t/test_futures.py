"""Futures: waiting for them, callbacks, and what asyncio makes of them."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import muster
import pytest
from helpers import DEADLINE_S, Bell, until
from workers import AsyncEcho, Echo

Make = Callable[..., Any]
Bells = Callable[[], Bell]


# ---- futures --------------------------------------------------------------------------


def test_wait(cluster: Make, bell: Bells) -> None:
    c = cluster(Echo, 3)
    begun, go_on = bell(), bell()
    slow = c[0].execute_rank_zero_async("wait_for", begun.path, go_on.path)
    quick = [c[i].execute_rank_zero_async("rank") for i in (1, 2)]
    done, pending = muster.wait([slow, *quick], num_returns=2)
    assert done == quick and pending == [slow]
    for _ in range(20):
        assert muster.wait([slow], timeout=0.001) == ([], [slow])
    go_on.ring()
    assert muster.wait([slow], timeout=DEADLINE_S) == ([slow], [])
    assert muster.wait([slow, *quick])[0] == [slow]
    for bad in (0, 2):
        with pytest.raises(ValueError, match="num_returns"):
            muster.wait([slow], num_returns=bad)
    with pytest.raises(ValueError, match="twice"):
        muster.wait([slow, slow])
    with pytest.raises(TypeError):
        muster.get([3])  # type: ignore[list-item]
    assert muster.get([]) == []


def test_waiting_again_and_again_takes_no_descriptors(cluster: Make) -> None:
    c = cluster(Echo, 2)
    c.execute_all_sync("rank")  # the connections are there
    pending = c.execute_all_async("hang")
    muster.wait(pending, timeout=0)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(100):
        muster.wait(pending, timeout=0)
        with pytest.raises(muster.DeadlineExceeded):
            muster.get(pending, timeout=0)
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_the_first_failure_is_raised_at_once(cluster: Make) -> None:
    c = cluster(Echo, 3)
    hanging = c[:2].execute_all_async("hang")
    failing = c[2].execute_rank_zero_async("fail", ValueError("me"))
    with pytest.raises(ValueError, match="me"):
        muster.get([*hanging, failing], timeout=DEADLINE_S)


def test_callbacks(cluster: Make) -> None:
    c = cluster(Echo)
    heard: list[Any] = []
    enough = threading.Event()

    def on_done(future: muster.Future) -> None:
        heard.append((future.exception(), threading.current_thread().name))
        if len(heard) == 3:
            enough.set()

    c.execute_rank_zero_async("echo", 1).add_done_callback(on_done)
    c.execute_rank_zero_async("fail", KeyError("k")).add_done_callback(on_done)
    done = c.execute_rank_zero_async("echo", 1)
    done.result()
    done.add_done_callback(on_done)
    assert enough.wait(DEADLINE_S)
    assert sorted(type(e).__name__ for e, _ in heard) == [
        "NoneType",
        "NoneType",
        "RemoteError[KeyError]",
    ]
    assert {name for _, name in heard} == {"muster-callbacks"}


def test_a_callback_that_raises(cluster: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    c = cluster(Echo)
    seen: list[Any] = []
    said = threading.Event()
    monkeypatch.setattr(
        threading, "excepthook", lambda args: (seen.append(args.exc_type), said.set())
    )
    c.execute_rank_zero_async("echo", 1).add_done_callback(lambda f: 1 / 0)
    assert said.wait(DEADLINE_S) and seen == [ZeroDivisionError]
    after = threading.Event()
    c.execute_rank_zero_async("echo", 1).add_done_callback(lambda f: after.set())
    assert after.wait(DEADLINE_S)


# ---- asyncio --------------------------------------------------------------------------


def test_await(cluster: Make) -> None:
    c = cluster(Echo, 2)

    async def main() -> None:
        assert await c.execute_rank_zero_async("echo", 5) == 5
        futures = [c[i % 2].execute_rank_zero_async("echo", i) for i in range(100)]
        assert await asyncio.gather(*futures) == list(range(100))
        assert await futures[3] == 3
        with pytest.raises(ValueError, match="boo"):
            await c.execute_rank_zero_async("fail", ValueError("boo"))

    for _ in range(2):  # a loop each
        asyncio.run(main())


def test_the_loop_runs_while_we_wait(cluster: Make, bell: Bells) -> None:
    c = cluster(Echo)
    begun, go_on = bell(), bell()

    async def main() -> None:
        future = c.execute_rank_zero_async("wait_for", begun.path, go_on.path)
        task = asyncio.ensure_future(future)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not task.done()
        go_on.ring()
        assert await asyncio.wait_for(task, DEADLINE_S) == "went on"

    asyncio.run(main())


def test_cancelling_a_task_cancels_its_call(cluster: Make) -> None:
    c = cluster(Echo)

    async def main() -> muster.Future:
        future = c.execute_rank_zero_async("hang")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(future, 0.1)
        return future

    future = asyncio.run(main())
    assert future.exception(DEADLINE_S).__class__ is muster.Cancelled


def test_loops_in_several_threads(cluster: Make) -> None:
    c = cluster(Echo)
    results: list[Any] = []

    def work(me: int) -> None:
        async def main() -> None:
            for i in range(20):
                results.append(await c.execute_rank_zero_async("echo", (me, i)))

        asyncio.run(main())

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(DEADLINE_S)
    assert sorted(results) == [(n, i) for n in range(4) for i in range(20)]


def test_async_class(cluster: Make, bell: Bells) -> None:
    c = cluster(AsyncEcho)
    assert c.execute_rank_zero_sync("echo", 1) == 1
    assert c.execute_rank_zero_sync("plain", 2) == 2
    meeting = [c.execute_rank_zero_async("meet", 50) for _ in range(50)]
    assert muster.get(meeting, timeout=DEADLINE_S) == [50] * 50
    with pytest.raises(KeyError, match="async"):
        c.execute_rank_zero_sync("fail")
    assert list(c.execute_rank_zero_sync("count", 500)) == list(range(500))
    begun = bell()
    hanging = c.execute_rank_zero_async("hang", begun.path)
    begun.hear()
    hanging.cancel()
    with pytest.raises(muster.Cancelled):
        hanging.result(DEADLINE_S)
    until(lambda: c.execute_rank_zero_sync("cancellations") == 1)


def test_futures_travel_in_containers(cluster: Make) -> None:
    c = cluster(Echo, 2)
    small = c.execute_rank_zero_async("echo", 7)
    big = c.execute_rank_zero_async("echo", b"x" * (8 << 20))
    failed = c.execute_rank_zero_async("no_such_method")
    got = c[1].execute_rank_zero_sync("echo", {"a": [small, big], "b": failed})
    assert [f.done() for f in got["a"]] == [True, True]
    assert muster.get(got["a"][0]) == 7
    assert got["a"][1].result() == b"x" * (8 << 20)
    assert muster.wait(got["a"], num_returns=2) == (got["a"], [])
    assert isinstance(got["b"].exception(), muster.NoSuchMethod)
    assert c[1].execute_rank_zero_sync("echo", got["a"][0]) == 7


class Blocking:
    """Without async methods; `generate` ends when `abort` was called."""

    def __init__(self) -> None:
        self.aborted = threading.Event()

    def generate(self) -> str:
        return "aborted" if self.aborted.wait(DEADLINE_S) else "nobody came"

    def abort(self) -> None:
        self.aborted.set()

    def stop(self) -> None:
        raise StopIteration("no more")

    def count(self, n: int) -> Iterator[int]:
        yield from range(n)

    @staticmethod
    def on_main_thread() -> bool:
        return threading.current_thread() is threading.main_thread()


def test_max_concurrency_without_async_methods(cluster: Make) -> None:
    """Threads, as in Ray."""
    c = cluster(Blocking, max_concurrency=2)
    blocked = c.execute_rank_zero_async("generate")
    assert c.execute_rank_zero_sync("on_main_thread") is False
    assert list(c.execute_rank_zero_sync("count", 3)) == [0, 1, 2]
    with pytest.raises(muster.RemoteError, match="no more"):
        c.execute_rank_zero_sync("stop")
    c.execute_rank_zero_sync("abort")
    assert blocked.result(DEADLINE_S) == "aborted"
    again = cluster(Blocking, max_concurrency=2)
    both = [again.execute_rank_zero_async("generate") for _ in range(2)]
    third = again.execute_rank_zero_async("abort")
    assert muster.wait([third], timeout=0.3) == ([], [third])  # two run, it waits
    again.destroy(grace=1)
    for future in both:
        with pytest.raises(muster.WorkerDied):
            future.result(DEADLINE_S)
    for one in (None, 1):
        assert cluster(Blocking, max_concurrency=one).execute_rank_zero_sync(
            "on_main_thread"
        )


def test_max_concurrency(cluster: Make) -> None:
    c = cluster(AsyncEcho, max_concurrency=3)
    muster.get([c.execute_rank_zero_async("busy") for _ in range(30)])
    assert c.execute_rank_zero_sync("peak") <= 3
    meeting = [c.execute_rank_zero_async("meet", 4) for _ in range(4)]
    done, _ = muster.wait(meeting, timeout=0.3)
    assert done == []  # the fourth is not let in
    free = cluster(AsyncEcho)
    meeting = [free.execute_rank_zero_async("meet", 4) for _ in range(4)]
    assert muster.get(meeting, timeout=DEADLINE_S) == [4] * 4
