"""One column of a batch: parts that are never changed, and which of their rows."""

# A part may be remote: in a store, and not read yet. Dividing, joining and sending a
# column reads none of it; reading it reads those parts that its rows are in.

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster._core import Rows, spare_new
from muster._data import remote_array
from muster._data.remote_array import RemoteArray, RemoteObjects, object_array, read
from muster._data.torch_arrays import array_of, dtype_of, is_tensor, name_of
from muster.ragged import Ragged

Part = NDArray[Any] | Ragged | RemoteArray | RemoteObjects
Whole = NDArray[Any] | Ragged
Memo = dict[Any, tuple[Rows, Any]]  # rows that several columns share
Chosen = tuple[Rows, list[int] | None]  # rows, and the parts they are of; None: all

copied = 0  # bytes of payload that were gathered in this process


def part_of(name: str, value: Any) -> Part:
    """What a column is made of: an array with rows, Ragged, or an array of objects."""
    if isinstance(value, (RemoteArray, RemoteObjects)):
        return value
    if isinstance(value, Ragged):
        return _checked_ragged(name, value)
    if is_tensor(value):
        try:
            value = array_of(value)
        except TypeError as e:
            raise TypeError(f"column {name!r}: {e}") from None
    if isinstance(value, np.ndarray) and value.dtype != object:
        if value.ndim == 0:
            raise ValueError(f"column {name!r}: a single number has no rows")
        return with_whole_rows(_checked(name, value))
    if isinstance(value, np.ndarray) and value.ndim != 1:
        raise ValueError(f"column {name!r}: objects have one dimension: {value.shape}")
    if not isinstance(value, (list, tuple, np.ndarray)):
        raise TypeError(
            f"column {name!r}: an array, a tensor, muster.Ragged or a list is needed, "
            f"not {type(value).__name__}"
        )
    return object_array(value)


