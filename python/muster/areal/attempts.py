"""AReaL's http_timeout, max_retries and retry_delay, for calls that run at most once."""

# A retry of AReaL's sends the request again. Here the call has an identity: the second
# attempt goes on waiting for the first one's answer. Only a call that has certainly not
# begun, because its engine is not there yet, is made anew.

from __future__ import annotations

import logging
import math
import time
import weakref

from muster.areal.engine_server import NoEngine
from muster.areal.failures import is_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio

logger = logging.getLogger("muster.areal")
_NOT_FOUND, _UNAVAILABLE = 404, 503  # of a command that speaks HTTP


class Attempts:
    __slots__ = ("_count", "_delay", "_end", "_timeout", "due", "number", "wait_s")

    def __init__(self, timeout: float, count: int, delay: float) -> None:
        if timeout <= 0 or count < 1 or delay < 0:
            raise ValueError(
                "http_timeout and max_retries must be positive, retry_delay not negative: "
                f"{timeout!r}, {count!r}, {delay!r}"
            )
        self._timeout, self._count, self._delay = timeout, count, delay
        self.number = 1
        self.wait_s = timeout  # of this attempt
        pauses: float = delay * (2 ** (count - 1) - 1)
        now = time.monotonic()
        self.due = now + timeout  # when it ends, for a Watch
        self._end: float = now + timeout * count + pauses

    @property
    def left(self) -> float:
        """Seconds for all attempts together: the deadline of the call."""
        return max(0.001, self._end - time.monotonic())

    def _pause(self) -> float:
        pause: float = self._delay * 2 ** (self.number - 1)
        self.number += 1
        return pause

    def next_wait(self, worker_id: str, method: str) -> None:
        """This attempt got no answer: the next one waits for the same call."""
        if self.number < self._count:
            self._tell(worker_id, method)
            self.wait_s = self._pause() + self._timeout
        else:
            self.wait_s = self.left + 1.0  # until the call's own deadline

    def _tell(self, worker_id: str, method: str) -> None:
        logger.warning(
            "%r of %s has not answered within %g s (attempt %d of %d): it goes on, and is "
            "waited for",
            method,
            worker_id,
            self._timeout,
            self.number,
            self._count,
        )

    def may_repeat(self, error: Exception) -> bool:
        """It did not begin, and there are attempts left."""
        status = getattr(error, "status", 0)
        is_early = is_of(error, NoEngine) or status in (_NOT_FOUND, _UNAVAILABLE)
        return is_early and self.number < self._count

    def next_try(self) -> float:
        """Seconds until then."""
        self.wait_s = self._timeout
        pause = self._pause()
        self.due = time.monotonic() + pause + self._timeout
        return pause


class Watch:
    """The calls of an event loop, which waits for all attempts of a call at once: tells of
    those that have not answered in time. One timer is for all of them, and stays when they are
    answered. Must not refer to the loop itself."""

    def __init__(self) -> None:
        self._calls: dict[Attempts, tuple[str, str]] = {}
        self._due = math.inf  # of the timer

    def add(
        self,
        loop: asyncio.AbstractEventLoop,
        attempts: Attempts,
        worker_id: str,
        method: str,
    ) -> None:
        self._calls[attempts] = worker_id, method
        if attempts.due < self._due:
            self._set_timer(loop, attempts.due)

    def remove(self, attempts: Attempts) -> None:
        self._calls.pop(attempts, None)

    def _set_timer(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._due = due
        loop.call_later(max(0.0, due - time.monotonic()), self._look, loop, due)

    def _look(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        if due != self._due:
            return  # there is an earlier one
        now = time.monotonic()
        for attempts, (worker_id, method) in self._calls.items():
            if attempts.due <= now:
                attempts.next_wait(worker_id, method)
                attempts.due = now + attempts.wait_s
        self._due = math.inf
        if self._calls:
            self._set_timer(loop, min(one.due for one in self._calls))


_watches: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Watch]
_watches = weakref.WeakKeyDictionary()


def watch_of(loop: asyncio.AbstractEventLoop) -> Watch:
    found = _watches.get(loop)
    if found is None:
        found = _watches[loop] = Watch()
    return found
