"""Rows: arguments divided into chunks, and results put together again."""

from __future__ import annotations

import copy
import sys

from muster._core import chunk_bounds, piece_can

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

UNKNOWN = -1  # rows, of what can be divided but has no length

# They have a length and slices, or may have, and yet are one thing.
_WHOLE = (str, bytes, bytearray, memoryview, dict, set, frozenset, int, float)


class Same:
    """Mark an argument that is not divided: each rank gets all of it."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"muster.same({self.value!r})"


class Each:
    """Mark an argument of `execute_all_*` that is shared out: rank i gets element i.
    There are as many elements as ranks."""

    __slots__ = ("values",)

    def __init__(self, values: Any) -> None:
        self.values = list(values)

    def of(self, ranks: int) -> list[Any]:
        """The elements, if there are as many as ranks."""
        if len(self.values) != ranks:
            raise ValueError(
                f"muster.each: {len(self.values)} elements for {ranks} ranks: element i "
                "goes to rank i"
            )
        return self.values

    def __repr__(self) -> str:
        return f"muster.each({self.values!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "muster.each(x) can be an argument of execute_all_*, or come from a dispatch "
            "function. It cannot be inside of another value, nor an argument of one rank "
            "or of a registered method, whose mode says what is shared out"
        )


same = Same
each = Each


def each_if_lists(
    args: tuple[Any, ...], kwargs: dict[str, Any], ranks: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """ROLL's and verl's rule: lists of an element for each rank are shared out."""
    values = (*args, *kwargs.values())
    if not all(isinstance(a, list) and len(a) == ranks for a in values):
        return args, kwargs
    return tuple(map(Each, args)), {key: Each(value) for key, value in kwargs.items()}


# ---- arguments ------------------------------------------------------------------------


def rows_of(value: Any) -> int | None:
    """How many rows it has; None: it is not divided."""
    if value is None or isinstance(value, (Same, *_WHOLE)):
        return None
    if type(value) is list or type(value) is tuple:
        return len(value)
    if hasattr(value, "_fields") and isinstance(value, tuple):
        return None  # a named tuple is one thing
    kind = type(value)
    if not hasattr(kind, "chunk") and not _has_slices(kind):
        return None
    if hasattr(kind, "execute_all_sync"):
        return None  # a cluster, whose slices are views
    if hasattr(kind, "has_columns") and not value.has_columns():
        return UNKNOWN  # meta information alone: all get that
    try:
        return len(value)
    except TypeError:  # an array without dimensions, or no length at all
        return UNKNOWN if hasattr(kind, "chunk") and not hasattr(kind, "ndim") else None


def _has_slices(kind: type) -> bool:
    if not hasattr(kind, "__getitem__") or not hasattr(kind, "__len__"):
        return False
    from collections.abc import Mapping

    return not issubclass(kind, Mapping)


def divide(value: Any, rows: int, chunks: int) -> Sequence[Any]:
    """In as many parts, as even as they can be, the longer ones first."""
    kind = type(value)
    if kind is not list and kind is not tuple and hasattr(kind, "chunk"):
        even = rows > 0 and rows % chunks == 0  # all that some of them can do
        if even or rows == UNKNOWN or not _has_slices(kind):
            parts: Sequence[Any] = value.chunk(chunks)
            if len(parts) == chunks:
                return parts
            raise ValueError(f"{kind.__name__}.chunk({chunks}) gave {len(parts)} parts")
    bounds = chunk_bounds(rows, chunks)
    return [value[bounds[i] : bounds[i + 1]] for i in range(chunks)]


def stored(value: Any, chunks: int) -> Any:
    """A batch whose big columns lie in the store of this node, each in one piece."""
    # Before it is divided: so all chunks are written at once, and what comes back of
    # them lies together.
    if chunks > 1 and hasattr(type(value), "_stored") and piece_can():
        return value._stored(chunks)
    return value


def pad(value: Any, rows: int, count: int) -> Any:
    """With as many copies of the last row; `count` is 0 if there is none."""
    if isinstance(value, (list, tuple)):
        more: Any = value[-1:] * count
        return value + more
    if hasattr(type(value), "padding"):
        padded = copy.copy(value)  # the caller's stays as it is
        padded.padding(count)
        return padded
    last = value[rows - 1 : rows]
    joined = join([value, *[last] * count])
    if type(joined) is list:
        raise TypeError(
            f"pad: a {type(value).__name__} cannot be padded: it has no concat()"
        )
    return joined


def meta_of(value: Any) -> Any:
    """What of a chunk goes to those who get its rows from a rank beside them."""
    # Only what knows how is made smaller; lists and arrays go to all.
    kind = type(value)
    if hasattr(kind, "meta_only"):
        return value.meta_only()
    if hasattr(value, "meta_info") and hasattr(value, "batch"):
        return kind(batch=None, meta_info=value.meta_info)
    return value


# ---- results --------------------------------------------------------------------------


def join(parts: list[Any]) -> Any:
    """The results of chunks as one: lists, arrays, what has `concat`, dicts of it."""
    # Others stay a list. Empty ones leave no trace, but for what a DataProto tells
    # besides its rows.
    kind = type(parts[0])
    if kind is list and all(type(part) is list for part in parts):
        return [row for part in parts for row in part]
    full = [part for part in parts if not _is_empty(part)]
    if not full:
        full = parts if hasattr(kind, "concat") else parts[:1]
    kind = type(full[0])
    if not all(type(part) is kind for part in full):
        return parts
    if kind is list:
        return [row for part in full for row in part]
    if kind is dict and _are_columns(full):
        return {key: join([part[key] for part in full]) for key in full[0]}
    return _concat(kind, full, parts)


def _concat(kind: type, full: list[Any], parts: list[Any]) -> Any:
    if hasattr(kind, "join_results"):
        return kind.join_results(full)
    if hasattr(kind, "concat"):
        return kind.concat(full)
    if getattr(full[0], "ndim", 0) < 1:
        return parts
    root = kind.__module__.partition(".")[0]
    library: Any = sys.modules.get(root)
    if root == "numpy":
        return library.concatenate(full)
    if root == "torch":
        return library.cat(full)
    return parts


def _is_empty(part: Any) -> bool:
    if isinstance(part, dict):
        return bool(part) and all(_is_column(c) and len(c) == 0 for c in part.values())
    is_column = not hasattr(type(part), "join_results") and _is_column(part)
    return is_column and len(part) == 0


def _is_column(value: Any) -> bool:
    if type(value) is list:
        return True
    if hasattr(type(value), "concat"):
        return hasattr(type(value), "__len__")
    root = type(value).__module__.partition(".")[0]
    return root in ("numpy", "torch") and getattr(value, "ndim", 0) >= 1


def _are_columns(parts: list[dict[Any, Any]]) -> bool:
    keys = parts[0].keys()
    columns = (column for part in parts for column in part.values())
    same = all(part.keys() == keys for part in parts)
    return bool(keys) and same and all(map(_is_column, columns))


def strip(result: Any, rows: int, padded: int) -> Any:
    """Without the last `padded` of `rows` rows, where it has a row for each of them."""
    if type(result) is dict:
        return {key: strip(column, rows, padded) for key, column in result.items()}
    if _is_column(result) and len(result) == rows:
        return result[: rows - padded]
    return result
