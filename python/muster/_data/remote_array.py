"""Arrays in a node's store: of this node, or of another."""

# An array is named, passed on and divided without being read. A reader maps it if it is
# on the same node, and otherwise fetches it once per node.

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from math import prod
from typing import Any
from weakref import WeakSet, ref

import numpy as np
from numpy.typing import NDArray

from muster import _core
from muster._data.store import Ref, collect, collecting, empty

REMOTE_MIN = _core.PAYLOAD_ARRAY_MIN  # less travels in the message
STORED_MIN = _core.PAYLOAD_BUFFER_MIN  # the same of what lies in the store already
MATES_MAX = _core.PAYLOAD_MATES_MAX  # of objects that are mapped with the first of them


def can_refer() -> bool:
    """Whether what is being pickled now may refer to a store."""
    return collecting.held is not None and collecting.by_name and _core.piece_can()


def object_array(values: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
    """A one-dimensional array of these objects, whatever they are."""
    out = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        out[i] = value
    return out


class RemoteArray:
    """An array of numbers in a store."""

    __slots__ = (
        "__weakref__",
        "_array",
        "_held",
        "_mates",
        "_offset",
        "dtype",
        "shape",
    )

    _held: _core.Held
    _offset: int

    def __init__(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self._array: NDArray[Any] | None = None
        self._mates: Sequence[ref[RemoteArray]] = ()
        self.dtype = dtype
        self.shape = shape

    @classmethod
    def at(
        cls,
        held: _core.Held,
        offset: int,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
    ) -> RemoteArray:
        self = cls(dtype, shape)
        self._held, self._offset = held, offset
        _referred.add(self)
        return self

    @classmethod
    def of(cls, array: NDArray[Any]) -> RemoteArray:
        """Of an array, which is copied unless it is in the store of this node."""
        # At once, or with others (`together`).
        if not array.flags.c_contiguous:
            whole = empty(array.shape, array.dtype)
            np.copyto(whole, array)
            _core.piece_count(array.nbytes)
            return cls.of(whole)
        self = cls(array.dtype, array.shape)
        write = (self, array.reshape(-1).view(np.uint8))
        if collecting.writes is None:
            _write([write])
        else:
            collecting.writes.append(write)
        return self

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    @property
    def is_here(self) -> bool:
        """It was read."""
        return self._array is not None

    @property
    def object(self) -> tuple[int, int]:
        """Which object its bytes are in."""
        return _core.piece_name(self._held)[:2]

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal in those that are the same array."""
        return (*self.object, self._offset, self.dtype, self.shape)

    def read(self) -> NDArray[Any]:
        if self._array is None:
            only = read([(self, 0, len(self))])[0]
            if only is not self:  # of an object that has more than this array
                self._held, self._offset, self._array = only._held, 0, only._array
        assert self._array is not None
        return self._array

    def _range(self, first: int, end: int) -> tuple[_core.Held, int, int]:
        """What of its object these rows are."""
        row = self.nbytes // len(self) if len(self) else 0
        return self._held, self._offset + first * row, (end - first) * row

    def _read(self, memory: Any, offset: int, is_slice: bool) -> RemoteArray:
        """Its bytes have come; of a slice, those rows alone."""
        if not is_slice:
            self._array = np.ndarray(self.shape, self.dtype, memory, self._offset)
            return self
        row = self.nbytes // len(self)
        count = memoryview(memory).nbytes // row
        part = self.at(memory, offset, self.dtype, (count, *self.shape[1:]))
        part._array = np.ndarray(part.shape, part.dtype, memory, offset)
        return part

    def __reduce__(self) -> tuple[Any, ...]:
        collect([self._held])
        name = _core.piece_name(self._held)
        return _load_array, (name, self._offset, self.dtype, self.shape)

    def __repr__(self) -> str:
        return f"<remote array {self.shape} of {self.dtype}>"


def _load_array(
    name: _core.PieceName, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> RemoteArray:
    return RemoteArray.at(_core.piece_hold(name), offset, dtype, shape)


def read(wanted: Sequence[tuple[RemoteArray, int, int]]) -> list[RemoteArray]:
    """Rows `first` to `end - 1` of each, with one question to the store's agent."""
    # Where they had to come from another node, and are few, what is given back has
    # these rows alone.
    out = [array for array, *_ in wanted]
    unread = [i for i, array in enumerate(out) if array._array is None]
    if unread:
        mates = _unread_mates([out[i] for i in unread])
        ranges = [out[i]._range(*wanted[i][1:]) for i in unread]
        ranges += [mate._range(0, len(mate)) for mate in mates]
        found = _core.piece_read(ranges)
        for i, one in zip(unread, found, strict=False):
            out[i] = out[i]._read(*one)
        for mate, one in zip(mates, found[len(unread) :], strict=True):
            mate._read(*one)
    return out


# those that came from elsewhere, and are still referred to
_referred: WeakSet[RemoteArray | RemoteObjects] = WeakSet()


def fetch_referred() -> None:
    """Read what was not read yet, before the stores go."""
    # What does not fit, is lost, or cannot be unpickled here stays unread.
    for array in [array for array in _referred if not array.is_here]:
        with suppress(Exception):
            array.read()


def _unread_mates(wanted: list[RemoteArray]) -> list[RemoteArray]:
    mates = {id(m): m for one in wanted for mate in one._mates if (m := mate())}
    for array in wanted:
        mates.pop(id(array), None)
    return [mate for mate in mates.values() if mate._array is None]


def came_together(came: Iterable[RemoteArray]) -> None:
    """Have a reader of one of these read all that are on this node."""
    # That moves nothing, and costs one question instead of many.
    node = _core.store_node()
    here = [array for array in came if node and array.object[0] == node[0]]
    if len(here) > 1 and sum(array.nbytes for array in here) <= MATES_MAX:
        mates = [ref(array) for array in here]
        for array in here:
            array._mates = mates


def _write(wanted: list[tuple[RemoteArray, NDArray[Any]]]) -> None:
    written = _core.piece_write([bytes_of for _, bytes_of in wanted])
    for (array, _), (held, offset) in zip(wanted, written, strict=True):
        array._held, array._offset = held, offset


def joined(parts: list[Any]) -> RemoteArray | None:
    """One array of what lies one after another in an object; None: it does not."""
    first = parts[0]
    end = first._offset
    for part in parts:
        if (part.object, part._offset, part.dtype) != (first.object, end, first.dtype):
            return None
        end += part.nbytes
    shape = (sum(map(len, parts)), *first.shape[1:])
    return RemoteArray.at(first._held, first._offset, first.dtype, shape)


class together:
    """Writes what becomes remote in this block at its end, in one question."""

    def __enter__(self) -> None:
        self._is_outermost = collecting.writes is None
        if self._is_outermost:
            collecting.writes = []

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if not self._is_outermost:
            return
        wanted, collecting.writes = collecting.writes, None
        if wanted and kind is None:
            _write(wanted)


class RemoteObjects:
    """A row of Python objects in a store."""

    __slots__ = ("__weakref__", "_objects", "_ref", "shape")

    dtype = np.dtype(object)

    def __init__(self, ref: Ref, count: int) -> None:
        self._ref = ref
        self._objects: NDArray[Any] | None = None
        self.shape = (count,)
        _referred.add(self)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def is_here(self) -> bool:
        return self._objects is not None

    def read(self) -> NDArray[Any]:
        if self._objects is None:
            found = self._ref.get()
            is_array = isinstance(found, np.ndarray)
            self._objects = found if is_array else object_array(found)
        return self._objects

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteObjects, (self._ref, self.shape[0])

    def __repr__(self) -> str:
        return f"<{self.shape[0]} remote objects>"


def private_copy(array: NDArray[Any]) -> NDArray[Any]:
    """The same numbers, to be written by us alone."""
    # Copied page by page when that happens, or at once where the memory is not the
    # store's.
    if array.nbytes >= REMOTE_MIN and array.flags.c_contiguous:
        memory = _core.store_map_private(array.reshape(-1).view(np.uint8), array.nbytes)
        if memory is not None:
            return np.frombuffer(memory, array.dtype).reshape(array.shape)
    return array.copy()


def is_stored(array: NDArray[Any]) -> bool:
    """It lies in the store of this node, in one piece."""
    if not array.flags.c_contiguous or array.nbytes < STORED_MIN:
        return False
    return _core.piece_is_stored(array.reshape(-1).view(np.uint8))


def sent(array: NDArray[Any]) -> NDArray[Any] | RemoteArray:
    if array.nbytes >= REMOTE_MIN or is_stored(array):
        return RemoteArray.of(array)
    return np.ascontiguousarray(array)
