"""ResourcePool: how many processes on each of some nodes, with a device each."""

from __future__ import annotations

import dataclasses
import itertools
import os
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from muster._adapters.checks import WrongValue
from muster._adapters.lease import lend
from muster.errors import PlacementError
from muster.groups import GroupPart, PlacementGroup
from muster.resources import ResourceManager, place_entries

__all__ = [
    "RayResourcePool",
    "ResourcePool",
    "ResourcePoolManager",
    "SubRayResourcePool",
    "SubResourcePool",
    "merge_resource_pool",
    "split_resource_pool",
]


class ResourcePool:
    """`process_on_nodes[i]` processes on node i, one device for each of them.

    Its devices are taken when its first group is made, and given back when its last one
    has gone; or from `get_placement_groups()` until the pool and what was made of it have
    gone. `remove()` gives them back at once. Several groups may stand in one pool: rank i of
    each has the device of process i (colocation). Nodes may have unequal numbers.

    use_gpu: False: processes without devices.
    max_colocate_count: kept, and no limit: a device has no share for each group.
    accelerator_type: only on nodes with the label `accelerator_type` of that value.
    """

    def __init__(
        self,
        process_on_nodes: list[int] | None = None,
        use_gpu: bool = True,
        name_prefix: str | None = None,
        max_colocate_count: int = 10,
        detached: bool = False,
        accelerator_type: str | None = None,
        n_gpus_per_node: int = 8,
    ) -> None:
        self._store = [] if process_on_nodes is None else process_on_nodes
        self.use_gpu = use_gpu
        self.name_prefix = os.urandom(3).hex() if name_prefix is None else name_prefix
        self.max_colocate_count = max_colocate_count
        self.detached = detached
        self.accelerator_type = accelerator_type
        self.n_gpus_per_node = n_gpus_per_node
        self._pgs: list[Any] | None = None
        self._lent: list[weakref.ref[PlacementGroup]] = []  # to its groups of workers

    def add_node(self, process_count: int) -> None:
        self._store.append(process_count)

    def __call__(self) -> list[int]:
        return self._store

    @property
    def store(self) -> list[int]:
        return self._store

    @property
    def world_size(self) -> int:
        return sum(self._store)

    def local_world_size_list(self) -> list[int]:
        """Of each process: how many there are on its node."""
        return [count for count in self._store for _ in range(count)]

    def local_rank_list(self) -> list[int]:
        return [i for count in self._store for i in range(count)]

    # ---- places -----------------------------------------------------------------------

    @property
    def pgs(self) -> list[Any] | None:
        """Of each entry: its placement group, or a part of one. None: there are none."""
        if self._pgs is not None:
            return self._pgs
        groups = [ref() for ref in self._lent]
        return None if None in groups else groups or None

    @pgs.setter
    def pgs(self, groups: list[Any] | None) -> None:
        self._pgs = groups
        self._lent = []

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_pgs": self.pgs, "_lent": []}

    def get_placement_groups(
        self,
        strategy: str = "STRICT_PACK",
        name: str | None = None,
        device_name: str = "cuda",
    ) -> list[Any]:
        """One for each entry. PlacementError at once if they do not fit, and then none is
        there."""
        self.pgs = groups = self.pgs or self._make_groups(strategy, name)
        return groups

    def _make_groups(
        self, strategy: str, name: str | None = None
    ) -> list[PlacementGroup]:
        own = "" if self.detached else f"_{os.urandom(3).hex()}"
        prefix = name or f"{self.name_prefix}verl_group{own}"
        manager = ResourceManager()
        labels = (
            {"accelerator_type": self.accelerator_type} if self.accelerator_type else {}
        )

        def place(i: int) -> PlacementGroup:
            return manager.placement_group(
                [{"GPU": int(self.use_gpu)}] * self._store[i],
                strategy,
                name=f"{prefix}_{i}",
                labels=labels,
                detached=self.detached,
            )

        def make(i: int) -> PlacementGroup:
            """On a node of its own, if there is one."""
            if manager._group_scope is not None and strategy == "STRICT_PACK":
                with suppress(PlacementError):
                    return place(i)
            manager._group_scope = None
            return place(i)

        groups = place_entries(manager, self._store, make)
        for group in () if self.detached else groups:
            lend(group)
        return groups

    def bundles(self) -> list[tuple[int, int]]:
        """(index of the entry, index in it) of each process."""
        return [(n, i) for n, count in enumerate(self._store) for i in range(count)]

    def place(self, strategy: str) -> GroupPart:
        """The places of its processes in the order of ranks, as a Cluster takes them."""
        groups = self.pgs
        if groups is None:
            groups = self._make_groups(strategy)
            self._lent = [weakref.ref(group) for group in groups]
        return GroupPart(seat for group in groups for seat in group._seats)

    def remove(self) -> None:
        """Give its devices back; its groups must have ended."""
        seats = (seat for part in self.pgs or [] for seat in part._seats)
        for group in {group.id: group for group, _ in seats}.values():
            group.remove()
        self.pgs = None


