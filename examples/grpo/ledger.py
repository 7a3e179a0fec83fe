"""Books of the requests, by their ids: what was asked for, and what came of it."""

from collections.abc import Iterable
from typing import Any

from muster.generate import Group, Groups, Scheduler

Id = tuple[int, int]  # a group, and which of its samples


class Ledger:
    """Every sample that was submitted has to come once, or to be known as too old."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.open: dict[int, Group] = {}
        self.submitted: set[Id] = set()
        self.finished: set[Id] = set()
        self.stale: set[Id] = set()  # dropped: their oldest token was too old
        self.died: set[Id] = set()  # were running on a replica that died
        self.mixed: set[Id] = (
            set()
        )  # have tokens of more than one version of the weights
        self.doubled = 0
        self.oldest = 0  # versions that a token was behind when its batch was taken

    def submit(self, prompt: list[int], n: int, **options: Any) -> None:
        group = self.scheduler.submit(prompt, n, **options)
        self.open[group.id] = group
        self.submitted |= {(group.id, seq) for seq in range(n)}

    def take(self, groups: Groups) -> None:
        """A batch has come."""
        for group in groups:
            self.open.pop(group.id, None)
            for sample in group.samples:
                one = (group.id, sample.seq)
                self.doubled += one in self.finished or one not in self.submitted
                self.finished.add(one)
                behind = self.scheduler.version - min(sample.versions)
                self.oldest = max(self.oldest, behind)
                if len(set(sample.versions)) > 1:
                    self.mixed.add(one)

    def note_deaths(self) -> None:
        """From the scheduler's own record."""
        for event in self.scheduler.timeline():
            args = event["args"]
            if args.get("end") == "replica down":
                self.died.add((args["group"], args["seq"]))

    def settle(self) -> None:
        """Groups that will not come any more, because they were too old."""
        for group in [*self.open.values()]:
            if group.done() and group.error is not None:
                if group.error.reason == "stale":
                    self.stale |= {(group.id, seq) for seq in range(group.n)}
                self.open.pop(group.id)

    @property
    def lost(self) -> set[Id]:
        return self.submitted - self.finished - self.stale

    def lines(self) -> Iterable[str]:
        resumed = self.died & self.finished
        yield (
            f"Requests: {len(self.submitted):,} submitted, {len(self.finished):,} "
            f"finished, {len(resumed):,} resumed after a death, "
            f"{len(self.lost)} lost, {self.doubled} doubled"
        )
        stale = f"; {len(self.stale)} were too old" if self.stale else ""
        yield (
            f"Weights:  {self.scheduler.version} versions; {len(self.mixed):,} answers have "
            f"tokens of two or more, none of more than {self.oldest} behind{stale}"
        )
