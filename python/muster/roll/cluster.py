"""Cluster and ResourceManager as ROLL has them."""

from __future__ import annotations

from typing import Any

import muster
from muster import config as native
from muster._adapters.actor import Handle, plain_class
from muster._cluster.member import tcp_entry
from muster._data import rows as _rows
from muster.future import Future
from muster.roll.config import WorkerConfig
from muster.roll.decorator import BoundMethod
from muster.roll.storage import SharedStorage
from muster.roll.worker import RankInfo, Worker

# what a handle of a cluster has, beside what every handle has
_KEPT = (
    "cluster_name",
    "worker_config",
    "initialized",
    "placement_groups",
    "master_addr",
    "master_port",
    "_rank_info",
)


class ResourceManager(muster.ResourceManager):
    """`num_nodes` nodes with `num_gpus_per_node` devices; None: all that have so many."""

    def __init__(self, num_gpus_per_node: int, num_nodes: int | None = None) -> None:
        super().__init__(num_gpus_per_node, num_nodes)
        self.gpu_per_node = num_gpus_per_node

    def allocate_placement_group(
        self, world_size: int, device_mapping: Any = None
    ) -> list[list[dict[str, Any]]]:
        """The devices that each of so many workers would get."""
        width = len(device_mapping) // world_size if device_mapping else 0
        role = native.WorkerConfig(
            world_size=world_size,
            device_mapping=device_mapping or None,
            num_gpus_per_worker=width,
        )
        return [_places(*placement) for placement in self.plan("plan", role)]

    def destroy_placement_group(self) -> None:
        """Nothing is held but by clusters, until they are destroyed."""


def _host(address: str) -> str:
    """Of the first TCP port of a worker's address."""
    return (tcp_entry(address) or "127.0.0.1:").rpartition(":")[0]


def _places(node_rank: int, devices: list[int]) -> list[dict[str, Any]]:
    own: list[Any] = [*devices] or [None]
    return [{"node_rank": node_rank, "gpu_rank": device} for device in own]


def _mapped(nodes: list[Any], role: WorkerConfig) -> list[list[dict[str, Any]]]:
    """The devices of each worker by their global ids, on one node or on several."""
    devices = [(rank, d) for rank, n in enumerate(nodes) for d in range(n.devices)]
    width = role.num_gpus_per_worker or 1
    ids: Any = role.device_mapping
    places = [{"node_rank": n, "gpu_rank": d} for n, d in (devices[i] for i in ids)]
    return [places[i : i + width] for i in range(0, len(places), width)]


