"""Lease: finished groups that come back if whoever has them fails."""

from __future__ import annotations

from contextlib import suppress

from muster.errors import MusterError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from muster.generate.group import Groups
    from muster.generate.scheduler import Scheduler


class Lease:
    """Made by `scheduler.lease()`: `with` or `async with`.

    with sched.lease(groups=32) as batch:
        train(batch)   # if this raises, the groups are handed out again
    """

    def __init__(self, scheduler: Scheduler, groups: int, timeout: float) -> None:
        self._scheduler = scheduler
        self._groups = groups
        self._timeout = timeout
        self._batch: int | None = None

    def __enter__(self) -> Groups:
        scheduler = self._scheduler
        self._batch, groups = scheduler._waiter.until(
            lambda: scheduler._lease(self._groups), self._timeout, self._what()
        )
        return groups

    async def __aenter__(self) -> Groups:
        scheduler = self._scheduler
        self._batch, groups = await scheduler._waiter.until_async(
            lambda: scheduler._lease(self._groups), self._timeout, self._what()
        )
        return groups

    def _what(self) -> str:
        return f"{self._groups} finished groups were not there"

    async def __aexit__(self, cls: type[BaseException] | None, *rest: object) -> None:
        self.__exit__(cls)

    def __exit__(self, cls: type[BaseException] | None, *rest: object) -> None:
        batch, self._batch = self._batch, None
        if batch is None:
            return
        with suppress(LookupError, MusterError):  # cancelled meanwhile, or it is closed
            self._scheduler._end_lease(batch, back=cls is not None)
