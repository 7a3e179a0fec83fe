"""Workers as verl's users write them, but for the import line."""

import asyncio
import os
from typing import Any

from muster.verl import (
    Dispatch,
    Execute,
    Worker,
    make_nd_compute_dataproto_dispatch_fn,
    register,
)


class Rows:
    """As much of a DataProto as dispatch needs."""

    def __init__(self, rows: list[Any], padding: bool = False) -> None:
        self.rows = rows
        self.auto_padding = padding

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: slice) -> "Rows":
        return Rows(self.rows[rows], self.auto_padding)

    def is_padding_enabled(self) -> bool:
        return self.auto_padding

    def padding(self, padding_size: int) -> None:
        self.rows = self.rows + self.rows[-1:] * padding_size

    def chunk(self, chunks: int) -> list["Rows"]:
        assert len(self) % chunks == 0, "only support equal chunk"
        step = len(self) // chunks
        return [self[i * step : (i + 1) * step] for i in range(chunks)]

    @staticmethod
    def concat(parts: list["Rows"]) -> "Rows":
        return Rows([row for part in parts for row in part.rows])

    def select_idxs(self, idxs: list[int]) -> "Rows":
        return Rows([self.rows[i] for i in idxs])


class Actor(Worker):
    def __init__(self, scale: int = 1) -> None:
        super().__init__()
        self.scale = scale
        self.seen = 0

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_mesh(self, tp: int) -> None:
        """Two meshes: of tp neighbours, and of tp ranks that are far from each other."""
        dp = self.world_size // tp
        self._register_dispatch_collect_info(
            "train", self.rank // tp, self.rank % tp == 0
        )
        self._register_dispatch_collect_info("infer", self.rank % dp, self.rank < dp)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("train"))
    def train(self, data: Rows) -> Rows:
        self.seen += len(data)
        return Rows([(row * self.scale, self.rank) for row in data.rows])

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("infer"))
    def infer(self, data: Rows) -> Rows:
        return Rows([(row, self.rank) for row in data.rows])

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def compute(self, data: Rows) -> Rows:
        self.seen = len(data)
        return Rows([(row, self.rank) for row in data.rows])

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO, blocking=False)
    def compute_later(self, data: Rows) -> Rows:
        return Rows([(row, self.rank) for row in data.rows])

    @register(dispatch_mode=Dispatch.DP_COMPUTE_METRIC)
    def count(self, data: Rows) -> int:
        return len(data)

    @register(dispatch_mode=Dispatch.DP_COMPUTE)
    def add(self, x: int, y: int = 0) -> int:
        return x + y + self.rank

    @register(execute_mode=Execute.RANK_ZERO)
    def only_first(self, x: Any) -> tuple[int, Any]:
        return self.rank, x

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    def later(self, x: int) -> int:
        return x * self.rank

    @register()
    def echo(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        return args, kwargs

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def how_many(self) -> int:
        return self.seen


class AsyncActor(Worker):
    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    async def generate(self, prompt: str) -> str:
        await self.go_on.wait()
        return f"{prompt} {self.rank}"

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    async def go(self) -> None:
        self.go_on.set()


class Critic(Worker):
    def __init__(self, bias: int) -> None:
        super().__init__()
        self.bias = bias

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def value(self, data: Rows) -> Rows:
        return Rows([row + self.bias for row in data.rows])

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def beside(self) -> tuple[int, int]:
        actor = self.get_fused_worker_by_name("actor")
        return os.getpid(), actor.scale
