"""Workers for test_both_drivers.py, called by drivers in C and in Python."""

import os
import sys
import time
from pathlib import Path

SECRET = b"MUSTER_SECRET="


class Mortal:
    def add(self, a: int, b: int) -> int:
        return a + b

    def rank(self) -> int:
        return int(os.environ["RANK"])

    def pid(self) -> int:
        return os.getpid()

    def fail(self) -> None:
        raise ValueError("not today")

    def leave(self, code: int) -> None:
        print("leaving", file=sys.stderr, flush=True)
        os._exit(code)

    def hang(self) -> None:
        time.sleep(3600)

    def secret(self) -> str:
        """Where the secret can be read in an environment."""
        found = [name for name in os.environ if name == "MUSTER_SECRET"]
        if SECRET in Path("/proc/self/environ").read_bytes():
            found.append("/proc/self/environ")
        return ",".join(found) or "nowhere"
