"""Registered methods as methods of a cluster: what is known of them, and their calls."""

from __future__ import annotations

from muster import _core, api
from muster._cluster.member import NoPeer
from muster._core import call_many
from muster._data import rows as _rows
from muster._data.store import Ref
from muster.config import mesh_sizes
from muster.dispatch import ELEMENTS, JOIN, ONE, ROWS, USER, Dispatch, Execute, Mode
from muster.errors import ClusterError
from muster.future import Future, Joined, gather, take

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from muster.dispatch import Method
    from muster.view import View

    Call = tuple[tuple[Any, ...], dict[str, Any] | None]  # arguments

INITIALIZE = "initialize"  # after it ranks may say other places in the mesh
UNKNOWN = "unknown"  # a mesh that the workers have to be asked for

_DIMENSIONS = ("tp", "cp", "dp", "pp", "ep")

Place = tuple[int, int, int, int]  # tp, cp, dp, pp


class Binding:
    """What is known of an engine of a cluster: its methods and the places of its ranks.
    Shared by the cluster and its views; what is not known is asked for once."""

    def __init__(
        self,
        cluster: str,
        engine: str,
        world_size: int,
        methods: Mapping[str, Method] | None,
        mesh: Mapping[str, int] | str | None,
    ) -> None:
        self.cluster = cluster
        self.engine = engine
        self.world_size = world_size
        self.methods = None if methods is None else dict(methods)
        self.mesh = mesh  # None: as the ranks say
        self.version = 0  # of the places
        self._changes = 0  # of clusters, when they were asked for
        self._fixed: list[Place] | None = None  # of the mesh that was given
        self._places: dict[int, Any] = {}  # as the ranks have told
        self._registered: dict[str, dict[int, tuple[int, bool]]] = {}
        self._engines: dict[str, Binding] = {engine: self}

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self.cluster, self.engine, self.world_size, self.methods, self.mesh)
        return Binding, fields

    # ---- engines ----------------------------------------------------------------------

    def of_engine(self, engine: str) -> Binding:
        found = self._engines.get(engine)
        if found is None:
            found = self.add_engine(engine, None)
        return found

    def add_engine(self, engine: str, methods: Mapping[str, Method] | None) -> Binding:
        fields = (self.cluster, engine, self.world_size, methods, self.mesh)
        made = self._engines[engine] = Binding(*fields)
        made._engines = self._engines
        return made

    def drop_engine(self, engine: str) -> None:
        self._engines.pop(engine, None)

    def refresh(self) -> None:
        """Forget the places if any process has resized or initialized a cluster since."""
        known = api.changes()
        if known != self._changes:
            self._changes = known
            self.forget()

    def forget(self, rank: int | None = None) -> None:
        """That rank, or all of them, may be elsewhere in the mesh by now."""
        for one in self._engines.values():
            one.version += 1
            if rank is None:
                one._places.clear()
                one._registered.clear()
                continue
            one._places.pop(rank, None)
            for registered in one._registered.values():
                registered.pop(rank, None)

    def resize(self, world_size: int) -> None:
        """So many ranks from now on. A mesh is all data parallel then, or as it was."""
        for one in self._engines.values():
            if one.world_size == world_size:
                continue
            one.world_size = world_size
            one._fixed = None
            if isinstance(one.mesh, dict):
                one.mesh = mesh_sizes(
                    {d: n for d, n in one.mesh.items() if d != "dp"}, world_size
                )
        self.forget()

    # ---- asking -----------------------------------------------------------------------

    def look(
        self, view: View, what: str, ranks: list[int], name: str = ""
    ) -> list[Any]:
        if not view._peers:
            view._destroyed()
        ask = {"engine": self.engine, "what": what, "name": name}
        return gather(
            [
                Future(
                    view._peers[i].operation(
                        _core.OP_LOOK, ask, view._timeout, _core.CODEC_PICKLE
                    ),
                    what,
                )
                for i in ranks
            ]
        )

    def find(self, view: View, name: str) -> Method | None:
        if self.methods is None:
            if view._members[0].native or isinstance(view._peers[0], NoPeer):
                return None
            found: dict[str, Method] = self.look(view, "methods", [0])[0]
            check_names(type(view), found)
            self.methods = found
        return self.methods.get(name)

    def places(self, view: View) -> list[Place]:
        self.refresh()
        if self.mesh == UNKNOWN:
            told = self.look(view, "mesh", [0])[0]
            self.mesh = mesh_sizes(told, self.world_size) if told else None
        ranks = view.ranks
        if isinstance(self.mesh, dict):
            if self._fixed is None:
                sizes = [self.mesh[d] for d in _DIMENSIONS]
                self._fixed = _core.mesh_ranks(self.world_size, *sizes)
            return [self._fixed[rank] for rank in ranks]
        self._ask_places(view, ranks)
        return [self._places[rank][:4] for rank in ranks]

    def _ask_places(self, view: View, ranks: list[int]) -> None:
        new = [i for i, rank in enumerate(ranks) if rank not in self._places]
        if not new:
            return
        asked = not view._members[0].native
        told = self.look(view, "rank_info", new) if asked else [None] * len(new)
        for i, info in zip(new, told, strict=True):
            # without one: all are data parallel
            alone = (0, 0, ranks[i], 0, 1, 1, self.world_size, 1, 1)
            self._places[ranks[i]] = alone if info is None else tuple(info)

    def sizes(self, view: View) -> dict[str, int]:
        """Of tp, cp, dp, pp and ep."""
        self.places(view)
        if isinstance(self.mesh, dict):
            return dict(self.mesh)
        told = self._places[view.ranks[0]][4:]
        return dict(zip(_DIMENSIONS, told, strict=True))

    def registered(self, view: View, mesh: str) -> list[tuple[int, bool]]:
        """(dp_rank, is_collect) of each worker of a view, as it has said."""
        self.refresh()
        known = self._registered.setdefault(mesh, {})
        ranks = view.ranks
        new = [i for i, rank in enumerate(ranks) if rank not in known]
        told = self.look(view, "registered", new, mesh) if new else []
        missing = [ranks[i] for i, one in zip(new, told, strict=True) if one is None]
        if missing:
            raise ClusterError(
                f"mesh {mesh!r} of {self.cluster!r}: rank {missing[0]} has not registered "
                f"it: muster.register_mesh({mesh!r}, dp_rank, is_collect) does in the "
                "worker"
            )
        for i, one in zip(new, told, strict=True):
            known[ranks[i]] = one
        return [known[rank] for rank in ranks]


