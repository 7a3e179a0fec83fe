"""Workers as ROLL's users write them, but for the import line."""

import asyncio
import os
from typing import Any

from muster.roll import Dispatch, RankInfo, Worker, get, register


class Rows:
    """A batch as ROLL has it: rows, and what is known of all of them."""

    def __init__(self, batch: Any = None, meta_info: Any = None) -> None:
        self.batch = batch
        self.meta_info = meta_info or {}

    def __len__(self) -> int:
        return len(self.batch)

    def __getitem__(self, rows: slice) -> "Rows":
        return Rows(self.batch[rows], self.meta_info)

    def chunk(self, chunks: int) -> list["Rows"]:
        step = len(self) // chunks
        return [self[i * step : (i + 1) * step] for i in range(chunks)]

    @staticmethod
    def concat(parts: list["Rows"]) -> "Rows":
        joined = Rows([row for part in parts for row in part.batch])
        joined.meta_info = parts[0].meta_info
        return joined


class Actor(Worker):
    def __init__(self, worker_config: Any) -> None:
        super().__init__(worker_config=worker_config)
        self.steps = 0

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def initialize(self, pipeline_config: Any) -> None:
        super().initialize(pipeline_config)
        shape = getattr(pipeline_config, "shape", None)
        if shape:  # as a strategy does
            tp, pp = shape
            dp = self.world_size // (tp * pp)
            self.rank_info = RankInfo(
                world_size=self.world_size,
                rank=self.rank,
                tp_size=tp,
                dp_size=dp,
                pp_size=pp,
                tp_rank=self.rank % tp,
                dp_rank=self.rank // tp % dp,
                pp_rank=self.rank // (tp * dp),
            )

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE, clear_cache=False)
    def train_step(self, data: Any) -> Any:
        self.steps += 1
        if isinstance(data, Rows):
            return Rows([(row, self.rank) for row in data.batch], data.meta_info)
        return [(row, self.rank) for row in data]

    @register(dispatch_mode=Dispatch.DP_MP_DISPATCH_FIRST_COLLECT_ALL)
    def seen(self, data: Rows) -> tuple[Any, Any]:
        return data.batch, data.meta_info.get("step")

    @register(dispatch_mode=Dispatch.ONE_TO_ALL_ONE)
    def whoami(self) -> str:
        return repr(self)

    @register(dispatch_mode=Dispatch.ALL_TO_ALL)
    def add(self, value: int) -> int:
        return value + self.rank

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def describe(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "name": self.worker_name,
            "cluster": self.cluster_name,
            "gpus": self.get_visible_gpus(),
            "devices": self.get_devices_info(),
            "lr": self.worker_config.learning_rate,
            "config": getattr(self.pipeline_config, "exp_name", None),
            "flavour": os.environ.get("FLAVOUR"),
        }

    def store(self, key: str) -> bool:
        stored: bool = self.shared_storage.put_if_absent(key, self.rank)
        return stored

    def stored(self, key: str) -> Any:
        return get(self.shared_storage.get.remote(key))

    def env(self, name: str) -> str | None:
        return os.environ.get(name)

    def echo(self, value: Any) -> Any:
        return value


class Strategy:
    def get_metrics(self, metric_names: Any) -> dict[str, Any]:
        return {"loss": 0.5, "asked": metric_names}

    def model_update(self, name: str) -> dict[str, float]:
        return {name: 1.5}


class WithStrategy(Worker):
    def __init__(self, worker_config: Any) -> None:
        super().__init__(worker_config)
        self.strategy = Strategy()


class AsyncActor(Worker):
    def __init__(self, worker_config: Any) -> None:
        super().__init__(worker_config=worker_config)
        self.waiting = asyncio.Event()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    async def generate(self, prompt: str) -> str:
        await self.waiting.wait()
        return f"{prompt} {self.rank}"

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    async def go(self) -> None:
        self.waiting.set()


class Plain:
    """Not derived from Worker."""

    def __init__(self, worker_config: Any) -> None:
        self.worker_config = worker_config

    def double(self, x: int) -> int:
        return 2 * x
