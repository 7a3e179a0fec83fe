"""The roles of a scheduler, their workers, and a call to one of them."""

from __future__ import annotations

from muster._core import CODEC_PICKLE, OP_SET_ENV, STOP_GRACE_S, Call
from muster.future import Future
from muster.view import ENGINE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Protocol

    from muster import _core
    from muster.areal.placement import Places
    from muster.cluster import Cluster
    from muster.groups import GroupPart

    class Pending(Protocol):
        """A call under way, of either kind of worker; awaitable."""

        def wait(self, timeout: float | None) -> bool: ...
        def value(self) -> Any: ...
        def cancel(self) -> bool: ...
        def __await__(self) -> Any: ...

    class RoleWorker(Protocol):
        """One worker of a role."""

        info: Any  # areal.api.Worker

        def call(
            self,
            timeout: float,
            engine: str,
            method: str,
            *rest: Any,
            waits: bool = True,
        ) -> Pending: ...
        def create_engine(self, timeout: float, path: str, *rest: Any) -> Pending: ...
        def set_env(self, timeout: float, env: Mapping[str, str]) -> Pending: ...
        def check(self, timeout: float) -> None: ...
        def stop(self) -> None: ...


class PendingCall(Future):
    """A call over Muster's own protocol."""

    __slots__ = ()

    def wait(self, timeout: float | None) -> bool:
        return self._call.wait(timeout)

    def value(self) -> Any:
        return self._call.result()


class NativeWorker:
    """A worker of a Muster cluster."""

    def __init__(self, info: Any, cluster: Cluster, rank: int) -> None:
        self.info = info
        self.view = cluster[rank]
        self._peer: _core.Peer = self.view._peers[0]

    def call(
        self, timeout: float, engine: str, method: str, *rest: Any, waits: bool = True
    ) -> PendingCall:
        """`waits`: the caller does nothing else until it is answered."""
        how = (None, timeout, waits, CODEC_PICKLE)
        call = self._peer.call(ENGINE, "call", (engine, method, *rest), *how)
        return PendingCall(call, method)

    def create_engine(self, timeout: float, path: str, *rest: Any) -> PendingCall:
        how = (None, timeout, False, CODEC_PICKLE)
        call = self._peer.call(ENGINE, "create_engine", (path, *rest), *how)
        return PendingCall(call, "create_engine")

    def set_env(self, timeout: float, env: Mapping[str, str]) -> PendingCall:
        values = {str(name): str(value) for name, value in env.items()}
        call: Call = self._peer.operation(OP_SET_ENV, values, timeout)
        return PendingCall(call, "set_env")

    def check(self, timeout: float) -> None:
        """It answers, whatever its engines do."""
        self.view.health(timeout=timeout)

    def stop(self) -> None:
        """It ends with its cluster."""


class Role:
    """Workers that were created together."""

    def __init__(
        self,
        name: str,
        workers: Sequence[RoleWorker],
        cluster: Cluster | None = None,
        part: GroupPart | None = None,
        places: Places | None = None,
        target: str | None = None,
        *,
        shares: bool = False,
    ) -> None:
        self.name = name
        self.workers = list(workers)
        self.cluster = cluster  # None: its processes are commands
        self.part = part  # where its ranks stand; None: nowhere of their own
        self.places = places  # what it holds; None: it stands where another role does
        self.target = target  # the role beside which it runs
        self.shares = shares  # its workers are those of `target`

    @property
    def ids(self) -> list[str]:
        return [worker.info.id for worker in self.workers]

    def shared_as(self, name: str) -> Role:
        """A role that has its engines in the same processes."""
        how = (self.cluster, self.part, None, self.name)
        return Role(name, self.workers, *how, shares=True)

    def end(self, grace: float = STOP_GRACE_S) -> None:
        """Its processes, and what they held. Rank 0 ends last."""
        if self.shares:
            return
        if self.cluster is not None:
            self.cluster.destroy(grace=grace)
        else:
            for worker in reversed(self.workers):
                worker.stop()
        if self.places is not None:
            self.places.release()
