"""Update: new weights for the replicas, at one barrier or one replica after the other."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from muster.generate.scheduler import Scheduler

MODES = {"abort": 0, "wait": 1, "keep": 2}


class Update:
    """Made by `scheduler.weights()`.

    with sched.weights(version=7):             # all replicas stand still in the body
        actor_infer.set_weights(weights)           # `async with` in asyncio

    for replica in sched.weights(version=8, rolling=True):
        actor_infer[replica].set_weights(weights)   # this one alone stands still
    """

    def __init__(
        self,
        scheduler: Scheduler,
        version: int,
        mode: str,
        rolling: bool,
        timeout: float,
        drain: float | None,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f'mode: "abort", "wait" or "keep": {mode!r}')
        self.version = version
        self.rolling = rolling
        self.replicas: list[int] = []  # that get them
        self._scheduler = scheduler
        self._how = (version, MODES[mode], rolling, drain)
        self._timeout = timeout

    def _what(self) -> str:
        return f"the replicas could not get version {self.version}"

    def _begin(self) -> None:
        self._scheduler._core.weights_begin(*self._how)

    def _next(self) -> int:
        try:
            return self._scheduler._waiter.until(
                self._scheduler._core.weights_next,
                self._timeout,
                self._what(),
            )
        except BaseException:
            self._fail()
            raise

    def _fail(self) -> None:
        from contextlib import suppress

        with suppress(Exception):  # it is closed, or the update has ended
            self._scheduler._core.weights_failed()

    def _ready(self, replica: int) -> None:
        from contextlib import suppress

        with suppress(LookupError):  # it died meanwhile
            self._scheduler._core.weights_ready(replica)

    def __enter__(self) -> Self:
        if self.rolling:
            raise TypeError("rolling: go through the replicas with a for loop")
        self._begin()
        while (replica := self._next()) >= 0:
            self.replicas.append(replica)
        return self

    async def __aenter__(self) -> Self:
        if self.rolling:
            raise TypeError("rolling: go through the replicas with a for loop")
        self._begin()
        try:
            while (replica := await self._next_async()) >= 0:
                self.replicas.append(replica)
        except BaseException:
            self._fail()
            raise
        return self

    async def _next_async(self) -> int:
        return await self._scheduler._waiter.until_async(
            self._scheduler._core.weights_next, self._timeout, self._what()
        )

    async def __aexit__(self, cls: type[BaseException] | None, *rest: object) -> None:
        self.__exit__(cls)

    def __exit__(self, cls: type[BaseException] | None, *rest: object) -> None:
        if cls is not None:
            self._fail()
            return
        for replica in self.replicas:
            self._ready(replica)

    def __iter__(self) -> Iterator[int]:
        """The rank of each replica in turn; it goes on when the next one is asked for. A loop
        that is left gives the update up: replicas that had their turn keep the weights."""
        self._begin()
        is_whole = False
        try:
            while (replica := self._next()) >= 0:
                self.replicas.append(replica)
                yield self._scheduler._core.rank(replica)
                self._ready(replica)
            is_whole = True
        finally:
            if not is_whole:
                self._fail()
