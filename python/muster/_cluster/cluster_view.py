"""The view of all workers of a cluster, as the head tells of them."""

from __future__ import annotations

from muster import api
from muster._cluster.member import Member, helper_members
from muster._core import ANSWER_S, Refused
from muster.errors import ClusterError, MusterError
from muster.view import ENGINE, View

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from muster import _core
    from muster._cluster.binding import Binding
    from muster._cluster.spec import ClusterMeta


class ClusterView(View):
    """All of a cluster: its workers change when it is resized, or some are replaced."""

    _gone = False

    def _prepare(
        self,
        name: str,
        meta: ClusterMeta,
        owner: api.Session | None = None,
        nodes: Sequence[str] = (),
    ) -> None:
        """What it has before its workers are known."""
        self._name = name
        self._meta = meta
        self._owner = owner  # None: it is a handle that came from elsewhere
        self._nodes = nodes  # by index
        self._kept: list[Any] = []  # what its steps refer to in the store
        self._helpers: dict[int, list[Member]] = {}
        self._changes = api.changes()

    def _enter(
        self, members: Sequence[Member], bound: Binding, engine: str = ENGINE
    ) -> None:
        meta = self._meta
        View.__init__(
            self, self._name, members, engine, meta.timeout, meta.codec, bound
        )
        self._bind()

    def _take_workers(self, status: dict[str, Any]) -> list[Member]:
        native = status["is_native"]
        for one in status["workers"]:
            if not one["address"]:
                raise ClusterError(
                    f"cluster {self._name!r} is not complete: rank {one['rank']}"
                )
        self._take_helpers(status)
        return [
            Member(self._name, one["rank"], one, self._nodes, native)
            for one in status["workers"]
        ]

    def _take_helpers(self, status: dict[str, Any]) -> None:
        self._helpers = {
            one["rank"]: helper_members(
                self._name, one["rank"], one["helpers"], status["is_native"]
            )
            for one in status["workers"]
            if one["helpers"]
        }

    def _bind(self) -> None:
        self.workers = [self[i] for i in range(len(self))]
        self.rank2worker = dict(enumerate(self.workers))
        self.worker2rank = {view: rank for rank, view in self.rank2worker.items()}
        self.rank2devices = {
            w.rank: [{"node_rank": w.node[0], "gpu_rank": d} for d in w.devices]
            for w in self._members
        }
        self.worker2nodes = {
            view: w.node[1] for view, w in zip(self.workers, self._members, strict=True)
        }

    def _require_owner(self) -> api.Session:
        if self._owner is None:
            raise ClusterError(
                f"this handle of {self._name!r} cannot change its workers: its creator can, "
                "or a driver with muster.get_cluster"
            )
        return self._owner

    def _renew(self, head: _core.Head, member: Member, now: dict[str, Any]) -> None:
        former = member.peer.uid
        member.update(self._name, now, self._nodes)
        if former != now["uid"]:
            head.redirect(former, now["uid"], now["address"])
        self._bound.forget(member.rank)

    def _refresh(self) -> None:
        """It may have been resized or initialized by another process."""
        known = self._bound.refresh()
        if known == self._changes or self._gone:
            return
        self._changes = known
        try:
            asked = {"name": self._name, "uid": self._members[0].uid}
            status = api.session().head.ask("find", asked).result(ANSWER_S)
        except (Refused, MusterError, TimeoutError):
            return  # the next call says what became of it
        if len(status["workers"]) != len(self._members):
            self._resized(status)

    @property
    def world_size(self) -> int:
        """How many workers a call to all goes to."""
        self._refresh()
        return len(self._members)

    def __len__(self) -> int:
        self._refresh()
        return len(self._members)

    def _resized(self, status: dict[str, Any]) -> None:
        """Its members are those that the head tells of."""
        self._changes = api.changes()
        kept = {w.uid: w for w in self._members}
        workers = [kept.get(w.uid, w) for w in self._take_workers(status)]
        self._members = tuple(workers)
        self._peers = [w.peer for w in workers]
        self._first = getattr(self._peers[0], "call_sync", None)
        self._bound.resize(len(workers))
        self._plans.clear()
        self._bind()

    def helpers(self, rank: int) -> View:
        """The processes on further nodes of a rank that is wider than a node, in the order
        of the nodes. They have no engine until `create_engine` makes one. They end with
        their worker, and it with them."""
        number = self._member(rank).rank
        self._require_owner()
        if number not in self._helpers:
            raise ClusterError(
                f"rank {number} of {self._name!r} has no helpers: it is on one node"
            )
        return View(self._name, self._helpers[number], ENGINE, self._timeout)

    # ---- its mesh ---------------------------------------------------------------------

    @property
    def mesh(self) -> dict[str, int]:
        """The sizes of tp, cp, dp, pp and ep: as WorkerConfig(mesh=...) says, else as the
        workers' rank_info does, else all are data parallel."""
        return self._bound.sizes(self)

    @property
    def dp_size(self) -> int:
        """Of the mesh: what tp, cp and pp leave over."""
        return self.mesh["dp"]

    @property
    def tp_size(self) -> int:
        return self.mesh["tp"]

    @property
    def pp_size(self) -> int:
        return self.mesh["pp"]

    @property
    def cp_size(self) -> int:
        return self.mesh["cp"]
