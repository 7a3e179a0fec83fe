"""View: some workers of a cluster, called together."""

from __future__ import annotations

from contextlib import suppress

from muster import _core, api
from muster._arguments import options_checked
from muster._cluster.binding import Binding, check_names
from muster._cluster.bound_method import INITIALIZE, Bound, Plan, each_parts
from muster._cluster.member import Member, NoPeer, http_url, tcp_entry
from muster._cluster.worker_class import bound_methods, engine_spec, is_native
from muster._core import ANSWER_S, CODEC_PICKLE, Refused, call_many
from muster.errors import ClusterError, MusterError
from muster.future import Future, gather_ranks, take

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any, NoReturn

    from muster.cluster import Cluster

_OPERATIONS = {
    _core.OP_CONFIGURE: "configure",
    _core.OP_SET_ENV: "set_env",
    _core.OP_CREATE_ENGINE: "create_engine",
    _core.OP_DESTROY_ENGINE: "destroy_engine",
}
CODECS = {
    "bytes": _core.CODEC_BYTES,
    "pickle": _core.CODEC_PICKLE,
    "plain": _core.CODEC_PLAIN,
}
ENGINE = "default"


def refuse_destroyed(name: str, *args: object) -> NoReturn:
    """In place of a call to a worker of the cluster `name`."""
    raise ClusterError(f"cluster {name!r} was destroyed")


