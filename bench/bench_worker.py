"""The workers that Muster and Ray host: the same classes for both."""

import os
import sys
import time
from typing import Any


class Worker:
    def empty(self) -> None:
        pass

    def pid(self) -> int:
        return os.getpid()

    def read(self, data: Any) -> int:
        """One byte of every page."""
        return int(data[::4096].sum())

    def copied(self) -> int:
        """Bytes that this process has copied into the store; of Muster alone."""
        import muster

        return int(muster.store_stats()["copied"])

    def hang(self) -> None:
        time.sleep(3600)


class NumpyWorker:
    def __init__(self) -> None:
        import numpy  # noqa: F401  what a worker of this field imports at the least

    def has_numpy(self) -> bool:
        return "numpy" in sys.modules


class Maker:
    """Makes clusters inside a worker; of Muster alone."""

    def warm_start(self, ranks: int, count: int, warm_up: int) -> list[float]:
        from warm import time_starts

        return time_starts(ranks, count, warm_up)