class Cluster(muster.Cluster):
    """The workers of one role, each made as `worker_cls(worker_config=worker_config)`.

    config: another name of worker_config.
    worker_cls: a class or its import path. Its registered methods are methods of the
    cluster; `cluster.method(..., blocking=False)` gives the futures of all ranks.
    """

    def __init__(
        self,
        name: str,
        worker_cls: Any,
        resource_manager: muster.ResourceManager | None = None,
        worker_config: Any = None,
        *,
        config: Any = None,
    ) -> None:
        if config is not None and worker_config is not None:
            raise TypeError("config is another name of worker_config: give one of them")
        worker_config = config if worker_config is None else worker_config
        role = WorkerConfig.of(worker_config)
        self.cluster_name = name
        plain = worker_config is None or isinstance(worker_config, dict)
        self.worker_config = role if plain else worker_config
        self.initialized = False
        self.master_addr: str | None = None
        self.master_port: int | None = None
        self._rank_info: tuple[int, list[RankInfo]] | None = None
        fields = native.WorkerConfig.of(role).fields()
        fields |= {
            "args": (),
            "kwargs": {"worker_config": self.worker_config},
            "mesh": None,  # the workers' own rank_info says it
        }
        if role.max_concurrency == 1:
            fields["max_concurrency"] = None  # what the class is good for
        super().__init__(name, plain_class(worker_cls), resource_manager, fields)
        self.resource_manager = resource_manager
        try:
            self._tell_placement(worker_cls)
        except BaseException:
            self.destroy(grace=0)
            raise

    def _tell_placement(self, worker_cls: Any) -> None:
        where, role = self.resource_manager, self.worker_config
        if where is not None and getattr(role, "device_mapping", None):
            self.placement_groups = _mapped(where.nodes, WorkerConfig.of(role))
        else:
            self.placement_groups = [
                _places(w.node[0], w.devices) for w in self._members
            ]
        try:
            masters = self.execute_all_sync("_set_placement", self.placement_groups)
        except muster.NoSuchMethod:  # its class is not derived from ours
            if isinstance(worker_cls, type) and issubclass(worker_cls, Worker):
                raise
            return
        # a new incarnation is told again
        self._note_call("_set_placement", self.placement_groups)
        self.master_addr, self.master_port = masters[0]
        master = {"MASTER_ADDR": self.master_addr, "MASTER_PORT": self.master_port}
        SharedStorage().put(self.cluster_name, master)

    def _renew(self, head: Any, worker: Any, now: dict[str, Any]) -> None:
        super()._renew(head, worker, now)
        self.worker2nodes[self.rank2worker[worker.rank]] = _host(worker.address)

    def _bind(self) -> None:
        self.workers: list[Any] = [Handle(self[i]) for i in range(len(self))]
        self.rank2worker = dict(enumerate(self.workers))
        self.worker2rank = {worker: rank for rank, worker in self.rank2worker.items()}
        self.worker2nodes = {
            worker: _host(w.address)
            for worker, w in zip(self.workers, self._members, strict=True)
        }

    @property
    def rank2devices(self) -> dict[int, list[dict[str, Any]]]:  # type: ignore[override]
        """Those of each worker, on all of its nodes."""
        return {
            rank: [{"rank": i, **place} for i, place in enumerate(places)]
            for rank, places in enumerate(self.placement_groups)
        }

    def __reduce__(self) -> tuple[Any, ...]:
        _, fields = super().__reduce__()
        state = {name: self.__dict__[name] for name in _KEPT if name in self.__dict__}
        return Cluster._handle, fields, state

    def __getattr__(self, name: str) -> Any:
        bound = super().__getattr__(name)
        return BoundMethod(self, bound)

    # ---- the mesh ---------------------------------------------------------------------

    @property
    def worker_rank_info(self) -> list[RankInfo]:
        """Asked for anew until `initialize` was called, and after each further one, which
        may change it."""
        self._refresh()
        known, version = self._rank_info, self._bound.version
        if known is None or known[0] != version or not self.initialized:
            infos: list[RankInfo] = self.execute_all_sync("get_rank_info")
            known = self._rank_info = version, infos
        return known[1]

    def get_rank_info(self, rank: int) -> RankInfo:
        if not 0 <= rank < self.world_size:
            raise IndexError(f"{self._name} has no rank {rank}: it has {len(self)}")
        return self.worker_rank_info[rank]

    @property
    def vp_size(self) -> int:
        """Of Megatron's virtual pipeline, as the strategy says."""
        strategy = getattr(self.worker_config, "strategy_args", None)
        config = getattr(strategy, "strategy_config", None) or {}
        size: int = config.get("virtual_pipeline_model_parallel_size", 1)
        return size

    # ---- calls, with the names of ROLL's arguments ------------------------------------

    def _listed(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return _rows.each_if_lists(args, kwargs, len(self._peers))

    def _check_division(self, value: Any, rows: int, chunks: int) -> None:
        if isinstance(value, (list, tuple)) and rows % chunks:
            raise ValueError(
                f"a {type(value).__name__} of {rows} rows cannot be divided equally among "
                f"{chunks} dp groups: pad it, or give a DataProto, whose chunks may differ "
                "by one row"
            )
        if 0 <= rows < chunks:
            raise ValueError(
                f"batch_size {rows} < chunks {chunks}: each dp group needs a row"
            )

    def _noted(self, method_name: str) -> str:
        if method_name == "initialize":
            self.initialized = True
        return method_name

    def execute_rank_zero_sync(
        self, method_name: str, *args: Any, **kwargs: Any
    ) -> Any:
        return super().execute_rank_zero_sync(method_name, *args, **kwargs)

    def execute_rank_zero_async(
        self, method_name: str, *args: Any, **kwargs: Any
    ) -> Future:
        return super().execute_rank_zero_async(method_name, *args, **kwargs)

    def execute_all_sync(
        self, method_name: str, *args: Any, **kwargs: Any
    ) -> list[Any]:
        return super().execute_all_sync(self._noted(method_name), *args, **kwargs)

    def execute_all_async(
        self, method_name: str, *args: Any, **kwargs: Any
    ) -> list[Future]:
        return super().execute_all_async(self._noted(method_name), *args, **kwargs)

    execute_rank_zero = execute_rank_zero_async
    execute_all = execute_all_async
