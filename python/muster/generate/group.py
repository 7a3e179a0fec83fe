"""Group and Sample: what was asked for together, and what has come of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from muster.errors import Cancelled, DeadlineExceeded, MusterError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Hashable, Iterable
    from typing import Any, Protocol, Self, TypeVar, overload

    from muster._core import RolloutGroup, RolloutSample
    from muster.batch import Batch
    from muster.generate.scheduler import Scheduler

    class FromBatch(Protocol):
        """A class that can be made of a Batch: DataProto of muster.roll and muster.verl."""

        @classmethod
        def from_batch(cls, batch: Batch) -> Self: ...

    Made = TypeVar("Made", bound=FromBatch)


class GroupDropped(MusterError):
    """A group that will not be delivered. `reason`: "poison" (it failed on three replicas),
    "refused" (by an engine, as what no other would take), "deadline", "cancelled", "stale" or "filtered"; `group` has what there was of it."""

    group: Group
    reason: str


class GroupDeadline(GroupDropped, DeadlineExceeded):
    """It was not whole in time."""


class GroupCancelled(GroupDropped, Cancelled):
    """It was cancelled."""


_ERRORS = {"deadline": GroupDeadline, "cancelled": GroupCancelled}


@dataclass(slots=True)
class Sample:
    """One answer.

    tokens: what was generated; logprobs: one for each, NaN where the engine gave none, or
    None; versions: that of the weights of each token; finish_reason: "stop", "length", or
    what the engine said; replica: the one that ended it; attempt: how often it was sent.
    """

    tokens: list[int]
    logprobs: list[float] | None
    versions: list[int]
    finish_reason: str
    replica: int
    attempt: int
    seq: int
    rid: str
    failure: str = field(default="", repr=False)


def _sample(one: RolloutSample) -> Sample:
    return Sample(
        tokens=one.tokens,
        logprobs=one.logprobs,
        versions=one.versions,
        finish_reason=one.finish_reason,
        replica=one.replica,
        attempt=one.attempt,
        seq=one.seq,
        rid=one.rid,
        failure=one.failure,
    )


class Group:
    """Samples of one prompt. `await group` or `group.result()` gives it when it is whole,
    and raises GroupDropped if it will not be. It is handed out once: one that was waited for
    is in no batch."""

    def __init__(
        self, scheduler: Scheduler, id: int, key: Hashable, prompt: Any, n: int
    ) -> None:
        self.id = id
        self.key = key
        self.prompt = prompt
        self.n = n
        self.samples: list[Sample] = []
        self.error: GroupDropped | None = None
        self._is_over = False
        self._was_raised = False
        self._scheduler = scheduler

    def _fill(self, outcome: RolloutGroup) -> Group:
        """It is over."""
        is_dropped = outcome.why is not None
        self.samples = [_sample(s) for s in outcome.samples if s.is_done or is_dropped]
        if outcome.why is not None:
            self.error = self._dropped(outcome.why)
        self._is_over = True
        return self

    def _dropped(self, why: str) -> GroupDropped:
        failures = [one.failure for one in self.samples if one.failure]
        last = f": {failures[-1]}" if failures else ""
        error = _ERRORS.get(why, GroupDropped)(
            f"the group of prompt {self.key!r} was dropped ({why}){last}"
        )
        error.group = self
        error.reason = why
        return error

    def done(self) -> bool:
        """It is over: whole, or dropped."""
        return self._is_over or self._scheduler._look(self)

    def result(self, timeout: float | None = None) -> Group:
        """Itself, when it is whole."""
        self._scheduler._wait_for(self, timeout)
        return self._value()

    def _value(self) -> Group:
        if self.error is not None:
            self._was_raised = True
            raise self.error
        return self

    def __await__(self) -> Generator[Any, None, Group]:
        yield from self._scheduler._await_for(self).__await__()
        return self._value()

    def cancel(self) -> None:
        """Nobody wants it any more. Does nothing if it is over."""
        if not self._is_over:
            self._scheduler.cancel(self)

    @property
    def rids(self) -> list[str]:
        """The ids of its requests, for `cancel` and `explain`."""
        if self._is_over:
            return [one.rid for one in self.samples]
        return self._scheduler._rids(self)

    if TYPE_CHECKING:

        @overload
        def to_batch(self) -> Batch: ...
        @overload
        def to_batch(self, cls: type[Made]) -> Made: ...

    def to_batch(self, cls: Any = None) -> Any:
        """As of Groups."""
        return Groups([self]).to_batch(cls)

    def __len__(self) -> int:
        return len(self.samples)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        state = (
            "open"
            if not self._is_over
            else self.error.reason
            if self.error is not None
            else f"{len(self.samples)} samples"
        )
        return f"<muster.generate.Group {self.key!r}: {state}>"


class Groups(list[Group]):
    """Finished groups, the oldest first."""

    @property
    def samples(self) -> list[Sample]:
        return [one for group in self for one in group.samples]

    if TYPE_CHECKING:

        @overload
        def to_batch(self) -> Batch: ...
        @overload
        def to_batch(self, cls: type[Made]) -> Made: ...

    def to_batch(self, cls: Any = None) -> Any:
        """One row for each sample: tokens, logprobs and versions are ragged columns, as is the
        prompt if all prompts are lists of numbers; key, group, seq, replica, attempt and
        finish_reason say whose they are. A Batch, or what `cls.from_batch` makes of it:
        DataProto of muster.roll or muster.verl."""
        import numpy as np

        from muster.batch import Batch
        from muster.ragged import Ragged

        samples = self.samples
        of = [group for group in self for _ in group.samples]
        columns: dict[str, Any] = {
            "tokens": Ragged.of([one.tokens for one in samples], np.int32),
            "versions": Ragged.of([one.versions for one in samples], np.int32),
            "prompt": _prompts([group.prompt for group in of]),
            "key": [group.key for group in of],
            "group": np.array([group.id for group in of], dtype=np.int64),
            "seq": np.array([one.seq for one in samples], dtype=np.int32),
            "replica": np.array([one.replica for one in samples], dtype=np.int32),
            "attempt": np.array([one.attempt for one in samples], dtype=np.int32),
            "finish_reason": [one.finish_reason for one in samples],
        }
        if any(one.logprobs is not None for one in samples):
            columns["logprobs"] = Ragged.of(
                [one.logprobs or [float("nan")] * len(one.tokens) for one in samples],
                np.float32,
            )
        batch = Batch(columns)
        return batch if cls is None else cls.from_batch(batch)


def _prompts(prompts: list[Any]) -> Any:
    import numpy as np

    from muster.ragged import Ragged

    def is_tokens(prompt: Any) -> bool:
        return isinstance(prompt, (list, tuple)) and all(
            isinstance(token, int) for token in prompt
        )

    if prompts and all(map(is_tokens, prompts)):
        return Ragged.of(prompts, np.int32)
    return list(prompts)


def total_tokens(groups: Iterable[Group]) -> int:
    return sum(len(one.tokens) for group in groups for one in group.samples)
