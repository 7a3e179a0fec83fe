"""A command line to test: with a folder of sessions of its own, made by hand or real.

Nothing here sleeps: what must happen is waited for, with a deadline.
"""

import contextlib
import fcntl
import json
import os
import pty
import re
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

CLI = (
    os.environ.get("MUSTER_CLI")
    or os.environ.get("MUSTER_BIN")  # tools/package-run
    or str(Path(sys.executable).parent / "muster")
)
DEADLINE_S = 60.0


class Home:
    """A folder of sessions of its own, and the CLI that looks there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.env = {**os.environ, "MUSTER_HOME": str(path), "TERM": "xterm"}
        self.env.pop("NO_COLOR", None)

    def run(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [CLI, *args],
            env={**self.env, **env},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )

    def json(self, *args: str, code: int = 0) -> Any:
        done = self.run(*args, "--json")
        assert done.returncode == code, done
        return json.loads(done.stdout)

    def start(self, *args: str) -> "Lines":
        return Lines([CLI, *args], self.env)


class Lines:
    """A process whose output is read line by line, never longer than the deadline."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.buffer = b""

    def line(self) -> str:
        """The next line; "" at the end."""
        out = self.pipe(self.process.stdout)
        deadline = time.monotonic() + DEADLINE_S
        with selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ)
            while b"\n" not in self.buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError(f"no line; so far {self.buffer!r}")
                more = os.read(out.fileno(), 65536)
                if not more:
                    break
                self.buffer += more
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line.decode()

    def until(self, text: str) -> list[str]:
        """All lines up to the first with this text."""
        lines: list[str] = []
        while not lines or text not in lines[-1]:
            line = self.line()
            assert line or self.process.poll() is None, f"ended after {lines}"
            lines.append(line)
        return lines

    def tell(self, text: str) -> None:
        stdin = self.pipe(self.process.stdin)
        stdin.write(text.encode() + b"\n")
        stdin.flush()

    def wait(self) -> int:
        return self.process.wait(DEADLINE_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE_S)
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                self.pipe(pipe).close()

    @staticmethod
    def pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        assert pipe is not None
        return pipe


@pytest.fixture
def home() -> Iterator[Home]:
    # short: sockets below it must fit into 108 bytes
    path = Path(tempfile.mkdtemp(prefix="mcli-", dir="/tmp"))
    yield Home(path)
    shutil.rmtree(path)


def on_terminal(home: Home, *args: str, **env: str) -> str:
    """What it prints where stdout is a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([CLI, *args], env={**home.env, **env}, stdout=theirs)
    os.close(theirs)
    text = b""
    with contextlib.suppress(OSError):  # EIO: the last one has closed it
        while more := os.read(ours, 65536):
            text += more
    os.close(ours)
    process.wait(DEADLINE_S)
    return text.decode()


def ask_on_terminal(home: Home, answer: str, *args: str) -> tuple[str, int]:
    """What it prints on a terminal on which this is typed, and its exit code."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [CLI, *args], env=home.env, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    os.write(ours, answer.encode())
    text = b""
    with contextlib.suppress(OSError):  # EIO: the last one has closed it
        while more := os.read(ours, 65536):
            text += more
    os.close(ours)
    return text.decode(), process.wait(DEADLINE_S)


