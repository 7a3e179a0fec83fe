"""SharedStorage: values by key, for drivers and workers; over `muster.kv`."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, Self

from muster import kv
from muster.future import CompletedFuture

STORAGE_NAME = "SHARED_STORAGE_ACTOR"
RAY_NAMESPACE = "roll"
_PREFIX = "roll/"
_NOTHING = object()


class _Method:
    """A function; `remote(...)` calls it too, and gives a future that is done."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def remote(self, *args: Any, **kwargs: Any) -> CompletedFuture:
        return CompletedFuture(
            self(*args, **kwargs), self._function.__name__.lstrip("_")
        )


def _put(key: str, data: Any) -> None:
    kv.put(_PREFIX + key, data)


def _get(key: str) -> Any:
    """None, and a warning, if it is not there."""
    value = kv.get(_PREFIX + key, _NOTHING)
    if value is _NOTHING:
        warnings.warn(f"the shared storage has no {key!r}", stacklevel=3)
        return None
    return value


def _put_if_absent(key: str, data: Any) -> bool:
    """True if it was not there."""
    return kv.put_if_absent(_PREFIX + key, data)


def _delete(key: str) -> bool:
    """True if it was there."""
    return kv.delete(_PREFIX + key)


class SharedStorage:
    """All objects of this class in a session are one storage, and end with the driver.
    `get(...)` gives the value, `get.remote(...)` a future of it, and so do the others."""

    @classmethod
    def options(cls, **ignored: Any) -> type[Self]:
        return cls

    @classmethod
    def remote(cls) -> Self:
        return cls()

    put = _Method(_put)
    get = _Method(_get)
    put_if_absent = _Method(_put_if_absent)
    delete = _Method(_delete)
