"""register, its modes, and the functions that divide arguments and join results.

A dispatch function takes (group, *args, **kwargs) and gives the same with a list in place
of each value: element i goes to rank i. A collect function takes (group, results by rank).
Those that are here have the names, arguments and results of verl's; a method may be
registered with others.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from muster import _core
from muster._adapters.checks import WrongType, WrongValue
from muster._arguments import options_checked
from muster.verl import batch

Args = tuple[Sequence[Any], dict[str, Any]]

__all__ = [
    "DISPATCH_MODE_FN_REGISTRY",
    "MAGIC_ATTR",
    "Dispatch",
    "Execute",
    "collect_all_to_all",
    "collect_dp_compute",
    "collect_dp_compute_data_proto",
    "collect_lazy_compute_data_proto",
    "collect_nd_compute",
    "collect_nd_compute_dataproto",
    "dispatch_all_to_all",
    "dispatch_dp_compute",
    "dispatch_dp_compute_data_proto",
    "dispatch_dp_compute_data_proto_with_func",
    "dispatch_lazy_compute_data_proto",
    "dispatch_nd_compute",
    "dispatch_nd_compute_dataproto",
    "dispatch_one_to_all",
    "get_predefined_dispatch_fn",
    "get_predefined_execute_fn",
    "make_nd_compute_dataproto_dispatch_fn",
    "register",
    "register_dispatch_mode",
    "update_dispatch_mode",
]

MAGIC_ATTR = "muster_verl_registered"  # of a registered method
_VERL = "verl.single_controller.base.decorator"  # has a `register` of its own


# ---- modes, to which users may add their own ------------------------------------------


class _Names(type):
    _registry: dict[str, Any]

    def __iter__(cls) -> Iterator[Any]:
        return iter(cls._registry.values())

    def __contains__(cls, item: Any) -> bool:
        return item in (cls._registry if isinstance(item, str) else cls.values())

    def __getitem__(cls, name: str) -> Any:
        return cls._registry[name]

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_") or name not in cls._registry:
            raise AttributeError(f"{cls.__name__} has no mode {name!r}")
        return cls._registry[name]

    def names(cls) -> list[str]:
        return list(cls._registry)

    def values(cls) -> list[Any]:
        return list(cls._registry.values())


class Mode(metaclass=_Names):
    _registry: dict[str, Any] = {}
    _next_value = 0

    def __init_subclass__(cls) -> None:
        cls._registry = {}
        cls._next_value = 0

    def __init__(self, name: str, value: int) -> None:
        self.name = name
        self.value = value

    @classmethod
    def register(cls, name: str) -> Self:
        """A new one, in capitals. ValueError if it is there."""
        name = name.upper()
        if name in cls._registry:
            raise WrongValue(f"{cls.__name__}.{name} is there already")
        made: Self = cls(name, cls._next_value)
        cls._registry[name] = made
        cls._next_value += 1
        return made

    @classmethod
    def remove(cls, name: str) -> Self:
        gone: Self = cls._registry.pop(name.upper())
        return gone

    @classmethod
    def from_name(cls, name: str) -> Self | None:
        return cls._registry.get(name.upper())

    @classmethod
    def _of(cls, name: str) -> Self:
        """The one of that name in this process."""
        return cls.from_name(name) or cls.register(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._of, (self.name,)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}.{self.name}: {self.value}>"


class Dispatch(Mode):
    """Who gets which part of a call's arguments."""


class Execute(Mode):
    """Who is called."""


for _name in (
    "RANK_ZERO",
    "ONE_TO_ALL",
    "ALL_TO_ALL",
    "DP_COMPUTE",
    "DP_COMPUTE_PROTO",
    "DP_COMPUTE_PROTO_WITH_FUNC",
    "DP_COMPUTE_METRIC",
    "DIRECT_ROLLOUT_METHOD",
):
    Dispatch.register(_name)
for _name in ("ALL", "RANK_ZERO"):
    Execute.register(_name)


# ---- the same to all, or one element to each ------------------------------------------


def dispatch_one_to_all(worker_group: Any, *args: Any, **kwargs: Any) -> Args:
    size = worker_group.world_size
    return tuple([a] * size for a in args), {k: [v] * size for k, v in kwargs.items()}


def dispatch_all_to_all(worker_group: Any, *args: Any, **kwargs: Any) -> Args:
    """As it is: `execute_all` shares out lists of `world_size` elements."""
    return args, kwargs


def collect_all_to_all(worker_group: Any, output: Any) -> Any:
    return output


def dispatch_dp_compute(worker_group: Any, *args: Any, **kwargs: Any) -> Args:
    size = worker_group.world_size
    for value in (*args, *kwargs.values()):
        _check_parts(value, size)
    return [list(a) for a in args], {k: list(v) for k, v in kwargs.items()}


def collect_dp_compute(worker_group: Any, output: Any) -> Any:
    _check_parts(output, worker_group.world_size)
    return output


def _check_parts(value: Any, count: int) -> None:
    if not isinstance(value, (list, tuple)) or len(value) != count:
        what = f"{len(value)} elements" if hasattr(value, "__len__") else repr(value)
        raise WrongValue(f"a list of {count} elements is needed, one for each: {what}")


