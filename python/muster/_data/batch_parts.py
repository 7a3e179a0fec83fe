"""What batches are made and put together of: room, equality, meta information."""

from __future__ import annotations

import operator
import os
from contextlib import contextmanager
from numbers import Number

import numpy as np

from muster._data.store import empty
from muster._data.torch_arrays import dtype_of, is_tensor
from muster.ragged import Ragged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from typing import IO, Any

    from numpy.typing import ArrayLike, NDArray

    from muster._data.column import Column

METRICS = "metrics"  # meta information that concat merges instead of comparing


def check_name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name of a column must be text: {name!r}")
    return name


def check_names(what: str, names: Iterable[str]) -> list[str]:
    """None of them twice, and not a single text."""
    if isinstance(names, str):
        raise TypeError(f"{what}: a list of names is needed: {names!r}")
    found = list(names)
    if len(set(found)) < len(found):
        twice = next(name for name in found if found.count(name) > 1)
        raise ValueError(f"{what}: {twice!r} is named twice")
    return found


def text_of(value: Any) -> str:
    """Of a row: all of it, however long it is."""
    return str(value.tolist() if isinstance(value, np.ndarray) else value)


def indexes_of(index: Any, count: int) -> NDArray[Any]:
    """Whole numbers, or a mask of `count`."""
    if is_tensor(index):
        index = index.detach().cpu().numpy()
    found = np.asarray(index)
    if found.dtype != bool and (found.ndim == 0 or found.size == 0):
        found = found.reshape(-1)
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iub"):
        raise IndexError(f"a list of numbers, or a mask, is needed: {index!r}")
    if found.dtype == bool:
        if len(found) != count:
            raise IndexError(f"a mask of {len(found)}: there are {count} rows")
        return found
    # as they are: a huge one must not turn negative
    for i in (int(found.min()), int(found.max())) if len(found) else ():
        if not -count <= i < count:
            raise IndexError(f"there is no row {i}: there are {count}")
    return np.ascontiguousarray(found, dtype=np.int64)


def even_slices(count: int, chunks: int) -> list[tuple[int, int]]:
    """(first, end) of that many parts, as even as possible, the longer ones first."""
    if chunks < 1:
        raise ValueError(f"chunks: at least 1 is needed: {chunks}")
    each, more = divmod(count, chunks)
    ends = [(i + 1) * each + min(i + 1, more) for i in range(chunks)]
    return list(zip([0, *ends], ends, strict=False))


def dtype_named(name: str, kind: Any) -> np.dtype[Any]:
    try:
        return dtype_of(kind)
    except TypeError as e:
        raise TypeError(f"column {name!r}: {e}") from None


def ragged_room(
    name: str, rows: int, lengths: ArrayLike, dtype: np.dtype[Any]
) -> Ragged:
    each = np.asarray(lengths)
    if each.shape != (rows,) or (rows and each.dtype.kind not in "iu"):
        raise ValueError(
            f"column {name!r}: a length for each of {rows} rows is needed, not "
            f"{each.dtype} of {each.shape}"
        )
    if rows and each.min() < 0:
        raise ValueError(f"column {name!r}: a length is negative: {each.min()}")
    offsets = np.zeros(rows + 1, dtype=np.int64)
    np.cumsum(each, out=offsets[1:])
    return Ragged(empty(int(offsets[-1]), dtype), offsets)


def copied(part: NDArray[Any] | Ragged) -> NDArray[Any] | Ragged:
    if isinstance(part, Ragged):
        return Ragged(part._used().copy(), part.offsets - part.offsets[0])
    return part.copy()


def same(a: Column, b: Column) -> bool:
    """Equal values; the same memory is not looked at."""
    if a is b or (
        len(a.parts) == len(b.parts)
        and all(map(operator.is_, a.parts, b.parts))
        and (a.rows is b.rows or a.rows.same(b.rows))
    ):
        return True
    return a.describe() == b.describe() and equal(a.read(), b.read())


def equal(a: Any, b: Any) -> bool:
    """Also of arrays, and of what has arrays in it; NaN equals NaN."""
    if a is b:
        return True
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.dtype == object or b.dtype == object:
            return a.shape == b.shape and all(map(equal, a.flat, b.flat))
        return np.array_equal(
            a, b, equal_nan=a.dtype.kind in "fcmM" and b.dtype.kind in "fcmM"
        )
    if isinstance(a, Ragged) and isinstance(b, Ragged):
        if a.dtype != b.dtype or not np.array_equal(a.lengths, b.lengths):
            return False
        return equal(a._used(), b._used())
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    if is_tensor(a) or is_tensor(b):
        return _same_tensors(a, b)
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return _same_numbers(a, b)
    return bool(np.all(a == b)) or (_is_nan(a) and _is_nan(b))


def same_values(a: Any, b: Any) -> bool:
    """Also of what cannot be compared, which differs."""
    try:
        return equal(a, b)
    except (ValueError, TypeError, RuntimeError):  # of unlike shapes or kinds
        return False


def _same_tensors(a: Any, b: Any) -> bool:
    if not (is_tensor(a) and is_tensor(b)) or a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.equal(b) or bool(((a == b) | ((a != a) & (b != b))).all())


def _same_numbers(a: Any, b: Any) -> bool:
    """One is an array, the other perhaps a list of the same."""
    if not all(isinstance(x, (np.ndarray, list, tuple, Number)) for x in (a, b)):
        return False
    try:
        return equal(np.asarray(a), np.asarray(b))
    except ValueError:  # a list of unequal lists
        return False


def _is_nan(value: Any) -> bool:
    return isinstance(value, (Number, np.generic)) and bool(value != value)


def common_meta(
    metas: Sequence[dict[str, Any]], merge: Collection[str]
) -> dict[str, Any]:
    """What batches that are put together agree on; `merge`: but for these keys."""
    out: dict[str, Any] = {}
    for meta in metas:
        for key, value in meta.items():
            if key in merge:
                continue
            if key in out and not same_values(out[key], value):
                raise ValueError(f"concat: meta information {key!r} differs")
            out.setdefault(key, value)
    return out


def merged(metas: Sequence[dict[str, Any]], merge: Sequence[str]) -> dict[str, Any]:
    out = common_meta(metas, merge)
    for key in merge:
        values = [meta[key] for meta in metas if key in meta]
        if values:
            out[key] = _metrics(values)
    return out


def _metrics(values: list[Any]) -> Any:
    """Lists of all values: of dicts, entry by entry; lists are put together."""
    if not all(isinstance(value, dict) for value in values):
        return _flat(values)
    names = dict.fromkeys(name for value in values for name in value)
    return {name: _flat([v[name] for v in values if name in v]) for name in names}


def _flat(values: list[Any]) -> list[Any]:
    out: list[Any] = []
    for value in values:
        if isinstance(value, np.ndarray):
            value = value.tolist()  # of a single number a number
        out.extend(value if isinstance(value, (list, tuple)) else [value])
    return out


@contextmanager
def written(path: str) -> Iterator[IO[bytes]]:
    """A new file that takes the place of `path` when it is whole; else that stays."""
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as file:  # a pipe, say
            yield file
        return
    fresh = f"{path}.{os.urandom(4).hex()}.new"
    try:
        with open(fresh, "xb") as file:
            yield file
        os.replace(fresh, path)
    except BaseException:
        if os.path.exists(fresh):
            os.unlink(fresh)
        raise
