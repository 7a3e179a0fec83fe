"""A driver on one of the hosts of hosts.py: takes lines of JSON, each of them Python, and
answers with "@@ done [ok, value]"."""

import json
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any

import muster


class Counter:
    """Counts what really ran."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, seconds: float = 0.0) -> int:
        self.count += 1
        threading.Event().wait(seconds)
        return self.count

    def total(self) -> int:
        return self.count

    def each(self, count: int, seconds: float) -> Iterator[int]:
        for _ in range(count):
            self.count += 1
            threading.Event().wait(seconds)
            yield self.count

    def echo(self, data: bytes) -> bytes:
        return data

    def say(self, lines: int) -> None:
        """Long ones: more than an agent sends at once."""
        for i in range(lines):
            print(i, "x" * 1000)

    def pid(self) -> int:
        return os.getpid()


def main() -> None:
    space: dict[str, Any] = {"muster": muster, "Counter": Counter, "os": os}
    muster.init(address=sys.argv[1], secret_file=sys.argv[2])
    print("@@ ready", flush=True)
    for line in sys.stdin:
        code = json.loads(line)
        try:
            try:
                value = eval(code, space)
            except SyntaxError:
                space["result"] = None
                exec(code, space)
                value = space["result"]
            answer = [True, value]
        except BaseException as error:
            traceback.print_exc()
            answer = [False, f"{type(error).__name__}: {error}"]
        # one write: what workers print comes from another thread
        sys.stdout.write(f"@@ done {json.dumps(answer)}\n")


if __name__ == "__main__":
    main()