def _checked(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Numbers that others than numpy know too."""
    if array.dtype.hasobject:
        raise TypeError(
            f"column {name!r}: {array.dtype} has objects in it: give each field a column"
        )
    if array.dtype.kind == "V" and not array.dtype.names:  # of ml_dtypes, or raw bytes
        with suppress(TypeError):
            known = dtype_of(array.dtype.name)
            return array if known.names is None else array.view(known)
    return array


def _checked_ragged(name: str, ragged: Ragged) -> Ragged:
    values = ragged._values
    if isinstance(values, RemoteArray):
        return ragged
    checked = _checked(name, values)
    return ragged if checked is values else Ragged._view(checked, ragged.offsets)


def with_whole_rows(array: NDArray[Any]) -> NDArray[Any]:
    """Rows that are contiguous themselves; a copy only where they are not."""
    if array.ndim and array.strides[0] >= 0 and array[:1].flags.c_contiguous:
        return array
    return np.ascontiguousarray(array)


def slice_of(chosen: slice, count: int) -> tuple[int, int, int]:
    """(first, count, step) of a slice of so many rows."""
    found = range(count)[chosen]
    if len(found) < 2:  # its step may be any number, and means nothing
        return (found[0] if found else 0), len(found), 1
    return found.start, len(found), found.step


def choose(rows: Rows, parts: int) -> Chosen:
    """These rows of a column of so many parts."""
    # With fewer rows than parts, only those parts stay that have rows: so what is done
    # with a few rows costs as much as they are, however many parts were put together
    # before.
    if parts <= max(len(rows), 1):
        return rows, None
    packed, blocks = rows.packed()
    return packed, blocks or [0]  # of no rows the first part, which says of what kind


class Column:
    """Rows of parts that are all of one kind."""

    __slots__ = ("_whole", "parts", "rows")

    def __init__(self, parts: list[Part], rows: Rows) -> None:
        self.parts = parts
        self.rows = rows
        self._whole: Whole | None = None

    @classmethod
    def of(cls, part: Part) -> Column:
        return cls([part], Rows(len(part)))

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

    @property
    def is_here(self) -> bool:
        """Reading it moves nothing between nodes, for that was done."""
        if self._whole is not None:
            return True
        return all(is_here(self.parts[block]) for block in self.used())

    def used(self) -> set[int]:
        """The indexes of the parts that its rows are in."""
        return {block for block, *_ in self.rows.spans(len(self.parts))}

    def with_rows(self, chosen: Chosen) -> Column:
        rows, blocks = chosen
        return Column([self.parts[b] for b in blocks] if blocks else self.parts, rows)

    def read(self) -> Whole:
        """All rows together: a view where they are one run, else a copy, made once."""
        if self._whole is None:
            whole = _READ[self.kind](fetched(self))
            if isinstance(whole, Ragged):
                whole.offsets.flags.writeable = False
            values = whole.values if isinstance(whole, Ragged) else whole
            values.flags.writeable = False
            self._whole = whole
        return self._whole

    def bare(self) -> Whole:
        """As `read`, but may be written where its part may."""
        if self._whole is not None and not self.is_view:
            return self._whole
        whole: Whole = _READ[self.kind](fetched(self))
        return whole

    def lengths(self) -> NDArray[np.int64]:
        """Of the rows of a ragged column; its values are not read."""
        parts: list[Any] = self.parts
        each = [np.diff(part.offsets) for part in parts]
        count = len(self.rows)
        out = np.empty(count, dtype=np.int64)
        if count:
            self.rows.gather(each, out.itemsize, out)
        return out

    @property
    def nbytes(self) -> int:
        part = self.parts[0]
        if isinstance(part, Ragged):
            each = part.dtype.itemsize * prod(part.element_shape)
            return int(self.lengths().sum()) * each
        if part.dtype == object:
            return 0
        return len(self) * part.dtype.itemsize * prod(part.shape[1:])

    def __reduce__(self) -> tuple[Any, ...]:
        return Column, (self.parts, self.rows)

    def describe(self) -> tuple[Any, ...]:
        """What must be equal in columns that are put together."""
        part = self.parts[0]
        if isinstance(part, Ragged):
            return "ragged", name_of(part.dtype), part.element_shape
        if part.dtype == object:
            return ("objects",)
        return "fixed", name_of(part.dtype), part.shape[1:]


def is_here(part: Part) -> bool:
    values = _values(part)
    return not isinstance(values, (RemoteArray, RemoteObjects)) or values.is_here


def join(columns: Sequence[Column], memo: Memo) -> Column:
    """One column after the other."""
    # Parts that several have are there once; `memo` lets columns with the same rows
    # share them.
    whole = _adjacent(columns)
    if whole is not None:
        return Column.of(whole)
    parts: list[Part] = []
    at: dict[Any, int] = {}
    blocks: list[list[int]] = []
    for column in columns:
        mine = []
        for part in column.parts:
            key = part.key if isinstance(part, RemoteArray) else id(part)
            if key not in at:
                at[key] = len(parts)
                parts.append(part)
            mine.append(at[key])
        blocks.append(mine)
    key = tuple((id(c.rows), *b) for c, b in zip(columns, blocks, strict=True))
    if key not in memo:
        pairs = [(c.rows, b) for c, b in zip(columns, blocks, strict=True)]
        memo[key] = (Rows.concat(pairs), pairs)  # held, so that no other has their ids
    return Column(parts, memo[key][0])


def _adjacent(columns: Sequence[Column]) -> Part | None:
    """All rows as one part, if they lie one after another in one object of a store."""
    parts = [column.parts[0] for column in columns]
    for column, part in zip(columns, parts, strict=True):
        if len(column.parts) > 1 or not len(part) or len(part) != len(column):
            return None
        if column.rows.view != (0, 0, 1) or not isinstance(_values(part), RemoteArray):
            return None
    if isinstance(parts[0], Ragged):
        return _adjacent_ragged(parts)
    return remote_array.joined(parts)


def _adjacent_ragged(parts: list[Any]) -> Ragged | None:
    first = parts[0]
    for before, part in itertools.pairwise(parts):
        if part._values.key != first._values.key:
            return None
        if part.offsets[0] != before.offsets[-1]:
            return None
    offsets = [first.offsets, *(part.offsets[1:] for part in parts[1:])]
    return Ragged._view(first._values, np.concatenate(offsets))


# ---- reading --------------------------------------------------------------------------


def _count_copy(nbytes: int) -> None:
    global copied
    copied += nbytes


def _read_part(part: Any) -> Any:
    return part.read() if isinstance(part, (RemoteArray, RemoteObjects)) else part


def _used(column: Column, none: Any) -> list[Any]:
    """The parts that its rows are in, as arrays; `none` in the place of the others."""
    used = column.used()
    return [_read_part(p) if i in used else none for i, p in enumerate(column.parts)]


def _values(part: Part) -> Any:
    return part._values if isinstance(part, Ragged) else part


def came_together(columns: Iterable[Column]) -> None:
    """They are of one batch, which has arrived."""
    parts = (_values(part) for column in columns for part in column.parts)
    remote_array.came_together(part for part in parts if isinstance(part, RemoteArray))


def fetched(column: Column) -> Column:
    """The same rows, of parts whose bytes are in this process."""
    # Of a part that is on another node perhaps only those rows come that are meant, and
    # what is between them.
    spans = [
        span
        for span in column.rows.spans(len(column.parts))
        if isinstance(_values(column.parts[span[0]]), RemoteArray)
    ]
    got = read([_range(column.parts[block], a, b) for block, a, b, _ in spans])
    parts = list(column.parts)
    to = [(block, 0) for block in range(len(parts))]
    is_less = False
    for (block, first, end, _), values in zip(spans, got, strict=True):
        part = parts[block]
        if values is _values(part):
            continue
        if isinstance(part, Ragged):
            offsets = part.offsets[first : end + 1]
            parts[block] = Ragged._view(values, offsets - offsets[0])
        else:
            parts[block] = values
        to[block] = (block, first)
        is_less = True
    return Column(parts, column.rows.moved(to)) if is_less else column


def _range(part: Part, first: int, end: int) -> tuple[Any, int, int]:
    if isinstance(part, Ragged):
        return part._values, int(part.offsets[first]), int(part.offsets[end])
    return part, first, end


def _room(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array to be written; a big one in memory that is used again later."""
    memory = spare_new(int(prod(shape)) * dtype.itemsize)
    if memory is None:
        return np.empty(shape, dtype=dtype)
    return np.ndarray(shape, dtype=dtype, buffer=memory)


def _fixed(column: Column) -> NDArray[Any]:
    first: Any = column.parts[0]
    count = len(column.rows)
    view = column.rows.view
    none: NDArray[Any] = np.empty((0, *first.shape[1:]), dtype=first.dtype)
    if count == 0:
        return none
    if view is not None:
        return _strided(_read_part(column.parts[view[0]]), view[1], count, view[2])
    out = _room((count, *first.shape[1:]), first.dtype)
    if out.nbytes:
        gather_fixed(column, out)
    return out


def gather_fixed(column: Column, out: NDArray[Any]) -> None:
    none: NDArray[Any] = np.empty((0, *out.shape[1:]), dtype=out.dtype)
    parts = [_bits(part) for part in _used(column, none)]
    column.rows.gather(parts, out.nbytes // len(out), _bits(out))
    _count_copy(out.nbytes)


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    """Dates have no buffers of their own."""
    return array.view(np.int64) if array.dtype.kind in "mM" else array


def _strided(part: NDArray[Any], first: int, count: int, step: int) -> NDArray[Any]:
    if step == 0:  # of one row, not of a number: that may be of another type
        return np.broadcast_to(part[first : first + 1], (count, *part.shape[1:]))
    end = first + step * count
    run: NDArray[Any] = part[first : end if end >= 0 else None : step]
    return run


def _ragged(column: Column) -> Ragged:
    parts: list[Any] = column.parts
    count = len(column.rows)
    view = column.rows.view
    if count == 0:
        none: NDArray[Any] = np.empty((0, *parts[0].element_shape), parts[0].dtype)
        return Ragged._view(none, np.zeros(1, dtype=np.int64))
    if view is not None and view[2] == 1:
        block, first, _ = view
        part = parts[block]
        return Ragged._view(part.values, part.offsets[first : first + count + 1])
    sums = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(column.lengths(), out=sums[1:])
    out = _room((int(sums[-1]), *parts[0].element_shape), parts[0].dtype)
    if out.nbytes:
        gather_ragged(column, out)
    return Ragged._view(out, sums)


def gather_ragged(column: Column, out: NDArray[Any]) -> None:
    none: NDArray[Any] = np.empty((0, *out.shape[1:]), dtype=out.dtype)
    used = column.used()
    values, offsets = [], []
    for i, part in enumerate(column.parts):
        assert isinstance(part, Ragged)
        values.append(_bits(part.values if i in used else none))
        offsets.append(part.offsets if i in used else np.zeros(1, dtype=np.int64))
    each = out.itemsize * prod(out.shape[1:])
    column.rows.gather_ragged(values, offsets, each, _bits(out), False)
    _count_copy(out.nbytes)


def _objects(column: Column) -> NDArray[Any]:
    parts = _used(column, np.empty(0, dtype=object))
    count = len(column.rows)
    blocks = np.empty(count, dtype=np.int64)
    rows = np.empty(count, dtype=np.int64)
    column.rows.where(blocks, rows)
    out = np.empty(count, dtype=object)
    order = np.argsort(blocks, kind="stable")
    used = [block for block, *_ in column.rows.spans(len(column.parts))]
    begin = 0
    for block, end in zip(
        used, np.searchsorted(blocks, used, side="right", sorter=order), strict=True
    ):
        mine = order[begin:end]
        out[mine] = parts[block][rows[mine]]
        begin = end
    return out


_READ: dict[str, Any] = {"fixed": _fixed, "ragged": _ragged, "objects": _objects}
