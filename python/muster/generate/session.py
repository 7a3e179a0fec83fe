"""Session: turns of one conversation, which go where the prefix is warm."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable
    from typing import Any

    from muster.generate.group import Group
    from muster.generate.scheduler import Scheduler


class Session:
    """Made by `scheduler.session()`. Each turn is submitted with the whole context so far;
    the scheduler prefers the replica that ended the turn before."""

    def __init__(self, scheduler: Scheduler, key: Hashable) -> None:
        self.key = key
        self.turns = 0
        self.replica: int | None = None  # that has the prefix
        self._cache = (0, 0)  # its incarnation and weights then: later ones have it not
        self._scheduler = scheduler

    def submit(self, prompt: Any, **options: Any) -> Group:
        """As `scheduler.submit`, of the next turn. Each turn has a history of lengths of its
        own, and what later turns took before counts in the order of sessions."""
        self.turns += 1
        options.setdefault("key", self.key)
        return self._scheduler.submit(prompt, session=self, **options)

    def _ended(self, group: Group) -> None:
        if group.samples and group.error is None:
            self.replica = group.samples[-1].replica
            self._cache = group.samples[-1]._cache
