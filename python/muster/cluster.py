"""Cluster: the workers of one role, started, called and ended as a unit."""

from __future__ import annotations

import os
from contextlib import suppress

from muster import _core, api
from muster._core import call_all
from muster._fork import Processes, command_of, fork_cluster, fork_processes
from muster._member import NoPeer, Worker, http_url, tcp_entry
from muster._start import engine_spec, is_native, name_taken, rank_specs, start
from muster.config import WorkerConfig, mesh_sizes
from muster.errors import (
    ClusterError,
)
from muster.future import Future, gather
from muster.resources import ResourceManager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any, NoReturn, Self

    from muster._env import Placement

CONFIGURE = 16  # wire/frame.h, enum ms_op
SET_ENV = 17
CREATE_ENGINE = 18
DESTROY_ENGINE = 19
_OPERATIONS = {
    CONFIGURE: "configure",
    SET_ENV: "set_env",
    CREATE_ENGINE: "create_engine",
    DESTROY_ENGINE: "destroy_engine",
}
CODECS = {"bytes": 0, "pickle": 1, "plain": 2}  # wire/frame.h, enum ms_codec
PICKLE = CODECS["pickle"]
PLAIN = CODECS["plain"]
ENGINE = "default"
ANSWER_S = 10.0  # of what a worker's I/O thread or the agent answers
GRACE_S = 3.0  # SIGTERM until SIGKILL
FORK_S = 600.0  # a constructor beside a worker


