"""ResourceManager: which devices of which node each worker gets."""

from __future__ import annotations

from muster import _core, api
from muster.config import WorkerConfig
from muster.errors import PlacementError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from muster._env import Placement


# who, node, devices, CPUs, memory
_Held = tuple[str, str, list[int], float, int]


def _held() -> list[_Held]:
    """What the workers of this driver hold, and those of others."""
    session = api.session()
    held: list[_Held] = []
    for cluster, (places, config) in list(session.held.items()):
        for rank, (node, devices) in enumerate(places):
            who = f"{cluster}/{rank}"
            held.append((who, node, devices, config.num_cpus, config.memory))
    if not session.head.joined:
        return held
    for cluster, _, workers in session.head.clusters(api.ANSWER_S):
        if cluster in session.held:
            continue
        for rank, (*_, node, devices, lives, cpu_milli, memory) in enumerate(workers):
            if lives:
                who = f"{cluster}/{rank}"
                held.append((who, node, devices, cpu_milli / 1000, memory))
    return held


class ResourceManager:
    """Over the nodes that `init` found, or those `num_nodes` of them that have
    `num_gpus_per_node` devices. 0 devices: for workers that need none."""

    def __init__(
        self, num_gpus_per_node: int | None = None, num_nodes: int | None = None
    ) -> None:
        nodes = [
            (node.name, node.cpus, node.memory, node.gpus)
            for node in api.session().nodes()
            if node.alive
        ]
        asked = 0 if num_gpus_per_node is None else num_gpus_per_node
        fit = [node for node in nodes if node[3] >= asked]
        count = len(fit) if num_nodes is None else num_nodes
        if not 0 < count <= len(fit):
            raise PlacementError(
                f"{count or 1} nodes of {asked} devices were asked for, and {len(fit)} "
                f"of {len(nodes)} are so (init(num_gpus=N) describes N devices here, "
                "`muster agent --num-gpus N` on another machine)",
                "\n".join(
                    f"  {name}: {cpus} CPUs, {memory >> 20} MiB, {gpus} devices"
                    for name, cpus, memory, gpus in nodes
                ),
            )
        per_node = fit[0][3] if num_gpus_per_node is None else num_gpus_per_node
        self.num_gpus_per_node = per_node
        self.num_nodes = count
        self.num_gpus = per_node * count
        self.nodes = [(name, cpus, mem, per_node) for name, cpus, mem, _ in fit[:count]]

    def plan(self, cluster: str, config: WorkerConfig) -> list[Placement]:
        """The node and the devices of each rank. PlacementError if they do not fit."""
        size = config.world_size or (1 if config.device_mapping is None else 0)
        held = _held()
        try:
            return _core.plan(
                nodes=[self._with_held(i, held) for i in range(len(self.nodes))],
                cluster=cluster,
                world_size=size,
                device_mapping=config.device_mapping,
                gpus_per_worker=config.num_gpus_per_worker,
                cpus_per_worker=config.num_cpus,
                memory=config.memory,
            )
        except LookupError as e:
            message, _, table = str(e.args[0]).partition("\n")
            if len(e.args) > 1:
                table = str(e.args[1])
            raise PlacementError(message, table) from None

    def _with_held(self, index: int, others: list[_Held]) -> _core.Node:
        """A node, and what living clusters have taken of it."""
        name, cpus, memory, gpus = self.nodes[index]
        cpus_held, memory_held = 0.0, 0
        held_by: list[str | None] = [None] * gpus
        for holder, node, devices, worker_cpus, worker_memory in others:
            if node != name:
                continue
            cpus_held += worker_cpus
            memory_held += worker_memory
            for device in devices:
                if device < gpus:
                    here = held_by[device]
                    held_by[device] = f"{here},{holder}" if here else holder
        return name, cpus, memory, gpus, cpus_held, memory_held, held_by

    def __repr__(self) -> str:
        return (
            f"ResourceManager(num_gpus_per_node={self.num_gpus_per_node}, "
            f"num_nodes={self.num_nodes})"
        )
