"""Rollouts: trajectories of a role's engines, one call each, within a staleness."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass

from muster.areal.dispatcher import BatchTaskDispatcher

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator
    from typing import Any

    from muster.areal.staleness import StalenessManager

QUEUE_PER_RUNNING = 16


@dataclass
class _Input:
    task_id: int
    data: Any


class Rollouts:
    """Calls `method` of a role's engines with each piece of data, on the worker that has
    the fewest under way. What it returns is a trajectory; None: it is rejected, and gives
    its capacity back. Such a method is best `async`: a worker runs many at once.

    The call's answer brings the trajectory (its tensors as handles): there is no callback,
    and nothing is asked for a second time.
    """

    def __init__(
        self,
        scheduler: Any,
        role: str,
        method: str,
        staleness_manager: StalenessManager,
        *,
        timeout: float = 3600.0,
        shuffle: bool = True,
    ) -> None:
        self.scheduler = scheduler
        self.method = method
        self.timeout = timeout
        self.staleness_manager = staleness_manager
        self._running = {w.id: 0 for w in scheduler.get_workers(role)}
        self._engines = {w: f"{role}/{i}" for i, w in enumerate(self._running)}
        self._lock = threading.Lock()
        self._ids = itertools.count()
        self._inputs: Iterator[_Input] | None = None
        size = QUEUE_PER_RUNNING * max(1, staleness_manager.max_concurrent_rollouts)
        self.dispatcher: BatchTaskDispatcher[_Input, Any] = BatchTaskDispatcher(
            size, self._task, staleness_manager, shuffle=shuffle
        )
        self.dispatcher.initialize()

    def _task(self, one: _Input) -> Callable[[], Awaitable[Any]]:
        async def run() -> Any:
            with self._lock:
                worker = min(self._running, key=self._running.__getitem__)
                self._running[worker] += 1
            try:
                trajectory = await self.scheduler.async_call_engine(
                    worker,
                    self.method,
                    self._engines[worker],
                    one.data,
                    http_timeout=self.timeout,
                    max_retries=1,
                )
            finally:
                with self._lock:
                    self._running[worker] -= 1
            manager = self.staleness_manager
            if trajectory is None:
                manager.on_rollout_rejected()
            else:
                manager.on_rollout_accepted()
            return trajectory

        return run

    def submit(self, data: Any) -> int:
        """Its number, for `wait_for_task`."""
        one = _Input(next(self._ids), data)
        self.dispatcher.submit_task_input(one)
        return one.task_id

    def wait(
        self, count: int, timeout: float | None = None, raise_timeout: bool = True
    ) -> list[Any]:
        """The oldest `count` that are done; None: rejected."""
        return self.dispatcher.wait_results(count, timeout, raise_timeout)

    def wait_for_task(
        self, task_id: int, timeout: float | None = None, raise_timeout: bool = True
    ) -> Any:
        return self.dispatcher.wait_for_task(task_id, timeout, raise_timeout)

    def rollout_batch(self, data: Iterable[Any]) -> list[Any]:
        """Of each piece of data its trajectory, but for those that were rejected."""
        numbers = [self.submit(one) for one in data]
        found = self.dispatcher.wait_results(len(numbers)) if numbers else []
        return [one for one in found if one is not None]

    def prepare_batch(
        self, dataloader: Any, batch_size: int | None = None, dynamic_bs: bool = False
    ) -> list[Any]:
        """A batch, while more is under way. The first call's dataloader is gone through
        again and again; its batches are lists."""
        if self._inputs is None:
            self._inputs = self._endless(dataloader)
        size = dataloader.batch_size if batch_size is None else batch_size
        return self.dispatcher.active_submit_and_wait(self._inputs, size, dynamic_bs)

    def _endless(self, dataloader: Any) -> Iterator[_Input]:
        while True:
            for batch in dataloader:
                for data in batch:
                    yield _Input(next(self._ids), data)

    def pause(self) -> None:
        """No rollout begins; those that run go on."""
        self.dispatcher.pause()

    def resume(self) -> None:
        self.dispatcher.resume()

    def destroy(self) -> None:
        self.dispatcher.destroy()
