"""ResourceManager: which devices of which node each worker gets. The head decides it."""

from __future__ import annotations

from collections import namedtuple

from muster import _core, api
from muster.errors import PlacementError
from muster.groups import GroupPart, PlacementGroup, amounts, bundle_messages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from muster._cluster.spec import Placement
    from muster.config import WorkerConfig
    from muster.groups import Bundle

_ALL = -1


class NodeSize(namedtuple("NodeSize", "name cpus memory devices")):
    """What a node has in all; memory is in bytes."""

    __slots__ = ()


class ResourceManager:
    """Over the nodes that `init` found, or those `num_nodes` of them that have
    `num_gpus_per_node` devices, of which only so many count. 0 devices: for workers that
    need none. nodes: these, by name. `print(rm)` shows what there is and who holds it."""

    def __init__(
        self,
        num_gpus_per_node: int | None = None,
        num_nodes: int | None = None,
        *,
        nodes: Sequence[str] | None = None,
    ) -> None:
        for field, count in (
            ("num_gpus_per_node", num_gpus_per_node),
            ("num_nodes", num_nodes),
        ):
            if count is not None and type(count) is not int:
                raise TypeError(f"{field}: an integer is needed: {count!r}")
        if isinstance(nodes, str):
            raise TypeError(f"nodes: a list of names is needed: {nodes!r}")
        per_node = _ALL if num_gpus_per_node is None else num_gpus_per_node
        if per_node < _ALL or (num_nodes is not None and num_nodes < 1):
            raise PlacementError(
                "num_nodes must be at least 1, and num_gpus_per_node at least 0: "
                f"{num_nodes!r}, {num_gpus_per_node!r}"
            )
        if nodes is not None and (not nodes or num_nodes is not None):
            raise PlacementError(
                "nodes: at least one name is needed, without num_nodes"
            )
        scope = _scope(list(nodes or ()), num_nodes or 0, per_node)
        try:
            uses = _resources(scope)["nodes"]
        except LookupError as e:
            raise PlacementError(
                f"{e.args[0]} (init(num_gpus=N) describes N devices here, "
                "`muster agent --num-gpus N` on another machine)",
                e.args[1],
            ) from None
        self.nodes = [
            NodeSize(
                use["name"], use["cpu_milli"] // 1000, use["memory"], use["devices"]
            )
            for use in uses
        ]
        self.num_nodes = len(uses)
        self.num_gpus = sum(use["devices"] for use in uses)
        self.num_gpus_per_node = uses[0]["devices"]
        self._scope = _scope([use["name"] for use in uses], 0, per_node)
        is_all = num_gpus_per_node is None and num_nodes is None and nodes is None
        self._group_scope = None if is_all else self._scope

    def placement_group(
        self,
        bundles: Sequence[Bundle | Mapping[str, Any]],
        strategy: str = "PACK",
        *,
        name: str | None = None,
        timeout: float = 0,
        wait: bool = True,
        same: str | None = None,
        labels: Mapping[str, str] | None = None,
        detached: bool = False,
    ) -> PlacementGroup:
        """Bundles, placed all or none: now, or within `timeout` seconds if others give back
        what it needs. `wait=False`: a group that may still be waiting. PlacementError if it
        could never fit, or its time is up."""
        session = api.session()
        session.check_detached(detached, PlacementError)
        asked: _core.Message = {
            "bundles": bundle_messages(bundles, labels),
            "strategy": strategy,
            "detached": detached,
        }
        if name:
            asked["name"] = name
        if same:
            asked["same"] = same
        if timeout:
            asked["timeout_ns"] = _core.ns(timeout)
        if self._group_scope:
            asked["scope"] = self._group_scope
        group = PlacementGroup(session.ask("place_group", asked, PlacementError))
        if wait and timeout > 0:
            try:
                group.wait()
            except BaseException:
                group.remove()
                raise
        return group

    def request(self, config: WorkerConfig) -> dict[str, Any]:
        """What is asked of placement for such a cluster: proto/muster.proto, PlaceCluster."""
        mapping = config.device_mapping
        devices = _core.device_ids(mapping) if isinstance(mapping, str) else mapping
        width = config.num_gpus_per_worker
        return {
            "scope": self._scope,
            "world_size": config.world_size or (1 if mapping is None else 0),
            "devices": devices or [],
            "devices_per_worker": int(mapping is not None) if width is None else width,
            **amounts(config),
        }

    def plan(self, cluster: str, config: WorkerConfig) -> list[Placement]:
        """Where each rank of such a cluster would go: the index of its node and the
        devices there. Nothing is held."""
        asked = {"name": cluster, **self.request(config)}
        placed = api.session().ask("place_cluster", asked, PlacementError)
        index = {node.name: i for i, node in enumerate(self.nodes)}
        first = [rank["pieces"][0] for rank in placed["ranks"]]
        gone = [piece["node"] for piece in first if piece["node"] not in index]
        if gone:
            raise PlacementError(f"node {gone[0]} is gone")
        return [(index[piece["node"]], piece["devices"]) for piece in first]

    def __str__(self) -> str:
        return str(_resources(self._scope)["table"])

    def __repr__(self) -> str:
        return (
            f"ResourceManager(num_gpus_per_node={self.num_gpus_per_node}, "
            f"num_nodes={self.num_nodes})"
        )


