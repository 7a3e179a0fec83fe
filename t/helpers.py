"""Finding what a session left behind, and running drivers of their own."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

MARK = "MUSTER_TEST_MARK"  # in the environment of all processes of one test's session
DEADLINE_S = 20.0
# where the programs and libraries in C are that tests run
BUILD = Path(
    os.environ.get("MUSTER_TEST_BUILD") or Path(__file__).parents[1] / "build/release"
)
DESCRIBED_MAX = 1000  # characters: a path of another machine may be long


def new_mark() -> str:
    return os.urandom(8).hex()


def processes(mark: str) -> list[int]:
    """The living ones that were started with this mark."""
    found = []
    want = f"{MARK}={mark}".encode()
    for entry in os.listdir("/proc"):
        if not entry.isdecimal() or int(entry) == os.getpid():
            continue
        try:
            env = Path(f"/proc/{entry}/environ").read_bytes()
            state = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if want in env.split(b"\0") and state[0] != "Z":
            found.append(int(entry))
    return found


def below(pid: int) -> list[int]:
    """All that it has started, and what that has. If it is killed they end with it: soon,
    and nobody waits for them."""
    pids = map(int, filter(str.isdecimal, os.listdir("/proc")))
    parents = {one: parent_of(one) for one in pids}
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def name_of(pid: int) -> str:
    """As ps shows it; empty: it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def is_spare(pid: int) -> bool:
    """A zygote has forked it ahead, and it waits to become a worker."""
    return name_of(pid) == "muster-spare"


def agents_of(pids: Iterable[int]) -> list[int]:
    """Those that are agents: each has a supervisor above it, and a child that is about to
    become something else has its name for a moment."""
    parents = {pid: parent_of(pid) for pid in pids if name_of(pid) == "muster-agent"}
    return [pid for pid, parent in parents.items() if parent and parent not in parents]


def parent_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
        return int(stat.split()[1])
    return 0


def describe(pid: int) -> str:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        return f"process {pid}: {command.decode(errors='replace')[:DESCRIBED_MAX]}"
    except OSError:
        return f"process {pid}"


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
        return int(stat.split()[1])
    return 0


def _is_others(pid: int, mark: str) -> bool:
    """It is a zygote of an agent without this mark, which lives."""
    at = pid
    while "muster._worker.zygote" in describe(at):
        at = _parent(at)
    is_agent = at != pid and " agent" in describe(at)
    return is_agent and at not in processes(mark)


def leftovers(mark: str, session_dir: str | None = None) -> list[str]:
    """What is still there of a session that has ended; logs may be."""
    left = [describe(pid) for pid in processes(mark)]
    if session_dir is None:
        return left
    for line in Path("/proc/net/unix").read_text().splitlines():
        if session_dir in line:
            left.append(f"socket {line.split()[-1]}")
    for folder, _, files in os.walk(session_dir):
        for name in files:
            path = os.path.join(folder, name)
            if not (name.endswith((".log", ".log.1")) or "logs" in Path(folder).parts):
                left.append(f"file {path}")
    return left


def wait_gone(pids: Iterable[int], timeout: float = DEADLINE_S) -> list[int]:
    """Wait until the processes have ended; those that have not."""
    end = time.monotonic() + timeout
    left = []
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
            left.append(pid)
        os.close(fd)
    return left


def until(
    happened: Callable[[], Any],
    otherwise: Callable[[], object] = lambda: None,
    within_s: float = 30.0,
) -> Any:
    """What it gives when it is true. For the state of another process, which gives no
    event: so it is asked again. `otherwise` says what is there at the deadline."""
    deadline = time.monotonic() + within_s
    while not (value := happened()):
        assert time.monotonic() < deadline, otherwise()
        time.sleep(0.005)
    return value


def can_bind(host: str, port: int) -> bool:
    with socket.socket() as s:
        try:
            s.bind((host, port))
        except OSError:
            return False
    return True


class Driver:
    """A driver script in a process of its own."""

    def __init__(self, script: str, tmp_path: Path, **env: str) -> None:
        self.mark = new_mark()
        path = tmp_path / f"driver-{self.mark}.py"
        path.write_text(script)
        folders = [str(Path(__file__).parent), *filter(None, sys.path)]
        self.process = subprocess.Popen(
            [sys.executable, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ
            | {MARK: self.mark, "PYTHONPATH": os.pathsep.join(folders)}
            | env,
        )

    def line(self, timeout: float = DEADLINE_S) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], timeout)
        assert ready, "the driver printed nothing"
        text = self.process.stdout.readline().rstrip("\n")
        if not text:
            out, err = self.process.communicate(timeout=DEADLINE_S)
            raise AssertionError(f"the driver ended: {out}\n{err}")
        return text

    def send(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, timeout: float = DEADLINE_S) -> tuple[int, str, str]:
        """Wait for its end: exit code, stdout, stderr."""
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, err

    def left(self, timeout: float = DEADLINE_S) -> list[str]:
        """Wait for the end of all that it started; what did not end. Zygotes belong to their
        agent: those of one that the driver has not started may stay."""
        wait_gone(self._own(), timeout)
        return [describe(pid) for pid in self._own()]

    def _own(self) -> list[int]:
        return [pid for pid in processes(self.mark) if not _is_others(pid, self.mark)]


class Bell:
    """An event between processes: a fifo. `workers.say` rings it too."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / f"bell-{new_mark()}")
        os.mkfifo(self.path)
        self.fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)

    def ring(self) -> None:
        os.write(self.fd, b"!")

    def hear(self, timeout: float = DEADLINE_S) -> None:
        """Wait until it rings."""
        ready, _, _ = select.select([self.fd], [], [], timeout)
        assert ready, "the bell did not ring"
        os.read(self.fd, 1)

    def close(self) -> None:
        os.close(self.fd)
