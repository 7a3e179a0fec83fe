"""The machine: what it is, how busy it is, and how to keep its cores awake."""

import contextlib
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

# A session of its own with its autogroup at nice 19: with autogroups (as on a desktop)
# the nice value counts only inside a session, and the loops would take half a core
# from every process of another one. They end with the runner, whatever ends it.
BUSY_LOOP = """
import os, sys
core, parent = int(sys.argv[1]), int(sys.argv[2])
os.setsid()
os.nice(19)
try:
    open("/proc/self/autogroup", "w").write("19")
except OSError:
    pass
os.sched_setaffinity(0, {core})
print(flush=True)
while os.getppid() == parent:
    for _ in range(1000000):
        pass
"""


def describe() -> dict[str, object]:
    """CPU, cores and kernel; no name of the host."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(pages / 2**30, 1),
        "kernel": platform.release(),
    }


def cpu_ticks() -> tuple[int, int]:
    """(busy, all) since boot, of all cores."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def busy_percent(seconds: float) -> float:
    """How much of the machine others use, watched for that long."""
    busy, total = cpu_ticks()
    time.sleep(seconds)
    busy_later, total_later = cpu_ticks()
    return 100 * (busy_later - busy) / max(1, total_later - total)


def wait_for_quiet(percent: float, timeout_s: float) -> float:
    """Wait until others use no more than `percent`; how much they use in the end."""
    deadline = time.monotonic() + timeout_s
    while (busy := busy_percent(1)) > percent and time.monotonic() < deadline:
        pass
    return busy


@contextlib.contextmanager
def cores_awake() -> Iterator[None]:
    """A busy loop at nice 19 on each core, so that none has to be woken."""
    with contextlib.ExitStack() as stack:
        for core in sorted(os.sched_getaffinity(0)):
            loop = subprocess.Popen(
                [sys.executable, "-c", BUSY_LOOP, str(core), str(os.getpid())],
                stdout=subprocess.PIPE,
            )
            stack.callback(end, loop)
            assert loop.stdout is not None
            loop.stdout.readline()
        yield


def end(loop: subprocess.Popen[bytes]) -> None:
    loop.kill()
    loop.communicate()
