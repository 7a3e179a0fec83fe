"""Workers for test_replace.py."""

import os
import time
from typing import Any

import muster
from workers import say


class Counter:
    """Counts its own calls; a second one of the same pid and incarnation goes on."""

    def __init__(self, scale: int = 1) -> None:
        self.scale = scale
        self.calls = 0
        self.other: Any = None

    def count(self) -> tuple[int, int, int]:
        """(pid, incarnation, number of the call in this process)."""
        self.calls += self.scale
        return os.getpid(), int(os.environ["MUSTER_INCARNATION"]), self.calls

    def place(self) -> dict[str, str]:
        names = ("RANK", "WORLD_SIZE", "MASTER_PORT", "CUDA_VISIBLE_DEVICES", "MINE")
        return {name: os.environ.get(name, "") for name in names}

    def sleep(self, seconds: float, begun: str = "") -> int:
        if begun:
            say(begun)
        time.sleep(seconds)
        return os.getpid()

    def keep(self, handle: Any) -> None:
        self.other = handle

    def call_other(self, rank: int) -> Any:
        return self.other.execute_rank_sync(rank, "count")

    def die(self) -> None:
        os.kill(os.getpid(), 9)


class Picky:
    """Its constructor fails while the file is there."""

    def __init__(self, file: str) -> None:
        if os.path.exists(file):
            raise ValueError("not today")

    def pid(self) -> int:
        return os.getpid()


class Told:
    """Makes use of what the cluster was configured with."""

    def apply(self, x: int) -> int:
        config: Any = muster.worker_config()
        return int(config["f"](x)) + int(config["local"].value)