class View:
    """Some of a cluster's workers, called together; `cluster[1:3]` makes one.

    `execute_X_sync` gives results and raises failures; `execute_X_async` and `execute_X`
    give futures. A method that is a generator gives a Stream in place of its result.
    """

    def __init__(
        self,
        name: str,
        members: Sequence[Worker],
        engine: str = ENGINE,
        timeout: float | None = None,
        codec: int = PICKLE,
    ) -> None:
        if not members:
            raise IndexError(f"no workers of {name!r} are chosen")
        self._name = name
        self._members = tuple(members)
        self._peers: list[_core.Peer] = [w.peer for w in members]
        self._engine = engine
        self._timeout = timeout
        self._codec = codec
        self._first: Any = getattr(self._peers[0], "call_sync", None)

    # ---- what it is -------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Of the cluster."""
        return self._name

    @property
    def world_size(self) -> int:
        """How many workers a call to all goes to."""
        return len(self._members)

    @property
    def ranks(self) -> list[int]:
        """Of its workers, in the cluster."""
        return [w.rank for w in self._members]

    @property
    def pids(self) -> list[int]:
        return [w.pid for w in self._members]

    @property
    def http_urls(self) -> list[str]:
        """Where each worker speaks HTTP; `muster.http_token()` opens it."""
        return [http_url(w.address) for w in self._members]

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[View]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        ranks = ",".join(map(str, self.ranks))
        engine = "" if self._engine == ENGINE else f", engine {self._engine!r}"
        return f"<muster.View {self._name}[{ranks}]{engine}>"

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self._name, self._members, self._engine, self._timeout, self._codec)
        return View, fields

    # ---- parts ------------------------------------------------------------------------

    def __getitem__(self, index: int | slice | Iterable[int]) -> View:
        """One worker, a slice, or a list of them, counted within this view."""
        if isinstance(index, slice):
            chosen: Sequence[Worker] = self._members[index]
        elif isinstance(index, int):
            chosen = [self._member(index)]
        else:
            chosen = [self._member(i) for i in index]
        return View(self._name, chosen, self._engine, self._timeout, self._codec)

    def _peer(self, index: int) -> _core.Peer:
        if not self._peers:
            self._destroyed()
        self._member(index)
        return self._peers[index]

    def _member(self, index: int) -> Worker:
        if not -len(self) <= index < len(self):
            raise IndexError(f"{self._name} has no worker {index}: it has {len(self)}")
        return self._members[index]

    def options(
        self,
        *,
        timeout: float | None = None,
        engine: str | None = None,
        codec: str | None = None,
    ) -> View:
        """The same workers, called with another timeout (seconds), engine or codec.

        codec: "pickle", any object; "plain", None, bool, int, float, str, bytes, lists,
        dicts with str keys and tensors, nothing of which runs code when it is read;
        "bytes", one argument and the result as they are.
        """
        if timeout is not None and timeout <= 0:
            raise ValueError(f"timeout: must be a positive number: {timeout!r}")
        if codec is not None and codec not in CODECS:
            raise ValueError(f"codec: must be one of {list(CODECS)}: {codec!r}")
        return View(
            self._name,
            self._members,
            self._engine if engine is None else engine,
            self._timeout if timeout is None else timeout,
            self._codec if codec is None else CODECS[codec],
        )

    # ---- calls ------------------------------------------------------------------------

    def execute_rank_zero_sync(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call the first worker."""
        return self._first(
            self._engine, method, args, kwargs or None, self._timeout, True, self._codec
        )

    def _begin(
        self,
        peer: _core.Peer,
        method: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        waits: bool = False,
    ) -> _core.Call:
        return peer.call(
            self._engine,
            method,
            args,
            kwargs or None,
            self._timeout,
            waits,
            self._codec,
        )

    def execute_rank_zero_async(
        self, method: str, /, *args: Any, **kwargs: Any
    ) -> Future:
        """Call the first worker; a future."""
        return Future(self._begin(self._peer(0), method, args, kwargs), method)

    execute_rank_zero = execute_rank_zero_async

    def execute_rank_sync(
        self, rank: int, method: str, /, *args: Any, **kwargs: Any
    ) -> Any:
        """Call worker `rank` of this view."""
        peer = self._peer(rank)
        return peer.call_sync(
            self._engine, method, args, kwargs or None, self._timeout, True, self._codec
        )

    def execute_rank_async(
        self, rank: int, method: str, /, *args: Any, **kwargs: Any
    ) -> Future:
        """Call worker `rank` of this view; a future."""
        return Future(self._begin(self._peer(rank), method, args, kwargs), method)

    execute_rank = execute_rank_async

    def execute_all_sync(self, method: str, /, *args: Any, **kwargs: Any) -> list[Any]:
        """Call all workers; the results by rank. The first failure is raised at once.

        If every argument is a list of `world_size` elements, worker i gets element i of
        each; else all get everything.
        """
        if len(self._peers) > 1:
            futures = self._start_all(method, args, kwargs, True)
            try:
                return gather(futures)
            except Exception:
                raise
            except BaseException:  # Ctrl-C: nobody will ask for them again
                for future in futures:
                    future.cancel()
                raise
        if self._shares_out(args, kwargs):
            args = tuple(a[0] for a in args)
            kwargs = {name: a[0] for name, a in kwargs.items()}
        return [self.execute_rank_zero_sync(method, *args, **kwargs)]

    def execute_all_async(
        self, method: str, /, *args: Any, **kwargs: Any
    ) -> list[Future]:
        """Call all workers; their futures. Lists are shared out as in the sync form."""
        return self._start_all(method, args, kwargs, False)

    def _start_all(
        self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any], waits: bool
    ) -> list[Future]:
        if not self._peers:
            self._destroyed()
        first: Any = self._peers[0]
        if isinstance(first, NoPeer):
            first.refuse()
        if not self._shares_out(args, kwargs):
            calls = call_all(
                self._peers,
                self._engine,
                method,
                args,
                kwargs or None,
                self._timeout,
                waits,
                self._codec,
            )
            return [Future(call, method) for call in calls]
        futures: list[Future] = []
        try:
            for i, peer in enumerate(self._peers):
                mine = tuple(a[i] for a in args)
                named = {k: v[i] for k, v in kwargs.items()}
                call = self._begin(peer, method, mine, named, waits)
                futures.append(Future(call, method))
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        return futures

    execute_all = execute_all_async

    def _shares_out(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if not args and not kwargs:
            return False
        size = len(self._peers)
        return all(
            isinstance(a, list) and len(a) == size for a in (*args, *kwargs.values())
        )

    def _destroyed(self, *args: object) -> NoReturn:
        raise ClusterError(f"cluster {self._name!r} was destroyed")

    # ---- engines ----------------------------------------------------------------------

    def create_engine(
        self,
        name: str,
        worker_cls: type | str,
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        max_concurrency: int | None = None,
        timeout: float | None = None,
    ) -> View:
        """Make another object in each of these processes, under a name; a view that
        calls it."""
        if is_native(worker_cls) != self._members[0].native:
            raise ClusterError(
                f"{worker_cls!r} cannot be made here: engines in C and in Python do not "
                "share a process"
            )
        what = engine_spec(name, worker_cls, args, kwargs or {}, max_concurrency)
        self._operate(CREATE_ENGINE, what, timeout or self._timeout)
        return self.options(engine=name)

    def destroy_engine(self, name: str) -> None:
        """Drop the object of that name; its process goes on."""
        self._operate(DESTROY_ENGINE, name, self._timeout)

    def configure(self, config: Any) -> None:
        """Give the workers what `muster.worker_config()` returns in them, and seed their
        random generators by cluster and rank."""
        self._operate(CONFIGURE, config, self._timeout)

    def set_env(self, env: Mapping[str, str]) -> None:
        """Set variables in the workers. Libraries that read theirs when they are loaded
        want them earlier: WorkerConfig(env=...)."""
        self._operate(SET_ENV, {str(k): str(v) for k, v in env.items()}, self._timeout)

    def _operate(self, op: int, argument: Any, timeout: float | None) -> list[Any]:
        if not self._peers:
            self._destroyed()
        what = _OPERATIONS[op]
        codec = PLAIN if self._members[0].native else PICKLE
        return gather(
            [
                Future(p.operation(op, argument, timeout, codec), what)
                for p in self._peers
            ]
        )

    # ---- looking ----------------------------------------------------------------------

    def address(self, rank: int = 0) -> str:
        """Of that worker's RPC server: "HOST:PORT", or the path of a socket."""
        address = self._member(rank).address
        return tcp_entry(address) or address

    def log_path(self, rank: int = 0) -> str:
        """The file with all that this worker prints."""
        return self._member(rank).log_path

    def health(self, rank: int = 0, timeout: float = ANSWER_S) -> dict[str, Any]:
        """What the worker says of itself; also while a method computes."""
        answer: dict[str, Any] = self._member(rank).peer.health(timeout)
        return answer

    def alloc_ports(
        self, count: int, rank: int = 0, timeout: float = ANSWER_S
    ) -> tuple[str, list[int]]:
        """(host, ports) that this worker holds for you until it ends: bound, not
        listening, so that whoever is given one can bind it with SO_REUSEADDR."""
        held: tuple[str, list[int]] = self._member(rank).peer.alloc_ports(
            count, timeout
        )
        return held

    def stack(self, rank: int = 0, timeout: float = ANSWER_S) -> tuple[str, str]:
        """The Python and the native stacks of all its threads."""
        stacks: tuple[str, str] = self._member(rank).peer.stack(timeout)
        return stacks


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
        resource_manager: ResourceManager | None = None,
        worker_config: Any = None,
        *,
        config: Any = None,
        detached: bool = False,
        **fields: Any,
    ) -> None:
        if worker_config is not None and config is not None:
            raise TypeError("config is another name of worker_config: give one of them")
        session = api.session()
        if detached and not session.head.joined:
            raise ClusterError(
                "detached=True needs a head that outlives this process: start one with "
                '`muster head`, and muster.init(address="HOST:PORT")'
            )
        role = WorkerConfig.of(worker_config if config is None else config, **fields)
        spec = engine_spec(
            ENGINE, worker_cls, role.args, role.kwargs, role.max_concurrency
        )
        resources = resource_manager or ResourceManager()
        self._name = name
        self._owner: api.Session | None = session
        self._gone = False
        self._ports = f"{name}:{os.urandom(4).hex()}"
        with session.placing:
            if name in session.held:
                raise name_taken(name)
            placements = resources.plan(name, role)
            self.mesh = mesh_sizes(role.mesh, len(placements))
            nodes = [node[0] for node in resources.nodes]
            places = [(nodes[node], devices) for node, devices in placements]
            session.held[name] = (places, role)
        try:
            master = session.head.hold_port(self._ports, places[0][0], ANSWER_S)
            where = (placements, resources.nodes, master, session, detached)
            ranks = rank_specs(name, worker_cls, role, *where)
            started = start(session.head, name, ranks)
            native = is_native(worker_cls)
            super().__init__(
                name,
                _workers(name, started, placements, nodes, native),
                ENGINE,
                role.timeout,
                PLAIN if native else PICKLE,
            )
            self._bind()
            self._operate(CREATE_ENGINE, spec, role.start_timeout)
        except BaseException:  # also Ctrl-C, while the head goes on creating it
            with suppress(Exception):
                self.destroy(grace=0)
            raise

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
        mesh: dict[str, int],
        codec: int = PICKLE,
        owner: api.Session | None = None,
    ) -> Self:
        self = cls.__new__(cls)
        self._owner = owner
        self._gone = False
        self._ports = ""
        self.mesh = mesh
        View.__init__(self, name, members, engine, timeout, codec)
        self._bind()
        return self

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
        fields = (self._name, self._members, self._engine, self._timeout, self.mesh)
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

    def destroy(self, *, grace: float = GRACE_S) -> None:
        """End its workers and wait until they are gone: SIGTERM, and SIGKILL `grace`
        seconds later. Idempotent. A handle that was pickled cannot; one of
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
            own = bool(self._ports)  # a handle of get_cluster ends anybody's
            head.destroy_cluster(self._name, own, grace, grace + ANSWER_S)
        self._gone = True
        self._owner.held.pop(self._name, None)
        if head.alive and self._ports:
            head.drop_port(self._ports, ANSWER_S)

    shutdown = destroy

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.destroy()


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
    """A handle of the cluster of that name, whoever made it. It can be called and
    destroyed."""
    session = api.session()
    order = [node.name for node in session.nodes()]
    for found, _, workers in session.head.clusters(ANSWER_S):
        if found != name:
            continue
        members = []
        for rank, (uid, pid, address, log_path, node, devices, *_) in enumerate(
            workers
        ):
            if not address:
                raise ClusterError(f"cluster {name!r} is not complete: rank {rank}")
            place = (order.index(node) if node in order else -1, node)
            label = f"{name}/{rank}@{node}"
            members.append(
                Worker(rank, uid, pid, address, log_path, label, place, devices)
            )
        mesh = mesh_sizes({}, len(members))
        return Cluster._handle(name, members, ENGINE, None, mesh, PICKLE, session)
    raise ClusterError(f"there is no cluster {name!r}")