def check_names(kind: type, methods: Mapping[str, Method]) -> None:
    """A registered method must not hide what a cluster has itself."""
    for name in methods:
        if hasattr(kind, name) or name in _INSTANCE:
            raise ClusterError(
                f"the registered method {name!r} cannot be bound: muster.{kind.__name__} "
                "has an attribute of that name. Give it another one, or do not register "
                f"it: execute_all_sync({name!r}) calls it all the same"
            )


_INSTANCE = {"workers", "rank2worker", "worker2rank", "rank2devices", "worker2nodes"}


# ---- a call ---------------------------------------------------------------------------


class Plan:
    """The three vectors of a method on the workers of a view, as calls need them."""

    __slots__ = ("chunks", "is_one", "order", "split", "version", "which", "width")

    def __init__(self, view: View, method: Method) -> None:
        mode = mode_of(method)
        self.version = view._bound.version
        self.split = mode.split
        self.is_one = mode.split == USER and method.execute == Execute.RANK_ZERO
        if mode.split == USER:
            self.chunks, self.which = 0, list(range(len(view)))
            self.order: list[int] = []
            self.width = 1 if self.is_one else len(view)
            return
        self.chunks, chunk_of, receives, _, self.order = _vectors(view, mode)
        self.which = [
            chunk if gets else self.chunks + chunk if chunk >= 0 else -1
            for chunk, gets in zip(chunk_of, receives, strict=True)
        ]
        self.width = len(self.which) - self.which.count(
            -1
        )  # who is called, from rank 0
        if mode.collect != JOIN:
            self.order = sorted(self.order)

    def fits(self, view: View, mode: Mode) -> bool:
        """Neither the places nor the mode have changed since."""
        return self.version == view._bound.version and self.split == mode.split

    def has_placeholders(self) -> bool:
        return max(self.which) >= self.chunks


def mode_of(method: Method) -> Mode:
    """Rank 0 alone is a mode too, unless the user's functions say what goes there."""
    mode = method.mode
    if method.execute == Execute.ALL or mode.split == USER:
        return mode
    return Dispatch.RANK_ZERO


