"""An inference server as a child of its worker, which ends with it and never outlives it.

The child is in the worker's process group: whatever ends the worker, its agent ends the
rest of the group. The other way round, a worker whose server has died is of no use and
ends too, with the server's last lines on stderr: callers get WorkerDied with the reason.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from typing import IO, TYPE_CHECKING

from muster._adapters.actor import free_port
from muster._worker.exit import leave
from muster.generate.http_client import ServerUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LINES_MAX = 40  # last ones of the server's output, for errors
LINE_MAX = 1000  # characters of one of them
STOP_S = 5.0  # between SIGTERM and SIGKILL
LOG_S = 1.0  # for the last lines of a server that has ended
DEATH_S = 5.0  # between a cut connection and the end of the process
POLL_S = 0.1


def describe(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"


class ServerProcess:
    """Started by `start`, with `{port}` and `{model}` replaced in its command.

    log: a file that its output is added to; "-": the worker's own output; None: only the
    last lines are kept, for errors.
    """

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], log: str | None
    ) -> None:
        if isinstance(command, str) or not command:
            raise TypeError("command: must be a list of strings")
        self.command = [str(word) for word in command]
        if not any("{port}" in word for word in self.command):
            raise ValueError("command: one of its words must contain {port}")
        self.port = free_port()  # which the worker holds until it ends
        self.env = {name: str(value) for name, value in env.items()}
        self.log = log
        self.lines: deque[str] = deque(maxlen=LINES_MAX)
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._is_wanted = False  # its end is not ours

    def start(self, model: str | None) -> None:
        words = [word.replace("{port}", str(self.port)) for word in self.command]
        if any("{model}" in word for word in words):
            if model is None:
                raise ValueError("model: the command has {model}, and none is given")
            words = [word.replace("{model}", model) for word in words]
        self.lines.clear()
        self._process = subprocess.Popen(
            words,
            env={**os.environ, **self.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._is_wanted = False
        assert self._process.stdout is not None
        self._reader = threading.Thread(
            target=self._read, args=(self._process.stdout,), daemon=True
        )
        self._reader.start()

    def wait_ready(self, is_ready: Callable[[], str | None], timeout: float) -> None:
        """Until `is_ready` says None and not a reason; else the server is stopped, and
        what it said last is in the error. Its death from then on is the worker's."""
        process = self._process
        assert process is not None
        until = time.monotonic() + timeout
        while (reason := is_ready()) is not None:
            if process.poll() is not None:
                code = describe(process.returncode)
                self.stop()
                raise RuntimeError(
                    f"the server ended with {code} before it was ready{self.tail()}"
                )
            if time.monotonic() > until:
                self.stop()
                raise ServerUnreachable(
                    f"the server was not ready within {timeout:g} s: {reason}"
                    f"{self.tail()}"
                )
            time.sleep(POLL_S)
        self._is_wanted = True
        threading.Thread(target=self._watch, args=(process,), daemon=True).start()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that is not enough. Nothing if it does not run."""
        self._is_wanted = False
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._reader is not None:
            self._reader.join(LOG_S)
        self._process = None

    def has_ended(self) -> bool:
        """It died by itself, so that this worker ends; a connection that was cut is the
        first that one hears of it."""
        process = self._process
        if process is None or not self._is_wanted:
            return False
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(DEATH_S)
            return self._is_wanted
        return False

    def tail(self) -> str:
        if not self.lines:
            return " (it has printed nothing)"
        return "; its last lines:\n  " + "\n  ".join(self.lines)

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        if not self._is_wanted or process is not self._process:
            return
        if self._reader is not None:
            self._reader.join(LOG_S)
        text = f"the server ended with {describe(code)}{self.tail()}"
        print(text, file=sys.stderr, flush=True)
        leave(1)

    def _read(self, output: IO[bytes]) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(output)
            copy: IO[bytes] | None = None
            if self.log == "-":
                copy = sys.stderr.buffer
            elif self.log is not None:
                copy = stack.enter_context(open(self.log, "ab", buffering=0))
            while line := output.readline(LINE_MAX):
                self.lines.append(line.decode(errors="replace").rstrip())
                if copy is not None:
                    copy.write(line)
                    copy.flush()
