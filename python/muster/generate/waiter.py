"""Waiter: waits, in threads and in tasks of event loops, for what a rollout has news of."""

from __future__ import annotations

import asyncio
import os
import threading
from time import monotonic

from muster.errors import DeadlineExceeded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from muster._core import Rollout

    T = TypeVar("T")

LOOK_S = 0.5  # until a cluster of another size is noticed without news


class Waiter:
    """`state` says in an error what there is instead of what was waited for."""

    def __init__(self, core: Rollout, state: Callable[[], str]) -> None:
        self.listeners: dict[int, Listener] = {}  # by id of their loops
        self._core = core
        self._state = state
        self._lock = threading.Lock()

    def until(self, attempt: Callable[[], T | None], timeout: float, what: str) -> T:
        """What `attempt` gives, tried again whenever there is news."""
        end = monotonic() + timeout
        while True:
            seen = self._core.wait(0, 0)
            if (result := attempt()) is not None:
                return result
            left = end - monotonic()
            if left <= 0:
                raise self._late(what, timeout)
            self._core.wait(seen, min(left, LOOK_S))

    async def until_async(
        self, attempt: Callable[[], T | None], timeout: float, what: str
    ) -> T:
        """The same for asyncio."""
        end = monotonic() + timeout
        while True:
            news = self._listener().news()
            if (result := attempt()) is not None:
                return result
            left = end - monotonic()
            if left <= 0:
                raise self._late(what, timeout)
            try:
                await asyncio.wait((news,), timeout=min(left, LOOK_S))
            finally:
                news.cancel()

    def _late(self, what: str, timeout: float) -> DeadlineExceeded:
        return DeadlineExceeded(f"{what} within {timeout} s: {self._state()}")

    def _listener(self) -> Listener:
        loop = asyncio.get_running_loop()
        with self._lock:
            found = self.listeners.get(id(loop))
            if found is None or found.loop is not loop:
                for key, one in list(self.listeners.items()):
                    if one.loop.is_closed():  # one of an `asyncio.run` that is over
                        self.listeners.pop(key).close()
                found = self.listeners[id(loop)] = Listener(self._core, loop)
            return found

    def close(self) -> None:
        with self._lock:
            for listener in self.listeners.values():
                listener.close()
            self.listeners.clear()

    def forked(self) -> None:
        """This is a child: a thread that is not there may have held the lock."""
        self._lock = threading.Lock()


class Listener:
    """Wakes the tasks of one event loop when there is news."""

    def __init__(self, core: Rollout, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._core = core
        self._fd = core.listen()
        self._waiters: set[asyncio.Future[None]] = set()
        loop.add_reader(self._fd, self._hear)

    def news(self) -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._waiters.add(waiter)
        waiter.add_done_callback(self._waiters.discard)
        return waiter

    def _hear(self) -> None:
        os.read(self._fd, 8)
        self._wake()

    def _wake(self) -> None:
        for waiter in list(self._waiters):
            if not waiter.done():
                waiter.set_result(None)

    def close(self) -> None:
        """The loop forgets the descriptor before it is closed: its number may be another
        file's at once."""
        try:
            is_own = asyncio.get_running_loop() is self.loop
        except RuntimeError:
            is_own = False
        if is_own:
            self._end()
            return
        try:
            self.loop.call_soon_threadsafe(self._end)
        except RuntimeError:  # it is closed
            self._core.unlisten(self._fd)

    def _end(self) -> None:
        self.loop.remove_reader(self._fd)
        self._core.unlisten(self._fd)
        self._wake()
