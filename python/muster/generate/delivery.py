"""Delivery: open groups, until they are handed out, leased, judged or dropped."""

from __future__ import annotations

from collections import deque

from muster.generate.group import Group, Groups

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from muster._core import Rollout
    from muster.generate.scheduler import Scheduler

FAILED_KEPT = 10_000  # groups that failed and that nobody has asked for
_FAILURES = ("poison", "refused", "deadline")


class Delivery:
    """Under the scheduler's lock. What only Python can do is done by whoever waits for groups:
    finished ones are judged by `filter`, `refill` is asked for others, failures are raised."""

    def __init__(
        self,
        scheduler: Scheduler,
        core: Rollout,
        *,
        filter: Callable[[Group], object] | None,
        refill: Callable[[], Mapping[str, Any] | None] | None,
        skips: bool,
    ) -> None:
        self.open: dict[int, Group] = {}
        self.failed: deque[Group] = deque(maxlen=FAILED_KEPT)
        self._scheduler = scheduler
        self._core = core
        self._filter = filter
        self._refill = refill
        self._skips = skips
        self._leased: dict[int, dict[int, Group]] = {}  # by batch
        self._missing = 0  # groups that `refill` is still to be asked for

    # ---- handed out -------------------------------------------------------------------

    def take(self, groups: int) -> Groups | None:
        self._serve()
        found = self._core.pull(groups)
        if found is None:
            return None
        return Groups(self.open.pop(one.id)._fill(one) for one in found)

    def take_next(self) -> Groups | None:
        """One, or none if none is open."""
        taken = self.take(1)
        if taken is None and not self.open:
            return Groups()
        return taken

    def look(self, group: Group) -> bool:
        """Is it over? Then it is handed out."""
        if group._is_over:
            return True
        if self._filter is not None:
            self._judge()
        try:
            found = self._core.take(group.id)
        except LookupError:
            return group._is_over
        if found is None:
            return False
        self.open.pop(group.id, None)
        group._fill(found)
        return True

    # ---- leased -----------------------------------------------------------------------

    def lease(self, groups: int) -> tuple[int, Groups] | None:
        self._serve()
        found = self._core.lease(groups)
        if found is None:
            return None
        batch, filled = found
        out = Groups(self.open.pop(one.id)._fill(one) for one in filled)
        self._leased[batch] = {group.id: group for group in out}
        return batch, out

    def end_lease(self, batch: int, back: bool) -> None:
        self.serve_dropped()  # what was cancelled meanwhile does not come back
        groups = self._leased.pop(batch)
        if not back:
            self._core.consumed(batch)
            return
        for group in groups.values():
            group._is_over = False
        self.open |= groups
        self._core.give_back(batch)

    # ---- judged, dropped --------------------------------------------------------------

    def _serve(self) -> None:
        self._judge()
        self.serve_dropped()
        while self.failed:
            group = self.failed.popleft()
            if not group._was_raised:
                group._value()

    def _judge(self) -> None:
        self._scheduler._follow()
        while self._filter is not None and (found := self._core.judge()) is not None:
            of = self.open[found.id]
            shown = Group(self._scheduler, of.id, of.key, of.prompt, of.n)._fill(found)
            keep = False
            try:
                keep = bool(self._filter(shown))
            finally:
                self._core.verdict(of.id, keep)
        if self._refill is not None:
            self._missing += self._core.take_refill()
            while self._missing > 0:  # one that raises is asked for again
                if (options := self._refill()) is not None:
                    self._scheduler.submit(**options)
                self._missing -= 1

    def serve_dropped(self) -> None:
        while (found := self._core.take_dropped()) is not None:
            if (group := self.open.pop(found.id, None)) is not None:
                self._note_dropped(group._fill(found))
            for leased in self._leased.values():
                leased.pop(found.id, None)

    def _note_dropped(self, group: Group) -> None:
        failed = group.error is not None and group.error.reason in _FAILURES
        if failed and not self._skips:
            self.failed.append(group)
