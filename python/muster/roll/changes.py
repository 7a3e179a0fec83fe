"""Waiting, on one event loop, for something to change."""

from __future__ import annotations

import asyncio


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
