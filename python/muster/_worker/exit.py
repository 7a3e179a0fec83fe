"""The end of a worker's process: SIGTERM, the engines' clean-up, the exit code."""

# SIGTERM raises SystemExit in whatever runs (`Host.terminate` in C says when, and again
# when it was swallowed). Where even that does not end what runs, the clean-up happens
# inside the signal handler: on the main thread, wherever the interpreter is.

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

    from muster._worker.main import Worker


def exit_code(end: SystemExit) -> int:
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code & 0xFF
    print(end.code, file=sys.stderr)
    return 1


def finish_engines(worker: Worker) -> None:
    """The engines' clean-up, to its end."""
    later = worker.finish()
    if later is None:
        return
    import asyncio

    if asyncio._get_running_loop() is None:
        loop = asyncio.get_event_loop_policy().get_event_loop()
    else:  # it is blocked below us, and will not go on
        asyncio._set_running_loop(None)
        loop = asyncio.new_event_loop()
    loop.run_until_complete(later)


def leave(code: int, *steps: Callable[[], object]) -> NoReturn:
    """End the process without waiting for threads."""
    for step in (*steps, sys.stdout.flush, sys.stderr.flush):
        try:
            step()
        except BaseException:
            traceback.print_exc()
    os._exit(code)
