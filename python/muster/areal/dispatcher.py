"""BatchTaskDispatcher: tasks that begin when staleness allows it, in batches."""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from typing import Generic, TypeVar

from muster.areal.task_runner import AsyncTaskRunner, TimedResult

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from typing import Any

    from muster.areal.staleness import StalenessManager

TInput = TypeVar("TInput")
TResult = TypeVar("TResult")
END_S = 5.0
logger = logging.getLogger("muster.areal")


class BatchTaskDispatcher(Generic[TInput, TResult]):
    """Begins tasks while the manager has capacity, and hands out their results, oldest
    first, with AReaL's names.

    task_factory: from an input, which has a `task_id`, to a function that gives a
    coroutine. That one tells the manager whether it was accepted, and returns None if not;
    one that raises is counted as rejected. shuffle: a batch comes in random order.
    """

    def __init__(
        self,
        max_queue_size: int,
        task_factory: Callable[[TInput], Callable[[], Awaitable[TResult | None]]],
        staleness_manager: StalenessManager,
        enable_tracing: bool = False,
        *,
        shuffle: bool = True,
    ) -> None:
        self.runner: AsyncTaskRunner[Any] = AsyncTaskRunner(
            max_queue_size, on_result=self._note
        )
        self.task_factory = task_factory
        self.staleness_manager = staleness_manager
        self.logger: Any = logger
        self._shuffle = shuffle
        self._news = threading.Condition()  # and the lock of all below
        self._inputs: deque[TInput] = deque()
        self._results: dict[int, TimedResult[TResult | None]] = {}
        self._active: set[int] = set()  # whose results were not handed out
        self._changes = 0  # of what capacity depends on
        self._asked = -1  # the change at which there was none; of the producer alone
        self._is_ending = False
        self._producer: threading.Thread | None = None

    def initialize(self, logger: Any = None) -> None:
        self.logger = logger or self.logger
        self._is_ending = False
        self.runner.initialize(self.logger)
        self._producer = threading.Thread(
            target=self._produce, name="muster-rollouts", daemon=True
        )
        self._producer.start()

    def destroy(self) -> None:
        with self._news:
            self._is_ending = True
            self._news.notify_all()
        if self._producer is not None:
            self._producer.join(END_S)
        self.runner.destroy()

    def pause(self) -> None:
        """No task begins; those that run go on."""
        self.runner.pause()

    def resume(self) -> None:
        self.runner.resume()
        self.wake()

    def wake(self) -> None:
        """There may be capacity: the version has changed."""
        with self._news:
            self._changed()

    def _changed(self) -> None:
        """With the lock."""
        self._changes += 1
        self._news.notify_all()

    def is_paused(self) -> bool:
        return self.runner.paused.is_set()

    # ---- tasks ------------------------------------------------------------------------

    def submit_task_input(self, task_input: Any) -> None:
        """ValueError: a task of that id is there."""
        with self._news:
            if task_input.task_id in self._active:
                raise ValueError(f"task_id: {task_input.task_id} is there already")
            self._active.add(task_input.task_id)
            self._inputs.append(task_input)
            self.staleness_manager.on_rollout_enqueued()
            self._changed()

    def _produce(self) -> None:
        """The thread that begins tasks: capacity may have to be waited for."""
        while True:
            with self._news:
                self._news.wait_for(lambda: self._is_ending or self._is_due())
                if self._is_ending:
                    return
                self._asked = self._changes
            if self.staleness_manager.get_capacity() > 0:
                self._begin()
                self._asked = -1

    def _is_due(self) -> bool:
        """There is something to begin, and capacity may have changed since it was asked
        for."""
        is_asked = self._changes == self._asked
        if not self._inputs or is_asked or self.runner.paused.is_set():
            return False
        return self.runner.get_input_queue_size() < self.runner.max_queue_size

    def _begin(self) -> None:
        with self._news:
            one: Any = self._inputs.popleft()
            self._news.notify_all()
        self.staleness_manager.on_rollout_submitted()
        self.runner.submit(self._run, one, task_id=one.task_id)

    async def _run(self, one: Any) -> TResult | None:
        try:
            return await self.task_factory(one)()
        except Exception:
            self.staleness_manager.on_rollout_rejected()
            self.logger.exception("rollout %s failed: it is rejected", one.task_id)
            return None

    def _note(self, result: TimedResult[Any]) -> None:
        with self._news:
            self._results[result.task_id] = result
            self._changed()

    # ---- results ----------------------------------------------------------------------

    def _wait(self, is_there: Callable[[], bool], timeout: float | None) -> bool:
        """With the lock."""
        self._news.wait_for(lambda: is_there() or self._is_ending, timeout)
        if not is_there() and self._is_ending:
            raise RuntimeError("the dispatcher ends: there will be no results")
        return is_there()

    def wait_results(
        self, count: int, timeout: float | None = None, raise_timeout: bool = True
    ) -> list[TResult | None]:
        """The `count` that were begun first, of those that are done; None: rejected."""
        if count < 1:
            raise ValueError(f"count: must be at least 1: {count!r}")
        with self._news:
            if not self._wait(lambda: len(self._results) >= count, timeout):
                if raise_timeout:
                    there = len(self._results)
                    raise TimeoutError(f"{there} of {count} results within {timeout} s")
                return []
            taken = self._take_oldest(count)
        if self._shuffle:
            random.shuffle(taken)
        return taken

    def _take_oldest(self, count: int) -> list[TResult | None]:
        done = sorted(self._results.values(), key=lambda one: one.create_time)
        return [self._take(one.task_id) for one in done[:count]]

    def _take(self, task_id: int) -> TResult | None:
        self._active.discard(task_id)
        self._news.notify_all()
        return self._results.pop(task_id).data

    def wait_for_task(
        self, task_id: int, timeout: float | None = None, raise_timeout: bool = True
    ) -> TResult | None:
        with self._news:
            if task_id not in self._active:
                raise ValueError(f"task {task_id} was never submitted")
            if not self._wait(lambda: task_id in self._results, timeout):
                if raise_timeout:
                    raise TimeoutError(f"task {task_id}: not done within {timeout} s")
                return None
            return self._take(task_id)

    def active_submit_and_wait(
        self,
        input_generator: Iterator[TInput],
        batch_size: int,
        dynamic_bs: bool = False,
    ) -> list[TResult]:
        """Submit from an endless generator, always as many as staleness lets wait, until
        `batch_size` are accepted; dynamic_bs: until so many have ended either way."""
        if self.runner.max_queue_size < batch_size:
            raise ValueError(
                f"max_queue_size {self.runner.max_queue_size} is less than a batch of "
                f"{batch_size}"
            )
        accepted: list[TResult] = []
        ended = 0
        while (ended if dynamic_bs else len(accepted)) < batch_size:
            self._fill(input_generator)
            left = batch_size - (ended if dynamic_bs else len(accepted))
            taken = self._take_when_there(left)
            ended += len(taken)
            accepted += [one for one in taken if one is not None]
        return accepted

    def _take_when_there(self, count: int) -> list[TResult | None]:
        """The oldest `count`; or none of them when more inputs may wait."""
        with self._news:
            self._wait(lambda: self._is_done(count), None)
            return self._take_oldest(count) if len(self._results) >= count else []

    def _is_done(self, count: int) -> bool:
        """So many results are there, or more inputs may wait."""
        limit = self.staleness_manager.get_pending_limit()
        return len(self._results) >= count or len(self._inputs) < limit

    def _fill(self, inputs: Iterator[TInput]) -> None:
        while len(self._inputs) < self.staleness_manager.get_pending_limit():
            try:
                self.submit_task_input(next(inputs))
            except StopIteration:
                raise RuntimeError(
                    "the inputs ended before the batch was full: give an endless generator"
                ) from None
