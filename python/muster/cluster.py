"""Cluster: the workers of one role, started, called and ended as a unit."""

from __future__ import annotations

import os
from contextlib import suppress

from muster import api
from muster._bind import Binding, check_names
from muster._fork import Processes, command_of, fork_cluster, fork_processes
from muster._found import Found, describe
from muster._helpers import Helpers
from muster._meet import barrier as meet
from muster._member import Worker
from muster._replace import Recipe, replace
from muster._serialize import Once
from muster._start import (
    bound_methods,
    engine_spec,
    is_native,
    rank_specs,
    start,
)
from muster.config import WorkerConfig, fields_known, mesh_sizes, near
from muster.errors import ClusterError
from muster.resources import ResourceManager, place, placements_of
from muster.view import (
    ANSWER_S,
    CREATE_ENGINE,
    DESTROY_ENGINE,
    ENGINE,
    FINISH,
    PICKLE,
    PLAIN,
    View,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Self

    from muster._env import Placement
    from muster._start import Place
    from muster.dispatch import Method
    from muster.groups import GroupPart

GRACE_S = 3.0  # SIGTERM until SIGKILL
FORK_S = 600.0  # a constructor beside a worker


def _check_arguments(name: Any, where: Any, fields: Mapping[str, Any]) -> None:
    """What else would fail far from here, or say nothing."""
    if not isinstance(name, str):
        raise TypeError(f"name: a cluster's name is a str: {name!r}")
    if where is not None and not hasattr(where, "place"):
        raise TypeError(
            "resource_manager: a muster.ResourceManager, a placement group or a part of "
            f"one: {where!r}"
        )
    for field in fields:
        if field not in fields_known():
            meant = near(field)
            hint = f"; is {meant!r} meant?" if meant else ""
            raise TypeError(f"Cluster() has no argument {field!r}{hint}")


class Cluster(View):
    """The workers of one role: ranks 0 to world_size - 1, each with one `worker_cls`.

    worker_cls: a class, also one of `__main__` or of a notebook, or its import path,
    "package.module.Class", or a class in C, "library.so:symbol", which is called with
    plain data unless told otherwise. All workers are there and constructed when this returns, or
    none is and the reason is raised. They live until `destroy()` or `shutdown()`: a
    Cluster object that is dropped ends nothing. A `detached` one, which only a head that
    was joined can have, lives until `destroy()`, and `muster.get_cluster` finds it.

    Pickles to a handle that can call the workers, from this driver and from them.
    """

    def __init__(
        self,
        name: str,
        worker_cls: type | str,
        resource_manager: ResourceManager | GroupPart | None = None,
        worker_config: Any = None,
        *,
        config: Any = None,
        detached: bool = False,
        **fields: Any,
    ) -> None:
        if worker_config is not None and config is not None:
            raise TypeError("config is another name of worker_config: give one of them")
        _check_arguments(name, resource_manager, fields)
        session = api.session()
        if detached and not session.head.joined:
            raise ClusterError(
                "detached=True needs a head that outlives this process: start one with "
                '`muster head`, and muster.init(address="HOST:PORT")'
            )
        role = WorkerConfig.of(worker_config if config is None else config, **fields)
        made = (worker_cls, role.args, role.kwargs, role.max_concurrency)
        spec = engine_spec(ENGINE, *made, mesh=role.mesh)
        methods = bound_methods(worker_cls)
        check_names(type(self), methods or {})
        where = resource_manager if resource_manager is not None else ResourceManager()
        self._name = name
        self._owner: api.Session | None = session
        self._gone = False
        self._told_s = ANSWER_S if detached else 0.0
        self._ports = f"{name}:{os.urandom(4).hex()}"
        self._recipe: Recipe | None = None
        self._held: Any = None  # what the session knows of it
        self._helpers: Helpers | None = None
        self._members = tuple[Worker, ...]()  # none are known yet
        pieces = place(where, name, role)  # they are held for us from now on
        try:
            self._start(session, worker_cls, role, where, pieces, methods, detached)
            told = self._operate(CREATE_ENGINE, spec, role.start_timeout)
            if methods is None:
                check_names(type(self), told[0] or {})
                self._bound.methods = told[0] or {}
            self._describe()
        except BaseException:  # also Ctrl-C, while the head goes on creating it
            with suppress(Exception):
                self.destroy(grace=0)
            with suppress(Exception):
                session.head.drop_claim(name, ANSWER_S)
            raise

    def _start(
        self,
        session: api.Session,
        worker_cls: type | str,
        role: WorkerConfig,
        where: ResourceManager | GroupPart,
        pieces: list[list[Place]],
        methods: dict[str, Method] | None,
        detached: bool,
    ) -> None:
        """Its processes and their helpers, in the places that it holds."""
        name = self._name
        described = where.nodes
        nodes = [node[0] for node in described]
        placements = placements_of(pieces, described)
        sizes = mesh_sizes(role.mesh, len(placements))
        self._held = session.held[name] = ([parts[0] for parts in pieces], role)
        master = session.head.hold_port(self._ports, pieces[0][0][0], ANSWER_S)
        given = (placements, described, master, session, detached)
        ranks = rank_specs(name, worker_cls, role, *given)
        self._recipe = Recipe(ranks, timeout=role.start_timeout)
        started = start(session.head, name, ranks)
        native = is_native(worker_cls)
        super().__init__(
            name,
            _workers(name, started, placements, nodes, native),
            ENGINE,
            role.timeout,
            PLAIN if native else PICKLE,
            Binding(name, ENGINE, len(started), methods, sizes if role.mesh else None),
        )
        self._bind()
        self._helpers = Helpers(name, pieces, ranks, session)
        self._recipe.wide = self._helpers.ranks
        for worker in self._members:
            self._helpers.start(worker, worker.uid, worker.peer)

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

    @classmethod
    def _handle(
        cls,
        name: str,
        members: Sequence[Worker],
        engine: str,
        timeout: float | None,
        bound: Binding,
        codec: int = PICKLE,
        owner: api.Session | None = None,
    ) -> Self:
        self = cls.__new__(cls)
        self._owner = owner
        self._gone = False
        self._told_s = 0.0
        self._ports = ""
        self._recipe = None
        self._held = None
        self._helpers = None
        View.__init__(self, name, members, engine, timeout, codec, bound)
        self._bind()
        return self

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

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self._name, self._members, self._engine, self._timeout, self._bound)
        return Cluster._handle, (*fields, self._codec)

    def __repr__(self) -> str:
        state = "" if self._peers else ", destroyed"
        devices = sum(len(w.devices) for w in self._members)
        with_ = f" on {devices} devices" if devices else ""
        return f"<muster.Cluster {self._name!r}: {len(self)} workers{with_}{state}>"

    def fork_workers(
        self,
        name: str,
        *,
        module: str | None = None,
        command: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Processes:
        """A process beside each worker: same machine, devices and environment, own log.

        It runs `command`, or `python -m module` with `command` as its arguments. Each ends
        with the worker that it runs beside.
        """
        return fork_processes(self, name, command_of(module, command), env or {})

    def fork_cluster(
        self,
        name: str,
        worker_cls: type | str,
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = FORK_S,
    ) -> Cluster:
        """The same with workers: another cluster, with a rank beside each of these."""
        made = (worker_cls, args, kwargs or {}, env or {}, timeout)
        return fork_cluster(self, name, *made)

    def _cluster(self) -> Cluster | None:
        return self

    def _note(self, op: int, argument: Any) -> None:
        """This was done to all workers."""
        if self._recipe is not None:
            self._recipe.add(op, _engine_of(op, argument), argument)
            if len(self._recipe.done) > 1 or op == DESTROY_ENGINE:
                self._describe()

    def _describe(self) -> None:
        """Let the head tell others what they need to call it. Of a detached one nobody
        else could tell it, should this process end now: then it is waited for."""
        if self._owner is None:
            return
        known = (self._timeout, self._bound, self._recipe)
        meta = describe(self._codec, self._members[0].native, *known)
        self._owner.head.describe_cluster(self._name, meta, self._told_s)

    def incarnation(self, rank: int) -> int:
        """1, and one more with each `replace` of that rank."""
        return self._member(rank).incarnation

    def replace(
        self, rank: int, *, grace: float = GRACE_S, timeout: float | None = None
    ) -> View:
        """A new process in the place of a rank that has died, or of one that lives, which
        is ended first: SIGTERM, and SIGKILL `grace` seconds later. A view of it.

        It has the same node, devices, environment and constructor, and what was done to
        the whole cluster with `create_engine`, `configure` and `set_env` is done to it
        too. What is open at the old one fails with WorkerDied; nothing that the old one
        says reaches anybody. Views and handles, also those in workers, call the new one
        from then on. If its constructor fails the rank stays dead, and that is raised;
        `timeout` is for each constructor.
        """
        worker = self._member(rank)
        if self._owner is None or self._recipe is None:
            raise ClusterError(
                f"this is a handle of {self._name!r}: its creator replaces its workers, "
                "or a driver with muster.get_cluster"
            )
        if not self._peers:
            self._destroyed()
        codec = PLAIN if worker.native else PICKLE
        if self._helpers is None and worker.rank in self._recipe.wide:
            raise ClusterError(
                f"rank {worker.rank} of {self._name!r} is wider than a node: its creator, "
                "who knows its helpers, must replace it"
            )
        how = (self._recipe, codec, grace, timeout, self._helpers)
        replace(self._owner.head, self._name, worker, *how)
        self._bound.forget(worker.rank)
        return self[rank]

    def helpers(self, rank: int) -> View:
        """The processes on further nodes of a rank that is wider than a node, in the order
        of the nodes. They have no engine until `create_engine` makes one. They end with
        their worker, and it with them."""
        if self._helpers is None:
            raise ClusterError(
                f"this is a handle of {self._name!r}: its creator knows its helpers, and "
                "each worker its own (muster.helpers())"
            )
        members = self._helpers.members(self._member(rank).rank)
        return View(self._name, members, ENGINE, self._timeout)

    def barrier(self, name: str = "", *, timeout: float | None = None) -> None:
        """Inside a worker of this cluster: `muster.barrier`."""
        meet(name, timeout=timeout, cluster=self._name)

    def destroy(self, *, grace: float = GRACE_S) -> None:
        """End its workers and wait until they are gone. `destroy()` (or `close()`) of their
        engines runs in all of them at once; rank 0 ends last; who is still there after
        `grace` seconds is killed. Idempotent. A handle that was pickled cannot; one of
        `muster.get_cluster` can."""
        if self._owner is None:
            raise ClusterError(
                f"this is a handle of {self._name!r}: only its creator may destroy it, "
                "or a driver with muster.get_cluster"
            )
        if self._gone:
            return  # the name may be another one's by now
        self._peers = []
        self._first = self._destroyed
        head = self._owner.head
        if head.alive:
            if grace > 0:
                self._finish_first(grace)
            own = bool(self._ports)  # a handle of get_cluster ends anybody's
            first = self._members[0].uid if self._members else 0
            head.destroy_cluster(self._name, own, first, grace, grace + ANSWER_S)
            if self._helpers is not None:
                self._helpers.stop_all(grace)
        self._gone = True
        if self._owner.held.get(self._name) is self._held:
            self._owner.held.pop(self._name, None)  # else a newer one has the name
        if head.alive and self._ports:
            head.drop_port(self._ports, ANSWER_S)

    def _finish_first(self, grace: float) -> None:
        """The others clean up when they are told to end; rank 0 now, at the same time, and
        ends when they have."""
        first = self._members[0]
        if len(self._members) > 1 and not first.native:
            with suppress(Exception):
                first.peer.operation(FINISH, None, grace, PICKLE)

    shutdown = destroy

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.destroy()


def _engine_of(op: int, argument: Any) -> str:
    """The name in the argument of an operation, if it is about an engine."""
    if op == DESTROY_ENGINE:
        return str(argument)
    if op == CREATE_ENGINE:
        return str(argument.name if isinstance(argument, Once) else argument["name"])
    return ""


def _workers(
    name: str,
    started: list[tuple[int, int, str, str]],
    placements: list[Placement],
    nodes: list[str],
    native: bool,
) -> list[Worker]:
    workers = []
    for rank, (uid, pid, address, log_path) in enumerate(started):
        node, devices = placements[rank]
        label = f"{name}/{rank}@{nodes[node]}"
        place = (node, nodes[node])
        where = (rank, uid, pid, address, log_path, label, place, devices)
        workers.append(Worker(*where, native))
    return workers


def get_cluster(name: str) -> Cluster:
    """A handle of the cluster of that name, whoever made it, with its methods, mesh and
    codec. It can be called and destroyed, and its workers replaced."""
    session = api.session()
    order = [node.name for node in session.nodes()]
    found = session.head.find_cluster(name, ANSWER_S)
    if found is None:
        raise ClusterError(f"there is no cluster {name!r}")
    _, workers, meta = found
    said = Found(name, len(workers), meta)
    members = []
    for rank, worker in enumerate(workers):
        uid, pid, address, log_path, number, node, devices, *_ = worker
        if not address:
            raise ClusterError(f"cluster {name!r} is not complete: rank {rank}")
        place = (order.index(node) if node in order else -1, node)
        label = f"{name}/{rank}@{node}"
        where = (rank, uid, pid, address, log_path, label, place, devices)
        members.append(Worker(*where, said.native, number))
    how = (said.timeout, said.bound, said.codec, session)
    handle = Cluster._handle(name, members, ENGINE, *how)
    handle._recipe = said.recipe
    return handle