class ResourcePool(GroupPart):
    """verl's pool: so many processes on each of so many nodes, one device each.

    use_gpu=False: processes without a device. cpus: for each process. A cluster in it has
    as many ranks, node after node; several clusters may stand in it. `remove()` gives it
    back."""

    def __init__(
        self,
        process_on_nodes: Sequence[int],
        *,
        use_gpu: bool = True,
        cpus: float = 0,
        name: str | None = None,
        timeout: float = 0,
    ) -> None:
        if not process_on_nodes or min(process_on_nodes) < 1:
            raise ValueError(f"process_on_nodes: not a pool: {process_on_nodes!r}")
        manager = ResourceManager()
        bundle = {"GPU": 1, "CPU": cpus} if use_gpu else {"CPU": cpus}

        def make(i: int) -> PlacementGroup:
            if manager._group_scope is None:
                raise PlacementError(
                    f"a pool on {len(process_on_nodes)} nodes was asked for, and "
                    f"there are {manager.num_nodes}",
                    str(manager),
                )
            return manager.placement_group(
                [bundle] * process_on_nodes[i],
                "STRICT_PACK",
                name=f"{name}-{i}" if name else None,
                timeout=timeout,
            )

        self.process_on_nodes = list(process_on_nodes)
        self.groups = place_entries(manager, process_on_nodes, make)
        super().__init__(seat for group in self.groups for seat in group._seats)

    @property
    def world_size(self) -> int:
        return len(self)

    def remove(self) -> None:
        """Give it back. Its clusters must have ended."""
        for group in self.groups:
            group.remove()


def place_entries(
    manager: ResourceManager,
    sizes: Sequence[int],
    make: Callable[[int], PlacementGroup],
) -> list[PlacementGroup]:
    """The groups that `make` makes of a pool's entries, all or none. Each is asked for when
    the manager's scope has the nodes that the others have left over; None: there is none.
    Of entries of the same size the first has the first node."""
    order = {node.name: i for i, node in enumerate(manager.nodes)}
    made: dict[int, PlacementGroup] = {}
    taken: set[str] = set()
    try:
        for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
            # the widest is the hardest to place
            free = [node for node in order if node not in taken]
            manager._group_scope = _scope(free, 0, _ALL) if free else None
            made[i] = make(i)
            taken.update(node for node, _ in made[i].placement)
    except BaseException:
        for group in made.values():
            group.remove()
        raise

    def rank(i: int) -> tuple[int, int]:
        return sizes[i], order.get(made[i]._piece(0)[0], len(order))

    placed = sorted(made, key=rank)
    asked = sorted(made, key=lambda i: sizes[i])  # stable: entries of a size in order
    where = dict(zip(asked, placed, strict=True))
    return [made[where[i]] for i in range(len(sizes))]


def _resources(scope: _core.Message) -> _core.Message:
    return api.session().head.ask("resources", {"scope": scope}).result(api.ANSWER_S)


def _scope(nodes: list[str], num_nodes: int, per_node: int) -> _core.Message:
    return {
        "nodes": nodes,
        "num_nodes": num_nodes,
        "is_limited": per_node != _ALL,
        "devices_per_node": max(per_node, 0),
    }
