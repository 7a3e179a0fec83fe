"""Nodes and their devices, as `muster.nodes()` gives them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Device:
    """A device of a node. `id` is how the variable `variable` names it to a process;
    vendor is "" where it is only described, memory is in bytes (0: not known), devices
    with the same domain are joined closely, numa is -1 where that is not known."""

    def __init__(
        self,
        kind: str,
        vendor: str,
        id: str,
        variable: str,
        memory: int,
        domain: int,
        numa: int,
        pci: str,
        model: str,
    ) -> None:
        self.kind = kind
        self.vendor = vendor
        self.id = id
        self.variable = variable
        self.memory = memory
        self.domain = domain
        self.numa = numa
        self.pci = pci
        self.model = model

    def __repr__(self) -> str:
        what = self.model or f"{self.vendor} {self.kind}".lstrip()
        return f"<muster.Device {self.id}: {what}, {self.memory >> 20} MiB>"


class Node:
    """A machine that lends itself, or a part of one, as `muster.nodes()` gives it.

    memory is in bytes; suspect: silent for longer than it should be; detail: why it is
    not alive; devices: in the order of the topology; resources: those that only have a
    name.
    """

    def __init__(
        self,
        name: str,
        cpus: int,
        memory: int,
        gpus: int,
        alive: bool,
        suspect: bool,
        labels: list[str],
        addresses: list[str],
        detail: str,
        agent_pid: int,
        devices: list[tuple[Any, ...]],
        resources: list[tuple[str, int]],
    ) -> None:
        self.name = name
        self.cpus = cpus
        self.memory = memory
        self.gpus = gpus
        self.alive = alive
        self.suspect = suspect
        self.labels = dict(label.partition("=")[::2] for label in labels)
        self.addresses = addresses
        self.detail = detail
        self.agent_pid = agent_pid
        self.devices = [Device(*fields) for fields in devices]
        self.resources = dict(resources)

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