# ---- one chunk for each rank ----------------------------------------------------------


def _chunk_all(chunks: int, args: Sequence[Any], kwargs: dict[str, Any]) -> Args:
    return (
        [batch.send_chunks(a, chunks) for a in args],
        {k: batch.send_chunks(v, chunks) for k, v in kwargs.items()},
    )


def dispatch_dp_compute_data_proto(
    worker_group: Any, *args: Any, **kwargs: Any
) -> Args:
    """Padded first, where a value asks for it."""
    size = worker_group.world_size
    rows = added = None

    def padded(value: Any) -> Any:
        nonlocal rows, added
        value, more = batch.pad(value, size, rows)
        if more >= 0:
            rows, added = len(value) - more, more
        return value

    args = tuple(padded(a) for a in args)
    kwargs = {k: padded(v) for k, v in kwargs.items()}
    split, named = _chunk_all(size, args, kwargs)
    if added is not None:
        named[batch.PADDING] = added
    return split, named


def dispatch_dp_compute_data_proto_with_func(
    worker_group: Any, *args: Any, **kwargs: Any
) -> Args:
    """The first argument is a function, which all get."""
    func, *args = args or (None,)  # type: ignore[assignment]
    if not callable(func):
        raise WrongType(f"the first argument must be a function: {func!r}")
    size = worker_group.world_size
    split, named = _chunk_all(size, args, kwargs)
    return [[func] * size, *split], named


def collect_dp_compute_data_proto(worker_group: Any, output: Any) -> Any:
    return batch.concat(collect_dp_compute(worker_group, output))


# ---- n-d meshes -----------------------------------------------------------------------


def dispatch_nd_compute(
    dp_rank_mapping: list[int],
    dp_size: int,
    worker_group: Any,
    *args: Any,
    **kwargs: Any,
) -> Args:
    """Rank i gets element dp_rank_mapping[i] of each."""
    for value in (*args, *kwargs.values()):
        _check_parts(value, dp_size)
    return (
        tuple([a[d] for d in dp_rank_mapping] for a in args),
        {k: [v[d] for d in dp_rank_mapping] for k, v in kwargs.items()},
    )


def collect_nd_compute(collect_mask: list[bool], worker_group: Any, output: Any) -> Any:
    """The results of those that collect, by rank."""
    _check_parts(output, worker_group.world_size)
    return [o for o, wanted in zip(output, collect_mask, strict=True) if wanted]


def dispatch_nd_compute_dataproto(
    dp_rank_mapping: list[int],
    dp_size: int,
    worker_group: Any,
    *args: Any,
    **kwargs: Any,
) -> Args:
    split, named = _chunk_all(dp_size, args, kwargs)
    return dispatch_nd_compute(dp_rank_mapping, dp_size, worker_group, *split, **named)


def collect_nd_compute_dataproto(
    collect_mask: list[bool], worker_group: Any, output: Any
) -> Any:
    return batch.concat(collect_nd_compute(collect_mask, worker_group, output))


def dispatch_lazy_compute_data_proto(
    mesh_name: str, worker_group: Any, *args: Any, **kwargs: Any
) -> Args:
    """By the mesh of that name, which the workers have registered."""
    info = worker_group._dispatch_info
    if mesh_name not in info:
        info[mesh_name] = worker_group._query_dispatch_info(mesh_name)
    dp_ranks = info[mesh_name]
    return dispatch_nd_compute_dataproto(
        dp_ranks, max(dp_ranks) + 1, worker_group, *args, **kwargs
    )


def collect_lazy_compute_data_proto(
    mesh_name: str, worker_group: Any, *args: Any, **kwargs: Any
) -> Any:
    """Joined in the order of the chunks, which is the order of the input. The argument
    is the list of results by rank."""
    (output,) = (*args, *kwargs.values())
    mask = worker_group._collect_info.get(mesh_name)
    if mask is None:
        mask = worker_group._query_collect_info(mesh_name)
        worker_group._collect_info[mesh_name] = mask
    registered = zip(worker_group._dispatch_info[mesh_name], mask, strict=True)
    *_, order = _core.dispatch_registered(list(registered))
    return batch.concat([output[rank] for rank in order])


def make_nd_compute_dataproto_dispatch_fn(mesh_name: str) -> dict[str, Any]:
    """The dispatch mode of methods that work on that mesh."""
    return {
        "dispatch_fn": functools.partial(dispatch_lazy_compute_data_proto, mesh_name),
        "collect_fn": functools.partial(collect_lazy_compute_data_proto, mesh_name),
    }


# ---- modes and their functions --------------------------------------------------------


def _pair(dispatch_fn: Any, collect_fn: Any) -> dict[str, Any]:
    return {"dispatch_fn": dispatch_fn, "collect_fn": collect_fn}


