"""The engine loop of a worker whose classes have async methods."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import signal
import traceback
from typing import TYPE_CHECKING, Any

from muster import _core
from muster._worker.exit import leave

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from muster._core import Request
    from muster._worker.main import Worker

# until a closed window is looked at without a reason: its reader may be lost
LOST_S = 1.0
END_S = 1.0  # for tasks that are cancelled because the worker ends
LATE_S = 0.25  # and if one of them holds up the loop, it is interrupted


class AsyncServer:
    """Takes requests from the host and runs each as a task."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.tasks: dict[asyncio.Task[None], Request] = worker.unanswered
        self.cancelled: set[asyncio.Task[None]] = set()  # that were
        # items whose window is closed, by the future that completes when they are sent
        self.held_up: dict[asyncio.Future[int], tuple[Request, Any]] = {}
        self.slots = asyncio.Semaphore(worker.concurrency)
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        fd = self.worker.host.become_async()
        loop.add_reader(fd, self._on_ready, fd)
        loop.add_signal_handler(signal.SIGTERM, self._end, 128 + signal.SIGTERM)
        # the loop hears of it; and the host, which interrupts one that is blocked
        signal.signal(signal.SIGTERM, self.worker.on_terminate)
        code = await self.ended
        loop.remove_reader(fd)
        if self.tasks:
            for task, request in self.tasks.items():
                # one that has ended since is answered; of OP_FINISH the engines clean up
                if not task.done() and request.op != _core.OP_FINISH:
                    task.cancel()
            await asyncio.wait(self.tasks, timeout=END_S)
        raise SystemExit(code)

    def _end(self, code: Any) -> None:
        """The process ends, and that is the answer to all that runs."""
        if not self.ended.done():
            self.worker.host.give_time(END_S + LATE_S)
            self.ended.set_result(code)

    def _on_ready(self, fd: int) -> None:
        os.read(fd, 8)
        requests = list(iter(self.worker.host.poll, None))
        self._send_held_up()  # windows that opened before these came
        for task, running in list(self.tasks.items()):
            if running.cancelled and task not in self.cancelled:
                self.cancelled.add(task)  # once: it may have something to clean up
                task.cancel()
        for request in requests:
            task = asyncio.get_running_loop().create_task(self._answer(request))
            self.tasks[task] = request
            task.add_done_callback(self._forget)

    def _send_held_up(self) -> None:
        for waiting, (request, item) in self.held_up.items():
            if waiting.done():
                continue
            try:
                if (sent := request.item(item)) != 0:
                    waiting.set_result(sent)
            except Exception as error:
                waiting.set_exception(error)

    def _forget(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._end(1)
        if not self.ended.done():  # else the end answers
            self.tasks.pop(task, None)
        self.cancelled.discard(task)

    async def _answer(self, request: Request) -> None:
        kind = _core.NO_METHOD
        try:
            async with self.slots:
                function = request.function()
                kind = _core.BAD_ARGUMENT
                if request.is_remote:  # others have their turn while it is fetched
                    argument = await asyncio.to_thread(request.argument)
                else:
                    argument = request.argument()
                kind = _core.RAISED
                result = await self._apply(request, function, argument)
                if self.worker.is_child:
                    leave(0)
                kind = _core.BAD_RESULT
                request.reply(result)
        except BaseException as error:
            if self.worker.is_child:
                traceback.print_exc()
                leave(1)
            self._answer_failure(request, error, kind)

    def _answer_failure(
        self, request: Request, error: BaseException, kind: int
    ) -> None:
        if isinstance(error, SystemExit):
            self._end(error.code if isinstance(error.code, int) else 1)
        elif isinstance(error, asyncio.CancelledError):
            if not self.ended.done():
                request.fail(error, _core.CANCELLED)
        elif isinstance(error, Exception):
            request.fail(error, kind)
        else:
            raise error

    async def _apply(self, request: Request, function: Any, argument: Any) -> Any:
        if function is None:
            result = self.worker.operate(request.op, argument)
            return await result if inspect.isawaitable(result) else result
        args, kwargs = argument
        threads = self.worker.threads_of(function)
        if threads is not None:
            return await self._apply_in(threads, request, function, args, kwargs or {})
        result = function(*args, **(kwargs or {}))
        if inspect.isawaitable(result):
            return await result
        if inspect.isasyncgen(result):
            return await self._stream(request, result)
        if inspect.isgenerator(result):
            return await self._stream(request, _as_async(result))
        return result

    async def _apply_in(
        self, threads: Executor, request: Request, function: Any, args: Any, kwargs: Any
    ) -> Any:
        """On a thread. One that is cancelled goes on, and its result is dropped."""
        loop = asyncio.get_running_loop()
        call = functools.partial(_outcome, function, args, kwargs)
        result, error = await loop.run_in_executor(threads, call)
        if error is not None:
            raise error
        if inspect.isgenerator(result):
            return await self._stream(request, _as_async_in(threads, result))
        return result

    async def _stream(self, request: Request, items: Any) -> None:
        request.begin_stream()
        try:
            async for item in items:
                if not await self._send(request, item):
                    return
        finally:
            await items.aclose()

    async def _send(self, request: Request, item: Any) -> bool:
        """False: the caller does not want it. An item that waited for its window is sent before
        requests that came after the window opened are answered."""
        sent = request.item(item)
        while sent == 0:
            waiting = asyncio.get_running_loop().create_future()
            self.held_up[waiting] = request, item
            try:
                await asyncio.wait({waiting}, timeout=LOST_S)
            finally:
                del self.held_up[waiting]
            sent = waiting.result() if waiting.done() else request.item(item)
        return sent > 0


def _outcome(function: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """(its result, None) or (None, what it raised): a future takes no StopIteration."""
    try:
        return function(*args, **kwargs), None
    except BaseException as error:
        return None, error


async def _as_async_in(threads: Executor, generator: Any) -> Any:
    """Its items are made on threads."""
    loop, end = asyncio.get_running_loop(), object()
    while True:
        item = await loop.run_in_executor(threads, next, generator, end)
        if item is end:
            return
        yield item


async def _as_async(generator: Any) -> Any:
    for item in generator:
        yield item
        await asyncio.sleep(0)  # others have their turn


def serve_async(worker: Worker) -> None:
    """Serve on an asyncio loop until the worker ends (SystemExit)."""

    async def main() -> None:
        await AsyncServer(worker).run()

    signal.set_wakeup_fd(-1)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    # unlike asyncio.run, without waiting for threads of its executor at the end
    loop.run_until_complete(main())