class View:
    """Some of a cluster's workers, called together; `cluster[1:3]` makes one.

    `execute_X_sync` gives results and raises failures; `execute_X_async` and `execute_X`
    give futures. A method that is a generator gives a Stream in place of its result.
    Methods that were registered (`muster.register`) are methods of the view too.
    """

    # what a cluster has besides
    _INSTANCE = (
        "workers",
        "rank2worker",
        "worker2rank",
        "rank2devices",
        "worker2nodes",
    )

    def __init__(
        self,
        name: str,
        members: Sequence[Member],
        engine: str = ENGINE,
        timeout: float | None = None,
        codec: int = CODEC_PICKLE,
        bound: Binding | None = None,
    ) -> None:
        if not members:
            raise IndexError(f"a view of {name!r} needs at least one worker")
        self._name = name
        self._bound = bound or Binding(name, engine, len(members), None, None)
        self._plans: dict[str, Plan] = {}
        self._members = tuple(members)
        self._peers: list[_core.Peer] = [w.peer for w in members]
        self._engine = engine
        self._timeout = timeout
        self._codec = codec
        self._whole: Cluster | None = None
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
        return View, (*fields, self._bound)

    def __getattr__(self, name: str) -> Any:
        """A registered method of the workers' class."""
        if name.startswith("_"):
            raise AttributeError(f"{self!r} has no attribute {name!r}")
        method = self._bound.find(self, name)
        if method is None:
            raise AttributeError(
                f"{self!r} has no attribute {name!r}: methods with @muster.register are "
                f"called so, any other one with execute_all_sync({name!r})"
            )
        return Bound(self, name, method)

    def _refresh(self) -> None:
        """Before its workers are called: are their places still known?"""
        # A cluster looks whether they are still all of them, too.
        self._bound.refresh()

    def _initialized(self) -> None:
        """Its ranks may say other places now: in this process, and in all others."""
        self._bound.forget()
        asked = {"cluster": self._name}
        with suppress(Refused, MusterError, TimeoutError):  # of a head that is away
            api.session().head.ask("refresh", asked).result(ANSWER_S)

    def _cluster(self) -> Cluster | None:
        """The cluster, if this is all of it: what is done to the view is done to that."""
        return self._whole

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(self._bound.methods or ())]

    # ---- parts ------------------------------------------------------------------------

    def __getitem__(self, index: int | slice | Iterable[int]) -> View:
        """One worker, a slice, or a list of them, counted within this view."""
        if isinstance(index, slice):
            chosen: Sequence[Member] = self._members[index]
        elif isinstance(index, int):
            chosen = [self._member(index)]
        else:
            chosen = [self._member(i) for i in index]
        fields = (self._engine, self._timeout, self._codec, self._bound)
        return View(self._name, chosen, *fields)

    def _peer(self, index: int) -> _core.Peer:
        self._refresh()
        peers = self._peers
        if not peers:
            self._destroyed()
        if type(index) is not int or not -len(peers) <= index < len(peers):
            self._member(index)  # says why there is none
        return peers[index]

    def _connected(self) -> list[_core.Peer]:
        """Those of all its workers, which can be called from this process."""
        if not self._peers:
            self._destroyed()
        first: Any = self._peers[0]
        if isinstance(first, NoPeer):
            first.refuse()
        return self._peers

    def _member(self, index: int) -> Member:
        if not isinstance(index, int):
            raise TypeError(f"the number of a worker is an int: {index!r}")
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"{self._name} has no worker {index}: it has {count}")
        return self._members[index]

    @options_checked
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
        made = View(
            self._name,
            self._members,
            self._engine if engine is None else engine,
            self._timeout if timeout is None else timeout,
            self._codec if codec is None else CODECS[codec],
            self._bound if engine is None else self._bound.of_engine(engine),
        )
        made._whole = self._cluster()
        return made

    # ---- calls ------------------------------------------------------------------------

    def execute_rank_zero_sync(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call the first worker."""
        result = self._first(
            self._engine, method, args, kwargs or None, self._timeout, True, self._codec
        )
        if method == INITIALIZE:
            self._initialized()
        return result

    def execute_rank_zero_async(
        self, method: str, /, *args: Any, **kwargs: Any
    ) -> Future:
        """Call the first worker; a future."""
        if not self._peers:
            self._destroyed()
        return self._future(self._peers[0], method, args, kwargs)

    execute_rank_zero = execute_rank_zero_async

    def execute_rank_sync(
        self, rank: int, method: str, /, *args: Any, **kwargs: Any
    ) -> Any:
        """Call worker `rank` of this view."""
        result = self._peer(rank).call_sync(
            self._engine, method, args, kwargs or None, self._timeout, True, self._codec
        )
        if method == INITIALIZE:
            self._initialized()
        return result

    def execute_rank_async(
        self, rank: int, method: str, /, *args: Any, **kwargs: Any
    ) -> Future:
        """Call worker `rank` of this view; a future."""
        return self._future(self._peer(rank), method, args, kwargs)

    def _future(
        self,
        peer: _core.Peer,
        method: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Future:
        how = (self._timeout, False, self._codec)
        call = peer.call(self._engine, method, args, kwargs or None, *how)
        if method == INITIALIZE:
            self._initialized()
        return Future(call, method)

    execute_rank = execute_rank_async

    def execute_all_sync(self, method: str, /, *args: Any, **kwargs: Any) -> list[Any]:
        """Call all workers; the results by rank. The first failure is raised at once.

        All get all arguments, but for those that are marked: worker i gets element i of
        `muster.each([...])`.
        """
        self._refresh()
        if len(self._peers) > 1:
            results = take(self._start_all(method, args, kwargs, True), method)
            if method == INITIALIZE:
                self._initialized()
            return results
        args, named = each_parts(*self._listed(args, kwargs), 1)[0]
        return [self.execute_rank_zero_sync(method, *args, **(named or {}))]

    def execute_all_async(
        self, method: str, /, *args: Any, **kwargs: Any
    ) -> list[Future]:
        """Call all workers; their futures."""
        self._refresh()
        calls = self._start_all(method, args, kwargs, False)
        if method == INITIALIZE:
            self._initialized()
        return [Future(call, method) for call in calls]

    def _start_all(
        self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any], waits: bool
    ) -> list[_core.Call]:
        peers = self._connected()
        how = (self._timeout, waits, self._codec)
        parts = each_parts(*self._listed(args, kwargs), len(self._peers))
        which = None if len(parts) == 1 else list(range(len(parts)))
        return call_many(peers, self._engine, method, parts, which, *how)

    execute_all = execute_all_async

    def _listed(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same, with lists marked that are shared out without being asked for."""
        return args, kwargs

    def _check_division(self, value: Any, rows: int, chunks: int) -> None:
        """Before rows are divided: ValueError where chunks may not be uneven."""

    def _destroyed(self) -> NoReturn:
        refuse_destroyed(self._name)

    # ---- engines ----------------------------------------------------------------------

    @options_checked
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
        _core.check_engine_name(name)
        what = engine_spec(name, worker_cls, args, kwargs or {}, max_concurrency)
        methods = bound_methods(worker_cls)
        check_names(View, methods or {})
        op = _core.OP_CREATE_ENGINE
        made = self._operate(op, what, timeout or self._timeout, name)
        if methods is None:
            methods = made[0] or {}
            check_names(View, methods)
        self._bound.add_engine(name, methods)
        return self.options(engine=name)

    def destroy_engine(self, name: str) -> None:
        """Drop the object of that name; its process goes on."""
        self._operate(_core.OP_DESTROY_ENGINE, name, self._timeout, name)
        self._bound._engines.pop(name, None)

    def configure(self, config: Any) -> None:
        """Give the workers what `muster.worker_config()` returns in them, and seed their
        random generators by cluster and rank."""
        self._operate(_core.OP_CONFIGURE, config, self._timeout)

    def set_env(self, env: Mapping[str, str]) -> None:
        """Set variables in the workers. Libraries that read theirs when they are loaded
        want them earlier: WorkerConfig(env=...)."""
        env = {str(name): str(value) for name, value in env.items()}
        self._operate(_core.OP_SET_ENV, env, self._timeout)

    @property
    def _operation_codec(self) -> int:
        """Of operations, whatever calls have."""
        return _core.CODEC_PLAIN if self._members[0].native else CODEC_PICKLE

    def _operate(
        self, op: int, argument: Any, timeout: float | None, engine: str = ""
    ) -> list[Any]:
        if not self._peers:
            self._destroyed()
        how = (op, argument, timeout, self._operation_codec)
        calls = [peer.operation(*how) for peer in self._peers]
        answers = gather_ranks([Future(call, _OPERATIONS[op]) for call in calls])
        whole = self._cluster()
        if whole is not None:
            whole._note(op, engine, argument)
        return answers

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
        answer = self._member(rank).peer.control("health", {}, timeout)
        seconds = answer.pop("running_ns") / 1e9
        return {**answer, "running_seconds": seconds}

    def alloc_ports(
        self, count: int, rank: int = 0, timeout: float = ANSWER_S
    ) -> tuple[str, list[int]]:
        """(host, ports) that this worker holds for you until it ends: bound, not
        listening, so that another process can bind one with SO_REUSEADDR."""
        peer = self._member(rank).peer
        held = peer.control("alloc_ports", {"count": count}, timeout)
        return held["host"], held["ports"]

    def stack(self, rank: int = 0, timeout: float = ANSWER_S) -> tuple[str, str]:
        """The Python and the native stacks of all its threads."""
        stack = self._member(rank).peer.control("stack", {}, timeout)
        return stack["python"], stack["native"]
