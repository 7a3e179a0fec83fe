"""One worker of a cluster: where it is, and the way to it."""

from __future__ import annotations

from muster import _core, api
from muster.errors import ClusterError, NotInitialized

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


class Worker:
    """Where one worker is, and the way to it. Pickles without the way."""

    def __init__(
        self,
        rank: int,
        uid: int,
        pid: int,
        address: str,
        log_path: str,
        label: str,
        node: tuple[int, str],
        devices: list[int],
        native: bool = False,
        incarnation: int = 1,
    ) -> None:
        self.rank = rank
        self.uid = uid
        self.pid = pid
        self.address = address
        self.log_path = log_path
        self.label = label
        self.node = node
        self.devices = devices
        self.native = native  # a process without Python
        self.incarnation = incarnation
        self.peer = _find_peer(address, uid, label)

    def renew(
        self, uid: int, pid: int, address: str, log_path: str, incarnation: int
    ) -> None:
        """Another process has its place. The way to it was told to the peer already."""
        self.uid = uid
        self.pid = pid
        self.address = address
        self.log_path = log_path
        self.incarnation = incarnation

    def move(
        self, nodes: list[str], node: str, devices: list[int], cluster: str
    ) -> None:
        """It is elsewhere: its node was lost."""
        self.node = (nodes.index(node) if node in nodes else -1, node)
        self.devices = devices
        self.label = f"{cluster}/{self.rank}@{node}"

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self.rank, self.uid, self.pid, self.address, self.log_path)
        place = (self.label, self.node, self.devices, self.native, self.incarnation)
        return Worker, (*fields, *place)


class NoPeer:
    """Stands for a worker in a process that has no way to it."""

    def __init__(self, label: str) -> None:
        self.label = label

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.refuse

    def refuse(self, *args: object) -> NoReturn:
        raise NotInitialized(
            f"{self.label} cannot be called from this process: it is neither the driver "
            "nor a worker of its session"
        )


def _find_peer(address: str, uid: int, label: str) -> Any:
    host = _core.in_worker()
    if host is not None:
        return host.peer(address, uid, label)
    if api.is_initialized():
        return api.session().head.peer(address, uid, label)
    return NoPeer(label)


def tcp_entry(address: str) -> str | None:
    """The first entry of an address (io/addr.h) that is a TCP port."""
    for entry in address.split(","):
        if not entry.startswith(("unix:", "/")):
            return entry
    return None


def http_url(address: str) -> str:
    entry = tcp_entry(address)
    if entry is None:
        raise ClusterError(f"no TCP port at {address!r}")
    return f"http://{entry}"