def _vectors(view: View, mode: Mode) -> _core.Vectors:
    if mode.mesh:
        told = view._bound.registered(view, mode.mesh)
        if len(told) < view._bound.world_size:  # a part: its dp groups, numbered anew
            number = {dp: i for i, dp in enumerate(sorted({dp for dp, _ in told}))}
            told = [(number[dp], collects) for dp, collects in told]
        return _core.dispatch_registered(told)
    if mode.split == ROWS and mode.vectors.startswith("DP_MP"):
        return _core.dispatch_vectors(mode.vectors, view._bound.places(view))
    flat = [(0, 0, i, 0) for i in range(len(view))]
    return _core.dispatch_vectors(mode.vectors, flat)


class Bound:
    """`cluster.method`: calls the workers as the method was registered."""

    __slots__ = ("__name__", "_method", "_view")

    def __init__(self, view: View, name: str, method: Method) -> None:
        self._view = view
        self.__name__ = name
        self._method = method

    def __repr__(self) -> str:
        return f"<{self.__name__} of {self._view!r}, {self._method.mode!r}>"

    def __call__(self, *args: Any, blocking: bool | None = None, **kwargs: Any) -> Any:
        """`blocking`: False gives a future of the joined result."""
        method = self._method
        waits = method.blocking if blocking is None else blocking
        calls, finish = _start(self._view, self.__name__, method, args, kwargs, waits)
        if waits:
            return finish(take(calls, self.__name__))
        return Joined(calls, self.__name__, finish)


def _start(
    view: View,
    name: str,
    method: Method,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    waits: bool,
) -> tuple[list[_core.Call], Callable[[list[Any]], Any]]:
    """The calls, and what makes one result of theirs."""
    view._refresh()
    peers: Any = view._peers
    if not peers:
        view._destroyed()
    if isinstance(peers[0], NoPeer):
        peers[0].refuse()
    mode = mode_of(method)
    plan = view._plans.get(name)
    if plan is None or not plan.fits(view, mode):
        plan = view._plans[name] = Plan(view, method)
    padded: list[int] = []
    parts = _parts(view, mode, plan, method.pad, args, kwargs, padded)
    how = (view._timeout, waits, view._codec)
    which: list[int] | None = plan.which
    if len(parts) == 1:
        which = None
        if plan.width < len(peers):
            peers = peers[: plan.width]
    calls = call_many(peers, view._engine, name, parts, which, *how)
    finish = _finisher(view, mode, plan, padded)
    return calls, _initializer(view, finish) if name == INITIALIZE else finish


def _initializer(
    view: View, finish: Callable[[list[Any]], Any]
) -> Callable[[list[Any]], Any]:
    def finish_initialize(values: list[Any]) -> Any:
        view._initialized()
        return finish(values)

    return finish_initialize


def _finisher(
    view: View, mode: Mode, plan: Plan, padded: list[int]
) -> Callable[[list[Any]], Any]:
    order = plan.order
    collect = mode.collect_fn
    if collect is not None:
        if plan.is_one:
            return lambda values: collect(view, values[0])
        return lambda values: collect(view, values)
    if mode.collect == ONE:
        return lambda values: values[order[0]]
    if mode.collect != JOIN:
        return list

    def finish(values: list[Any]) -> Any:
        result = _rows.join([values[rank] for rank in order])
        return _rows.strip(result, *padded) if padded else result

    return finish


# ---- arguments ------------------------------------------------------------------------


def _parts(
    view: View,
    mode: Mode,
    plan: Plan,
    pad: bool,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    padded: list[int],
) -> list[Call]:
    """The arguments of each chunk, then those of its placeholder if there are any; one
    alone goes to all."""
    if mode.split in (ROWS, ELEMENTS):
        args = tuple(map(_known_value, args))
        kwargs = {key: _known_value(value) for key, value in kwargs.items()}
    if mode.split == ROWS:
        return _row_parts(view, plan, pad, args, kwargs, padded)
    if mode.split == ELEMENTS:
        return _each(args, kwargs, len(view), lambda value: _elements(value, len(view)))
    if mode.split == USER:
        assert mode.dispatch_fn is not None
        args, kwargs = mode.dispatch_fn(view, *args, **kwargs)
        args = tuple(args)
        if not plan.is_one:
            return each_parts(*view._listed(args, kwargs), len(view))
    return [plain(args, kwargs)]


