"""What the DataProto of `muster.roll` and that of `muster.verl` share."""

# A DataProto has tensors (`batch`), arrays of anything (`non_tensor_batch`), all with
# the same rows, and what belongs to it as a whole (`meta_info`). Chunks and slices are
# views of the same memory; each DataProto has a copy of the meta information of its
# own. doc/adapters.md says what differs from ROLL's and verl's.

from __future__ import annotations

import copy
import importlib.util
import pickle
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from muster._adapters import lazy_column
from muster._adapters.checks import WrongType, WrongValue
from muster._adapters.columns import Columns, as_dict, cells_of, packed_cells
from muster._adapters.dataproto_parts import (
    as_array,
    check_same,
    check_there,
    chosen,
    copied_meta,
    index_loader,
    names_of,
    put_together,
)
from muster._adapters.lazy_column import LazyColumn, shared
from muster._data.batch_parts import METRICS, even_slices, indexes_of, same_values
from muster._data.remote_array import object_array
from muster._data.torch_arrays import has_tensors, is_tensor
from muster.batch import Batch


class DataProto:
    _batch: Columns | None
    non_tensor_batch: dict[str, NDArray[Any]]
    meta_info: dict[str, Any]

    def __init__(
        self,
        batch: Any = None,
        non_tensor_batch: dict[str, NDArray[Any]] | None = None,
        meta_info: dict[str, Any] | None = None,
    ) -> None:
        self.batch = batch
        self.non_tensor_batch = {} if non_tensor_batch is None else non_tensor_batch
        self.meta_info = {} if meta_info is None else meta_info
        self.check_consistency()

    @property
    def batch(self) -> Any:
        """Columns, or None; a TensorDict or a dict may be assigned."""
        return self._batch

    @batch.setter
    def batch(self, value: Any) -> None:
        self._batch = None if value is None else Columns.of(value)

    def _like(
        self,
        batch: Columns | None,
        non_tensors: dict[str, NDArray[Any]],
        meta: dict[str, Any] | None = None,
    ) -> Self:
        """Of these rows, with a copy of this meta information, or of all."""
        new = type(self).__new__(type(self))
        new.batch = batch
        new.non_tensor_batch = non_tensors
        new.meta_info = copied_meta(self.meta_info if meta is None else meta)
        return new

    def check_consistency(self) -> None:
        """An error if something has other rows, or is no array."""
        count = len(self)
        for name, value in self.non_tensor_batch.items():
            if not isinstance(value, np.ndarray) or value.ndim == 0:
                raise WrongType(
                    f"non_tensor_batch[{name!r}]: an array is needed, not "
                    f"{type(value).__name__}: from_dict makes one of a list"
                )
            if len(value) != count:
                raise WrongValue(
                    f"non_tensor_batch[{name!r}] has {len(value)} rows, there are {count}"
                )

    # ---- made of something ------------------------------------------------------------

    @staticmethod
    def _objects(values: Any) -> NDArray[Any]:
        """The array of a column of anything."""
        raise NotImplementedError

    @classmethod
    def from_dict(
        cls,
        tensors: dict[str, Any] | None = None,
        non_tensors: dict[str, Any] | None = None,
        meta_info: dict[str, Any] | None = None,
        num_batch_dims: int = 1,
    ) -> Self:
        """From tensors, or arrays in their place, and from arrays or lists of anything."""
        if num_batch_dims != 1:
            raise WrongValue(f"num_batch_dims: must be 1: {num_batch_dims}")
        arrays = {name: cls._objects(v) for name, v in (non_tensors or {}).items()}
        return cls(
            batch=Columns(tensors) if tensors else None,
            non_tensor_batch=arrays,
            meta_info=meta_info,
        )

    @classmethod
    def from_single_dict(
        cls, data: dict[str, Any], meta_info: dict[str, Any] | None = None
    ) -> Self:
        """Tensors go to `batch`, arrays to `non_tensor_batch`."""
        for name, value in data.items():
            if not is_tensor(value) and not isinstance(value, np.ndarray):
                raise WrongValue(
                    f"{name!r}: a tensor or an array is needed, not "
                    f"{type(value).__name__}"
                )
        tensors = {name: v for name, v in data.items() if is_tensor(v)}
        others = {name: v for name, v in data.items() if not is_tensor(v)}
        return cls.from_dict(tensors, others, meta_info)

    @classmethod
    def from_batch(cls, batch: Batch) -> Self:
        """From a muster.Batch, without a copy: columns of numbers are tensors, or arrays
        if torch is not installed; those of unequal length are arrays of their rows."""
        has_torch = importlib.util.find_spec("torch") is not None
        tensors: dict[str, Any] = {}
        others: dict[str, Any] = {}
        for name, column in batch._columns.items():
            if column.kind == "ragged":
                others[name] = object_array(list(column.read()))
            elif column.kind == "fixed" and has_tensors(column.parts[0].dtype):
                tensors[name] = LazyColumn(column, has_torch)
            elif column.kind == "objects":
                others[name] = LazyColumn(column, False)
            else:
                others[name] = cls._objects(column.read())
        new = cls.__new__(cls)
        new.batch = Columns(tensors, len(batch)) if tensors else None
        new.non_tensor_batch = as_dict(others)
        new.meta_info = copied_meta(batch.meta)
        return new

    def to_batch(self) -> Batch:
        """A muster.Batch of the same memory."""
        cells, arrays = cells_of(self._batch), cells_of(self.non_tensor_batch)
        if both := cells.keys() & arrays.keys():
            raise WrongValue(
                f"to_batch: a tensor and an array are called {both.pop()!r}"
            )
        both_kinds = (*cells.items(), *arrays.items())
        columns = {name: lazy_column.as_column(name, cell) for name, cell in both_kinds}
        return Batch._of(columns, len(self), copied_meta(self.meta_info))

    def _stored(self, chunks: int) -> Self:
        if self._batch is None:
            return self
        return self._like(self._batch.stored(chunks), self.non_tensor_batch)

    def __getstate__(self) -> dict[str, Any]:
        """The bytes of columns are beside the pickle, or stay in the store."""
        state = dict(self.__dict__)
        cells = packed_cells(cells_of(self.non_tensor_batch))
        state["non_tensor_batch"] = as_dict(cells)
        return state

    # ---- rows -------------------------------------------------------------------------

    def __len__(self) -> int:
        if self._batch is not None and not self._batch.is_open():
            return len(self._batch)
        for value in cells_of(self.non_tensor_batch).values():
            return len(value)
        return 0

    def has_columns(self) -> bool:
        """False: it is meta information alone."""
        batch = self._batch
        return bool(self.non_tensor_batch) or not (batch is None or batch.is_open())

    def _item(self, index: int) -> Any:
        raise NotImplementedError

    def __getitem__(self, index: Any) -> Any:
        """Rows by a slice, a list or a mask; one row by a number; a column by its name."""
        if isinstance(index, slice):
            return self.slice(index.start, index.stop, index.step)
        if isinstance(index, str):
            return self._read(index)
        if isinstance(index, (list, np.ndarray)) or is_tensor(index):
            return self.select_idxs(index)
        if isinstance(index, (int, np.integer)) and not isinstance(index, bool):
            if not -len(self) <= index < len(self):
                raise IndexError(f"there is no row {index}: there are {len(self)}")
            return self._item(int(index) % len(self))
        raise WrongType(f"rows cannot be chosen by a {type(index).__name__}")

    def _read(self, name: str) -> Any:
        if self._batch is not None and name in self._batch:
            return self._batch[name]
        if name in self.non_tensor_batch:
            return self.non_tensor_batch[name]
        raise KeyError(f"there is no column {name!r}")

    def slice(
        self, start: int | None = None, end: int | None = None, step: int | None = None
    ) -> Self:
        part = slice(start, end, step)
        count = len(range(len(self))[part])
        return self._each(lambda c, memo: lazy_column.rows(c, part, memo), count)

    def _each(self, change: Callable[[Any, Any], Any], count: int = -1) -> Self:
        """The same done to all columns, which have so many rows then."""
        memo: dict[Any, Any] = {}
        batch = self._batch
        if batch is not None:
            batch = batch.each(lambda cell: change(cell, memo), count)
        arrays = cells_of(self.non_tensor_batch).items()
        return self._like(batch, as_dict({n: change(c, memo) for n, c in arrays}))

    def select_idxs(self, idxs: Any) -> Self:
        """The rows of these indexes, in this order, or those where a mask is true."""
        found = indexes_of(idxs, len(self))
        count = int(found.sum()) if found.dtype == bool else len(found)
        return self._each(lambda c, memo: lazy_column.take(c, found, memo), count)

    def reorder(self, indices: Any) -> None:
        """Other rows in the place of these."""
        moved = self.select_idxs(indices)
        self._batch, self.non_tensor_batch = moved._batch, moved.non_tensor_batch

    def _repeated(self, times: Any, interleave: bool, count: int) -> Self:
        how = (times, interleave)
        return self._each(lambda c, memo: lazy_column.repeat(c, *how, memo), count)

    def repeat(self, repeat_times: int = 2, interleave: bool = True) -> Self:
        """Each row several times: one after another, or all again and again."""
        if repeat_times < 0:
            raise WrongValue(f"repeat_times: must not be negative: {repeat_times}")
        return self._repeated(repeat_times, interleave, len(self) * repeat_times)

    def chunk(self, chunks: int) -> list[Self]:
        """That many parts, as even as possible, the longer ones first; of fewer rows the
        last parts are empty."""
        return [self.slice(a, b) for a, b in even_slices(len(self), chunks)]

    def split(self, split_size: int) -> list[Self]:
        """Parts of `split_size` rows, the last one with what is left."""
        if split_size < 1:
            raise WrongValue(f"split_size: at least 1 is needed: {split_size}")
        return [self[i : i + split_size] for i in range(0, len(self), split_size)]

    def group_by(self, keys: list[str] | str) -> dict[str, Self]:
        """The rows with equal values of these columns, in order of first appearance. The
        names are the values as text, joined by "|"."""
        names = names_of(keys)
        if not names:
            raise WrongValue("group_by: no keys")
        arrays = [as_array(self._read(name)) for name in names]
        groups: dict[str, list[int]] = {}
        for i in range(len(self)):
            groups.setdefault("|".join(str(c[i]) for c in arrays), []).append(i)
        return {name: self.select_idxs(found) for name, found in groups.items()}

    def padding(self, padding_size: int, padding_candidate: str = "") -> None:
        """Append copies of the last row, or of the "first"."""
        if padding_size == 0:
            return
        if len(self) == 0:
            raise WrongValue("padding: there is no row to copy")
        row = 0 if padding_candidate == "first" else len(self) - 1
        rest = np.full(padding_size, row)
        self.reorder(np.concatenate([np.arange(len(self)), rest]))

    # ---- columns ----------------------------------------------------------------------

    def select(
        self,
        batch_keys: Sequence[str] | None = None,
        non_tensor_batch_keys: Sequence[str] | None = None,
        meta_info_keys: Sequence[str] | None = None,
        deepcopy: bool = False,
    ) -> Self:
        """Only these columns and this meta information; None: all."""
        batch = self._batch
        if batch_keys is not None:
            batch = (Columns() if batch is None else batch).select(*batch_keys)
        elif batch is not None:
            batch = batch.copy()
        arrays = cells_of(self.non_tensor_batch)
        others = as_dict(chosen(arrays, non_tensor_batch_keys))
        if deepcopy:
            others = copy.deepcopy(others)
        return self._like(batch, others, chosen(self.meta_info, meta_info_keys))

    def pop(
        self,
        batch_keys: Sequence[str] | None = None,
        non_tensor_batch_keys: Sequence[str] | None = None,
        meta_info_keys: Sequence[str] | None = None,
    ) -> Self:
        """Take these out; a DataProto of them."""
        wanted = names_of(batch_keys)
        others = names_of(non_tensor_batch_keys)
        metas = names_of(meta_info_keys)
        batch = Columns() if self._batch is None else self._batch
        tensors = batch.select(*wanted)  # all are there, or none goes
        check_there("non_tensor_batch", self.non_tensor_batch, others)
        check_there("meta_info", self.meta_info, metas)
        for name in wanted:
            del batch[name]
        new = self._like(tensors if wanted else None, {}, {})
        arrays = cells_of(self.non_tensor_batch)
        new.non_tensor_batch = as_dict({name: arrays[name] for name in others})
        for name in others:
            del self.non_tensor_batch[name]
        new.meta_info = {n: self.meta_info.pop(n) for n in metas}
        return new

    def rename(
        self,
        old_keys: list[str] | str | None = None,
        new_keys: list[str] | str | None = None,
    ) -> Self:
        """Other names for tensors; in place."""
        old, new = names_of(old_keys), names_of(new_keys)
        if len(old) != len(new):
            raise WrongValue(f"rename: {len(old)} names, but {len(new)} new ones")
        batch = (self._batch if self._batch is not None else Columns()).copy()
        for a, b in zip(old, new, strict=True):
            batch.rename_key_(a, b)
        self._batch = batch
        return self

    def union(self, other: DataProto) -> Self:
        """Take over what the other has; what both have must be equal. In place."""
        if self.has_columns() and other.has_columns() and len(self) != len(other):
            raise WrongValue(f"union of {len(self)} and {len(other)} rows")
        mine, theirs = cells_of(self._batch), cells_of(other._batch)
        check_same("tensor", mine, theirs)
        arrays = cells_of(self.non_tensor_batch), cells_of(other.non_tensor_batch)
        check_same("array", *arrays)
        check_same("meta information", self.meta_info, other.meta_info)
        if theirs or (self._batch is not None and self.has_columns()):
            count = len(self) if self.has_columns() else len(other)
            self._batch = Columns({**theirs, **mine}, count)
        self.non_tensor_batch = as_dict({**arrays[0], **arrays[1]})
        self.meta_info.update(copied_meta(other.meta_info))
        return self

    # ---- put together -----------------------------------------------------------------

    @staticmethod
    def _merged(metas: list[dict[str, Any]], keys: set[str]) -> dict[str, Any]:
        raise NotImplementedError

    @classmethod
    def _concat(
        cls, data: Sequence[Self], keys: set[str], put: Callable[..., Any]
    ) -> Self:
        if not data:
            raise WrongValue("concat: nothing to put together")
        full = [d for d in data if len(d)] or [d for d in data if d.has_columns()]
        memo: dict[Any, Any] = {}
        batch = None
        if any(d._batch is not None for d in full):
            tensors = [cells_of(d._batch) for d in full]
            cells = put_together("tensor", tensors, put, memo)
            batch = Columns(cells, sum(map(len, full)))
        arrays = [cells_of(d.non_tensor_batch) for d in full]
        others = as_dict(put_together("array", arrays, put, memo))
        meta = cls._merged([d.meta_info for d in data], keys)
        return data[0]._like(batch, others, meta)

    @classmethod
    def join_results(cls, data: Sequence[Self]) -> Self:
        """What concat gives, of results that only the caller has: their tensors are put
        together when they are read, not before."""
        return cls._concat(data, {METRICS}, lazy_column.join_later)

    def meta_only(self) -> Self:
        """What a rank gets that will have the rows from another one."""
        return self._like(None, {})

    # ---- the rest ---------------------------------------------------------------------

    def make_iterator(
        self,
        mini_batch_size: int,
        epochs: int,
        seed: int | None = None,
        dataloader_kwargs: dict[str, Any] | None = None,
    ) -> Iterator[Self]:
        """Parts of `mini_batch_size` rows, again in each epoch. dataloader_kwargs: of
        torch's DataLoader; without torch `shuffle` and `drop_last` alone."""
        options = dict(dataloader_kwargs or {})
        loader = index_loader(len(self), mini_batch_size, seed, options)
        return (self._rows_or_view(part) for _ in range(epochs) for part in loader())

    def _rows_or_view(self, indexes: list[int]) -> Self:
        first = indexes[0] if indexes else 0
        if indexes == list(range(first, first + len(indexes))):
            return self.slice(first, first + len(indexes))
        return self.select_idxs(indexes)

    def to(self, device: Any) -> Self:
        """Move the tensors; in place."""
        if self._batch is not None:
            self._batch = self._batch.to(device)
        return self

    def clone(self) -> Self:
        """With memory of its own."""
        batch = None if self._batch is None else self._batch.clone()
        copies = {name: v.copy() for name, v in self.non_tensor_batch.items()}
        return self._like(batch, copies)

    def __copy__(self) -> Self:
        return self._each(lambda cell, _: cell)

    def save_to_disk(self, filepath: str | PathLike[str]) -> None:
        with open(filepath, "wb") as file:
            pickle.dump(self, file, protocol=5)

    @classmethod
    def load_from_disk(cls, filepath: str | PathLike[str]) -> Self:
        """The file is trusted: it is a pickle."""
        with open(filepath, "rb") as file:
            data = pickle.load(file)
        if not isinstance(data, cls):
            raise WrongType(f"{filepath}: has a {type(data).__name__}")
        return data

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, DataProto)
            and len(self) == len(other)
            and same_values(self._shared(), other._shared())
            and same_values(self.non_tensor_batch, other.non_tensor_batch)
            and same_values(self.meta_info, other.meta_info)
        )

    def _shared(self) -> dict[str, Any]:
        return {name: shared(cell) for name, cell in cells_of(self._batch).items()}

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"DataProto(batch={self._batch}, non_tensor_batch={self.non_tensor_batch}, "
            f"meta_info={self.meta_info})"
        )


# ---- padding --------------------------------------------------------------------------


def pad_dataproto_to_divisor(data: Any, size_divisor: int) -> tuple[Any, int]:
    """(with as many rows more, from the first one on, again and again, as `size_divisor`
    divides; how many were added)."""
    if size_divisor < 1:
        raise WrongValue(f"size_divisor: at least 1 is needed: {size_divisor}")
    count = len(data)
    more = -count % size_divisor
    if more == 0:
        return data, 0
    return data.select_idxs(np.arange(count + more) % count), more


def unpad_dataproto(data: Any, pad_size: int) -> Any:
    """Without the last `pad_size` rows."""
    return data[: len(data) - pad_size] if pad_size else data
