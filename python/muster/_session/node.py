"""Nodes and their devices, as `muster.nodes()` gives them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from muster import _core


class Device:
    """A device of a node. `id` is how the variable `variable` names it to a process;
    vendor is "" where it is only described, memory is in bytes (0: not known), devices
    with the same domain are joined closely, numa is -1 where that is not known."""

    def __init__(self, told: _core.Message) -> None:
        self.kind: str = told["kind"]
        self.vendor: str = told["vendor"]
        self.id: str = told["id"]
        self.variable: str = told["variable"]
        self.memory: int = told["memory"]
        self.domain: int = told["domain"]
        self.numa: int = told["numa"]
        self.pci: str = told["pci"]
        self.model: str = told["model"]

    def __repr__(self) -> str:
        what = self.model or f"{self.vendor} {self.kind}".lstrip()
        return f"<muster.Device {self.id}: {what}, {self.memory >> 20} MiB>"


class Node:
    """A machine that lends itself, or a part of one, as `muster.nodes()` gives it.

    memory is in bytes; suspect: silent for longer than it should be; detail: why it is
    not alive; devices: in the order of the topology; resources: those that only have a
    name.
    """

    def __init__(self, told: _core.Message) -> None:
        """Of a NodeStatus; one whose agent has not yet said what it has has no shape."""
        shape = told["shape"] or {"devices": [], "resources": []}
        self.name: str = told["name"]
        self.cpus: int = told["cpus"]
        self.memory: int = told["memory"]
        self.gpus: int = told["gpus"]
        self.alive: bool = told["alive"]
        self.suspect: bool = told["suspect"]
        self.labels = dict(label.partition("=")[::2] for label in told["labels"])
        self.addresses: list[str] = told["addresses"]
        self.detail: str = told["detail"]
        self.agent_pid: int = told["agent_pid"]
        self.devices = [Device(device) for device in shape["devices"]]
        self.resources: dict[str, int] = {
            one["name"]: one["amount"] for one in shape["resources"]
        }

    def __repr__(self) -> str:
        state = "suspect" if self.suspect else "alive" if self.alive else "gone"
        return (
            f"<muster.Node {self.name!r}: {self.cpus} CPUs, {self.memory >> 20} MiB, "
            f"{self.gpus} devices, {state}>"
        )


def by_name(node: Node) -> list[tuple[int, str]]:
    """Numbers in names count as numbers."""
    parts: list[tuple[int, str]] = []
    for char in node.name:
        if char.isdigit() and parts and parts[-1][1] == "":
            parts[-1] = (parts[-1][0] * 10 + int(char), "")
        else:
            parts.append((int(char), "") if char.isdigit() else (-1, char))
    return parts
