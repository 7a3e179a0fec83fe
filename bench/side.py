"""The runner's end of a contestant's process (see serve.py for the other)."""

import contextlib
import json
import select
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from process import command, descendants, end_all, find, signal_all

HERE = Path(__file__).resolve().parent
ANSWER_TIMEOUT_S = 600
CLOSE_TIMEOUT_S = 30
STRAGGLER_GRACE_S = 5


class SideError(Exception):
    """A contestant could not do what it was asked."""


class Side:
    """One running contestant. Use `run_side`, which ends it in every case."""

    def __init__(self, name: str, python: Path, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.stderr = folder / "stderr"
        with self.stderr.open("wb") as stderr:
            # a process group of its own: Ctrl-C reaches the runner alone, which ends
            # the sides in order
            self.process = subprocess.Popen(
                [python, HERE / f"side_{name}.py"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                process_group=0,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def ask(self, op: str, **arguments: object) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({"op": op, **arguments}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self.error(op, "it has ended") from None
        if not select.select([self.process.stdout], [], [], ANSWER_TIMEOUT_S)[0]:
            raise self.error(op, f"no answer in {ANSWER_TIMEOUT_S} s")
        line = self.process.stdout.readline()
        if not line:
            raise self.error(op, "it ended instead of answering")
        answer = json.loads(line)
        if "error" in answer:
            raise self.error(op, answer["error"])
        return answer["ok"]

    def error(self, op: str, reason: str) -> SideError:
        said = self.stderr.read_text(errors="replace").splitlines()[-15:]
        return SideError("\n".join([f"{self.name}: {op}: {reason.rstrip()}", *said]))

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """It and all below it do nothing meanwhile."""
        own = find(self.pid)
        processes = [own, *descendants(self.pid)] if own else []
        signal_all(processes, signal.SIGSTOP)
        try:
            yield
        finally:
            signal_all(processes, signal.SIGCONT)

    def close(self) -> None:
        """Ask it to end, then make sure that nothing of it is left."""
        below = descendants(self.pid)
        names = {process: command(process.pid) for process in below}
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            print(f"{self.name} did not end in {CLOSE_TIMEOUT_S} s, killed")
        finally:  # a signal to the runner while it waits must not leave anything
            self.process.kill()
            self.process.wait()
            for straggler in end_all(below, STRAGGLER_GRACE_S):
                print(f"{self.name} left behind, killed: {names[straggler][:100]}")


@contextlib.contextmanager
def run_side(name: str, python: Path) -> Iterator[Side]:
    # a short path: Ray makes unix sockets below it
    with tempfile.TemporaryDirectory(
        prefix="mb", dir="/tmp", ignore_cleanup_errors=True
    ) as folder:
        side = Side(name, python, Path(folder))
        try:
            yield side
        finally:
            side.close()
