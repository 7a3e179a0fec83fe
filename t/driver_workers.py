"""Workers for test_both_drivers.py, called by drivers in C and in Python."""

import atexit
import os
import sys
import time
from pathlib import Path

SECRET = b"MUSTER_SECRET="


AT_IMPORT = os.environ.get("ROLE_SAYS", "nothing")  # of the role, when this is loaded


class Mortal:
    def at_import(self) -> str:
        return AT_IMPORT

    def destroy(self) -> None:
        """Who has ended before whom stands in a file."""
        path = os.environ.get("ROLE_ENDS")
        if path:
            rank = os.environ["RANK"]
            atexit.register(lambda: Path(path).open("a").write(rank))

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
