"""Batch: columns with the same rows, and what belongs to all of them.

Operations on rows (chunk, slice, reorder, repeat, concat, ...) give new batches over the
same memory: they copy indexes, never payload. Reading a column gives a view of it where
its rows are one run, else they are put together then, once. What is read is read-only.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from muster import _core
from muster._core import Rows
from muster._data import column as _column
from muster._data.batch_parts import (
    METRICS,
    check_name,
    check_names,
    copied,
    dtype_named,
    equal,
    even_slices,
    indexes_of,
    merged,
    ragged_room,
    same,
    text_of,
    written,
)
from muster._data.column import Column, part_of
from muster._data.column_send import is_worth, sendable
from muster._data.remote_array import RemoteArray, RemoteObjects, can_refer, together
from muster._data.store import empty
from muster._data.torch_arrays import has_tensors, tensor_of
from muster.ragged import Ragged

_MAGIC = b"muster-batch-1\n"


def copied_bytes() -> int:
    """How many bytes of payload batches of this process have put together so far."""
    return _column.copied


class Batch:
    """Rows with columns.

    columns: by name, an array or a CPU tensor whose first dimension are the rows, a
    muster.Ragged, or a list of any objects. meta: what belongs to the batch as a whole;
    every new batch has a copy of its own.
    """

    def __init__(
        self,
        columns: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        self._columns: dict[str, Column] = {}
        self._count = 0
        self.meta: dict[str, Any] = dict(meta or {})
        rows: Rows | None = None
        for name, value in (columns or {}).items():
            part = part_of(check_name(name), value)
            if rows is None:
                rows = Rows(len(part))
                self._count = len(part)
            self._check_count(name, len(part))
            self._columns[name] = Column([part], rows)

    @classmethod
    def _of(cls, columns: dict[str, Column], count: int, meta: dict[str, Any]) -> Self:
        self = cls.__new__(cls)
        self._columns = columns
        self._count = count
        self.meta = copy.deepcopy(meta)
        return self

    @classmethod
    def allocate(
        cls,
        rows: int,
        columns: Mapping[str, Any] | None = None,
        ragged: Mapping[str, tuple[ArrayLike, Any]] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Self:
        """Room in the store of this node, not initialised: `write(name)` gives a column to
        be filled, and a later send copies nothing.

        columns: by name the type of a number, or (shape of a row, type). ragged: by name
        (length of each row, type). Types are numpy's, torch's, or their names.
        """
        if rows < 0:
            raise ValueError(f"rows: must not be negative: {rows}")
        both = sorted((columns or {}).keys() & (ragged or {}).keys())
        if both:
            raise ValueError(f"column {both[0]!r} is both fixed and ragged")
        made: dict[str, Any] = {}
        for name, column in (columns or {}).items():
            shape, kind = column if isinstance(column, tuple) else ((), column)
            made[name] = empty((rows, *shape), dtype_named(name, kind))
        for name, (lengths, kind) in (ragged or {}).items():
            made[name] = ragged_room(name, rows, lengths, dtype_named(name, kind))
        return cls(made, meta)

    def write(self, name: str) -> NDArray[Any] | Ragged:
        """A column of an allocated batch, to be filled; of a ragged one its `values`. Do
        not write any more once it was sent."""
        column = self._column(name)
        part = column.parts[0]
        array = part.values if isinstance(part, Ragged) else part
        whole = len(column.parts) == 1 and len(column) == len(part)
        in_order = len(column) == 0 or column.rows.view == (0, 0, 1)
        mine = isinstance(array, np.ndarray) and array.flags.writeable
        if not (whole and in_order and mine):
            raise ValueError(
                f"column {name!r} cannot be written: that is for batches of "
                "Batch.allocate, before they are divided; assign a new column instead"
            )
        assert not isinstance(array, (RemoteArray, RemoteObjects))
        return part if isinstance(part, Ragged) else array

    def _check_count(self, name: str, count: int) -> None:
        if count != self._count:
            raise ValueError(
                f"column {name!r} has {count} rows, the others have {self._count}"
            )

    # ---- columns ----------------------------------------------------------------------

    def __len__(self) -> int:
        return self._count

    def keys(self) -> list[str]:
        return list(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def _column(self, name: str) -> Column:
        try:
            return self._columns[name]
        except KeyError:
            known = ", ".join(self._columns) or "none"
            raise KeyError(f"there is no column {name!r}; there are: {known}") from None

    def read(self, name: str) -> NDArray[Any] | Ragged:
        """A column: an array, Ragged, or an array of objects; read-only."""
        return self._column(name).read()

    def torch(self, name: str, *, write: bool = False) -> Any:
        """A fixed column as a tensor that shares its memory: do not write to it, unless it
        is one that `write` gives. Of rows that run backwards it is a copy."""
        array = self.write(name) if write else self.read(name)
        if isinstance(array, Ragged) or not has_tensors(array.dtype):
            kind = " ".join(map(str, self._column(name).describe()))
            raise TypeError(f"column {name!r} is no tensor: {kind}")
        return tensor_of(array)

    def kind(self, name: str) -> str:
        """ "fixed", "ragged" or "objects"."""
        return self._column(name).kind

    def is_view(self, name: str) -> bool:
        """Whether reading this column copies nothing."""
        return self._column(name).is_view

    def is_here(self, name: str) -> bool:
        """Whether its bytes are mapped already; False: reading it maps them, or fetches
        them from their node."""
        return self._column(name).is_here

    def lengths(self, name: str) -> NDArray[np.int64]:
        """Of each row of a ragged column, whose values are not read for that."""
        if self.kind(name) != "ragged":
            raise TypeError(f"column {name!r} is not ragged")
        return self._column(name).lengths()

    def __setitem__(self, name: str, value: Any) -> None:
        """Add a column, or put another in its place."""
        part = part_of(check_name(name), value)
        if not self._columns and not self._count:
            self._count = len(part)
        self._check_count(name, len(part))
        self._columns[name] = Column([part], Rows(len(part)))

    def __delitem__(self, name: str) -> None:
        self._column(name)
        del self._columns[name]

    def select(
        self, keys: Iterable[str] | None = None, meta_keys: Iterable[str] | None = None
    ) -> Self:
        """Only these columns, and this meta information; None: all of it."""
        names = self.keys() if keys is None else check_names("select", keys)
        chosen = {name: self._column(name) for name in names}
        meta = self.meta
        if meta_keys is not None:
            meta = {key: self._meta(key) for key in meta_keys}
        return self._of(chosen, self._count, meta)

    def _meta(self, key: str) -> Any:
        if key not in self.meta:
            raise KeyError(f"there is no meta information {key!r}")
        return self.meta[key]

    def pop(
        self, keys: Iterable[str] = (), meta_keys: Iterable[str] | None = ()
    ) -> Self:
        """Take these columns, and this meta information, out; a batch of them."""
        taken = self.select(check_names("pop", keys), meta_keys)
        for name in taken._columns:
            del self._columns[name]
        for key in taken.meta:
            del self.meta[key]
        return taken

    def rename(self, names: Mapping[str, str]) -> Self:
        """With other names for some columns."""
        for name in names:
            self._column(name)
        renamed = [names.get(name, name) for name in self._columns]
        if len(set(renamed)) < len(renamed):
            twice = next(n for n in renamed if renamed.count(n) > 1)
            raise ValueError(f"two columns would be called {twice!r}")
        columns = dict(zip(renamed, self._columns.values(), strict=True))
        return self._of(columns, self._count, self.meta)

    def union(self, other: Batch) -> Self:
        """With the columns and the meta information of both, which must agree."""
        if self._columns and other._columns and len(self) != len(other):
            raise ValueError(f"union of {len(self)} and {len(other)} rows")
        for name in self._columns.keys() & other._columns.keys():
            if not same(self._columns[name], other._columns[name]):
                raise ValueError(f"column {name!r} is in both, with other values")
        for key in self.meta.keys() & other.meta.keys():
            if not equal(self.meta[key], other.meta[key]):
                raise ValueError(f"meta information {key!r} differs")
        columns = {**other._columns, **self._columns}
        count = len(self) if self._columns else len(other)
        return self._of(columns, count, {**self.meta, **other.meta})

    # ---- rows -------------------------------------------------------------------------

    def _apply(self, count: int, operation: Callable[[Rows], Rows]) -> Self:
        """The same on the rows of all columns, once for those that share them."""
        done: dict[int, _column.Chosen] = {}
        columns = {}
        for name, column in self._columns.items():
            chosen = done.get(id(column.rows))
            if chosen is None:
                chosen = _column.choose(operation(column.rows), len(column.parts))
                done[id(column.rows)] = chosen
            columns[name] = column.with_rows(chosen)
        return self._of(columns, count, self.meta)

    def slice(
        self, start: int | None = None, end: int | None = None, step: int | None = None
    ) -> Self:
        """As batch[start:end:step]."""
        chosen = _column.slice_of(slice(start, end, step), self._count)
        return self._apply(chosen[1], lambda rows: rows.slice(*chosen))

    def take(self, indexes: ArrayLike) -> Self:
        """The rows of these indexes, in this order, or those where a mask is true."""
        found = indexes_of(indexes, self._count)
        chosen = np.flatnonzero(found) if found.dtype == bool else found
        return self._apply(len(chosen), lambda rows: rows.take(chosen))

    def reorder(self, indexes: ArrayLike) -> Self:
        """All rows in another order."""
        moved = self.take(indexes)
        seen = np.zeros(self._count, dtype=bool)
        seen[np.asarray(indexes, dtype=np.int64)] = True
        if len(moved) != self._count or not seen.all():
            raise ValueError("reorder: each row is needed exactly once; see take")
        return moved

    def __getitem__(self, index: Any) -> Any:
        """A column by its name; rows by a number, a slice, a list or a mask."""
        if isinstance(index, str):
            return self.read(index)
        if isinstance(index, slice):
            return self.slice(index.start, index.stop, index.step)
        if isinstance(index, (int, np.integer)) and not isinstance(index, bool):
            return self.take([int(index)])
        return self.take(index)

    def __iter__(self) -> Iterator[Self]:
        return (self.slice(i, i + 1) for i in range(self._count))

    def repeat(self, times: int, interleave: bool = True) -> Self:
        """Each row several times: one after another, or all again and again."""
        if times < 0:
            raise ValueError(f"times: must not be negative: {times}")
        return self._apply(
            self._count * times, lambda rows: rows.repeat(times, interleave)
        )

    def chunk(self, chunks: int) -> list[Self]:
        """That many parts, as even as possible, the longer ones first; of fewer rows the
        last parts are empty."""
        return [self.slice(a, b) for a, b in even_slices(self._count, chunks)]

    def split(self, size: int) -> list[Self]:
        """Parts of `size` rows, the last one with what is left."""
        if size < 1:
            raise ValueError(f"size: at least 1 is needed: {size}")
        return [self.slice(i, i + size) for i in range(0, self._count, size)]

    @classmethod
    def concat(
        cls, batches: Sequence[Batch], merge: Sequence[str] = (METRICS,)
    ) -> Self:
        """One after the other. The meta information must agree, but for `merge`: of
        dicts under these keys each entry becomes the list of all."""
        if not batches:
            raise ValueError("concat: no batches")
        for batch in batches:
            if not isinstance(batch, Batch):
                raise TypeError(f"concat: a {type(batch).__name__} is no batch")
        filled = [b for b in batches if b._columns or b._count] or list(batches[:1])
        first = filled[0]
        memo: dict[Any, tuple[Rows, Any]] = {}
        columns = {}
        for other in filled[1:]:
            if other._columns.keys() != first._columns.keys():
                odd = sorted(other._columns.keys() ^ first._columns.keys())
                raise ValueError(f"concat: only some have the columns {odd}")
        for name, column in first._columns.items():
            mine = [b._columns[name] for b in filled]
            for other_column in mine:
                if other_column.describe() != column.describe():
                    raise ValueError(
                        f"concat: column {name!r} is {column.describe()} in one and "
                        f"{other_column.describe()} in another"
                    )
            columns[name] = _column.join(mine, memo)
        meta = merged([b.meta for b in batches], merge)
        return cls._of(columns, sum(b._count for b in filled), meta)

    def group_by(self, *keys: str) -> dict[str, Self]:
        """The rows with equal values of these columns, in order of first appearance. The
        names are the values as text, joined by "|"."""
        if not keys:
            raise ValueError("group_by: no keys")
        values = [self.read(key) for key in keys]
        groups: dict[tuple[str, ...], list[int]] = {}
        for i in range(self._count):
            row = tuple(text_of(column[i]) for column in values)
            groups.setdefault(row, []).append(i)
        named = {"|".join(row): indexes for row, indexes in groups.items()}
        if len(named) != len(groups):
            raise ValueError(
                f"group_by({', '.join(keys)}): two groups would have the same name, as "
                'there are values with a "|"'
            )
        return {name: self.take(indexes) for name, indexes in named.items()}

    # ---- shape ------------------------------------------------------------------------

    def pad(self, divisor: int, fill: str = "last") -> tuple[Self, int]:
        """With more rows, so that their number is a multiple of `divisor`; and how many
        were added: copies of the last row ("last"), or of the first ones ("cycle")."""
        if divisor < 1 or fill not in ("last", "cycle"):
            raise ValueError(f'pad({divisor}, {fill!r}): a divisor, "last" or "cycle"')
        more = -self._count % divisor
        if more == 0:
            return self, 0
        rows = np.arange(self._count + more)
        last = np.minimum(rows, self._count - 1)
        return self.take(rows % self._count if fill == "cycle" else last), more

    def unpad(self, count: int) -> Self:
        """Without the last `count` rows."""
        if not 0 <= count <= self._count:
            raise ValueError(f"unpad({count}): there are {self._count} rows")
        return self.slice(0, self._count - count)

    def partition(
        self,
        parts: int,
        weights: ArrayLike | str,
        way: str = "longest",
        equal: bool = True,
    ) -> list[NDArray[np.int64]]:
        """The indexes of the rows of each part, so that all weigh about the same.

        weights: a number for each row, or the name of a ragged column, whose lengths
        count. way: "longest" first, or "differencing". equal: the numbers of rows of two
        parts differ by at most one.
        """
        if way not in ("longest", "differencing"):
            raise ValueError(f'way: must be "longest" or "differencing": {way!r}')
        if parts < 1:
            raise ValueError(f"parts: at least 1 is needed: {parts}")
        each = self._weights(weights)
        part_of = np.empty(self._count, dtype=np.uint32)
        _core.partition(each, parts, way == "differencing", equal, part_of)
        return [np.flatnonzero(part_of == i) for i in range(parts)]

    def _weights(self, weights: ArrayLike | str) -> NDArray[np.int64]:
        if isinstance(weights, str):
            column = self._column(weights)
            if column.kind != "ragged":
                raise TypeError(f"weights: column {weights!r} is not ragged")
            return column.lengths()
        given = np.asarray(weights)
        if given.size and given.dtype.kind not in "iub":
            raise TypeError(f"weights: whole numbers are needed, not {given.dtype}")
        each = np.ascontiguousarray(given, dtype=np.int64)
        if each.shape != (self._count,):
            raise ValueError(f"weights: {each.shape} for {self._count} rows")
        return each

    def balance(
        self,
        parts: int,
        weights: ArrayLike | str,
        way: str = "longest",
        equal: bool = True,
    ) -> list[Self]:
        """These parts as batches."""
        return [self.take(rows) for rows in self.partition(parts, weights, way, equal)]

    def batches(
        self, size: int, *, epochs: int = 1, seed: int | None = None
    ) -> Iterator[Self]:
        """Parts of `size` rows, again in each epoch; with a seed in another order each
        time, always the same for the same seed."""
        random = None if seed is None else np.random.default_rng(seed)
        for _ in range(epochs):
            rows = self if random is None else self.take(random.permutation(len(self)))
            yield from rows.split(size)

    def materialize(self) -> Self:
        """The same rows in memory of their own, each column in one piece."""
        columns = {}
        rows = Rows(self._count)
        for name, column in self._columns.items():
            columns[name] = Column([copied(column.read())], rows)
        return self._of(columns, self._count, self.meta)

    def meta_only(self) -> Self:
        """What a rank gets that will have the rows from another one."""
        return self._of({}, 0, self.meta)

    # ---- in and out -------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The columns by name, as `read` gives them."""
        return {name: column.read() for name, column in self._columns.items()}

    @classmethod
    def from_dict(
        cls, columns: Mapping[str, Any], meta: Mapping[str, Any] | None = None
    ) -> Self:
        return cls(columns, meta)

    def save(self, path: str | PathLike[str]) -> None:
        """To a file, all or nothing. `load` trusts it: objects in it are pickled."""
        with written(fspath(path)) as file:
            file.write(_MAGIC)
            pickle.dump(self, file, protocol=5)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        with open(fspath(path), "rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise ValueError(f"{fspath(path)}: is not a saved batch")
            try:
                batch = pickle.load(file)
            except (pickle.UnpicklingError, EOFError, ValueError) as e:
                raise ValueError(f"{fspath(path)}: is damaged: {e}") from None
        if not isinstance(batch, cls):
            raise TypeError(f"{fspath(path)}: has a {type(batch).__name__}")
        return batch

    def _stored(self, chunks: int) -> Self:
        """With those columns in the store of which a chunk would go by name."""
        memo: dict[Any, tuple[Rows, Any]] = {}
        with together():
            columns = {
                name: sendable(c, memo) if is_worth(c, chunks) else c
                for name, c in self._columns.items()
            }
        return self._of(columns, self._count, self.meta)

    def __reduce__(self) -> tuple[Any, ...]:
        if can_refer():
            memo: dict[Any, tuple[Rows, Any]] = {}
            with together():
                columns = {name: sendable(c, memo) for name, c in self._columns.items()}
            return _arrived, (type(self), columns, self._count, self.meta)
        return _loaded, (type(self), self.to_dict(), self._count, self.meta)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Batch)
            and len(self) == len(other)
            and self._columns.keys() == other._columns.keys()
            and all(same(c, other._columns[n]) for n, c in self._columns.items())
            and equal(self.meta, other.meta)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        columns = ", ".join(
            f"{name}: {' '.join(map(str, column.describe()))}"
            for name, column in self._columns.items()
        )
        return f"<muster.Batch of {self._count} rows: {columns or 'no columns'}>"


def _loaded(
    cls: type[Batch], columns: dict[str, Any], count: int, meta: dict[str, Any]
) -> Batch:
    batch = cls(columns, meta)
    batch._count = count
    return batch


def _arrived(
    cls: type[Batch], columns: dict[str, Column], count: int, meta: dict[str, Any]
) -> Batch:
    """Its columns are read when they are wanted."""
    batch = cls.__new__(cls)
    batch._columns = columns
    batch._count = count
    batch.meta = meta
    _column.came_together(columns.values())
    return batch
