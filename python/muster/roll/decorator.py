"""register as ROLL has it, and what a call gives that is not waited for."""

from __future__ import annotations

import dataclasses
import functools
import gc
import inspect
import sys

import muster
from muster._arguments import options_checked
from muster._data import rows as _rows
from muster.dispatch import JOIN, ONE, Dispatch, Execute
from muster.future import Future, get

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Self

    from muster._cluster.bound_method import Bound
    from muster.roll.cluster import Cluster


@options_checked
def register(
    dispatch_mode: Any = Dispatch.ALL_TO_ALL,
    execute_mode: str = Execute.ALL,
    clear_cache: bool = False,
    trace: bool = False,
    prefetch: bool = False,
    to_remote: bool = False,
) -> Callable[[Any], Any]:
    """Make a method of a worker a method of its cluster.

    clear_cache: collect garbage and empty the device's cache of memory after each call.
    `trace`, `prefetch` and `to_remote` are accepted and say nothing.
    """
    mark = muster.register(dispatch_mode=dispatch_mode, execute_mode=execute_mode)

    def decorate(func: Any) -> Any:
        return mark(_then_clear(func) if clear_cache else func)

    return decorate


def _then_clear(func: Any) -> Any:
    @functools.wraps(func)
    def method(*args: Any, **kwargs: Any) -> Any:
        try:
            return func(*args, **kwargs)
        finally:
            _clear_cache()

    @functools.wraps(func)
    async def async_method(*args: Any, **kwargs: Any) -> Any:
        try:
            return await func(*args, **kwargs)
        finally:
            _clear_cache()

    return async_method if inspect.iscoroutinefunction(func) else method


def _clear_cache() -> None:
    gc.collect()
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


# ---- calls that are not waited for ----------------------------------------------------


@dataclasses.dataclass
class ObjectRefWrap:
    """A future, and whether its result is part of the whole."""

    obj_ref: Future
    collected: bool = False


def materialize_concat(
    data_refs: Future | ObjectRefWrap | Iterable[Future | ObjectRefWrap],
    timeout: float | None = None,
) -> Any:
    """Wait for all of them, and join the results that count."""
    return _rows.join(collected(data_refs, timeout))


def collected(
    data_refs: Future | ObjectRefWrap | Iterable[Future | ObjectRefWrap],
    timeout: float | None = None,
) -> list[Any]:
    """Wait for all of them; the results that count."""
    if isinstance(data_refs, (Future, ObjectRefWrap)):
        data_refs = [data_refs]
    refs = [
        ref if isinstance(ref, ObjectRefWrap) else ObjectRefWrap(ref, True)
        for ref in data_refs
    ]
    values = get([ref.obj_ref for ref in refs], timeout)
    return [v for v, ref in zip(values, refs, strict=True) if ref.collected]


class BoundMethod:
    # `cluster.method(...)`: the joined result, or with `blocking=False` the futures of
    # all ranks: as they are where all results count, else wrapped.

    __slots__ = ("__name__", "_bound", "_view")

    def __init__(self, view: Cluster, bound: Bound) -> None:
        self._view = view
        self._bound = bound
        self.__name__ = bound.__name__

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self._bound.__doc__

    @property
    def __signature__(self) -> inspect.Signature | None:
        return self._bound.__signature__

    def __get__(self, instance: object, owner: type | None = None) -> Self:
        return self  # as Bound

    def __call__(self, *args: Any, blocking: bool = True, **kwargs: Any) -> Any:
        self._view._noted(self.__name__)
        if blocking:
            return self._bound(*args, blocking=True, **kwargs)
        joined = self._bound(*args, blocking=False, **kwargs)
        refs = joined._parts
        mode = self._bound._method.mode
        if mode.collect_fn is not None:
            return mode.collect_fn(self._view, refs)
        if mode.collect not in (JOIN, ONE):
            return refs
        counts = set(self._view._plans[self.__name__].order)
        return [ObjectRefWrap(ref, rank in counts) for rank, ref in enumerate(refs)]
