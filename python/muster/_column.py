"""One column of a batch: parts that are never changed, and which of their rows."""

from __future__ import annotations

import numpy as np

from muster._core import Rows
from muster.ragged import Ragged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from numpy.typing import NDArray

    Part = NDArray[Any] | Ragged

copied = 0  # bytes of payload that were gathered in this process


def part_of(name: str, value: Any) -> Part:
    """What a column is made of: an array with rows, Ragged, or an array of objects."""
    if isinstance(value, Ragged):
        return value
    if _is_tensor(value):
        return _from_tensor(name, value)
    if isinstance(value, np.ndarray) and value.dtype != object:
        if value.ndim == 0:
            raise ValueError(f"column {name!r}: a single number has no rows")
        return _with_whole_rows(value)
    if isinstance(value, np.ndarray) and value.ndim != 1:
        raise ValueError(f"column {name!r}: objects have one dimension: {value.shape}")
    if not isinstance(value, (list, tuple, np.ndarray)):
        raise TypeError(
            f"column {name!r}: an array, a tensor, muster.Ragged or a list is needed, "
            f"not {type(value).__name__}"
        )
    return objects(value)


def objects(values: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
    """A one-dimensional array of them, whatever they are."""
    out = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        out[i] = value
    return out


def _is_tensor(value: Any) -> bool:
    return type(value).__module__ == "torch" and hasattr(value, "detach")


def _from_tensor(name: str, tensor: Any) -> NDArray[Any]:
    if tensor.device.type != "cpu":
        raise TypeError(
            f"column {name!r}: the tensor is on {tensor.device}: .cpu() it first; batches "
            "live in host memory"
        )
    array: NDArray[Any] = tensor.detach().numpy()
    return _with_whole_rows(array)


def _with_whole_rows(array: NDArray[Any]) -> NDArray[Any]:
    """Rows that are contiguous themselves; a copy only where they are not."""
    if array.ndim and array.strides[0] >= 0 and array[:1].flags.c_contiguous:
        return array
    return np.ascontiguousarray(array)


class Column:
    """Rows of parts that are all of one kind."""

    __slots__ = ("_whole", "parts", "rows")

    def __init__(self, parts: list[Part], rows: Rows) -> None:
        self.parts = parts
        self.rows = rows
        self._whole: Part | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def kind(self) -> str:
        part = self.parts[0]
        if isinstance(part, Ragged):
            return "ragged"
        return "objects" if part.dtype == object else "fixed"

    @property
    def is_view(self) -> bool:
        """Reading it copies nothing."""
        return len(self.rows) == 0 or self.rows.view is not None

    def with_rows(self, rows: Rows) -> Column:
        return Column(self.parts, rows)

    def read(self) -> Part:
        """All rows together: a view where they are one run, else a copy, made once."""
        if self._whole is None:
            whole = _READ[self.kind](self)
            for array in (
                (whole.values, whole.offsets) if isinstance(whole, Ragged) else (whole,)
            ):
                array.flags.writeable = False
            self._whole = whole
        return self._whole

    def describe(self) -> tuple[Any, ...]:
        """What must be equal in columns that are put together."""
        part = self.parts[0]
        if isinstance(part, Ragged):
            return "ragged", str(part.dtype), part.values.shape[1:]
        if part.dtype == object:
            return ("objects",)
        return "fixed", str(part.dtype), part.shape[1:]


def join(columns: Sequence[Column], memo: dict[Any, Rows]) -> Column:
    """One column after the other. Parts that several have are there once; `memo` lets
    columns with the same rows share them."""
    parts: list[Part] = []
    at: dict[int, int] = {}
    blocks: list[list[int]] = []
    for column in columns:
        mine = []
        for part in column.parts:
            if id(part) not in at:
                at[id(part)] = len(parts)
                parts.append(part)
            mine.append(at[id(part)])
        blocks.append(mine)
    key = tuple((id(c.rows), *b) for c, b in zip(columns, blocks, strict=True))
    rows = memo.get(key)
    if rows is None:
        pairs = [(c.rows, b) for c, b in zip(columns, blocks, strict=True)]
        rows = memo[key] = Rows.concat(pairs)
    return Column(parts, rows)


# ---- reading --------------------------------------------------------------------------


def _count_copy(nbytes: int) -> None:
    global copied
    copied += nbytes


def _fixed(column: Column) -> NDArray[Any]:
    parts: list[Any] = column.parts
    count = len(column.rows)
    view = column.rows.view
    if count == 0:
        empty: NDArray[Any] = parts[0][:0]
        return empty
    if view is not None:
        return _strided(parts[view[0]], view[1], count, view[2])
    out = np.empty((count, *parts[0].shape[1:]), dtype=parts[0].dtype)
    if out.nbytes:
        column.rows.gather(parts, out.nbytes // count, out)
        _count_copy(out.nbytes)
    return out


def _strided(part: NDArray[Any], first: int, count: int, step: int) -> NDArray[Any]:
    if step == 0:
        return np.broadcast_to(part[first], (count, *part.shape[1:]))
    end = first + step * count
    run: NDArray[Any] = part[first : end if end >= 0 else None : step]
    return run


def _ragged(column: Column) -> Ragged:
    parts: list[Any] = column.parts
    count = len(column.rows)
    view = column.rows.view
    if count == 0:
        return Ragged._view(parts[0].values[:0], np.zeros(1, dtype=np.int64))
    if view is not None and view[2] == 1:
        block, first, _ = view
        part = parts[block]
        return Ragged._view(part.values, part.offsets[first : first + count + 1])
    values = [part.values for part in parts]
    offsets = [part.offsets for part in parts]
    each = values[0].itemsize * int(np.prod(values[0].shape[1:]))
    sums = np.empty(count + 1, dtype=np.int64)
    column.rows.gather_ragged(values, offsets, each, sums, True)
    out = np.empty((int(sums[-1]), *values[0].shape[1:]), dtype=values[0].dtype)
    column.rows.gather_ragged(values, offsets, each, out, False)
    _count_copy(out.nbytes)
    return Ragged._view(out, sums)


def _objects(column: Column) -> NDArray[Any]:
    parts: list[Any] = column.parts
    count = len(column.rows)
    blocks = np.empty(count, dtype=np.int64)
    rows = np.empty(count, dtype=np.int64)
    column.rows.where(blocks, rows)
    out = np.empty(count, dtype=object)
    for block in column.rows.blocks:
        mine = blocks == block
        out[mine] = parts[block][rows[mine]]
    return out


_READ: dict[str, Any] = {"fixed": _fixed, "ragged": _ragged, "objects": _objects}
