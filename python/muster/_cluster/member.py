"""One worker of a cluster: where it is, and the connection to it."""

# A worker that is wider than a node has helpers: processes on its further nodes.

from __future__ import annotations

import os

from muster import _core, api
from muster.errors import ClusterError, NotInitialized

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, NoReturn

    from muster.view import View

_HELPERS = "MUSTER_HELPERS"  # src/head/clusters/helpers.c


class Member:
    """A worker, as the head tells of it. Pickles without its connection and its lease."""

    native: bool  # a process without Python
    uid: int
    pid: int
    address: str
    log_path: str
    incarnation: int
    devices: list[int]
    node: tuple[int, str]  # its index among the cluster's, and its name
    label: str  # "cluster/rank@node"
    peer: Any
    lease: Any = None  # of an adapter: ends the worker with the last reference to it

    def __init__(
        self,
        cluster: str,
        rank: int,
        status: Mapping[str, Any],
        nodes: Sequence[str] = (),
        native: bool = False,
    ) -> None:
        self.rank = rank
        self.native = native
        self.update(cluster, status, nodes)
        self.peer = _find_peer(self.address, self.uid, self.label)

    def update(
        self, cluster: str, status: Mapping[str, Any], nodes: Sequence[str]
    ) -> None:
        """What the head tells, also of a new process in its place, elsewhere perhaps."""
        self.uid = int(status["uid"])
        self.pid = status["pid"]
        self.address = status["address"]
        self.log_path = status["log_path"]
        self.incarnation = status.get("incarnation", 1)
        self.devices = list(status["devices"])
        node = status["node"]
        self.node = (nodes.index(node) if node in nodes else -1, node)
        self.label = f"{cluster}/{status.get('rank', self.rank)}@{node}"

    def __getstate__(self) -> dict[str, Any]:
        own = ("peer", "lease")
        return {name: v for name, v in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.peer = _find_peer(self.address, self.uid, self.label)


class NoPeer:
    """Stands for a worker in a process that has no connection to it."""

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


# ---- helpers --------------------------------------------------------------------------


def helper_members(
    cluster: str, rank: int, helpers: Sequence[Mapping[str, Any]], native: bool
) -> list[Member]:
    """Those of one rank, in the order of the nodes."""
    return [
        Member(cluster, number, {**one, "rank": rank}, native=native)
        for number, one in enumerate(helpers)
    ]


def helpers() -> View:
    """Inside a worker that is wider than a node: a view of its helpers, in the order of the
    nodes. `create_engine` puts objects into them."""
    from muster.view import View

    text = os.environ.get(_HELPERS)
    if _core.in_worker() is None or text is None:
        raise ClusterError("helpers() is for workers that are wider than a node")
    import json

    status = json.loads(text)
    name = status["cluster"]
    return View(name, helper_members(name, status["rank"], status["helpers"], False))
