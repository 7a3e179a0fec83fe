"""Dispatch: who gets which part of a call's arguments, and what becomes of the results.

`@muster.register(dispatch_mode=...)` on a method of a worker's class makes it a method of
the cluster: `cluster.method(rows)` shares the rows out, calls all ranks at once, and puts
their results together in the order of the rows.
"""

from __future__ import annotations

from types import FunctionType

from muster._arguments import options_checked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

__all__ = [
    "Dispatch",
    "Execute",
    "nd_mesh",
    "register",
    "register_dispatch_mode",
    "update_dispatch_mode",
]

MARK = "muster_method"  # the attribute of a function that was registered

# What of the arguments a rank gets.
SAME = "same"  # all of them
ELEMENTS = "elements"  # element i of each list
ROWS = "rows"  # its chunk of the rows
USER = "user"  # what a function of the user's says
ABSENT = "absent"  # that mode is not registered in this process
# What is made of the results of those that collect.
LIST = "list"
ONE = "one"
JOIN = "join"


class Mode:
    """One dispatch mode; the attributes of `Dispatch` are such.

    vectors: the name of its three vectors (src/dispatch), or "" for those of a mesh that
    the ranks have registered, whose name is `mesh`.
    """

    def __init__(
        self,
        name: str,
        split: str,
        collect: str,
        *,
        vectors: str | None = None,
        mesh: str = "",
        dispatch_fn: Callable[..., Any] | None = None,
        collect_fn: Callable[..., Any] | None = None,
    ) -> None:
        self.name = name
        self.split = split
        self.collect = collect
        self.vectors = name if vectors is None else vectors
        self.mesh = mesh
        self.dispatch_fn = dispatch_fn
        self.collect_fn = collect_fn

    def __repr__(self) -> str:
        return f"<Dispatch.{self.name}>" if self.name else f"<nd_mesh {self.mesh!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.mesh:
            return nd_mesh, (self.mesh,)
        if self.name:
            return _named, (self.name,)
        return _user_mode, (self.dispatch_fn, self.collect_fn)


class _Modes(type):
    """More of them may be registered."""

    def __getattr__(cls, name: str) -> Mode:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"there is no dispatch mode {name!r}: it is none of "
            f"{', '.join(mode.name for mode in cls)}; muster.register_dispatch_mode "
            "adds one"
        )

    def __iter__(cls) -> Iterator[Mode]:
        return (mode for mode in vars(cls).values() if isinstance(mode, Mode))


class Dispatch(metaclass=_Modes):
    """The dispatch modes: ROLL's, then verl's."""

    ONE_TO_ALL = Mode("ONE_TO_ALL", SAME, LIST)
    ONE_TO_ALL_ONE = Mode("ONE_TO_ALL_ONE", SAME, ONE)
    ALL_TO_ALL = Mode("ALL_TO_ALL", ELEMENTS, LIST)
    DP_MP_COMPUTE = Mode("DP_MP_COMPUTE", ROWS, JOIN)
    DP_MP_DISPATCH_FIRST = Mode("DP_MP_DISPATCH_FIRST", ROWS, JOIN)
    DP_MP_DISPATCH_FIRST_COLLECT_ALL = Mode(
        "DP_MP_DISPATCH_FIRST_COLLECT_ALL", ROWS, LIST
    )
    RANK_ZERO = Mode("RANK_ZERO", SAME, ONE)
    DP_COMPUTE = Mode("DP_COMPUTE", ELEMENTS, LIST)
    DP_COMPUTE_PROTO = Mode("DP_COMPUTE_PROTO", ROWS, JOIN)
    DP_COMPUTE_PROTO_WITH_FUNC = Mode("DP_COMPUTE_PROTO_WITH_FUNC", ROWS, JOIN)
    DP_COMPUTE_METRIC = Mode("DP_COMPUTE_METRIC", ROWS, LIST)
    DIRECT_ROLLOUT_METHOD = Mode("DIRECT_ROLLOUT_METHOD", SAME, ONE)


class Execute:
    """Who is called: all that the dispatch mode says, or rank 0 alone."""

    ALL = "ALL"
    RANK_ZERO = "RANK_ZERO"


def _named(name: str) -> Mode:
    """As it was sent: who calls a method needs its mode, its workers do not."""
    known = vars(Dispatch).get(name)
    return known if isinstance(known, Mode) else Mode(name, ABSENT, ABSENT)


def find_mode(what: Mode | str | Mapping[str, Callable[..., Any]]) -> Mode:
    """A mode, its name, or {"dispatch_fn": f, "collect_fn": g}."""
    if isinstance(what, Mode):
        return what
    if isinstance(what, str):
        mode = getattr(Dispatch, what)
        assert isinstance(mode, Mode)
        return mode
    if isinstance(what, FunctionType):
        raise TypeError(
            f"@register stands before {what.__name__!r} without its parentheses: write "
            "@register(dispatch_mode=...)"
        )
    if not hasattr(what, "keys") or set(what) != {"dispatch_fn", "collect_fn"}:
        raise TypeError(
            "dispatch_mode: a muster.Dispatch, muster.nd_mesh(name), or "
            f'{{"dispatch_fn": f, "collect_fn": g}}: {what!r}'
        )
    return _user_mode(what["dispatch_fn"], what["collect_fn"])


