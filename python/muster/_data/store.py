"""The node's store, as Python sees it: put, Ref, empty."""

from __future__ import annotations

import os
import sys
import threading
from math import prod

from muster import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    import numpy as np

_PACKAGE = os.path.dirname(os.path.abspath(_core.__file__)) + os.sep
_PICKLER = f"{os.sep}cloudpickle{os.sep}"
_FRAMES_MAX = 30


class _Collecting(threading.local):
    """The objects of the store that what is being pickled now refers to."""

    held: list[_core.Held] | None = None
    by_name = True  # columns of batches may be left in the store
    writes: list[Any] | None = None  # at the end of remote_array.together
    line = ""  # of the user's program that pickles; empty: not looked for yet


collecting = _Collecting()


def collect(held: list[_core.Held]) -> None:
    if collecting.held is None:
        raise TypeError(
            "a muster.Ref travels in calls and results alone: no process would hold its "
            "object for a pickle"
        )
    collecting.held.extend(held)


class Ref:
    """An object in the store of some node. Made by `put`; holds the object.

    As an argument of a call it is resolved in the callee; inside of a container it stays a
    Ref.
    """

    __slots__ = ("__weakref__", "_held", "_meta")

    def __init__(self, meta: bytes, held: list[_core.Held]) -> None:
        self._meta = meta
        self._held = held

    def get(self) -> Any:
        """The value; its arrays are read-only views of the shared memory."""
        return _core.store_get(self._meta)

    @property
    def nbytes(self) -> int:
        """What it takes in the store; 0: so little that it travels in the Ref."""
        return sum(held.nbytes for held in self._held)

    def __reduce__(self) -> tuple[Any, ...]:
        collect(self._held)
        return _load_ref, (self._meta,)

    def __repr__(self) -> str:
        return f"<muster.Ref: {self.nbytes} bytes>"


def _load_ref(meta: bytes) -> Ref:
    return Ref(*_core.store_hold(meta))


class Resolved:
    """Pickles to the value of a Ref."""

    def __init__(self, meta: bytes, held: list[_core.Held]) -> None:
        self._meta = meta
        self._held = held

    def __reduce__(self) -> tuple[Any, ...]:
        collect(self._held)
        return _core.store_get, (self._meta,)


# what is resolved in the callee: from its type to what is sent instead
resolvable: dict[type, Callable[[Any], Any]] = {
    Ref: lambda ref: Resolved(ref._meta, ref._held)
}


def resolve_arguments(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
    """(args, kwargs) with those that are to be resolved in the callee replaced."""
    if any(type(a) in resolvable for a in args):
        args = tuple(map(_resolved, args))
    if kwargs and any(type(a) in resolvable for a in kwargs.values()):
        kwargs = {name: _resolved(a) for name, a in kwargs.items()}
    return args, kwargs


def _resolved(value: Any) -> Any:
    make = resolvable.get(type(value))
    return value if make is None else make(value)


def put(value: Any) -> Ref:
    """Write `value` into the store of this node, once, and hold it there. StoreFull if
    there is no room."""
    return Ref(*_core.store_put(value))


def empty(shape: int | Sequence[int], dtype: Any = float) -> np.ndarray[Any, Any]:
    """A numpy array in the store of this node, not initialised: write it, and send it
    without a copy. Do not write any more once it was sent."""
    import numpy as np

    kind = np.dtype(dtype)
    if kind.hasobject:
        raise TypeError(f"empty: {kind} has Python objects, which cannot be shared")
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if min(sizes, default=0) < 0:
        raise ValueError(f"empty: negative size in {sizes}")
    count = prod(map(int, sizes))
    held = _core.store_empty(count * kind.itemsize, site())
    return np.frombuffer(held, kind, count).reshape(sizes)


def store_stats() -> dict[str, Any]:
    """What the store of this node has; `copied` is what this process has copied into
    it. All in bytes but `objects` and `holders`."""
    stats = _core.store_stats(False)
    return {
        "node": stats["node_name"],
        "id": stats["node"],
        "objects": stats["object_count"],
        "holders": stats["holder_count"],
        "spill": stats["spill_dir"],
        **{name: stats[name] for name in _STATS},
        "copied": _core.store_copied(),
    }


_STATS = "spill_limit limit used committed allocated received sent spilled".split()


def stored_objects() -> list[dict[str, Any]]:
    """The oldest objects in the store of this node: `nbytes`, `age` in seconds, `site` (the
    line that made it), `copy` (it is another node's), `here` (its bytes are), and `holders`:
    (name, pid, count, seconds) of each."""
    return [
        {
            "node": one["node"],
            "id": one["id"],
            "nbytes": one["len"],
            "age": one["age_ns"] / 1e9,
            "site": one["site"],
            "copy": one["is_copy"],
            "here": one["has_bytes"],
            "spilled": one["is_spilled"],
            "holders": [
                (h["name"], h["pid"], h["count"], h["since_ns"] / 1e9)
                for h in one["holders"]
            ],
        }
        for one in _core.store_stats(True)["objects"]
    ]


def site() -> str:
    """The line of the user's program that is running: "train.py:12"."""
    # Looked for once for all that is pickled together.
    if collecting.held is None:
        return _find_line()
    if not collecting.line:
        collecting.line = _find_line()
    return collecting.line


def _find_line() -> str:
    frame = sys._getframe(2)
    for _ in range(_FRAMES_MAX):
        path = frame.f_code.co_filename
        ours = path.startswith(_PACKAGE) or _PICKLER in path
        if not ours or frame.f_back is None:
            return f"{os.path.basename(path)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
