"""Waiting, on one event loop, for something to change."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from muster.errors import DeadlineExceeded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


@asynccontextmanager
async def deadline(timeout: float, what: Callable[[], str]) -> AsyncIterator[None]:
    """The body has so many seconds. DeadlineExceeded with `what`, in which "within 3 s" is
    put at the end of the first clause."""
    try:
        async with asyncio.timeout(timeout):
            yield
    except TimeoutError as e:
        if isinstance(e, DeadlineExceeded):
            raise
        first, colon, rest = what().partition(":")
        raise DeadlineExceeded(f"{first} within {timeout} s{colon}{rest}") from None


class Changes:
    """`tell` wakes all that wait, in the order in which they came; each then looks again."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], None] = {}

    async def wait(self) -> None:
        mine = asyncio.get_running_loop().create_future()
        self._waiting[mine] = None
        try:
            await mine
        finally:
            self._waiting.pop(mine, None)

    def tell(self) -> None:
        for one in self._waiting:
            if not one.done():
                one.set_result(None)
        self._waiting.clear()