def _user_mode(
    dispatch_fn: Callable[..., Any] | None, collect_fn: Callable[..., Any] | None
) -> Mode:
    if not callable(dispatch_fn) or not callable(collect_fn):
        raise TypeError("dispatch_fn and collect_fn: must both be functions")
    return Mode("", USER, USER, dispatch_fn=dispatch_fn, collect_fn=collect_fn)


def register_dispatch_mode(
    name: str, dispatch_fn: Callable[..., Any], collect_fn: Callable[..., Any]
) -> Mode:
    """Add Dispatch.NAME: `dispatch_fn(cluster, *args, **kwargs)` gives (args, kwargs) as
    `execute_all_sync` takes them (`muster.each(x)`: element i for rank i), `collect_fn(cluster, outputs)` gives the result."""
    if not name.isidentifier() or name in vars(Dispatch):
        raise ValueError(f"there is a dispatch mode {name!r} already, or cannot be")
    mode = _user_mode(dispatch_fn, collect_fn)
    mode.name = name
    setattr(Dispatch, name, mode)
    return mode


def update_dispatch_mode(
    mode: Mode | str, dispatch_fn: Callable[..., Any], collect_fn: Callable[..., Any]
) -> None:
    """Give a mode other functions, for methods that are registered already too."""
    found, new = find_mode(mode), _user_mode(dispatch_fn, collect_fn)
    found.split, found.collect = new.split, new.collect
    found.dispatch_fn, found.collect_fn = new.dispatch_fn, new.collect_fn


def nd_mesh(name: str) -> Mode:
    """The mode of a mesh that the workers have registered (`muster.register_mesh`): rank
    i gets chunk dp_rank of i, and the results of those that collect are joined."""
    if not isinstance(name, str) or not name:
        raise TypeError(f"nd_mesh: not the name of a mesh: {name!r}")
    return Mode("", ROWS, JOIN, vectors="", mesh=name)


# ---- methods --------------------------------------------------------------------------


class Method:
    """How a registered method is called."""

    __slots__ = ("_mode", "blocking", "execute", "function", "pad")

    def __init__(
        self,
        mode: Mode | bytes,
        execute: str,
        blocking: bool,
        pad: bool,
        function: Any = None,
    ) -> None:
        self._mode = mode
        self.execute = execute
        self.blocking = blocking
        self.pad = pad
        self.function = function  # of its class, or what is known of it: MethodHelp

    def of(self, function: Any) -> Method:
        """The same with this function."""
        return Method(self._mode, self.execute, self.blocking, self.pad, function)

    @property
    def mode(self) -> Mode:
        if isinstance(self._mode, bytes):  # of a module that is imported only now
            from _pickle import loads

            self._mode = loads(self._mode)
        assert isinstance(self._mode, Mode)
        if self._mode.split == ABSENT:
            self._mode = find_mode(self._mode.name)
        return self._mode

    def __reduce__(self) -> tuple[Any, ...]:
        """Without importing what the user's functions need, until they are called."""
        mode: Any = self._mode
        if isinstance(mode, Mode) and mode.split == USER and not mode.name:
            from muster._data.serialize import dumps_inline

            mode = dumps_inline(mode)
        from muster._cluster.method_help import describe

        function = describe(self.function)
        return Method, (mode, self.execute, self.blocking, self.pad, function)


@options_checked
def register(
    dispatch_mode: Any,
    execute_mode: str = Execute.ALL,
    blocking: bool = True,
    *,
    pad: bool = False,
) -> Callable[[F], F]:
    """Make a method of a worker's class a method of its clusters.

    dispatch_mode: of `muster.Dispatch`, or its name; `muster.nd_mesh(name)`; or
        {"dispatch_fn": f, "collect_fn": g}.
    execute_mode: Execute.RANK_ZERO calls the first rank alone, whatever the mode.
    blocking: False: the call gives a future of the joined result. Also at each call.
    pad: equal chunks, with copies of the last row, which are stripped from the result.

    The method itself stays as it is, `async`, a generator, or neither.
    """
    if execute_mode not in (Execute.ALL, Execute.RANK_ZERO):
        raise ValueError(
            f"execute_mode: must be Execute.ALL or RANK_ZERO: {execute_mode!r}"
        )
    method = Method(find_mode(dispatch_mode), execute_mode, bool(blocking), bool(pad))

    def mark(function: F) -> F:
        if not callable(function) and not hasattr(function, "__func__"):
            raise TypeError(f"register: not a method: {function!r}")
        setattr(getattr(function, "__func__", function), MARK, method)
        return function

    return mark


def methods_of(cls: Any) -> dict[str, Method]:
    """The registered methods of a class, inherited ones too."""
    found: dict[str, Method] = {}
    for name in dir(cls):
        if name.startswith("_"):
            continue
        function = getattr(cls, name, None)
        method = getattr(function, MARK, None)
        if isinstance(method, Method):
            found[name] = method.of(_without_self(cls, name, function))
    return found


def _without_self(cls: Any, name: str, function: Any) -> Any:
    """As an instance has it."""
    for base in getattr(cls, "__mro__", ()):
        if name in vars(base):
            found = vars(base)[name]
            return found.__get__(base, cls) if hasattr(found, "__get__") else found
    return function
