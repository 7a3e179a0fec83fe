"""Stream: the items of a method that is a generator, as they come."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

    from muster._core import Call
    from muster.future import Listener


class Stream:
    """An iterator and an async iterator; what the generator raises, it raises.

    The worker is at most some hundred items ahead. `close()`, the end of a `with`, and
    dropping the stream close the generator.
    """

    __slots__ = ("_call", "_ended", "_listener")

    def __init__(self, call: Call) -> None:
        self._ended = False
        self._call = call
        self._listener: Listener | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        try:
            there, item = self._call.next_item(None)
        except Exception:
            self._end()
            raise
        if not there:
            self._end()
            raise StopIteration
        return item

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        while not self._ended:
            try:
                state, item = self._call.try_item()
            except Exception:
                self._end()
                raise
            if state > 0:
                return item
            if state < 0:
                self._end()
            else:
                await self._hear()
        raise StopAsyncIteration

    async def _hear(self) -> None:
        """Wait for an item, or for the end."""
        from asyncio import get_running_loop

        from muster.future import Listener

        listener = self._listener
        if listener is None or listener.loop is not get_running_loop():
            listener = self._listener = Listener(self._call)
        await listener

    def _end(self) -> None:
        self._ended = True
        if self._listener is not None:
            self._listener.close()

    def close(self) -> None:
        """Take no more items; the generator is closed. Idempotent."""
        if not self._ended:
            self._end()
            self._call.cancel()

    async def aclose(self) -> None:
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
