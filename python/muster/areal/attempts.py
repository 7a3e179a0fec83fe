"""AReaL's http_timeout, max_retries and retry_delay, for calls that run at most once."""

# A retry of AReaL's sends the request again. Here the call has an identity: the second
# attempt goes on waiting for the first one's answer. Only a call that has certainly not
# begun, because its engine is not there yet, is made anew.

from __future__ import annotations

import logging
import time

from muster.areal.engine_server import NoEngine
from muster.areal.failures import is_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio

logger = logging.getLogger("muster.areal")
_NOT_FOUND, _UNAVAILABLE = 404, 503  # of a command that speaks HTTP


class Attempts:
    __slots__ = ("_count", "_delay", "_end", "_timeout", "number", "timer", "wait_s")

    def __init__(self, timeout: float, count: int, delay: float) -> None:
        if timeout <= 0 or count < 1 or delay < 0:
            raise ValueError(
                "http_timeout and max_retries must be positive, retry_delay not negative: "
                f"{timeout!r}, {count!r}, {delay!r}"
            )
        self._timeout, self._count, self._delay = timeout, count, delay
        self.number = 1
        self.timer: asyncio.TimerHandle | None = None
        self.wait_s = timeout  # of this attempt
        pauses: float = delay * (2 ** (count - 1) - 1)
        self._end: float = time.monotonic() + timeout * count + pauses

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

    def tell_in(
        self, loop: asyncio.AbstractEventLoop, worker_id: str, method: str
    ) -> None:
        """For a loop, which waits for all attempts at once; `timer` is to be cancelled."""
        told = (loop, worker_id, method)
        self.timer = loop.call_later(self._timeout, self._wait_in, *told)

    def _wait_in(
        self, loop: asyncio.AbstractEventLoop, worker_id: str, method: str
    ) -> None:
        if self.number < self._count:
            self.next_wait(worker_id, method)
            told = (loop, worker_id, method)
            self.timer = loop.call_later(self.wait_s, self._wait_in, *told)

    def may_repeat(self, error: Exception) -> bool:
        """It did not begin, and there are attempts left."""
        status = getattr(error, "status", 0)
        is_early = is_of(error, NoEngine) or status in (_NOT_FOUND, _UNAVAILABLE)
        return is_early and self.number < self._count

    def next_try(self) -> float:
        """Seconds until then."""
        self.wait_s = self._timeout
        return self._pause()
