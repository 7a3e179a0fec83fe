"""SharedStorage: values by key, for drivers and workers; over `muster.kv`."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import warnings
from collections.abc import Callable, Hashable
from typing import Any, Self

from muster import _core, kv
from muster._data.serialize import loads, to_bytes
from muster.future import CompletedFuture

STORAGE_NAME = "SHARED_STORAGE_ACTOR"
RAY_NAMESPACE = "roll"
_PREFIX = "roll/"
_KEYS = "roll.key/"  # of those that are no texts
_NAME_MAX = 400
_PIECE = _core.KV_VALUE_MAX - 4096  # a little less than an entry may have


@dataclasses.dataclass
class _Pieces:
    """A value that is too big for one entry."""

    unique: str
    count: int

    def names(self) -> list[str]:
        return [f"roll.piece/{self.unique}/{i}" for i in range(self.count)]


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


def _name(key: Hashable) -> str:
    """Of its entry: a text as it is, any other key by what it is equal to."""
    hash(key)  # TypeError, as a dict has it
    name = _PREFIX + key if isinstance(key, str) else f"{_KEYS}{_text(key)}"
    if len(name) <= _NAME_MAX:
        return name
    return f"{_KEYS}sha256:{hashlib.sha256(name.encode()).hexdigest()}"


def _text(key: Any) -> str:
    if isinstance(key, (tuple, frozenset)):
        parts = [_text(part) for part in key]
        kind = "" if isinstance(key, tuple) else "set"
        return f"{kind}({', '.join(parts if not kind else sorted(parts))})"
    if isinstance(key, (bool, int, float)) and key == key // 1:
        return repr(int(key))  # 1, 1.0 and True are one key
    return repr(key)


def _stored(data: Any) -> Any:
    """What the entry has: the pickle, or where the pieces of a big one are."""
    whole = to_bytes(data)
    if len(whole) <= _PIECE:
        return whole
    pieces = _Pieces(os.urandom(8).hex(), -(-len(whole) // _PIECE))
    for at, name in enumerate(pieces.names()):
        kv.put(name, bytes(whole[at * _PIECE : (at + 1) * _PIECE]))
    return pieces


def _free(entry: Any) -> None:
    for name in entry.names() if isinstance(entry, _Pieces) else ():
        kv.delete(name)


def _put(key: Hashable, data: Any) -> None:
    name = _name(key)
    before = kv.get(name)
    kv.put(name, _stored(data))
    _free(before)


def _get(key: Hashable) -> Any:
    """None, and a warning, if it is not there."""
    name = _name(key)
    while (entry := kv.get(name)) is not None:
        if not isinstance(entry, _Pieces):
            return loads(entry, [])
        pieces = [kv.get(piece) for piece in entry.names()]
        if None not in pieces:
            return loads(b"".join(pieces), [])
        # another value was put meanwhile, and the pieces of this one are gone
    warnings.warn(f"the shared storage has no {key!r}", stacklevel=3)
    return None


def _put_if_absent(key: Hashable, data: Any) -> bool:
    """True if it was not there."""
    entry = _stored(data)
    done = kv.put_if_absent(_name(key), entry)
    if not done:
        _free(entry)
    return done


def _delete(key: Hashable) -> bool:
    """True if it was there."""
    name = _name(key)
    entry = kv.get(name)
    done = kv.delete(name)
    _free(entry)
    return done


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
