"""What the kernel knows of a process: memory, CPU time, descendants."""

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")


class Process(NamedTuple):
    """A pid alone may be used again; with its start time it names one process."""

    pid: int
    start: int

    def is_alive(self) -> bool:
        return find(self.pid) == self


def stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on (the second may hold anything)."""
    return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def find(pid: int) -> Process | None:
    """The process with this pid, unless it is gone or a zombie."""
    try:
        fields = stat(pid)
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else Process(pid, int(fields[19]))


def command(pid: int) -> str:
    """Its command line without the folders of files; nothing if it is gone."""
    try:
        words = (PROC / str(pid) / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    shown = words.decode(errors="replace").split("\0")
    return " ".join(word.rpartition("/")[2] for word in shown).strip()


def descendants(pid: int) -> list[Process]:
    """All living children of `pid`, their children, and so on."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int(stat(int(entry.name))[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(parent, []).append(int(entry.name))
    found: list[Process] = []
    queue = [pid]
    while queue:
        for child in children.get(queue.pop(), []):
            queue.append(child)
            process = find(child)
            if process:
                found.append(process)
    return found


def signal_all(processes: list[Process], number: signal.Signals) -> None:
    for process in processes:
        if process.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)


def end_all(processes: list[Process], grace_s: float) -> list[Process]:
    """Give them `grace_s` to end by themselves, kill what is left and return it."""
    deadline = time.monotonic() + grace_s
    left = [process for process in processes if process.is_alive()]
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = [process for process in left if process.is_alive()]
    signal_all(left, signal.SIGKILL)
    return left


def pss_mib(pid: int) -> float:
    """Proportional memory: each shared page counts for its share only."""
    for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"no Pss for process {pid}")


def cpu_s(pid: int) -> float:
    """CPU time of all threads, finer than the ticks of /proc/PID/stat."""
    total_ns = 0
    for task in (PROC / str(pid) / "task").iterdir():
        total_ns += int((task / "schedstat").read_text().split()[0])
    return total_ns / 1e9
