"""One column of a DataProto: an array, a tensor of torch, or a LazyColumn."""

# A LazyColumn has come with a call, or is the results of several ranks. Its bytes lie
# in memory that must not be written, or on another node. It is divided, reordered,
# joined and passed on as it is; a reader gets a tensor of its own, whose pages are
# copied when they are first written.

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster._core import Rows
from muster._data import column as _column
from muster._data.column import Column
from muster._data.column_send import is_worth, sendable
from muster._data.remote_array import can_refer, object_array, private_copy
from muster._data.torch_arrays import (
    array_of,
    is_plain,
    is_tensor,
    tensor_of,
    the_torch,
)

Cell = Any  # an array, a tensor, or a LazyColumn
Memo = dict[Any, tuple[Any, Any]]  # rows that several columns share


class LazyColumn:
    """A column that is put together, or fetched, when it is read."""

    # `tensor`: as a tensor of torch, else as an array.

    __slots__ = ("_read", "column", "tensor")

    def __init__(self, column: Column, tensor: bool) -> None:
        self.column = column
        self.tensor = tensor
        self._read: Any = None  # what a reader got, who may have written to it

    def __len__(self) -> int:
        return len(self.column)

    def read(self) -> Any:
        """The values; a tensor, objects, and what is in our memory may be written."""
        # All who share this cell, and slices from then on, see what is written.
        if self._read is None:
            array: Any = self.column.read()
            if self._is_ours():
                array.flags.writeable = True
            elif self.tensor:
                array = private_copy(array)
            self._read = tensor_of(array) if self.tensor else array
        return self._read

    def _is_ours(self) -> bool:
        """Reading has put it together, or the memory may be written."""
        column = self.column
        if column.kind == "objects" or not column.is_view:
            return True
        part: Any = column.parts[0]
        whole = len(column.parts) == 1 and column.rows.view == (0, 0, 1)
        if not whole or len(part) != len(column) or not isinstance(part, np.ndarray):
            return False
        return part.flags.writeable

    def shared(self) -> Any:
        """The same in this very memory: it must not be written."""
        if self._read is not None:
            return self._read
        array: Any = self.column.read()
        return tensor_of(array) if self.tensor else array

    def with_rows(
        self, key: Any, memo: Memo, make: Callable[[Rows], Rows]
    ) -> LazyColumn:
        """Other rows of it; `memo` has those that were made for other columns."""
        mine = self.column.rows
        full = (id(mine), key)
        if full not in memo:
            chosen = _column.choose(make(mine), len(self.column.parts))
            memo[full] = (chosen, mine)  # held, so that no other has its id
        return LazyColumn(self.column.with_rows(memo[full][0]), self.tensor)

    def __reduce__(self) -> tuple[Any, ...]:
        return LazyColumn, (_sent(self.now(), {}), self.tensor)

    def now(self) -> Column:
        """With what its reader has written."""
        if self._read is None:
            return self.column
        array = array_of(self._read) if self.tensor else self._read
        return Column.of(_column.with_whole_rows(array))


def _sent(column: Column, memo: Memo) -> Column:
    if can_refer():
        return sendable(column, memo)
    whole: Any = column.bare()
    if whole.dtype != object:
        whole = np.ascontiguousarray(whole)
    return Column.of(whole)


def packed(cell: Cell, memo: Memo) -> Cell:
    """As it is sent: the bytes are beside the pickle, or stay in the store."""
    if isinstance(cell, LazyColumn):
        return LazyColumn(_sent(cell.now(), memo), cell.tensor)
    if is_tensor(cell) and is_plain(cell):
        return LazyColumn(_sent(Column.of(array_of(cell.contiguous())), memo), True)
    if not isinstance(cell, np.ndarray):
        return cell  # as torch does it, or muster refuses it
    objects = cell.dtype == object
    if cell.dtype.hasobject and not (objects and cell.ndim == 1 and can_refer()):
        return cell
    if not can_refer():
        return np.ascontiguousarray(cell)
    part = cell if objects else _column.with_whole_rows(cell)
    return LazyColumn(_sent(Column.of(part), memo), False)


def stored(cell: Cell, chunks: int, memo: Memo) -> Cell:
    """In the store of this node, if a chunk of it would go there."""
    lazy = _lazy(cell)
    if lazy is None or not is_worth(lazy.column, chunks):
        return cell
    return LazyColumn(sendable(lazy.column, memo), lazy.tensor)


# ---- one column -----------------------------------------------------------------------


