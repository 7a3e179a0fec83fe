"""The worker classes of the tests. Imported by workers: keep it light."""

import asyncio
import ctypes
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any


def say(fifo: str) -> None:
    """Tell whoever hears at this fifo."""
    with open(fifo, "wb", buffering=0) as f:
        f.write(b"!")


class Mishap(Exception):
    """Cannot be made from its own args."""

    def __init__(self, a: int, *, b: int) -> None:
        super().__init__(f"{a} and {b}")
        self.b = b


class Version:
    """Of the worker's Python."""

    def version(self) -> tuple[int, ...]:
        return sys.version_info[:2]


class Echo:
    """A bit of everything."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.made_with = (args, kwargs)
        self.seen: list[Any] = []

    def echo(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and not kwargs else (args, kwargs)

    def get(self, name: str) -> Any:
        return getattr(self, name)

    def pid(self) -> int:
        return os.getpid()

    def env(self, *names: str) -> dict[str, str | None]:
        return {name: os.environ.get(name) for name in names}

    def close_descriptors(self) -> None:
        os.closerange(3, 4096)
        time.sleep(60.0)

    def execute(self, *command: str) -> None:
        os.execvp(command[0], command)

    def rank(self) -> int:
        return int(os.environ["RANK"])

    def note(self, value: Any) -> None:
        self.seen.append(value)

    def on_main_thread(self) -> bool:
        return threading.current_thread() is threading.main_thread()

    def modules(self, *names: str) -> list[bool]:
        return [name in sys.modules for name in names]

    def print(self, text: str, *, err: bool = False) -> None:
        print(text, file=sys.stderr if err else sys.stdout, flush=True)

    # ---- waiting ----------------------------------------------------------------------

    def hang(self, fifo: str | None = None) -> None:
        if fifo:
            say(fifo)
        threading.Event().wait()

    def wait_for(self, fifo: str, then: str) -> str:
        """Say that we are here, and go on when the other fifo is opened to write."""
        say(fifo)
        with open(then, "rb") as f:
            f.read(1)
        return "went on"

    def spin(self, fifo: str, then: str) -> None:
        """Hold the GIL until the other fifo has something."""
        libc = ctypes.PyDLL(None)  # does not let go of the GIL
        with open(then, "rb", buffering=0) as f:
            say(fifo)
            libc.read(f.fileno(), ctypes.create_string_buffer(1), 1)

    # ---- streams ----------------------------------------------------------------------

    def count(self, n: int) -> Iterator[int]:
        yield from range(n)

    def endless(self, closed: str) -> Iterator[int]:
        i = 0
        try:
            while True:
                yield i
                i += 1
        finally:
            say(closed)

    def count_then_raise(self, n: int) -> Iterator[int]:
        yield from range(n)
        raise ValueError("no more")

    # ---- failing ----------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        raise error

    def mishap(self, a: int, b: int) -> None:
        raise Mishap(a, b=b)

    def fail_deep(self, depth: int) -> None:
        if depth:
            self.fail_deep(depth - 1)
        raise KeyError("deep")

    def result(self, what: str) -> Any:
        return {"lock": threading.Lock()} if what == "lock" else lambda: None

    def exit(self, code: int) -> None:
        print("about to exit", file=sys.stderr, flush=True)
        os._exit(code)

    def sys_exit(self, code: int) -> None:
        sys.exit(code)

    def kill(self, number: int) -> None:
        print(f"about to get signal {number}", file=sys.stderr, flush=True)
        os.kill(os.getpid(), number)
        threading.Event().wait()

    def segfault(self) -> None:
        ctypes.string_at(0)

    def eat(self, size: int) -> int:
        """Touch memory."""
        held = mmap.mmap(-1, size)
        for at in range(0, size, 4096):
            held[at] = 1
        return len(held)

    def flood(self, lines: int, width: int) -> int:
        text = "x" * width
        for i in range(lines):
            print(i, text)
        sys.stdout.flush()
        return lines

    def fork_and_die(self) -> None:
        """Children of all kinds, one of which ignores SIGTERM, and then die."""
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(3600)
        subprocess.Popen(["sleep", "3600"])
        subprocess.Popen(["sleep", "3600"], start_new_session=True)
        os.kill(os.getpid(), signal.SIGKILL)

    def ignore_terminate(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def open_until_full(self) -> int:
        """Take all descriptors that there are."""
        self.taken = []
        try:
            while True:
                self.taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            return len(self.taken)

    # ---- calling others ---------------------------------------------------------------

    def call(self, cluster: Any, method: str, *args: Any) -> Any:
        return cluster.execute_rank_zero_sync(method, *args)

    def call_all(self, cluster: Any, method: str, *args: Any) -> Any:
        return cluster.execute_all_sync(method, *args)

    def call_async(self, cluster: Any, method: str, *args: Any) -> Any:
        return cluster.execute_rank_zero_async(method, *args).result()

    def init(self) -> None:
        import muster

        muster.init()


class Raises:
    def __init__(self, ranks: tuple[int, ...] = (0,)) -> None:
        if int(os.environ["RANK"]) in ranks:
            raise ValueError("the constructor says no")


class Dies:
    def __init__(self) -> None:
        print("the constructor dies", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait()


class Hangs:
    def __init__(self, fifo: str) -> None:
        say(fifo)
        threading.Event().wait()


class AsyncEcho:
    """A class with `async` methods: all of them run on one loop."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.arrived = 0
        self.all_here = asyncio.Event()
        self.cancelled = 0

    async def echo(self, value: Any) -> Any:
        await asyncio.sleep(0)
        return value

    def plain(self, value: Any) -> Any:
        return value

    async def meet(self, count: int) -> int:
        """Return when that many are here at once."""
        self.arrived += 1
        if self.arrived == count:
            self.all_here.set()
        await self.all_here.wait()
        return self.arrived

    async def busy(self) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(5):
            await asyncio.sleep(0)
        self.running -= 1

    async def peak(self) -> int:
        return self.most

    async def hang(self, fifo: str) -> None:
        try:
            say(fifo)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def cancellations(self) -> int:
        return self.cancelled

    async def count(self, n: int) -> AsyncIterator[int]:
        for i in range(n):
            await asyncio.sleep(0)
            yield i

    async def fail(self) -> None:
        await asyncio.sleep(0)
        raise KeyError("async")

    async def call(self, cluster: Any, method: str, *args: Any) -> Any:
        return await cluster.execute_rank_zero_async(method, *args)