def lasting(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Workers without what they do now, which is another thing each time."""
    return [{k: v for k, v in w.items() if k != "activity"} for w in found]


def commands(home: Home) -> list[str]:
    listed = home.run("help").stdout.partition("commands:\n")[2].partition("\n\n")[0]
    return re.findall(r"^  (\w+) ", listed, re.M)


# ---- sessions made by hand ---------------------------------------------------------------


class FakeSession:
    """What a driver leaves on the disk; alive as long as the lock is held."""

    def __init__(self, home: Home, name: str, *, alive: bool) -> None:
        self.name = name
        self.dir = home.path / name
        self.logs = self.dir / "logs"
        self.logs.mkdir(parents=True, mode=0o700)
        self.lock: IO[str] | None = None
        if alive:
            self.lock = open(self.dir / "lock", "w")
            fcntl.flock(self.lock, fcntl.LOCK_EX)
            (self.dir / "secret").write_text("ab" * 32)
            (self.dir / "driver").write_text(str(os.getpid()))

    def end(self) -> None:
        assert self.lock is not None
        for name in ("secret", "driver", "lock"):
            (self.dir / name).unlink()
        self.lock.close()

    def log(self, name: str, text: str) -> None:
        with open(self.logs / name, "a") as f:
            f.write(text)


@pytest.fixture
def ended(home: Home) -> FakeSession:
    session = FakeSession(home, "20261115-120000-17", alive=False)
    session.log("actor-0.log", "a0 one\na0 two\n")
    session.log("actor-1.log", "a1 one\n")
    session.log("actor-10.log", "a10 one\n")
    session.log("actor-2-0.log", "of another cluster\n")
    session.log(
        "merged.log", "actor/0@n: a0 one\nactor/1@n: a1 one\nactor/0@n:   a0 two\n"
    )
    session.log("agent.log", "agent here\n")
    return session


# ---- a real driver ---------------------------------------------------------------------

DRIVER = """
import os, sys, threading
import muster

class Talker:
    def say(self, text):
        print(text, flush=True)
        return text
    def hang_about(self):
        print("hanging", flush=True)
        threading.Event().wait()
    def leave(self):
        os._exit(3)

def answer(*words):
    print("@@", *words, flush=True)

if __name__ == "__main__":
    muster.init(num_gpus=2, log_to_driver=False)
    talker = muster.Cluster(name="talker", worker_cls=Talker,
                            worker_config=muster.WorkerConfig(world_size=2))
    fixed = muster.Cluster(name="fixed", worker_cls=Talker,
                           worker_config=muster.WorkerConfig(device_mapping="0-1"))
    fixed.execute_all_sync("say", "hello")
    futures = []
    answer("ready")
    for line in sys.stdin:
        verb, _, rest = line.strip().partition(" ")
        if verb == "say":
            talker.execute_all_sync("say", rest)
        elif verb == "hang":
            futures = talker.execute_all_async("hang_about")
        elif verb == "leave":
            futures = fixed.execute_all_async("leave")
        elif verb == "await":
            try:
                futures[int(rest)].result(timeout=30)
            except muster.WorkerDied:
                pass
        answer("did", verb)
    muster.shutdown()
"""


class Driver(Lines):
    def __init__(self, home: Home, text: str = DRIVER) -> None:
        self.home = home
        script = home.path / "driver.py"
        script.write_text(text)
        super().__init__([sys.executable, str(script)], home.env)

    def do(self, text: str) -> None:
        self.tell(text)
        self.until(f"@@ did {text.split()[0]}")

    def finish(self) -> int:
        self.pipe(self.process.stdin).close()
        return self.wait()

    def close(self) -> None:
        """Kill it, and wait until its agent has ended, too, and tidied up."""
        with contextlib.ExitStack() as held:
            locks = [
                held.enter_context(open(lock))
                for lock in self.home.path.glob(f"*-{self.process.pid}*/lock")
            ]
            super().close()
            for lock in locks:
                fcntl.flock(lock, fcntl.LOCK_SH)  # given when the last holder has gone


@pytest.fixture
def driver(home: Home) -> Iterator[Driver]:
    pytest.importorskip("muster")
    d = Driver(home)
    try:
        d.until("@@ ready")
        yield d
    finally:
        d.close()


class Daemon(Lines):
    """A head of its own process."""

    def __init__(self, home: Home, *options: str) -> None:
        command = [CLI, "head", "--listen", "127.0.0.1:0", *options]
        super().__init__(command, home.env)
        found = re.search(
            r"session (\S+), listening on (\S+)", self.until("listening")[-1]
        )
        assert found is not None
        self.session, self.address = found.groups()
        self.secret = str(home.path / self.session / "secret")


def workers(home: Home, cluster: str) -> list[Any]:
    status = home.json("status")
    return next(c["workers"] for c in status["clusters"] if c["name"] == cluster)
