"""StalenessManager: how many rollouts may begin, as AReaL's rule has it."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from muster._core import Staleness

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class VersionProvider(Protocol):
        def get_version(self) -> int: ...


@dataclass
class RolloutStat:
    """Rollouts that wait for capacity, run, and have ended either way."""

    enqueued: int = 0
    running: int = 0
    accepted: int = 0
    rejected: int = 0


class StalenessManager:
    """Counts rollouts; `get_capacity` says how many more may begin, so that none is more
    than `max_staleness` versions old when it is used. The rule is src/generate/staleness.h.
    From any thread."""

    def __init__(
        self,
        version_provider: VersionProvider,
        max_concurrent_rollouts: int,
        consumer_batch_size: int,
        max_staleness: int,
    ) -> None:
        self.version_provider = version_provider
        self.max_concurrent_rollouts = max_concurrent_rollouts
        self.consumer_batch_size = consumer_batch_size
        self.max_staleness = max_staleness
        self._rule = Staleness(
            max_concurrent_rollouts, consumer_batch_size, max_staleness
        )
        self._lock = threading.Lock()

    def get_pending_limit(self) -> int:
        """How many may wait for capacity."""
        return self._rule.pending_max

    def get_capacity(self) -> int:
        """How many may begin now; not positive: none."""
        version = self.version_provider.get_version()  # may wait: not under our lock
        with self._lock:
            return self._rule.capacity(version)

    def on_version_recovered(self, version: int) -> None:
        """A checkpoint of that version was loaded: what it was made of was accepted."""
        with self._lock:
            self._rule.recover(version)

    def on_rollout_enqueued(self) -> None:
        with self._lock:
            self._rule.enqueue()

    def on_rollout_submitted(self) -> None:
        with self._lock:
            self._rule.submit()

    def on_rollout_accepted(self) -> None:
        with self._lock:
            self._rule.accept()

    def on_rollout_rejected(self) -> None:
        """Its capacity is free again."""
        with self._lock:
            self._rule.reject()

    def get_stats(self) -> RolloutStat:
        with self._lock:
            rule = self._rule
            return RolloutStat(
                rule.enqueued, rule.running, rule.accepted, rule.rejected
            )