def each_parts(args: tuple[Any, ...], kwargs: dict[str, Any], ranks: int) -> list[Call]:
    """One for each rank if an argument is a `muster.each`, else one for all."""
    if _rows.Each not in map(type, args) and not kwargs:
        return [plain(args, kwargs)]
    return _each(
        args,
        kwargs,
        ranks,
        lambda value: value.of(ranks) if type(value) is _rows.Each else None,
    )


def _known_value(value: Any) -> Any:
    """Of a Ref or a Future, which is waited for: only what is here can be divided."""
    if isinstance(value, Ref):
        return value.get()
    return value.result() if isinstance(value, Future) else value


def bare(value: Any) -> Any:
    return value.value if type(value) is _rows.Same else value


def plain(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """As a worker gets them: what goes to all is marked no more."""
    if _rows.Same in map(type, args):
        args = tuple(map(bare, args))
    if kwargs and _rows.Same in map(type, kwargs.values()):
        kwargs = {key: bare(value) for key, value in kwargs.items()}
    return args, kwargs or None


def _each(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    count: int,
    divide: Callable[[Any], Any],
) -> list[Call]:
    """One (args, kwargs) for each part; `divide` gives the parts of a value, or None if
    it goes to all."""
    shares = [divide(value) for value in args]
    named = {key: divide(value) for key, value in kwargs.items()}
    if not any(part is not None for part in (*shares, *named.values())):
        return [plain(args, kwargs)]
    parts: list[Call] = []
    for i in range(count):
        mine = tuple(
            bare(value) if share is None else share[i]
            for value, share in zip(args, shares, strict=True)
        )
        mine_named = {
            key: bare(kwargs[key]) if share is None else share[i]
            for key, share in named.items()
        }
        parts.append((mine, mine_named or None))
    return parts


def _elements(value: Any, count: int) -> Any:
    if type(value) is _rows.Each:
        return value.of(count)
    if type(value) is not list and type(value) is not tuple:
        return None
    if len(value) != count:
        raise ValueError(
            f"a {type(value).__name__} of {len(value)} for {count} ranks: element i goes "
            "to rank i; muster.same(x) marks one that goes to all"
        )
    return value


def _row_parts(
    view: View,
    plan: Plan,
    pad: bool,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    padded: list[int],
) -> list[Call]:
    rows = _common_rows(args, kwargs)
    chunks = plan.chunks
    missing = -rows % chunks if pad and rows > 0 else 0
    if missing:
        padded += [rows + missing, missing]

    def divide(value: Any) -> Any:
        count = _rows.rows_of(value)
        if count is None:
            return None
        if not missing:
            view._check_division(value, count, chunks)
        if missing and count != _rows.UNKNOWN:
            value = _rows.pad(value, rows, missing)
            count += missing
        if view._codec == _core.CODEC_PICKLE:
            value = _rows.stored(value, chunks)
        return _rows.divide(value, count, chunks)

    parts = _each(args, kwargs, chunks, divide)
    if len(parts) == chunks and plan.has_placeholders():
        parts += [_placeholder(part, args, kwargs) for part in parts]
    return parts


def _placeholder(part: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """Of a chunk of these arguments: those that were not divided stay as they are."""
    mine, mine_named = part
    named = {k: _meta(v, kwargs[k]) for k, v in (mine_named or {}).items()}
    return tuple(map(_meta, mine, args)), named or None


def _meta(part: Any, whole: Any) -> Any:
    return part if _rows.rows_of(whole) is None else _rows.meta_of(part)


def _common_rows(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """How many rows the arguments have: all that are divided have the same."""
    rows = _rows.UNKNOWN
    first: Any = None
    for where, value in (*enumerate(args), *kwargs.items()):
        count = _rows.rows_of(value)
        if count is None or count == _rows.UNKNOWN:
            continue
        if rows not in (_rows.UNKNOWN, count):
            raise ValueError(
                f"argument {where!r} has {count} rows, but argument {first!r} has {rows}: "
                "rows are shared out together; muster.same(x) marks an argument that goes "
                "to all"
            )
        rows, first = count, where
    return rows
