"""Ragged: rows of unequal length, one after another without padding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from muster._data.remote_array import RemoteArray, can_refer
from muster._data.torch_arrays import array_of, is_tensor


class Ragged:
    """Row i is `values[offsets[i]:offsets[i + 1]]`.

    values: all elements; offsets: where each row begins, and where the last one ends.
    Slices share both arrays.
    """

    __slots__ = ("_values", "offsets")

    _values: NDArray[Any] | RemoteArray  # remote: in a store, and not read yet
    offsets: NDArray[np.int64]

    def __init__(self, values: ArrayLike, offsets: ArrayLike) -> None:
        if is_tensor(values):
            values = array_of(values)
        self._values = np.ascontiguousarray(values)
        self.offsets = np.ascontiguousarray(offsets, dtype=np.int64)
        if self.offsets.ndim != 1 or len(self.offsets) == 0:
            raise ValueError("offsets: one number for each row, and one more")
        if self.values.ndim < 1:
            raise ValueError("values: an array of elements is needed")
        if self.dtype.hasobject:
            raise TypeError(
                f"values: {self.dtype} has Python objects; rows of objects are a list of "
                "lists"
            )
        if self.offsets[0] < 0 or self.offsets[-1] > len(self.values):
            raise ValueError(
                f"offsets: {self.offsets[0]} to {self.offsets[-1]} is not within the "
                f"{len(self.values)} values"
            )
        if (np.diff(self.offsets) < 0).any():
            raise ValueError("offsets: must not fall")

    @classmethod
    def of(cls, rows: Iterable[ArrayLike], dtype: DTypeLike | None = None) -> Ragged:
        """From one sequence for each row."""
        arrays = [
            array_of(row) if is_tensor(row) else np.asarray(row, dtype=dtype)
            for row in rows
        ]
        for i, array in enumerate(arrays):
            if array.ndim < 1:
                raise ValueError(f"row {i} is a single {array.dtype}, not a sequence")
        offsets = np.zeros(len(arrays) + 1, dtype=np.int64)
        np.cumsum([len(a) for a in arrays], out=offsets[1:])
        filled = [a for a in arrays if len(a)] or arrays[:1]
        values = np.concatenate(filled) if filled else np.zeros(0, dtype=dtype)
        return cls(values, offsets)

    @classmethod
    def _view(
        cls, values: NDArray[Any] | RemoteArray, offsets: NDArray[np.int64]
    ) -> Ragged:
        """Of arrays that are known to be right; their own flags are not changed."""
        self = cls.__new__(cls)
        self._values = values if isinstance(values, RemoteArray) else values.view()
        self.offsets = offsets.view()
        return self

    @property
    def values(self) -> NDArray[Any]:
        """All elements, also those beside these rows."""
        if isinstance(self._values, RemoteArray):
            return self._values.read()
        return self._values

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._values.dtype

    @property
    def element_shape(self) -> tuple[int, ...]:
        return self._values.shape[1:]

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    @property
    def nbytes(self) -> int:
        """Of the elements of these rows."""
        each = self.dtype.itemsize * prod(self.element_shape)
        return int(self.offsets[-1] - self.offsets[0]) * each

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> NDArray[Any]:
        """A row, without a copy."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"there is no row {index}: there are {len(self)}")
        index %= len(self)
        row: NDArray[Any] = self.values[self.offsets[index] : self.offsets[index + 1]]
        return row

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Ragged)
            and self.dtype == other.dtype
            and np.array_equal(self.lengths, other.lengths)
            and np.array_equal(self._used(), other._used())
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<muster.Ragged: {len(self)} rows of {self.dtype}, {self.nbytes} bytes>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Only what these rows have, not what is beside them."""
        if isinstance(self._values, RemoteArray) and can_refer():
            return Ragged._view, (self._values, self.offsets)
        return Ragged, (self._used(), self.offsets - self.offsets[0])

    def _used(self) -> NDArray[Any]:
        used: NDArray[Any] = self.values[self.offsets[0] : self.offsets[-1]]
        return used

    def padded(self, value: Any = 0, length: int | None = None) -> NDArray[Any]:
        """A new array with all rows filled up at their ends."""
        lengths = self.lengths
        longest = int(lengths.max(initial=0))
        width = longest if length is None else length
        if width < longest:
            raise ValueError(f"length={length}: the longest row has {longest}")
        shape = (len(self), width, *self.values.shape[1:])
        out = np.full(shape, value, dtype=self.dtype)
        out[np.arange(width) < lengths[:, None]] = self._used()
        return out

    def tolist(self) -> list[Any]:
        return [row.tolist() for row in self]
