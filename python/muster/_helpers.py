"""Helpers: the processes of a wide worker on the nodes beyond its first one."""

from __future__ import annotations

import os
from contextlib import suppress

from muster import _core
from muster._member import Worker
from muster._start import helper_specs, start
from muster.errors import ClusterError
from muster.future import Future

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from muster import api
    from muster._start import Place
    from muster.view import View

ANSWER_S = 10.0
SET_ENV = 17  # wire/frame.h, enum ms_op
PICKLE = 1  # wire/frame.h, enum ms_codec
_VARIABLE = "MUSTER_HELPERS"


class Helpers:
    """Of the wide ranks of one cluster. Each rank's are a cluster of their own to the head,
    which ends them with their worker, and the worker with them."""

    def __init__(
        self,
        name: str,
        pieces: Sequence[Sequence[Place]],
        ranks: list[_core.RankSpec],
        session: api.Session,
    ) -> None:
        self._name = name
        self._session = session
        self._ranks = ranks
        self._further = {r: list(p[1:]) for r, p in enumerate(pieces) if len(p) > 1}
        self._members: dict[int, list[Worker]] = {}
        self._begun: set[int] = set()

    @property
    def ranks(self) -> frozenset[int]:
        """Those that have any."""
        return frozenset(self._further)

    def start(self, worker: Worker, uid: int, peer: _core.Peer) -> None:
        """Those of this worker, if it is wide; the process, which is told of them, may be
        one that takes its place."""
        further = self._further.get(worker.rank)
        if not further:
            return
        head = self._session.head
        self._members.pop(worker.rank, None)
        given = (self._ranks, worker.rank, uid, further, self._session)
        self._begun.add(worker.rank)
        try:
            started = start(head, self._cluster(worker.rank), helper_specs(*given))
        except ClusterError:  # that name is somebody else's
            self._begun.discard(worker.rank)
            raise
        order = [node.name for node in self._session.nodes()]
        members = []
        given_to = zip(further, started, strict=True)
        for number, ((node, devices), one) in enumerate(given_to):
            label = f"{self._name}/{worker.rank}@{node}"
            place = (order.index(node) if node in order else -1, node)
            where = (number, *one, label, place, devices)
            members.append(Worker(*where, worker.native))
        self._members[worker.rank] = members
        if not worker.native:
            import json

            env = {_VARIABLE: json.dumps([self._name, _pack(members)])}
            call = peer.operation(SET_ENV, env, ANSWER_S, PICKLE)
            Future(call, "set_env").result()

    def restart(self, worker: Worker, uid: int, peer: _core.Peer) -> None:
        """Another process takes its place."""
        if worker.rank in self._further:
            self.stop(worker.rank, 0)
            self.start(worker, uid, peer)

    def stop(self, rank: int, grace: float) -> None:
        """Wait for their end."""
        head = self._session.head
        members = self._members.get(rank)
        which = (self._cluster(rank), True, members[0].uid if members else 0)
        with suppress(Exception):  # they have ended already, or never began
            head.destroy_cluster(*which, grace, grace + ANSWER_S)

    def stop_all(self, grace: float) -> None:
        for rank in self._begun:
            self.stop(rank, grace)

    def members(self, rank: int) -> list[Worker]:
        if rank not in self._members:
            raise ClusterError(f"rank {rank} of {self._name!r} is on one node alone")
        return self._members[rank]

    def _cluster(self, rank: int) -> str:
        return f"{self._name}.{rank}.helpers"


def _pack(members: list[Worker]) -> list[list[object]]:
    return [list(m.__reduce__()[1]) for m in members]


def helpers() -> View:
    """Inside a worker that is wider than a node: a view of its helpers, in the order of the
    nodes. `create_engine` puts objects into them."""
    from muster.view import View

    told = os.environ.get(_VARIABLE)
    if _core.in_worker() is None or told is None:
        raise ClusterError("helpers() is for workers that are wider than a node")
    import json

    name, members = json.loads(told)
    return View(name, [_unpack(fields) for fields in members])


def _unpack(fields: list[object]) -> Worker:
    rank, uid, pid, address, log_path, label, node, *rest = fields
    return Worker(rank, uid, pid, address, log_path, label, tuple(node), *rest)  # type: ignore
