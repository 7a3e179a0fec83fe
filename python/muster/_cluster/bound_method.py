"""Registered methods as methods of a cluster: who is called, and with what."""

from __future__ import annotations

from muster import _core
from muster._cluster.method_help import help_of
from muster._core import call_many
from muster._data import rows as _rows
from muster._data.store import Ref
from muster.dispatch import ELEMENTS, JOIN, ONE, ROWS, USER, Dispatch, Execute, Mode
from muster.future import Future, Joined, take

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from inspect import Signature
    from typing import Any, Self

    from muster.dispatch import Method
    from muster.view import View

    Call = tuple[tuple[Any, ...], dict[str, Any] | None]  # arguments
    Finish = Callable[[list[Any]], Any]

INITIALIZE = "initialize"  # after it ranks may say other places in the mesh


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
        # who is called, from rank 0
        self.width = len(self.which) - self.which.count(-1)
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
        places = view._bound.registered(view, mode.mesh)
        if len(places) < view._bound.world_size:  # a part: its dp groups, numbered anew
            number = {dp: i for i, dp in enumerate(sorted({dp for dp, _ in places}))}
            places = [(number[dp], collects) for dp, collects in places]
        return _core.dispatch_registered(places)
    if mode.split == ROWS and mode.vectors.startswith("DP_MP"):
        return _core.dispatch_vectors(mode.vectors, view._bound.places(view))
    flat = [(0, 0, i, 0) for i in range(len(view))]
    return _core.dispatch_vectors(mode.vectors, flat)


class Bound:
    # `cluster.method`: calls the workers as the method was registered. Its docstring and
    # its signature are those of the method.

    __slots__ = ("__name__", "_method", "_view")

    def __init__(self, view: View, name: str, method: Method) -> None:
        self._view = view
        self.__name__ = name
        self._method = method

    def __repr__(self) -> str:
        return f"<{self.__name__} of {self._view!r}, {self._method.mode!r}>"

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return help_of(self._method.function)[0]

    @property
    def __signature__(self) -> Signature | None:
        return help_of(self._method.function)[1]

    def __get__(self, instance: object, owner: type | None = None) -> Self:
        return self  # so `help()` takes it for a routine, and shows its signature

    def __call__(self, *args: Any, blocking: bool | None = None, **kwargs: Any) -> Any:
        """`blocking`: False gives a future of the joined result."""
        waits = self._method.blocking if blocking is None else blocking
        calls, finish = self._start(args, kwargs, waits)
        if waits:
            return finish(take(calls, self.__name__))
        return Joined(calls, self.__name__, finish)

    def _start(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], waits: bool
    ) -> tuple[list[_core.Call], Finish]:
        """The calls, and what makes one result of theirs."""
        view, name = self._view, self.__name__
        view._refresh()
        peers = view._connected()
        mode = mode_of(self._method)
        plan = view._plans.get(name)
        if plan is None or not plan.fits(view, mode):
            plan = view._plans[name] = Plan(view, self._method)
        padded: list[int] = []
        parts = self._parts(mode, plan, args, kwargs, padded)
        how = (view._timeout, waits, view._codec)
        which: list[int] | None = plan.which
        if len(parts) == 1:
            which = None
            if plan.width < len(peers):
                peers = peers[: plan.width]
        calls = call_many(peers, view._engine, name, parts, which, *how)
        finish = _finisher(view, mode, plan, padded)
        return calls, _initializer(view, finish) if name == INITIALIZE else finish

    def _parts(
        self,
        mode: Mode,
        plan: Plan,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        padded: list[int],
    ) -> list[Call]:
        """The arguments of each chunk, then those of its placeholder; one alone: of all."""
        view = self._view
        if mode.split in (ROWS, ELEMENTS):
            args = tuple(map(_known_value, args))
            kwargs = {key: _known_value(value) for key, value in kwargs.items()}
        if mode.split == ROWS:
            return self._row_parts(plan, args, kwargs, padded)
        if mode.split == ELEMENTS:
            count = len(view)
            return _each(args, kwargs, count, lambda value: _elements(value, count))
        if mode.split == USER:
            assert mode.dispatch_fn is not None
            args, kwargs = mode.dispatch_fn(view, *args, **kwargs)
            args = tuple(args)
            if not plan.is_one:
                return each_parts(*view._listed(args, kwargs), len(view))
        return [plain(args, kwargs)]

    def _row_parts(
        self,
        plan: Plan,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        padded: list[int],
    ) -> list[Call]:
        view, chunks = self._view, plan.chunks
        rows = _common_rows(args, kwargs)
        missing = -rows % chunks if self._method.pad and rows > 0 else 0
        if missing:
            padded += [rows + missing, missing]

        def divide(value: Any) -> Any:
            count = _rows.rows_of(value)
            if count is None:
                return None
            if not missing:
                view._check_division(value, count, chunks)
            elif count != _rows.UNKNOWN:
                value = _rows.pad(value, rows, missing)
                count += missing
            if view._codec == _core.CODEC_PICKLE:
                value = _rows.stored(value, chunks)
            return _rows.divide(value, count, chunks)

        parts = _each(args, kwargs, chunks, divide)
        if len(parts) == chunks and plan.has_placeholders():
            parts += [_placeholder(part, args, kwargs) for part in parts]
        return parts


def _initializer(view: View, finish: Finish) -> Finish:
    def finish_initialize(values: list[Any]) -> Any:
        view._initialized()
        return finish(values)

    return finish_initialize


def _finisher(view: View, mode: Mode, plan: Plan, padded: list[int]) -> Finish:
    order = plan.order
    collect = mode.collect_fn
    if collect is not None:
        return lambda values: collect(view, values[0] if plan.is_one else values)
    if mode.collect == ONE:
        return lambda values: values[order[0]]
    if mode.collect != JOIN:
        return list

    def finish(values: list[Any]) -> Any:
        result = _rows.join([values[rank] for rank in order])
        return _rows.strip(result, *padded) if padded else result

    return finish


# ---- arguments ------------------------------------------------------------------------


def each_parts(args: tuple[Any, ...], kwargs: dict[str, Any], ranks: int) -> list[Call]:
    """One for each rank if an argument is a `muster.each`, else one for all."""
    if _rows.Each not in map(type, args) and not kwargs:
        return [plain(args, kwargs)]

    def divide(value: Any) -> Any:
        return value.of(ranks) if type(value) is _rows.Each else None

    return _each(args, kwargs, ranks, divide)


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
    """One (args, kwargs) for each part."""
    # `divide` gives the parts of a value, or None if it goes to all.
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