def read(cell: Cell) -> Any:
    return cell.read() if isinstance(cell, LazyColumn) else cell


def shared(cell: Cell) -> Any:
    """The same, that may be memory which must not be written."""
    return cell.shared() if isinstance(cell, LazyColumn) else cell


def _unread(cell: Cell) -> bool:
    return isinstance(cell, LazyColumn) and cell._read is None


def rows(cell: Cell, chosen: slice, memo: Memo) -> Cell:
    """A view, unless the rows of a tensor are taken backwards."""
    if _unread(cell):
        where = _column.slice_of(chosen, len(cell))
        return cell.with_rows(where, memo, lambda r: r.slice(*where))
    values = read(cell)
    if is_tensor(values) and (chosen.step or 1) < 0:
        return take(values, np.arange(len(values))[chosen], memo)
    return values[chosen]


def take(cell: Cell, indexes: NDArray[Any], memo: Memo) -> Cell:
    """The rows of these indexes, or of a mask; a copy, or LazyColumn."""
    if _unread(cell):
        found = np.flatnonzero(indexes) if indexes.dtype == bool else indexes
        found = np.ascontiguousarray(found, dtype=np.int64)
        return cell.with_rows(id(indexes), memo, lambda r: r.take(found))
    values = shared(cell)
    if is_tensor(values):
        return values[the_torch().from_numpy(np.ascontiguousarray(indexes))]
    return values[indexes]


def repeat(
    cell: Cell, times: int | NDArray[np.int64], interleave: bool, memo: Memo
) -> Cell:
    """Each row several times, or all rows; `times` may be a number for each row."""
    if _unread(cell) and isinstance(times, int):
        key = ("repeat", times, interleave)
        return cell.with_rows(key, memo, lambda r: r.repeat(times, interleave))
    if _unread(cell):
        each = np.repeat(np.arange(len(cell)), times)
        return cell.with_rows(("repeat", id(times)), memo, lambda r: r.take(each))
    if not interleave:
        zero = slice(0, 0)
        return join([cell] * int(times), memo) if times else rows(cell, zero, memo)
    values = shared(cell)
    if is_tensor(values):
        how = times if isinstance(times, int) else the_torch().from_numpy(times)
        return values.repeat_interleave(how, dim=0)
    return np.repeat(values, times, axis=0)


def join(cells: list[Cell], memo: Memo) -> Cell:
    """One after another, in new memory; of unread ones: a LazyColumn."""
    whole = _joined(cells, memo) if all(map(_unread, cells)) else None
    if whole is not None:
        return whole
    values = [shared(cell) for cell in cells]
    if all(map(is_tensor, values)):
        return the_torch().cat(values, dim=0)
    if any(map(is_tensor, values)):
        raise TypeError("it is a tensor in one and an array in another")
    return np.concatenate(values)


def join_later(cells: list[Cell], memo: Memo) -> Cell:
    """The same, put together when it is read, if nothing has to be changed for that."""
    lazy = [_lazy(cell) for cell in cells]
    whole = None if None in lazy else _joined(lazy, memo)
    return join(cells, memo) if whole is None else whole


def _lazy(cell: Cell) -> LazyColumn | None:
    """In the same memory; None if that is not possible."""
    if isinstance(cell, LazyColumn):
        return LazyColumn(cell.now(), cell.tensor)
    if is_tensor(cell):
        if not is_plain(cell) or cell.requires_grad:
            return None
        return LazyColumn(Column.of(_column.with_whole_rows(array_of(cell))), True)
    if not isinstance(cell, np.ndarray) or (cell.dtype.hasobject and cell.ndim != 1):
        return None
    part = cell if cell.dtype == object else _column.with_whole_rows(cell)
    return LazyColumn(Column.of(part), False)


def _joined(cells: list[Any], memo: Memo) -> LazyColumn | None:
    """None: they are of several kinds, and joining would change some."""
    if len({(cell.tensor, *cell.column.describe()) for cell in cells}) > 1:
        return None
    columns = [cell.column for cell in cells]
    return LazyColumn(_column.join(columns, memo), cells[0].tensor)


def as_column(name: str, cell: Cell) -> Column:
    """A column of a Batch in the same memory."""
    if isinstance(cell, LazyColumn):
        return cell.now()
    if isinstance(cell, np.ndarray) and cell.dtype == object and cell.ndim > 1:
        cell = object_array(cell)
    return Column.of(_column.part_of(name, cell))
