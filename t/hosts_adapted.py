"""Workers of test_hosts_adapted.py: of muster.roll, of muster.verl, and of meshes."""

import os
from typing import Any

import muster
from hosts_workers import node
from muster import register, roll, verl


class Actor(roll.Worker):
    @roll.register(dispatch_mode=roll.Dispatch.ONE_TO_ALL)
    def where(self) -> tuple[int, str, list[dict[str, Any]]]:
        return self.rank, node(), self.get_devices_info()


class Critic(verl.Worker):
    @verl.register(dispatch_mode=verl.Dispatch.ONE_TO_ALL)
    def where(self) -> tuple[int, str, str]:
        return self.rank, node(), self.get_cuda_visible_devices()

    @verl.register(dispatch_mode=verl.Dispatch.DP_COMPUTE)
    def add(self, x: int) -> int:
        return x + self.rank


class Meshed:
    """Pairs of ranks share a chunk; the second of each collects."""

    def __init__(self) -> None:
        rank = int(os.environ["RANK"])
        muster.register_mesh("pairs", rank // 2, is_collect=rank % 2 == 1)
        self.rank = rank

    @register(dispatch_mode=muster.nd_mesh("pairs"))
    def label(self, rows: list[int]) -> list[tuple[int, int]]:
        return [(self.rank, row) for row in rows]

    def say(self, key: str) -> None:
        muster.kv.put(f"said/{key}/{self.rank}", node())


class Beside:
    def where(self) -> str:
        return node()
