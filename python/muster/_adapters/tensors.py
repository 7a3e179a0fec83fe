"""The tensors of a DataProto, by name."""

from __future__ import annotations

import numpy as np

from muster._adapters.lazy_column import Late, packed, ready, rows, shared, stored, take
from muster._data.column import came_together
from muster._data.remote_array import together
from muster._data.torch_arrays import is_tensor, tensor_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from numpy.typing import NDArray

    Cell = Any  # an array, a tensor, or Late


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
            raise ValueError(f"batch: one batch dimension is needed: {tuple(size)}")
        return cls(dict(value.items()), size[0])

    @classmethod
    def _made(cls, cells: dict[str, Cell], count: int) -> Columns:
        self = cls.__new__(cls)
        self._cells = cells
        self._rows = count
        return self

    @property
    def batch_size(self) -> tuple[int]:
        return (self._rows,)

    @property
    def device(self) -> Any:
        """Of the tensors, if all are on one."""
        found = {str(getattr(c, "device", "cpu")) for c in self._cells.values()}
        return found.pop() if len(found) == 1 else None

    def __len__(self) -> int:
        return self._rows

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
            raise KeyError(f"there is no tensor {name!r}; there are: {known}") from None

    def cells(self) -> dict[str, Cell]:
        """As they are."""
        return self._cells

    def shared(self, name: str) -> Any:
        """A column without a copy; do not write to it: what came with a call lies in
        memory that others read too, and writing there ends the process."""
        return shared(self.cell(name))

    def __getitem__(self, index: Any) -> Any:
        """A column by its name; a row as a dict; rows by a slice, a list or a mask."""
        if isinstance(index, str):
            cell = self.cell(index)
            if isinstance(cell, Late):
                cell = self._cells[index] = ready(cell)
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
            raise ValueError(
                f"tensor {name!r} has {count} rows, the others have {self._rows}"
            )
        self._cells[name] = value

    set = __setitem__

    def __delitem__(self, name: str) -> None:
        self.cell(name)
        del self._cells[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default

    def pop(self, name: str) -> Any:
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
            raise ValueError(f"there is a tensor {new!r} already")
        cells = {new if n == old else n: c for n, c in self._cells.items()}
        self._cells = cells
        return self

    def rows(self, chosen: slice) -> Columns:
        memo: dict[Any, Any] = {}
        cells = {name: rows(c, chosen, memo) for name, c in self._cells.items()}
        return self._made(cells, len(range(self._rows)[chosen]))

    def stored(self, chunks: int) -> Columns:
        """Those of which a chunk would go by name are in the store of this node then."""
        memo: dict[Any, Any] = {}
        with together():
            cells = {n: stored(c, chunks, memo) for n, c in self._cells.items()}
        return self._made(cells, self._rows)

    def take(self, indexes: NDArray[Any]) -> Columns:
        memo: dict[Any, Any] = {}
        cells = {name: take(c, indexes, memo) for name, c in self._cells.items()}
        mask = indexes.dtype == bool
        return self._made(cells, int(indexes.sum()) if mask else len(indexes))

    def copy(self) -> Columns:
        """Of the names; the tensors are the same."""
        return self._made(dict(self._cells), self._rows)

    def clone(self) -> Columns:
        """Of the tensors too."""
        values = {name: shared(cell) for name, cell in self._cells.items()}
        cells = {
            name: value.clone() if is_tensor(value) else value.copy()
            for name, value in values.items()
        }
        return self._made(cells, self._rows)

    def contiguous(self) -> Columns:
        values = dict(self.items())
        cells = {
            name: v.contiguous() if is_tensor(v) else np.ascontiguousarray(v)
            for name, v in values.items()
        }
        return self._made(cells, self._rows)

    def to(self, device: Any) -> Columns:
        """On another device; arrays become tensors there."""
        if str(device) == "cpu":
            moved = {n: c.cpu() if is_tensor(c) else c for n, c in self._cells.items()}
            return self._made(moved, self._rows)
        values = {n: shared(cell) for n, cell in self._cells.items()}
        moved = {
            n: (v if is_tensor(v) else tensor_of(v)).to(device)
            for n, v in values.items()
        }
        return self._made(moved, self._rows)

    def to_dict(self) -> dict[str, Any]:
        return dict(self.items())

    def to_tensordict(self) -> Any:
        """A TensorDict of the same tensors."""
        from tensordict import TensorDict  # type: ignore[import-not-found]

        return TensorDict(self.to_dict(), batch_size=[self._rows])

    def __reduce__(self) -> tuple[Any, ...]:
        memo: dict[Any, Any] = {}
        with together():
            cells = {name: packed(cell, memo) for name, cell in self._cells.items()}
        bare = {
            name: (cell.column, cell.tensor) if isinstance(cell, Late) else cell
            for name, cell in cells.items()
        }
        return _load_columns, (bare, self._rows)

    def __repr__(self) -> str:
        columns = ", ".join(
            f"{name}: {tuple(getattr(c, 'shape', ()))}"
            if not isinstance(c, Late)
            else f"{name}: not read yet"
            for name, c in self._cells.items()
        )
        return f"<{self._rows} rows: {columns or 'no tensors'}>"


def _load_columns(bare: dict[str, Any], count: int) -> Columns:
    """A function by its name: what is bound to a class would travel by value."""
    cells = {
        name: Late(*cell) if isinstance(cell, tuple) else cell
        for name, cell in bare.items()
    }
    came_together(cell.column for cell in cells.values() if isinstance(cell, Late))
    return Columns._made(cells, count)


def _count(name: str, value: Any) -> int:
    if isinstance(value, Late):
        return len(value)
    shape = getattr(value, "shape", None)
    if shape is None:
        raise TypeError(
            f"tensor {name!r}: an array or a tensor is needed, not "
            f"{type(value).__name__}"
        )
    if not len(shape):
        raise ValueError(f"tensor {name!r}: a single number has no rows")
    return int(shape[0])


def indexes_of(index: Any, count: int) -> NDArray[Any]:
    """Whole numbers, or a mask of `count`."""
    if is_tensor(index):
        index = index.detach().cpu().numpy()
    found = np.asarray(index)
    if found.ndim == 0 and found.dtype != bool:
        found = found.reshape(1)
    if found.size == 0 and found.dtype != bool:
        found = found.reshape(-1).astype(np.int64)
    if found.ndim != 1 or found.dtype.kind not in "iub":
        raise IndexError(f"a list of numbers, or a mask, is needed: {index!r}")
    if found.dtype == bool:
        if len(found) != count:
            raise IndexError(f"a mask of {len(found)}: there are {count} rows")
        return found
    found = found.astype(np.int64, copy=False)
    for i in (int(found.min()), int(found.max())) if len(found) else ():
        if not -count <= i < count:
            raise IndexError(f"there is no row {i}: there are {count}")
    return found
