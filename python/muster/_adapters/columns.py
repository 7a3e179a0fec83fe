"""The columns of a DataProto by name, some of which may not have been read yet."""

# `batch` is a Columns, `non_tensor_batch` a dict, which is a LazyDict where a column of
# it was not read yet.

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from muster._adapters import lazy_column
from muster._adapters.checks import NoSuchKey, WrongValue
from muster._adapters.lazy_column import Cell, LazyColumn, Memo, read, shared
from muster._data.batch_parts import indexes_of
from muster._data.column import came_together
from muster._data.remote_array import together
from muster._data.torch_arrays import is_tensor, tensor_of

_NOTHING: Any = object()

# ---- a dict ---------------------------------------------------------------------------


class LazyDict(dict[str, "Any"]):
    """A dict whose values are read when they are asked for."""

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if isinstance(value, LazyColumn):
            value = self[name] = read(value)
        return value

    def __iter__(self) -> Iterator[str]:
        """Its own, so that dict(x) and {**x} ask for the values, as all others do."""
        return iter(self.keys())

    def cells(self) -> dict[str, Cell]:
        """As they are, read or not."""
        return {name: super(LazyDict, self).__getitem__(name) for name in self.keys()}

    get: Any = MutableMapping.get
    pop: Any = MutableMapping.pop
    setdefault: Any = MutableMapping.setdefault

    def values(self) -> Any:
        return [self[name] for name in self.keys()]

    def items(self) -> Any:
        return [(name, self[name]) for name in self.keys()]

    def popitem(self) -> tuple[str, Any]:
        name, value = super().popitem()
        return name, read(value)

    def copy(self) -> Self:
        return type(self)(self.cells())

    def __or__(self, other: Any) -> Any:
        return dict(self) | other

    def __ror__(self, other: Any) -> Any:
        return other | dict(self)

    def __eq__(self, other: object) -> bool:
        return dict(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return as_dict, (packed_cells(self.cells()),)


def as_dict(cells: dict[str, Cell]) -> dict[str, Any]:
    """A LazyDict where one is needed."""
    if any(isinstance(cell, LazyColumn) for cell in cells.values()):
        return LazyDict(cells)
    return cells


def cells_of(columns: dict[str, Any] | Columns | None) -> dict[str, Cell]:
    if isinstance(columns, (LazyDict, Columns)):
        return columns.cells()
    return columns or {}


def packed_cells(cells: dict[str, Cell]) -> dict[str, Cell]:
    memo: Memo = {}
    with together():
        return {name: lazy_column.packed(cell, memo) for name, cell in cells.items()}


# ---- tensors --------------------------------------------------------------------------


class Columns:
    """Tensors by name, all with the same rows: what `DataProto.batch` is. It has those
    methods of a TensorDict that are used there; `len` and iteration are over rows."""

    __slots__ = ("_cells", "_rows")

    def __init__(self, columns: Mapping[str, Any] | None = None, rows: int = -1):
        self._cells: dict[str, Cell] = {}
        self._rows = rows
        for name, value in (columns or {}).items():
            self[name] = value
        self._rows = max(self._rows, 0)

    @classmethod
    def of(cls, value: Any) -> Columns:
        """From a dict or a TensorDict."""
        if isinstance(value, Columns):
            return value
        size = getattr(value, "batch_size", None)
        if size is None:
            return cls(value)
        if len(size) != 1:
            raise WrongValue(f"batch: one batch dimension is needed: {tuple(size)}")
        return cls(dict(value.items()), size[0])

    @classmethod
    def _made(cls, cells: dict[str, Cell], count: int) -> Columns:
        self = cls.__new__(cls)
        self._cells = cells
        self._rows = count
        return self

    def each(self, change: Callable[[Cell], Cell], count: int = -1) -> Columns:
        """Of the same names; `count`: how many rows they have then."""
        cells = {name: change(cell) for name, cell in self._cells.items()}
        same = count < 0 or self.is_open()
        return self._made(cells, self._rows if same else count)

    @property
    def batch_size(self) -> tuple[int, ...]:
        """A torch.Size where torch is in use."""
        torch = sys.modules.get("torch")
        size = (len(self),)
        return size if torch is None else torch.Size(size)

    shape = batch_size

    @property
    def device(self) -> Any:
        """Of the tensors, if all are on one."""
        found = {str(getattr(c, "device", "cpu")) for c in self._cells.values()}
        return found.pop() if len(found) == 1 else None

    def __len__(self) -> int:
        return max(self._rows, 0)

    def is_open(self) -> bool:
        """There is no column yet: the first one says how many rows there are."""
        return self._rows < 0

    @classmethod
    def open(cls) -> Columns:
        return cls._made({}, -1)

    def __contains__(self, name: object) -> bool:
        return name in self._cells

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[i] for i in range(self._rows))

    def keys(self) -> Iterable[str]:
        return self._cells.keys()

    def values(self) -> list[Any]:
        return [self[name] for name in self._cells]

    def items(self) -> list[tuple[str, Any]]:
        return [(name, self[name]) for name in self._cells]

    def cell(self, name: str) -> Cell:
        try:
            return self._cells[name]
        except KeyError:
            known = ", ".join(self._cells) or "none"
            raise NoSuchKey(
                f"there is no tensor {name!r}; there are: {known}"
            ) from None

    def cells(self) -> dict[str, Cell]:
        return self._cells

    def shared(self, name: str) -> Any:
        """A column without a copy; do not write to it: what came with a call lies in
        memory that others read too, and writing there ends the process."""
        return shared(self.cell(name))

    def __getitem__(self, index: Any) -> Any:
        """A column by its name; a row as a dict; rows by a slice, a list or a mask."""
        if isinstance(index, str):
            cell = self.cell(index)
            if isinstance(cell, LazyColumn):
                cell = self._cells[index] = read(cell)
            return cell
        if isinstance(index, slice):
            return self.rows(index)
        if isinstance(index, (int, np.integer)):
            return {name: value[index] for name, value in self.items()}
        return self.take(indexes_of(index, self._rows))

    def __setitem__(self, name: str, value: Any) -> None:
        if isinstance(value, (list, tuple)):
            raise TypeError(f"tensor {name!r}: an array or a tensor is needed")
        count = _count(name, value)
        if self._rows < 0:
            self._rows = count
        if count != self._rows:
            raise WrongValue(
                f"tensor {name!r} has {count} rows, the others have {self._rows}"
            )
        self._cells[name] = value

    set = __setitem__

    def __delitem__(self, name: str) -> None:
        self.cell(name)
        del self._cells[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default

    def pop(self, name: str, default: Any = _NOTHING) -> Any:
        if default is not _NOTHING and name not in self:
            return default
        value = self[name]
        del self._cells[name]
        return value

    def update(self, other: Any) -> None:
        for name, value in Columns.of(other)._cells.items():
            self[name] = value

    def select(self, *names: str) -> Columns:
        return self._made({name: self.cell(name) for name in names}, self._rows)

    def rename_key_(self, old: str, new: str) -> Columns:
        self.cell(old)
        if new in self and new != old:
            raise WrongValue(f"there is a tensor {new!r} already")
        self._cells = {new if n == old else n: c for n, c in self._cells.items()}
        return self

    def rows(self, chosen: slice) -> Columns:
        memo: Memo = {}
        count = len(range(self._rows)[chosen])
        return self.each(lambda cell: lazy_column.rows(cell, chosen, memo), count)

    def take(self, indexes: NDArray[Any]) -> Columns:
        memo: Memo = {}
        count = int(indexes.sum()) if indexes.dtype == bool else len(indexes)
        return self.each(lambda cell: lazy_column.take(cell, indexes, memo), count)

    def stored(self, chunks: int) -> Columns:
        """Those of which a chunk would go by name are in the store of this node then."""
        memo: Memo = {}
        with together():
            return self.each(lambda cell: lazy_column.stored(cell, chunks, memo))

    def copy(self) -> Columns:
        """Of the names; the tensors are the same."""
        return self._made(dict(self._cells), self._rows)

    def clone(self) -> Columns:
        """Of the tensors too."""

        def copied(cell: Cell) -> Any:
            value = shared(cell)
            return value.clone() if is_tensor(value) else value.copy()

        return self.each(copied)

    def contiguous(self) -> Columns:
        def made(cell: Cell) -> Any:
            v = read(cell)
            return v.contiguous() if is_tensor(v) else np.ascontiguousarray(v)

        return self.each(made)

    def to(self, device: Any) -> Columns:
        """On another device; arrays become tensors there."""

        def moved(cell: Cell) -> Any:
            if str(device) == "cpu":
                return cell.cpu() if is_tensor(cell) else cell
            value = shared(cell)
            return (value if is_tensor(value) else tensor_of(value)).to(device)

        return self.each(moved)

    def to_dict(self) -> dict[str, Any]:
        return dict(self.items())  # not of itself: iteration is over rows

    def to_tensordict(self) -> Any:
        from tensordict import TensorDict  # type: ignore[import-not-found]

        return TensorDict(self.to_dict(), batch_size=[len(self)])

    def __reduce__(self) -> tuple[Any, ...]:
        bare = {
            name: (cell.column, cell.tensor) if isinstance(cell, LazyColumn) else cell
            for name, cell in packed_cells(self._cells).items()
        }
        return _load_columns, (bare, self._rows)

    def __repr__(self) -> str:
        def shape(cell: Cell) -> Any:
            is_lazy = isinstance(cell, LazyColumn)
            return "not read yet" if is_lazy else tuple(getattr(cell, "shape", ()))

        columns = ", ".join(f"{name}: {shape(c)}" for name, c in self._cells.items())
        return f"<{len(self)} rows: {columns or 'no tensors'}>"


MutableMapping.register(Columns)  # as a TensorDict is; its len is that of rows too


def _load_columns(bare: dict[str, Any], count: int) -> Columns:
    """A function by its name: what is bound to a class would travel by value."""
    cells = {
        name: LazyColumn(*cell) if isinstance(cell, tuple) else cell
        for name, cell in bare.items()
    }
    came_together(c.column for c in cells.values() if isinstance(c, LazyColumn))
    return Columns._made(cells, count)


def _count(name: str, value: Any) -> int:
    if isinstance(value, LazyColumn):
        return len(value)
    shape = getattr(value, "shape", None)
    if shape is None:
        raise TypeError(
            f"tensor {name!r}: an array or a tensor is needed, not "
            f"{type(value).__name__}"
        )
    if not len(shape):
        raise WrongValue(f"tensor {name!r}: a single number has no rows")
    return int(shape[0])
