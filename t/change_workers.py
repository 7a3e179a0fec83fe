"""Workers for test_change.py."""

import os
import time
from pathlib import Path
from typing import Any

import muster


class Member:
    """Counts the ranks that are constructed at the same time."""

    def __init__(self, folder: str = "") -> None:
        self.folder = folder
        self.told: Any = None

    def world(self) -> tuple[int, int, int]:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.getpid()

    def master(self) -> tuple[str, str]:
        return os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]

    def sleep(self, seconds: float) -> int:
        time.sleep(seconds)
        return os.getpid()

    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    def keep(self, cluster: Any) -> None:
        self.told = cluster

    def size_of_other(self) -> tuple[int, int]:
        """What a handle in a worker sees."""
        return self.told.world_size, len(self.told.execute_all_sync("world"))

    @muster.register(dispatch_mode=muster.Dispatch.DP_MP_COMPUTE)
    def double(self, rows: list[int]) -> list[int]:
        return [2 * row for row in rows]


class Meets:
    """A constructor that waits for the constructors of all ranks, and of other clusters."""

    def __init__(self, folder: str, count: int) -> None:
        here = Path(folder)
        (
            here / f"{os.environ['CLUSTER_NAME']}-{os.environ['RANK']}-{os.getpid()}"
        ).touch()
        until = time.monotonic() + 30
        while len(list(here.iterdir())) < count:
            assert time.monotonic() < until, "the others have not come"
            time.sleep(0.005)

    def pid(self) -> int:
        return os.getpid()


class Refuses:
    """A rank that cannot be made when its file is there."""

    def __init__(self, folder: str) -> None:
        if (Path(folder) / os.environ["RANK"]).exists():
            raise RuntimeError(f"rank {os.environ['RANK']} does not want to")

    def pid(self) -> int:
        return os.getpid()


class Weighs:
    """Made with big arrays: one as it is, one as a Ref."""

    def __init__(self, array: Any, ref: Any) -> None:
        self.sums = (float(array.sum()), float(ref.get().sum()))

    def total(self) -> tuple[float, float]:
        return self.sums
