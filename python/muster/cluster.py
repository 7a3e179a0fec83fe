"""Cluster: the workers of one role, started, called and ended as a unit."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial

from muster import _core, api
from muster._arguments import argument_names, check_options
from muster._cluster.binding import Binding, check_names
from muster._cluster.cluster_view import ClusterView
from muster._cluster.role import Role, no_class, submitted
from muster._cluster.spec import (
    ClusterMeta,
    Step,
    beside_spec,
    call_step,
    cluster_spec,
    engine_step,
)
from muster._cluster.worker_class import bound_methods, is_native
from muster._core import ANSWER_S, STOP_GRACE_S, Refused, decode_answer
from muster._session.collective import barrier
from muster._session.package import send_again
from muster.config import WorkerConfig, fields_known, given_names, mesh_sizes
from muster.errors import ClusterError, DeadlineExceeded, RemoteError, refused
from muster.resources import ResourceManager
from muster.view import ENGINE, View, refuse_destroyed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, Self

    from muster._cluster.member import Member
    from muster.groups import GroupPart

FORK_S = 600.0  # a constructor beside a worker


def _check_arguments(name: Any, where: Any, fields: Mapping[str, Any]) -> None:
    """What else would fail far from here, or say nothing."""
    if not isinstance(name, str):
        raise TypeError(f"name: a cluster's name is a str: {name!r}")
    if where is not None and not hasattr(where, "request"):
        raise TypeError(
            "resource_manager: a muster.ResourceManager, a placement group or a part of "
            f"one: {where!r}"
        )
    known = (*fields_known(), *argument_names(Cluster.__init__))
    check_options("Cluster()", fields, known)


class Processes:
    """One process beside each worker of a cluster, by a command. They end with
    `destroy()`, and each with the worker that it runs beside."""

    def __init__(
        self, name: str, workers: list[dict[str, Any]], session: api.Session
    ) -> None:
        self.name = name
        self.pids = [one["pid"] for one in workers]
        self.log_paths = [one["log_path"] for one in workers]
        self._session = session
        self._uid = workers[0]["uid"]
        self._gone = False

    def __len__(self) -> int:
        return len(self.pids)

    def __repr__(self) -> str:
        return f"<muster.Processes {self.name!r}: {len(self)}>"

    def destroy(self, *, grace: float = STOP_GRACE_S) -> None:
        """End them: SIGTERM, and SIGKILL `grace` seconds later. Idempotent."""
        if not self._gone and self._session.head.alive:
            self._session.destroy_cluster(self.name, True, self._uid, grace)
        self._gone = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.destroy()


class Cluster(ClusterView):
    """The workers of one role: ranks 0 to world_size - 1, each with one `worker_cls`.

    worker_cls: a class, also one of `__main__` or of a notebook, or its import path,
    "package.module.Class", or a class in C, "library.so:symbol", which is called with
    plain data unless told otherwise. All workers are there and constructed when this returns, or
    none is and the reason is raised. They live until `destroy()` or `shutdown()`: a
    Cluster object that is dropped ends nothing. A `detached` one, which only a head that
    was joined can have, lives until `destroy()`, and `muster.get_cluster` finds it.

    blocking=False: return at once; `wait()`, or whatever is done with it first, waits and
    raises. So the constructors of several clusters run at the same time, and may meet.
    wait: seconds to wait for room that others hold, in the order of asking; `muster status`
    says what for. What could never fit fails at once.

    In a driver of a job what is not given is as the job's file says of the role of this
    name, or of `role`: `Cluster("actor")`, or `Cluster("actor", Actor)` where the file
    names no class. What the two say differently is an error. A role of this name that the
    controller of a submitted job has created is that one: this is then a handle of it.

    Pickles to a handle that can call the workers, from this driver and from them.
    """

    def __init__(
        self,
        name: str | None = None,
        worker_cls: type | str | None = None,
        resource_manager: ResourceManager | GroupPart | None = None,
        worker_config: Any = None,
        *,
        role: str | None = None,
        config: Any = None,
        detached: bool = False,
        blocking: bool = True,
        wait: float = 0.0,
        **fields: Any,
    ) -> None:
        if worker_config is not None and config is not None:
            raise TypeError("config is another name of worker_config: give one of them")
        name = role if name is None else name
        _check_arguments(name, resource_manager, fields)
        assert name is not None
        session = api.session()
        session.check_detached(detached, ClusterError)
        given = worker_config if config is None else config
        settings = WorkerConfig.of(given, **fields)
        in_file = Role.find(session, role or name, role is not None)
        if in_file is not None:
            names = {*given_names(settings, given), *fields}
            worker_cls, settings = in_file.merge(
                worker_cls, settings, names, resource_manager
            )
        if in_file is not None and in_file.is_controllers and role in (None, name):
            in_file.check_created(settings, resource_manager)
            self._take(session, name)
            return
        if worker_cls is None:
            raise no_class(session, name, in_file)
        methods = bound_methods(worker_cls)
        check_names(type(self), methods or {})
        made = (worker_cls, settings.args, settings.kwargs, settings.max_concurrency)
        step = engine_step(ENGINE, *made, mesh=settings.mesh)
        where = ResourceManager() if resource_manager is None else resource_manager
        place = (
            in_file.request(name, session, settings)
            if in_file is not None and in_file.has_places
            else where.request(settings)
        )
        native = is_native(worker_cls)
        meta = ClusterMeta(native, settings.timeout, methods, settings.mesh or None)
        spec = cluster_spec(name, worker_cls, settings, place, detached)
        self._prepare(name, meta, session, [node.name for node in where.nodes])
        self._create(spec, step, wait)
        if blocking:
            self.wait()

    # ---- creation ---------------------------------------------------------------------

    def _take(self, session: api.Session, name: str) -> None:
        """That of this name is there: a handle of it."""
        job = submitted()
        for full in (name, f"{job}.{name}") if job else (name,):
            with suppress(Refused):
                status = session.head.ask("find", {"name": full}).result(ANSWER_S)
                name = full
                break
        else:
            raise ClusterError(f"there is no cluster {name!r}")
        size, native = len(status["workers"]), status["is_native"]
        meta, bound = ClusterMeta.decode(name, size, status["meta"], native)
        self._prepare(name, meta, session, [node.name for node in session.nodes()])
        self._enter(self._take_workers(status), bound)

    _is_maker = False
    _operation: _core.Operation | None = None  # its creation

    def _create(self, spec: dict[str, Any], step: Step, wait: float = 0.0) -> None:
        """Ask for it: `wait` has the answer."""
        session, meta = self._require_owner(), self._meta
        self._is_maker = True
        self._kept = [step.kept]
        if session.package is not None:
            send_again(session.package)
        spec["steps"] = [step.message]
        spec["meta"] = meta.encode(Binding(self._name, ENGINE, 0, meta.methods, None))
        asked = {"spec": spec, "wait_ns": _core.ns(wait)}
        self._operation = session.head.ask("create", asked)

    def wait(self, timeout: float | None = None) -> Self:
        """Until all workers are there and constructed; raises what went wrong. Returns
        itself. Of a cluster that was made with blocking=True this does nothing."""
        if self._operation is None:
            return self
        try:
            status = self._operation.result(timeout)
        except (DeadlineExceeded, RemoteError):  # of a constructor, a TimeoutError too
            self._fail()
            raise
        except TimeoutError:
            raise DeadlineExceeded(
                f"cluster {self._name!r} is not there within {timeout} s"
            ) from None
        except Refused as e:
            self._fail()
            raise refused(e, ClusterError, self._name) from None
        except Exception:
            self._fail()
            raise
        except BaseException:  # Ctrl-C, while the head goes on creating it
            self._give_up()
            raise
        self._operation = None
        try:
            self._complete(status)
        except BaseException:
            self._give_up()
            raise
        return self

    def _fail(self) -> None:
        self._operation = None
        self._gone = True
        self._peers = []
        self._members = ()
        self._first = partial(refuse_destroyed, self._name)

    def _give_up(self) -> None:
        owner = self._require_owner()
        with suppress(Exception):
            owner.destroy_cluster(self._name, True, 0, 0)
        self._fail()

    def _complete(self, status: dict[str, Any]) -> None:
        """It was created: what the head tells of it."""
        meta = self._meta
        if meta.methods is None and status["answers"]:
            answer = status["answers"][0]
            meta.methods = decode_answer(answer["codec"], answer["body"]) or {}
            check_names(type(self), meta.methods)
        size = len(status["workers"])
        sizes = mesh_sizes(meta.mesh, size) if meta.mesh else None
        bound = Binding(self._name, ENGINE, size, meta.methods, sizes)
        self._enter(self._take_workers(status), bound)

    def __getattr__(self, name: str) -> Any:
        if self._operation is not None:
            self.wait()
            return getattr(self, name)
        if not name.startswith("__") and "_bound" not in self.__dict__:
            raise ClusterError(f"cluster {self.__dict__.get('_name')!r} was never made")
        return super().__getattr__(name)

    # ---- handles ----------------------------------------------------------------------

    @classmethod
    def _handle(
        cls,
        name: str,
        members: Sequence[Member],
        engine: str,
        timeout: float | None,
        bound: Binding,
        codec: int = _core.CODEC_PICKLE,
    ) -> Self:
        self = cls.__new__(cls)
        self._prepare(name, ClusterMeta(members[0].native, timeout, codec=codec))
        self._enter(members, bound, engine)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self._name, self._members, self._engine, self._timeout, self._bound)
        return Cluster._handle, (*fields, self._codec)

    def __repr__(self) -> str:
        if self._operation is not None:
            return f"<muster.Cluster {self._name!r}: being created>"
        state = "" if self._peers else ", destroyed"
        devices = sum(len(w.devices) for w in self._members)
        with_ = f" on {devices} devices" if devices else ""
        return f"<muster.Cluster {self._name!r}: {len(self)} workers{with_}{state}>"

    # ---- beside its workers -----------------------------------------------------------

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
        # the interpreter of the workers runs `-m MODULE`
        words = [*([] if module is None else ["-m", module]), *(command or ())]
        if not words:
            raise ValueError("fork_workers: give module or command")
        worker = {"start": "command", "command": words}
        spec = beside_spec(name, self._name, worker, env or {})
        session = api.session()
        status = session.ask("create", {"spec": spec}, ClusterError, None)
        return Processes(name, status["workers"], session)

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
        if is_native(worker_cls):
            raise ClusterError("fork_cluster: a class in C is a cluster of its own")
        session = api.session()
        step = engine_step(ENGINE, worker_cls, args, kwargs or {})
        methods = bound_methods(worker_cls)
        cls = type(self)
        check_names(cls, methods or {})
        spec = beside_spec(name, self._name, {"start": "fork"}, env or {})
        spec["step_timeout_ns"] = _core.ns(timeout)
        mesh = self._bound.mesh if isinstance(self._bound.mesh, dict) else None
        child = cls.__new__(cls)
        meta = ClusterMeta(False, methods=methods, mesh=mesh)
        child._prepare(name, meta, session, self._nodes)
        child._create(spec, step)
        return child.wait()

    # ---- what is done to all workers --------------------------------------------------

    def _cluster(self) -> Cluster | None:
        return self

    def _note(self, op: int, engine: str, argument: Any) -> None:
        """This was done to all workers: new incarnations do it too."""
        if self._owner is None:
            return
        step: dict[str, Any] = {"op": op, "engine": engine}
        if op != _core.OP_DESTROY_ENGINE:
            made = Step(op, engine, argument, self._operation_codec)
            self._kept.append(made.kept)
            step = made.message
        self._add_step(step)

    def _note_call(self, method: str, arguments: list[Any]) -> None:
        """Each rank was told its argument, and is told again when it is new."""
        if self._owner is not None:
            self._add_step(call_step(self._engine, method, arguments))

    def _add_step(self, step: dict[str, Any]) -> None:
        owner = self._require_owner()
        meta = self._meta.encode(self._bound)
        asked = {"cluster": self._name, "step": step, "meta": meta}
        try:
            owner.head.ask("add_step", asked).result(ANSWER_S)
        except Refused as e:
            raise ClusterError(
                f"{e.args[0]} (it was done; a worker that is replaced will not do it again)"
            ) from None

    # ---- new incarnations -------------------------------------------------------------

    def incarnation(self, rank: int) -> int:
        """1, and one more with each `replace` or `restart` of that rank."""
        return self._member(rank).incarnation

    def replace(
        self, rank: int, *, grace: float = STOP_GRACE_S, timeout: float | None = None
    ) -> View:
        """A new process in the place of a rank that has died, or of one that lives, which
        is ended first: SIGTERM, and SIGKILL `grace` seconds later. A view of it.

        It has the same devices, environment and constructor, and what was done to the whole
        cluster with `create_engine`, `configure` and `set_env` is done to it too. If its
        node is gone it gets another place. What is open at the old one fails with
        WorkerDied; what the old one still sends is dropped. Views and handles, also
        those in workers, call the new one from then on. If its constructor fails the rank
        stays dead, and that is raised; `timeout` is for each constructor.
        """
        self._restart([self._member(rank).rank], grace, timeout)
        return self[rank]

    def restart(
        self,
        ranks: Iterable[int] | None = None,
        *,
        grace: float = STOP_GRACE_S,
        timeout: float | None = None,
    ) -> None:
        """The same for several ranks together (None: all): the old ones end, then all new
        constructors run at the same time, so that a process group can form again.
        MASTER_PORT stays as it was. One constructor that fails ends all of these ranks."""
        chosen = None if ranks is None else [self._member(r).rank for r in ranks]
        if chosen != []:
            self._restart(chosen, grace, timeout)

    def _restart(
        self, ranks: list[int] | None, grace: float, timeout: float | None
    ) -> None:
        owner = self._require_owner()
        if not self._peers:
            self._destroyed()
        asked = {
            "cluster": self._name,
            "ranks": ranks or [],
            "grace_ns": _core.ns(grace),
            "step_timeout_ns": _core.ns(timeout or 0),
        }
        status = owner.ask("restart", asked, ClusterError, None)
        changed = range(len(self._members)) if ranks is None else ranks
        for rank in changed:
            self._renew(owner.head, self._members[rank], status["workers"][rank])
        self._take_helpers(status)

    def resize(self, world_size: int, *, grace: float = STOP_GRACE_S) -> None:
        """Another number of workers; those that stay go on. The last ranks go (SIGTERM, and
        SIGKILL `grace` seconds later), or more come behind the last one. For roles without
        tp, pp, cp or ep. If the new ones cannot be made the cluster is as it was."""
        if isinstance(world_size, bool) or not isinstance(world_size, int):
            raise TypeError(f"world_size: an int is needed: {world_size!r}")
        if world_size < 1:
            raise ValueError(f"world_size: must be at least 1: {world_size!r}")
        owner = self._require_owner()
        if not self._peers:
            self._destroyed()
        asked = {
            "cluster": self._name,
            "world_size": world_size,
            "grace_ns": _core.ns(grace),
        }
        self._resized(owner.ask("resize", asked, ClusterError, None))

    def barrier(self, name: str = "", *, timeout: float | None = None) -> None:
        """Inside a worker of this cluster: `muster.barrier`."""
        barrier(name, timeout=timeout, cluster=self._name)

    # ---- the end ----------------------------------------------------------------------

    def destroy(self, *, grace: float = STOP_GRACE_S) -> None:
        """End its workers and wait until they are gone. `destroy()` (or `close()`) of their
        engines runs in all of them at once; rank 0 ends last; what is still there after
        `grace` seconds is killed. Idempotent. A handle that was pickled cannot; one of
        `muster.get_cluster` can."""
        if self._owner is None:
            raise ClusterError(
                f"this is a handle of {self._name!r}: only its creator may destroy it, "
                "or a driver with muster.get_cluster"
            )
        if self._gone:
            return  # the name may be another one's by now
        members = self.__dict__.get("_members", ())
        first = members[0].uid if members else 0
        self._operation = None
        self._peers = []
        self._members = members
        self._first = partial(refuse_destroyed, self._name)
        if self._owner.head.alive:
            self._owner.destroy_cluster(self._name, self._is_maker, first, grace)
        self._gone = True

    shutdown = destroy

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.destroy()


def get_cluster(name: str) -> Cluster:
    """A handle of the cluster of that name, of any driver, with its methods, mesh and
    codec. It can be called and destroyed, and its workers replaced. In a job's driver the
    name of a role is that of the cluster that the controller has created for it; under
    `muster run`, where the driver creates its roles, one that the file has a class for is
    created."""
    session = api.session()
    handle = Cluster.__new__(Cluster)
    try:
        handle._take(session, name)
    except ClusterError:
        is_driver = "MUSTER_WORKER_UID" not in os.environ
        in_file = Role.find(session, name, False) if is_driver else None
        if (
            in_file is None
            or in_file.is_controllers
            or not in_file.fields.get("worker_cls")
        ):
            raise
        return Cluster(name)
    return handle
