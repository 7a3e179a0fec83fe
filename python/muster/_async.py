"""The engine loop of a worker whose classes have async methods."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._core import Request
    from ._worker import Worker

CANCELLED = 5
BAD_ARGUMENT = 6
BAD_RESULT = 7
RAISED = 1
NO_METHOD = 3


class AsyncServer:
    """Takes requests from the host and runs each as a task."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.tasks: dict[asyncio.Task[None], Request] = {}
        self.slots = asyncio.Semaphore(worker.concurrency)
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        fd = self.worker.host.become_async()
        loop.add_reader(fd, self._on_ready, fd)
        loop.add_signal_handler(signal.SIGTERM, self._end, 128 + signal.SIGTERM)
        raise SystemExit(await self.ended)

    def _end(self, code: Any) -> None:
        if not self.ended.done():
            self.ended.set_result(code)

    def _on_ready(self, fd: int) -> None:
        os.read(fd, 8)
        for task, running in list(self.tasks.items()):
            if running.cancelled:
                task.cancel()
        while (request := self.worker.host.poll()) is not None:
            task = asyncio.get_running_loop().create_task(self._answer(request))
            self.tasks[task] = request
            task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self.tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._end(error.code if isinstance(error, SystemExit) else 1)

    async def _answer(self, request: Request) -> None:
        kind = NO_METHOD
        try:
            async with self.slots:
                function = request.function()
                kind = BAD_ARGUMENT
                argument = request.argument()
                kind = RAISED
                result = await self._apply(request, function, argument)
                kind = BAD_RESULT
                request.reply(result)
        except asyncio.CancelledError as error:
            request.fail(error, CANCELLED)
        except SystemExit as end:
            self._end(end.code if isinstance(end.code, int) else 1)
        except Exception as error:
            request.fail(error, kind)

    async def _apply(self, request: Request, function: Any, argument: Any) -> Any:
        if function is None:
            return self.worker.operate(request.op, argument)
        args, kwargs = argument
        result = function(*args, **(kwargs or {}))
        if inspect.isawaitable(result):
            return await result
        if inspect.isasyncgen(result):
            return await self._stream(request, result)
        if inspect.isgenerator(result):
            return await self._stream(request, _as_async(result))
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
        while (sent := request.item(item)) == 0:
            loop = asyncio.get_running_loop()
            if not await loop.run_in_executor(None, request.wait_window):
                return False
        return sent > 0


async def _as_async(generator: Any) -> Any:
    for item in generator:
        yield item
        await asyncio.sleep(0)  # others have their turn


def serve_async(worker: Worker) -> None:
    """Serve on an asyncio loop until the worker ends (SystemExit)."""

    async def main() -> None:
        await AsyncServer(worker).run()

    signal.set_wakeup_fd(-1)
    asyncio.run(main())
