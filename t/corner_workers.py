"""Worker classes of test_corners.py. Imported by workers: keep it light."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

from workers import say


def _refuse() -> None:
    raise RuntimeError("cannot be read")


class Unreadable:
    """Can be sent, and not be read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _refuse, ()


class SlowToRead:
    """Reading it lets other threads run, and waits for them."""

    gate = threading.Event()
    begun = threading.Event()

    def __setstate__(self, state: object) -> None:
        self.begun.set()
        assert self.gate.wait(20)

    def __getstate__(self) -> object:
        return "something"


class Odd:
    """What goes wrong in odd ways."""

    def __init__(self) -> None:
        self.ends = 0

    def unreadable(self) -> Unreadable:
        return Unreadable()

    def slow_to_read(self) -> SlowToRead:
        return SlowToRead()

    def fail(self, text: str) -> None:
        raise ValueError(text)

    def fail_unsendable(self) -> None:
        class Unsendable(Exception):
            def __reduce__(self) -> tuple[Any, ...]:
                raise TypeError("no")

            lock = threading.Lock()  # its class cannot be pickled by value either

        raise Unsendable("still said")

    def is_aligned(self, array: Any) -> bool:
        return array.ctypes.data % 16 == 0 and bool(array.flags.aligned)

    def ask(self, cluster: Any, method: str, *args: Any) -> Any:
        return cluster.execute_rank_zero_sync(method, *args)

    def compile(self) -> None:
        self.step = lambda: "fast"

    def step(self) -> str:
        return "slow"

    # ---- forks ------------------------------------------------------------------------

    def fork_and_return(self, how: str) -> str:
        """The child comes back, too."""
        pid = os.fork()
        if pid == 0:
            if how == "raises":
                raise ValueError("of the child")
            return "of the child"
        return f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}"

    def fork_sockets(self) -> int:
        """How many of our sockets a child has."""
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            names = []
            for n in os.listdir("/proc/self/fd"):
                try:
                    names.append(os.readlink(f"/proc/self/fd/{n}"))
                except OSError:
                    continue
            os.write(write, bytes([sum(n.startswith("socket:") for n in names)]))
            os._exit(0)
        os.waitpid(pid, 0)
        return os.read(read, 1)[0]

    def terminate_a_child(self) -> int:
        return _terminate_a_child()

    def destroy(self) -> None:
        self.ends += 1


def _terminate_a_child() -> int:
    pid = os.fork()
    if pid == 0:
        threading.Event().wait()
    os.kill(pid, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class OddAsync:
    def __init__(self) -> None:
        self.log: list[str] = []
        self.go_on = asyncio.Event()
        self.counted = -1

    async def clean_up(self, fifo: str) -> None:
        """Takes its time when it is cancelled."""
        try:
            say(fifo)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            try:
                say(fifo)
                await self.go_on.wait()
                self.log.append("cleaned")
            except asyncio.CancelledError:
                self.log.append("cancelled again")
            say(fifo)
            raise

    async def let_go_on(self) -> None:
        self.go_on.set()

    async def get_log(self) -> list[str]:
        return self.log

    async def hang(self, fifo: str) -> None:
        say(fifo)
        await asyncio.Event().wait()

    async def block_a_thread(self, fifo: str) -> None:
        say(fifo)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, threading.Event().wait)

    async def leave(self, code: int) -> None:
        sys.exit(code)

    async def leave_later(self, code: int) -> None:
        """After `let_go_on`; `return_later` returns in the same turn of the loop."""
        await self.go_on.wait()
        sys.exit(code)

    async def return_later(self) -> str:
        await self.go_on.wait()
        return "returned"

    async def count(self, n: int) -> AsyncIterator[int]:
        for i in range(n):
            self.counted = i
            yield i

    async def get_counted(self) -> int:
        return self.counted

    async def forget_count(self) -> None:
        self.counted = -1

    async def ask(self, cluster: Any, method: str, *args: Any) -> Any:
        """Blocks the loop meanwhile."""
        return cluster.execute_rank_zero_sync(method, *args)

    async def fork_and_return(self) -> int:
        pid = os.fork()
        if pid == 0:
            return -1
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    async def terminate_a_child(self) -> int:
        return _terminate_a_child()