DISPATCH_MODE_FN_REGISTRY: dict[Any, dict[str, Any]] = {
    # these two call one worker, which gets everything
    Dispatch.RANK_ZERO: _pair(dispatch_all_to_all, collect_all_to_all),
    Dispatch.DIRECT_ROLLOUT_METHOD: _pair(dispatch_all_to_all, collect_all_to_all),
    Dispatch.ONE_TO_ALL: _pair(dispatch_one_to_all, collect_all_to_all),
    Dispatch.ALL_TO_ALL: _pair(dispatch_all_to_all, collect_all_to_all),
    Dispatch.DP_COMPUTE: _pair(dispatch_dp_compute, collect_dp_compute),
    Dispatch.DP_COMPUTE_PROTO: _pair(
        dispatch_dp_compute_data_proto, collect_dp_compute_data_proto
    ),
    Dispatch.DP_COMPUTE_PROTO_WITH_FUNC: _pair(
        dispatch_dp_compute_data_proto_with_func, collect_dp_compute_data_proto
    ),
    Dispatch.DP_COMPUTE_METRIC: _pair(
        dispatch_dp_compute_data_proto, collect_dp_compute
    ),
}

PREDEFINED = list(DISPATCH_MODE_FN_REGISTRY.values())  # not those of a user's


def get_predefined_dispatch_fn(dispatch_mode: Dispatch) -> dict[str, Any]:
    return DISPATCH_MODE_FN_REGISTRY[dispatch_mode]


def get_predefined_execute_fn(execute_mode: Execute) -> dict[str, str]:
    names = {Execute.ALL: "execute_all", Execute.RANK_ZERO: "execute_rank_zero"}
    return {"execute_fn_name": names[execute_mode]}


def register_dispatch_mode(
    dispatch_mode_name: str, dispatch_fn: Any, collect_fn: Any
) -> None:
    """A new member of Dispatch."""
    mode = Dispatch.register(dispatch_mode_name)
    DISPATCH_MODE_FN_REGISTRY[mode] = _pair(dispatch_fn, collect_fn)


def update_dispatch_mode(
    dispatch_mode: Dispatch, dispatch_fn: Any, collect_fn: Any
) -> None:
    """Other functions for a mode, for groups that are made from now on."""
    if dispatch_mode not in DISPATCH_MODE_FN_REGISTRY:
        raise WrongValue(f"not a dispatch mode: {dispatch_mode!r}")
    DISPATCH_MODE_FN_REGISTRY[dispatch_mode] = _pair(dispatch_fn, collect_fn)


# ---- the decorator --------------------------------------------------------------------


@options_checked
def register(
    dispatch_mode: Any = Dispatch.ALL_TO_ALL,
    execute_mode: Any = Execute.ALL,
    blocking: bool = True,
    materialize_futures: bool = True,
) -> Callable[[Any], Any]:
    """Make a method of a worker a method of its group.

    dispatch_mode: one of Dispatch, or {"dispatch_fn": f, "collect_fn": g}.
    blocking: False gives futures, or a DataProtoFuture where results are joined.
    materialize_futures: accepted; futures are values when they arrive at a worker.
    """
    if isinstance(dispatch_mode, dict):
        if missing := {"dispatch_fn", "collect_fn"} - set(dispatch_mode):
            raise WrongValue(
                f"dispatch_mode: has no {' and no '.join(sorted(missing))}"
            )
    elif not isinstance(dispatch_mode, Dispatch):
        raise WrongType(f"dispatch_mode: not a Dispatch or a dict: {dispatch_mode!r}")
    if not isinstance(execute_mode, Execute):
        raise WrongType(f"execute_mode: not an Execute: {execute_mode!r}")
    attrs = {
        "dispatch_mode": dispatch_mode,
        "execute_mode": execute_mode,
        "blocking": blocking,
    }

    def decorate(func: Any) -> Any:
        setattr(func, MAGIC_ATTR, attrs)
        return func

    return decorate


def registration(func: Any) -> dict[str, Any] | None:
    """What a method was registered with, by this `register` or by verl's own."""
    attrs: dict[str, Any] | None = getattr(func, MAGIC_ATTR, None)
    theirs = sys.modules.get(_VERL)
    if attrs is not None or theirs is None:
        return attrs
    attrs = getattr(func, theirs.MAGIC_ATTR, None)
    if not isinstance(attrs, dict):
        return None
    mode = _our_mode(attrs["dispatch_mode"], theirs)
    execute = Execute.from_name(attrs["execute_mode"].name)
    return attrs | {"dispatch_mode": mode, "execute_mode": execute}


def _our_mode(mode: Any, theirs: Any) -> Any:
    """Of a mode of verl's own: its functions take no other group than verl's."""
    if not isinstance(mode, dict) and (ours := Dispatch.from_name(mode.name)):
        return ours
    pair = mode if isinstance(mode, dict) else theirs.DISPATCH_MODE_FN_REGISTRY[mode]
    return {what: _our_function(function) for what, function in pair.items()}


def _our_function(function: Any) -> Any:
    """The one of that name, if it is verl's; a user's stays."""
    if isinstance(function, functools.partial):
        inner = _our_function(function.func)
        return functools.partial(inner, *function.args, **function.keywords)
    is_theirs = getattr(function, "__module__", None) == _VERL
    return globals().get(function.__name__, function) if is_theirs else function