RayResourcePool = ResourcePool


class SubResourcePool(ResourcePool):
    """A part of a pool: `subgroup_world_size` of its processes."""

    def __init__(
        self,
        placement_groups: list[Any],
        start_bundle_index: int,
        subgroup_world_size: int,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pgs = placement_groups
        self.start_bundle_index = start_bundle_index
        self.subgroup_world_size = subgroup_world_size

    @property
    def world_size(self) -> int:
        return self.subgroup_world_size

    def _own(self) -> slice:
        first = self.start_bundle_index
        return slice(first, first + self.subgroup_world_size)

    def bundles(self) -> list[tuple[int, int]]:
        return super().bundles()[self._own()]

    def place(self, strategy: str) -> GroupPart:
        return super().place(strategy)[self._own()]


SubRayResourcePool = SubResourcePool


def split_resource_pool(
    resource_pool: ResourcePool, split_size: int | Sequence[int]
) -> list[SubResourcePool]:
    """Parts of that size, or of those sizes, in order; parts may be split again."""
    size = resource_pool.world_size
    if isinstance(split_size, int):
        if split_size < 1 or size % split_size:
            raise WrongValue(f"parts of {split_size} do not divide {size} processes")
        sizes = [split_size] * (size // split_size)
    else:
        sizes = list(split_size)
        if sum(sizes) != size or any(part < 1 for part in sizes):
            raise WrongValue(f"parts of {sizes} do not make {size} processes")
    groups = resource_pool.get_placement_groups()
    first = getattr(resource_pool, "start_bundle_index", 0)
    starts = itertools.accumulate(sizes[:-1], initial=first)
    return [
        SubResourcePool(
            placement_groups=groups,
            start_bundle_index=start,
            subgroup_world_size=part,
            process_on_nodes=resource_pool.store,
            use_gpu=resource_pool.use_gpu,
            name_prefix=f"{resource_pool.name_prefix}_split_{index}",
            max_colocate_count=resource_pool.max_colocate_count,
        )
        for index, (start, part) in enumerate(zip(starts, sizes, strict=True))
    ]


def merge_resource_pool(rp1: ResourcePool, rp2: ResourcePool) -> ResourcePool:
    """One pool of the processes of both, those of the first first; also of parts of one
    pool. What stands side by side in one entry of a pool is one entry of the new one."""
    for field in ("use_gpu", "max_colocate_count", "n_gpus_per_node", "detached"):
        if getattr(rp1, field) != getattr(rp2, field):
            raise WrongValue(f"pools of different {field} cannot be merged")
    seats = [seat for rp in (rp1, rp2) for seat in rp.place("STRICT_PACK")._seats]
    if len({(group.id, bundle) for group, bundle in seats}) < len(seats):
        raise WrongValue("pools that have processes in common cannot be merged")
    parts = [
        GroupPart(run) for _, run in itertools.groupby(seats, lambda seat: seat[0].id)
    ]
    merged = ResourcePool(
        [len(part) for part in parts],
        rp1.use_gpu,
        f"{rp1.name_prefix}_{rp2.name_prefix}",
        rp1.max_colocate_count,
        rp1.detached,
    )
    merged.pgs = [_whole(part) for part in parts]
    return merged


def _whole(part: GroupPart) -> GroupPart:
    """The group itself, if it is all of it."""
    group = part._seats[0][0]
    return group if part._seats == group._seats else part


@dataclasses.dataclass
class ResourcePoolManager:
    """Pools by name, and which role stands in which."""

    resource_pool_spec: dict[str, list[int]]
    mapping: dict[Any, str]
    max_colocate_count: int = 3
    resource_pool_dict: dict[str, ResourcePool] = dataclasses.field(
        default_factory=dict
    )

    def create_resource_pool(self) -> None:
        """All of them, with their devices, or none: PlacementError says which node lacks
        what."""
        made: dict[str, ResourcePool] = {}
        try:
            for name, process_on_nodes in self.resource_pool_spec.items():
                made[name] = ResourcePool(
                    process_on_nodes=process_on_nodes,
                    max_colocate_count=self.max_colocate_count,
                    name_prefix=name,
                )
                made[name].get_placement_groups()
        except BaseException:
            for pool in made.values():
                pool.remove()
            raise
        self.resource_pool_dict.update(made)

    def get_resource_pool(self, role: Any) -> ResourcePool:
        return self.resource_pool_dict[self.mapping[role]]

    def get_n_gpus(self) -> int:
        return sum(itertools.chain(*self.resource_pool_spec.values()))
