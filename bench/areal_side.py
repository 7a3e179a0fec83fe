"""What the two sides of the rows against AReaL do; they differ in their scheduler."""

import asyncio
import platform
import tempfile
import time
import warnings
from typing import Any

import torch
from areal.api import Job
from areal.api.cli_args import SchedulingSpec
from areal.infra.rpc.rtensor import RTensor
from serve import time_each

SPEC = SchedulingSpec(cpu=1, mem=1, gpu=0, cmd="python -m areal.infra.rpc.rpc_server")
ENGINE = "areal_engine.Empty"
START_S = 300  # AReaL's own 30 s are too few for 8 servers on 2 busy cores
warnings.simplefilter("ignore")  # that ports are open


class ArealSide:
    """A scheduler, used as AReaL's controllers do."""

    def __init__(self) -> None:
        self.scheduler: Any = None
        self.made = 0  # roles
        self.tensor: Any = None

    def new_scheduler(self, folder: str) -> Any:
        raise NotImplementedError

    def version(self) -> dict[str, str]:
        from areal.version import __version__ as areal

        versions = {"areal": areal, "torch": torch.__version__}
        return {**versions, "python": platform.python_version()}

    def init(self) -> float:
        return 0.0

    def _use_scheduler(self) -> None:
        if self.scheduler is None:
            self.folder = tempfile.TemporaryDirectory()
            self.scheduler = self.new_scheduler(self.folder.name)

    # ---- workers ----

    def start(self, ranks: int) -> tuple[float, float]:
        """Seconds until a role's workers are healthy, and until they have ended. The first
        time the scheduler is made too."""
        begun = time.perf_counter()
        self._use_scheduler()
        role = self._create(ranks)
        there = time.perf_counter()
        self.scheduler.delete_workers(role)
        return there - begun, time.perf_counter() - there

    def _create(self, ranks: int) -> str:
        self.made += 1
        role = f"role{self.made}"
        self.scheduler.create_workers(Job(role=role, replicas=ranks, tasks=[SPEC]))
        assert len(self.scheduler.get_workers(role)) == ranks
        return role

    def open(self, ranks: int) -> None:
        self._use_scheduler()
        role = self._create(ranks)
        self.ids = [f"{role}/{i}" for i in range(ranks)]

        async def engines() -> None:
            made = [self.scheduler.create_engine(one, ENGINE) for one in self.ids]
            await asyncio.gather(*made)

        asyncio.run(engines())

    # ---- calls ----

    def call(self, count: int, warm_up: int) -> list[float]:
        first, call = self.ids[0], self.scheduler.call_engine
        return time_each(lambda: call(first, "empty"), count, warm_up)

    def fan_out(self, count: int, warm_up: int) -> list[float]:
        """As a controller does: one loop, all workers at once."""

        async def rounds() -> list[float]:
            taken = []
            for _ in range(warm_up + count):
                begun = time.perf_counter()
                call = self.scheduler.async_call_engine
                await asyncio.gather(*(call(one, "empty") for one in self.ids))
                taken.append(time.perf_counter() - begun)
            return taken[warm_up:]

        return asyncio.run(rounds())

    def tensor_back(self, nbytes: int, count: int, warm_up: int) -> list[float]:
        """A tensor goes there and comes back, and its handle is cleared."""
        if self.tensor is None:
            self.tensor = torch.ones(nbytes // 4)
        return time_each(self._tensor_back, count, warm_up)

    def _tensor_back(self) -> None:
        handle = self.scheduler.call_engine(self.ids[0], "echo", None, self.tensor)
        assert float(handle.to_local()[-1]) == 1
        [(address, shards)] = RTensor.collect_shards(handle).items()
        asyncio.run(RTensor.clear_node(address, shards))

    def close(self) -> None:
        if self.scheduler is not None:
            self.scheduler.delete_workers()
