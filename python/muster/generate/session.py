"""Session: turns of one conversation, which go where the prefix is warm."""

from __future__ import annotations

from contextlib import suppress

from muster.errors import MusterError
from muster.generate.prompt import number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable
    from typing import Any, Self

    from muster.generate.group import Group
    from muster.generate.scheduler import Scheduler


class Session:
    """Made by `scheduler.session()`. Each turn is submitted with the whole context so far;
    the scheduler prefers the replica that ended the turn before. `finish()`, or the end of a
    `with`, says that there are no more turns. One that had no turn for `session_ttl` seconds
    is forgotten: the next turn begins anywhere, and is the next one still."""

    def __init__(self, scheduler: Scheduler, key: Hashable) -> None:
        self.key = key  # of its turns in the history of lengths; None: they have none
        self.turns = 0
        self._number = 0 if key is None else number(key)
        self._core = scheduler._core
        self._scheduler = scheduler
        self._is_finished = False
        self._id = self._core.session_open(self._number, 0)

    def submit(self, prompt: Any, **options: Any) -> Group:
        """As `scheduler.submit`, of the next turn. Each turn has a history of lengths of its
        own, and what later turns took before counts in the order of sessions."""
        if self._is_finished:
            raise ValueError("the session was finished")
        try:
            group = self._scheduler.submit(prompt, session=self, **options)
        except LookupError:  # it was forgotten
            self._id = self._core.session_open(self._number, self.turns)
            group = self._scheduler.submit(prompt, session=self, **options)
        self.turns += 1
        return group

    @property
    def replica(self) -> int | None:
        """That has the prefix."""
        try:
            return self._core.session_replica(self._id)
        except LookupError:
            return None

    def finish(self) -> None:
        """There are no more turns; what is under way goes on. Idempotent."""
        self._is_finished = True
        with suppress(
            LookupError, MusterError
        ):  # forgotten, or the scheduler is closed
            self._core.session_finish(self._id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.finish()
