"""AsyncTaskRunner: coroutines on the loop of a thread, begun and waited for from others."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

T = TypeVar("T")
END_S = 30.0
logger = logging.getLogger("muster.areal")


class TaskQueueFullError(RuntimeError):
    """So many tasks wait to begin already."""


@dataclass
class TimedResult(Generic[T]):
    """What a task has returned (None: it raised), and when it was begun."""

    create_time: int  # of time.monotonic_ns()
    data: T
    task_id: int


class AsyncTaskRunner(Generic[T]):
    """Runs async functions side by side, with AReaL's names.

    At most `max_queue_size` tasks wait to begin, and none begins while so many results
    wait to be taken. `pause()` lets none begin; those that run go on. Nothing is polled:
    the two times of AReaL's runner are taken and not used.

    on_result: is given each result, on the thread of the loop, and `wait` has none.
    """

    def __init__(
        self,
        max_queue_size: int,
        poll_wait_time: float = 0.05,
        poll_sleep_time: float = 0.5,
        enable_tracing: bool = False,
        *,
        on_result: Callable[[TimedResult[T]], object] | None = None,
    ) -> None:
        if max_queue_size < 1:
            raise ValueError(f"max_queue_size: must be at least 1: {max_queue_size!r}")
        self.max_queue_size = max_queue_size
        self.paused = threading.Event()
        self.exiting = threading.Event()
        self.thread: threading.Thread | None = None
        self._logger: Any = logger
        self._on_result = on_result
        self._news = threading.Condition()  # and the lock of all below
        self._inputs: deque[tuple[int, Callable[[], Awaitable[T]]]] = deque()
        self._results: deque[TimedResult[T]] = deque()
        self._active: set[int] = set()  # that wait or run
        self._tasks: set[asyncio.Task[Any]] = set()  # of the loop alone
        self._loop: asyncio.AbstractEventLoop | None = None

    def initialize(self, logger: Any = None) -> None:
        """Start the thread."""
        self._logger = logger or self._logger
        self.exiting.clear()
        self.paused.clear()
        loop = self._loop = asyncio.new_event_loop()
        self.thread = threading.Thread(
            target=self._run, args=(loop,), name="muster-tasks", daemon=True
        )
        self.thread.start()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            loop.run_until_complete(asyncio.wait(self._tasks, timeout=END_S))
        loop.close()

    def destroy(self, timeout: float = END_S) -> None:
        """Cancel what runs, and end the thread. Who waits gets a RuntimeError."""
        with self._news:
            self.exiting.set()
            self._inputs.clear()
            self._active.clear()
            self._news.notify_all()
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)
        if self.thread is not None:
            self.thread.join(timeout)

    # ---- tasks ------------------------------------------------------------------------

    def submit(
        self,
        async_fn: Callable[..., Awaitable[T]],
        *args: Any,
        task_id: int,
        **kwargs: Any,
    ) -> int:
        """Have `async_fn(*args, **kwargs)` run. ValueError: a task of that id waits or runs;
        TaskQueueFullError."""
        with self._news:
            if self._loop is None:
                raise RuntimeError("the runner is not there: initialize() starts it")
            if task_id in self._active:
                raise ValueError(f"task_id: {task_id} waits or runs already")
            if len(self._inputs) >= self.max_queue_size:
                raise TaskQueueFullError(
                    f"{len(self._inputs)} tasks wait to begin (max_queue_size)"
                )
            self._active.add(task_id)
            self._inputs.append((task_id, lambda: async_fn(*args, **kwargs)))
        self._wake()
        return task_id

    def _wake(self) -> None:
        with self._news:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        """On the loop: start what may start."""
        while True:
            with self._news:
                if self.paused.is_set() or not self._inputs or self.exiting.is_set():
                    return
                if len(self._results) + len(self._tasks) >= 2 * self.max_queue_size:
                    return  # until some are taken
                task_id, make = self._inputs.popleft()
                self._news.notify_all()
            task = asyncio.ensure_future(self._answer(task_id, make))
            self._tasks.add(task)
            task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._begin()

    async def _answer(self, task_id: int, make: Callable[[], Awaitable[T]]) -> None:
        begun = time.monotonic_ns()
        data: Any = None
        try:
            data = await make()
        except asyncio.CancelledError:
            if self.exiting.is_set():
                raise
        except Exception:
            self._logger.exception("task %s failed: its result is None", task_id)
        result = TimedResult(begun, data, task_id)
        with self._news:
            self._active.discard(task_id)
            if self._on_result is None:
                self._results.append(result)
                self._news.notify_all()
        if self._on_result is not None:
            self._on_result(result)

    def wait(
        self, count: int, timeout: float | None = None, with_timing: bool = False
    ) -> list[Any]:
        """The next `count` results, as they came. TimeoutError: not within `timeout`
        seconds; those that came stay."""
        with self._news:
            self._news.wait_for(
                lambda: len(self._results) >= count or self.exiting.is_set(), timeout
            )
            if len(self._results) < count:
                if self.exiting.is_set():
                    raise RuntimeError("the runner ends: there will be no results")
                raise TimeoutError(
                    f"{len(self._results)} of {count} results within {timeout} s"
                )
            taken: list[Any] = [self._results.popleft() for _ in range(count)]
        self._wake()
        return taken if with_timing else [one.data for one in taken]

    def pause(self) -> None:
        self.paused.set()

    def resume(self) -> None:
        self.paused.clear()
        self._wake()

    def get_input_queue_size(self) -> int:
        return len(self._inputs)

    def get_output_queue_size(self) -> int:
        return len(self._results)
