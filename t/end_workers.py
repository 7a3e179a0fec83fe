"""Workers that are ended in the middle of something."""

import os
import time
from typing import Any

from workers import say


def note(folder: str, what: str) -> None:
    with open(os.path.join(folder, f"{what}-{os.environ['RANK']}"), "a") as f:
        f.write("once\n")


class _Slow:
    """Its end takes long, and drops what is raised in it."""

    def __del__(self) -> None:
        time.sleep(60.0)


class Cleans:
    """Says when it has cleaned up."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def echo(self, value: Any) -> Any:
        return value

    def drop(self, begun: str) -> None:
        """Where exceptions are dropped, again and again."""
        print("it drops")
        say(begun)
        while True:
            _Slow()

    def swallow(self, begun: str) -> None:
        """Where one is swallowed, and a second one."""
        for turn in range(2):
            try:
                if turn == 0:
                    say(begun)
                time.sleep(60.0)
            except BaseException:
                note(self.folder, "swallowed")

    def tidy(self, begun: str) -> None:
        """With a clean-up of its own that takes its time."""
        try:
            say(begun)
            time.sleep(60.0)
        finally:
            time.sleep(1.0)
            note(self.folder, "tidied")

    def destroy(self) -> None:
        # a SIGTERM that comes again, or to rank 0 when the others are gone, waits
        time.sleep(0.3 if os.environ["RANK"] == "0" else 0.1)
        note(self.folder, "destroyed")


class CleansLater(Cleans):
    """The same on an event loop."""

    async def block(self, begun: str) -> None:
        """Hold up the loop."""
        say(begun)
        time.sleep(60.0)

    async def destroy(self) -> None:  # type: ignore[override]
        note(self.folder, "destroyed")
