"""Worker: what the workers of a role are derived from; RankInfo: where one is in the mesh."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
from concurrent import futures

from muster import _core
from muster._adapters.actor import free_port, is_port_free, node_ip, visible_devices
from muster.dispatch import Dispatch
from muster.roll.decorator import register
from muster.roll.storage import SharedStorage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Self

    from muster.roll.protocol import DataProto

_THREADS = 5


@dataclasses.dataclass
class RankInfo:
    """Owned by the worker, which may change it until `initialize` has returned."""

    world_size: int = 1
    tp_size: int = 1
    dp_size: int = 1
    pp_size: int = 1
    cp_size: int = 1

    rank: int = 0
    tp_rank: int = 0
    dp_rank: int = 0
    pp_rank: int = 0
    cp_rank: int = 0

    @property
    def is_pipeline_last_stage(self) -> bool:
        return self.pp_rank == self.pp_size - 1

    @classmethod
    def of(cls, rank: int, world_size: int, mesh: Mapping[str, int]) -> Self:
        """rank = tp + TP * (cp + CP * (dp + DP * pp)), as Megatron counts; without a
        mesh all are data parallel."""
        dims = ("tp", "cp", "dp", "pp")
        asked = [mesh.get(dim, 0) for dim in (*dims, "ep")]
        places = _core.mesh_ranks(world_size, *asked)
        made = cls(world_size=world_size, rank=rank)
        for dim, at, last in zip(dims, places[rank], places[-1], strict=True):
            setattr(made, f"{dim}_rank", at)
            setattr(made, f"{dim}_size", last + 1)
        return made


def _of_strategy(method: str) -> Callable[..., None]:
    """A method that is the strategy's."""

    def call(self: Worker, *args: Any, **kwargs: Any) -> None:
        self._strategy(method, *args, **kwargs)

    call.__name__ = method
    return call


class Worker:
    """Made with the `worker_config` of its cluster in each process of it.

    `rank_info` says where it is in the mesh: by `worker_config.mesh` (which follows from
    the strategy), else all are data parallel. A worker may change it, at the latest in
    `initialize`.
    """

    strategy: Any = None

    def __init__(self, worker_config: Any = None) -> None:
        self.worker_config = worker_config
        self.pipeline_config: Any = None
        self.cluster_name = os.environ.get("CLUSTER_NAME")
        self.worker_name = os.environ.get("WORKER_NAME")
        self.rank = int(os.environ.get("RANK", 0))
        self.world_size = int(os.environ.get("WORLD_SIZE", 1))
        self.local_rank = int(os.environ.get("LOCAL_RANK", 0))
        self.master_addr = os.environ.get("MASTER_ADDR", "127.0.0.1")
        self.master_port = int(os.environ.get("MASTER_PORT", 0))
        mesh = getattr(worker_config, "mesh", None) or {}
        self.rank_info = RankInfo.of(self.rank, self.world_size, mesh)

    @functools.cached_property
    def logger(self) -> logging.Logger:
        return logging.getLogger(self.worker_name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.worker_name})"

    def initialize(self, pipeline_config: Any, *args: Any, **kwargs: Any) -> None:
        self.pipeline_config = pipeline_config

    @functools.cached_property
    def shared_storage(self) -> SharedStorage:
        return SharedStorage()

    @functools.cached_property
    def thread_executor(self) -> futures.ThreadPoolExecutor:
        return futures.ThreadPoolExecutor(max_workers=_THREADS)

    # ---- where it is ------------------------------------------------------------------

    get_node_ip = staticmethod(node_ip)
    get_free_port = staticmethod(free_port)
    is_port_available = staticmethod(is_port_free)

    def get_master_addr_and_port(self) -> tuple[str, int]:
        """The port is held for rank 0 from the start."""
        return self.master_addr, self.master_port

    @staticmethod
    def get_visible_gpus() -> list[str]:
        """As the variable of their vendor names them."""
        return [d for d in (visible_devices() or "").split(",") if d]

    def get_devices_info(self) -> list[dict[str, Any]]:
        """The node and the index there of each of its devices."""
        placed = getattr(self.worker_config, "resource_placement_groups", None) or []
        return [
            {"rank": i, "node_rank": p["node_rank"], "gpu_rank": p["gpu_rank"]}
            for i, p in enumerate(placed)
        ]

    def get_rank_info(self) -> RankInfo:
        return self.rank_info

    def _set_placement(self, placed: list[dict[str, Any]]) -> tuple[str, int]:
        """Take the places of its devices; where the master is."""
        if self.worker_config is not None:
            self.worker_config.resource_placement_groups = placed
        return self.get_master_addr_and_port()

    # ---- what its strategy does -------------------------------------------------------

    def _strategy(self, method: str, *args: Any, **kwargs: Any) -> Any:
        if self.strategy is None:
            self.logger.warning("%s: %r has no strategy", method, self)
            return None
        return getattr(self.strategy, method)(*args, **kwargs)

    load_states = register(Dispatch.ONE_TO_ALL)(_of_strategy("load_states"))
    offload_states = register(Dispatch.ONE_TO_ALL)(_of_strategy("offload_states"))
    setup_model_update = _of_strategy("setup_model_update")
    setup_collective_group = _of_strategy("setup_collective_group")
    broadcast_parameter = _of_strategy("broadcast_parameter")
    update_parameter_in_bucket = _of_strategy("update_parameter_in_bucket")
    add_lora = _of_strategy("add_lora")

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def process_weights_after_loading(self) -> None:
        if self.strategy is not None:
            self.strategy.process_weights_after_loading()

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def get_metrics(self, metric_names: list[str] | None = None) -> DataProto:
        """Of the strategy, in `meta_info["metrics"]`; of the cluster: a list for each, by
        dp groups."""
        if self.strategy is None:
            return _metrics({})
        return _metrics(self.strategy.get_metrics(metric_names=metric_names))

    def start_model_update(self, *args: Any, **kwargs: Any) -> DataProto:
        """How long the parts of the strategy's `model_update` took, as metrics."""
        times = self._strategy("model_update", *args, **kwargs) or {}
        prefix = f"time/{self.cluster_name}/model_update"
        return _metrics({f"{prefix}/{name}": value for name, value in times.items()})


def _metrics(metrics: dict[str, Any]) -> DataProto:
    from muster.roll.protocol import DataProto  # needs numpy

    return DataProto(meta_info={"metrics": metrics})
