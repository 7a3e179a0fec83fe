"""When a process has died: the moment at which its pidfd is readable.

Runs as a process of its own, so that whoever waits for a failed call has its interpreter
for itself. A line with a pid comes in; "watching" goes out, and when it has died the time,
in nanoseconds of CLOCK_MONOTONIC.
"""

import os
import select
import subprocess
import sys
import time


class DeathWatch:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def begin(self, pid: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{pid}\n")
        self.process.stdin.flush()
        assert self._line() == "watching\n"

    def died_ns(self) -> int:
        return int(self._line())


def main() -> None:
    for line in sys.stdin:
        fd = os.pidfd_open(int(line))
        print("watching", flush=True)
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        poll.poll()
        print(time.monotonic_ns(), flush=True)
        os.close(fd)


if __name__ == "__main__":
    main()
