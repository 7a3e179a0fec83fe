"""`breakpoint()` in a worker: pdb, on the terminal of `muster debug`."""

from __future__ import annotations

import inspect
import pdb
import signal
import sys
import threading
from types import FrameType
from typing import Any, TextIO, cast

from muster import _core

_RESUMABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

_session = threading.Lock()  # held by the thread that a client can attach to
_own = threading.local()  # the debugger of each thread


class _Terminal:
    """Written in whole lines; what is left is the prompt of the next line that is read."""

    def __init__(self, host: _core.Host) -> None:
        self._host = host
        self._prompt = ""

    def write(self, text: str) -> int:
        lines, newline, self._prompt = (self._prompt + text).rpartition("\n")
        if newline:
            self._host.debug_write(lines + newline)
        return len(text)

    def readline(self) -> str:
        prompt, self._prompt = self._prompt, ""
        return self._host.debug_read(prompt) + "\n"

    def flush(self) -> None:
        """Nothing is held back but the prompt."""

    def isatty(self) -> bool:
        return False

    encoding = "utf-8"


class _Debugger(pdb.Pdb):
    """The session lasts from the first stop until the program goes on for good."""

    def __init__(self, host: _core.Host) -> None:
        self._terminal = cast("TextIO", _Terminal(host))
        super().__init__(
            stdin=self._terminal,
            stdout=self._terminal,
            nosigint=True,  # the handler is ours, for as long as the session
            skip=["muster", "muster.*", "bdb", "pdb"],
        )
        self.header: str | None = None  # before the next prompt
        self._host = host
        self._is_open = False
        self._before: Any = None  # the handler of SIGINT

    def interaction(self, frame: FrameType | None, *rest: Any) -> None:
        if frame is not None:
            self._begin(frame)
        if self.header is not None:
            self.message(self.header)
            self.header = None
        super().interaction(frame, *rest)

    def set_continue(self) -> None:
        super().set_continue()
        if not self.breaks:
            self._end()

    def set_quit(self) -> None:
        super().set_quit()
        self._end()

    def dispatch_return(self, frame: FrameType, arg: Any) -> Any:
        """Where the user's code ends, stepping does."""
        trace = super().dispatch_return(frame, arg)
        caller = frame.f_back.f_globals.get("__name__", "") if frame.f_back else ""
        if (
            self._is_open
            and not self.breaks
            and not frame.f_code.co_flags & _RESUMABLE
            and caller.startswith("muster._worker")
        ):
            self.set_continue()
        return trace

    def _begin(self, frame: FrameType) -> None:
        if not self._is_open:
            _session.acquire()
            self._is_open = True
            if threading.current_thread() is threading.main_thread():
                self._before = signal.signal(signal.SIGINT, self._interrupt)
        code = frame.f_code
        where = f"{code.co_filename}:{frame.f_lineno} in {code.co_qualname}"
        if not self._host.debug_open(where):
            me = f"{self._host.cluster}/{self._host.rank}"
            print(
                f"{me} waits at {where}: muster debug {me}", file=sys.stderr, flush=True
            )

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:
        """Ctrl-C of the client: what the prompt runs ends, the program stops where it is."""
        if getattr(self, "allow_kbdint", False):  # within the prompt
            raise KeyboardInterrupt
        self.message("\nProgram interrupted. (Use 'cont' to resume).")
        self.set_trace(frame)

    def _end(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None
        self._host.debug_close()
        _session.release()


def stop(frame: FrameType, header: str | None = None, **_: Any) -> None:
    """As `pdb.set_trace`, in that frame."""
    host = _core.in_worker()
    assert host is not None
    debugger = getattr(_own, "debugger", None)
    if debugger is None:
        debugger = _own.debugger = _Debugger(host)
    debugger.header = header
    debugger.set_trace(frame)
