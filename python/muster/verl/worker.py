"""Worker: what the workers of a group are derived from."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

from muster._adapters.actor import VISIBLE_DEVICES, free_port, node_ip, visible_devices
from muster._adapters.checks import WrongValue
from muster._worker.engines import engines
from muster.verl.decorator import Dispatch, Execute, register
from muster.view import ENGINE


@dataclasses.dataclass
class DistRankInfo:
    tp_rank: int | None = None
    dp_rank: int | None = None
    pp_rank: int | None = None
    cp_rank: int | None = None


@dataclasses.dataclass
class DistGlobalInfo:
    tp_size: int | None = None
    dp_size: int | None = None
    pp_size: int | None = None
    cp_size: int | None = None


class _Variable:
    """An attribute that is a variable of the environment, until it is set."""

    def __init__(self, name: str, kind: type) -> None:
        self._name = name
        self._kind = kind

    def __get__(self, worker: object, owner: type) -> Any:
        return self if worker is None else self._kind(os.environ[self._name])


class WorkerHelper:
    """The node of a worker."""

    def get_available_master_addr_port(self) -> tuple[str, str]:
        """An address of this node, and a free port of it, which this worker holds."""
        return self._get_node_ip(), str(self._get_free_port())

    get_availale_master_addr_port = get_available_master_addr_port  # as verl spells it
    _get_node_ip = staticmethod(node_ip)
    _get_free_port = staticmethod(free_port)


class Worker(WorkerHelper):
    """Its rank, its world, and the meshes that it works on.

    All of it comes from the environment, so that a derived class may do without calling
    this constructor.
    """

    fused_worker_attr_name = "fused_worker_dict"

    def __init__(self, cuda_visible_devices: str | None = None) -> None:
        if cuda_visible_devices is not None:
            os.environ[VISIBLE_DEVICES] = cuda_visible_devices

    # ---- who it is --------------------------------------------------------------------

    # under these names too, which code of verl's users reads and sets
    _rank: Any = _Variable("RANK", int)
    _world_size: Any = _Variable("WORLD_SIZE", int)
    _local_rank = _Variable("LOCAL_RANK", int)
    _local_world_size = _Variable("LOCAL_WORLD_SIZE", int)
    _master_addr = _Variable("MASTER_ADDR", str)
    _master_port = _Variable("MASTER_PORT", str)

    @property
    def rank(self) -> int:
        return int(self._rank)

    @property
    def world_size(self) -> int:
        return int(self._world_size)

    @classmethod
    def env_keys(cls) -> list[str]:
        """The variables that tell it."""
        ours = "WORLD_SIZE RANK LOCAL_WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT"
        return [*ours.split(), VISIBLE_DEVICES]

    def get_master_addr_port(self) -> tuple[str, str]:
        """Where rank 0 may listen; the port is held for it."""
        return self._master_addr, self._master_port

    def get_cuda_visible_devices(self) -> str:
        """Also of another vendor's devices."""
        found = visible_devices()
        return "not set" if found is None else found

    # ---- meshes -----------------------------------------------------------------------

    @property
    def _meshes(self) -> dict[str, tuple[int, bool]]:
        return vars(self).setdefault("_registered_meshes", {})  # type: ignore[no-any-return]

    def _register_dispatch_collect_info(
        self, mesh_name: str, dp_rank: int, is_collect: bool
    ) -> None:
        """Say which chunk this rank works on in that mesh, and whether its result counts."""
        if mesh_name in self._meshes:
            raise WrongValue(f"mesh {mesh_name!r} is registered already")
        self._meshes[mesh_name] = (dp_rank, is_collect)

    def _mesh(self, name: str) -> tuple[int, bool]:
        if name not in self._meshes:
            raise WrongValue(f"{name!r} is not registered in {type(self).__name__}")
        return self._meshes[name]

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def _query_dispatch_info(self, mesh_name: str) -> int:
        return self._mesh(mesh_name)[0]

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def _query_collect_info(self, mesh_name: str) -> bool:
        return self.query_collect_info(mesh_name)

    def query_collect_info(self, mesh_name: str) -> bool:
        """Whether this rank's result counts in that mesh."""
        return self._mesh(mesh_name)[1]

    def get_dispatch_collect(self) -> dict[str, dict[str, Any]]:
        meshes = self._meshes.items()
        return {
            "dispatch_dp_rank": {name: dp_rank for name, (dp_rank, _) in meshes},
            "collect_dp_rank": {name: collects for name, (_, collects) in meshes},
        }

    def set_dispatch_collect(
        self,
        mesh_name: str,
        dispatch_dp_rank: dict[str, int],
        collect_dp_rank: dict[str, bool],
    ) -> None:
        """Take what `get_dispatch_collect` of a worker beside this one said of its last
        mesh, under another name."""
        *_, dp_rank = dispatch_dp_rank.values()
        *_, collects = collect_dp_rank.values()
        self._register_dispatch_collect_info(mesh_name, dp_rank, collects)

    # ---- beside others ----------------------------------------------------------------

    @property
    def fused_worker_dict(self) -> dict[str, Any]:
        """The objects of all roles in this process, by role."""
        return {name: one for name, one in engines.items() if name != ENGINE}

    def get_fused_worker_by_name(self, worker_name: str) -> Any:
        return self.fused_worker_dict.get(worker_name)

    # ---- anything ---------------------------------------------------------------------

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO_WITH_FUNC)
    def execute_with_func_generator(
        self, func: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """func(self, ...) on each rank, with its chunk."""
        return func(self, *args, **kwargs)

    @register(dispatch_mode=Dispatch.ALL_TO_ALL, execute_mode=Execute.RANK_ZERO)
    def execute_func_rank_zero(
        self, func: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """func(...) on rank 0."""
        return func(*args, **kwargs)
