"""Arrays whose bytes lie in a store, of this node or of another.

They are named, passed on and divided without being read. Who reads one maps it, if its
bytes are on his node; else they come from theirs, once for each node.
"""

from __future__ import annotations

from contextlib import suppress
from math import prod
from weakref import WeakSet, ref

import numpy as np

from muster import _core
from muster._data import Ref, _collect, collecting, site

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from numpy.typing import NDArray

FAR_MIN = 64 << 10  # bytes: less travels in the message, or with all that is small
STORED_MIN = 2048  # bytes: the same of what lies in the store already
MATES_MAX = 64 << 20  # bytes of objects that are mapped with the first of them


def is_wanted() -> bool:
    """What is being pickled may refer to a store."""
    return collecting.held is not None and collecting.far and _core.piece_can()


def new(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array in the store of this node, to be written."""
    count = int(prod(shape))
    room = _core.store_empty(count * dtype.itemsize, site())
    return np.frombuffer(room, dtype, count).reshape(shape)


class Far:
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

    def __init__(
        self,
        held: _core.Held,
        offset: int,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
    ) -> None:
        self._held = held
        self._offset = offset
        self._array: NDArray[Any] | None = None
        self._mates: Sequence[ref[Far]] = ()
        self.dtype = dtype
        self.shape = shape
        _known.add(self)

    @classmethod
    def of(cls, array: NDArray[Any]) -> Far:
        """Its bytes are copied, unless they are in the store of this node already; at
        once, or with others (`together`)."""
        if array.flags.c_contiguous:
            far = cls.__new__(cls)
            far._array = None
            far._mates = ()
            far.dtype = array.dtype
            far.shape = array.shape
            bytes_of = array.reshape(-1).view(np.uint8)
            if collecting.later is None:
                _write([(far, bytes_of)])
            else:
                collecting.later.append((far, bytes_of))
            return far
        whole = new(array.shape, array.dtype)
        np.copyto(whole, array)
        _core.piece_count(array.nbytes)
        return cls.of(whole)

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
        """The array, read-only."""
        if self._array is not None:
            return self._array
        only = read([(self, 0, len(self))])[0]
        if only is not self:  # of an object that has more than this array
            self._held, self._offset, self._array = only._held, 0, only._array
        assert self._array is not None
        return self._array

    def _range(self, first: int, end: int) -> tuple[_core.Held, int, int]:
        """What of its object these rows are."""
        row = self.nbytes // len(self) if len(self) else 0
        return self._held, self._offset + first * row, (end - first) * row

    def _read(self, memory: Any, offset: int, is_slice: bool) -> Far:
        """Its bytes have come; of a slice, those rows alone."""
        if not is_slice:
            self._array = np.ndarray(self.shape, self.dtype, memory, self._offset)
            return self
        row = self.nbytes // len(self)
        count = memoryview(memory).nbytes // row
        part = Far(memory, offset, self.dtype, (count, *self.shape[1:]))
        part._array = np.ndarray(part.shape, part.dtype, memory, offset)
        return part

    def __reduce__(self) -> tuple[Any, ...]:
        _collect([self._held])
        name = _core.piece_name(self._held)
        return _load_far, (name, self._offset, self.dtype, self.shape)

    def __repr__(self) -> str:
        return f"<far array {self.shape} of {self.dtype}>"


def read(wanted: Sequence[tuple[Far, int, int]]) -> list[Far]:
    """Rows `first` to `end - 1` of each, from wherever they are, with one question to the
    store's agent. Where they had to come from another node, and are few, what is given back
    has these rows alone."""
    out = [far for far, *_ in wanted]
    unread = [i for i, far in enumerate(out) if far._array is None]
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


_known: WeakSet[Far | FarObjects] = (
    WeakSet()
)  # that came from elsewhere, and are still referred to


def fetch_known() -> None:
    """Read what was not read yet, before the stores go. What does not fit, is lost, or
    cannot be unpickled here stays unread."""
    for far in [far for far in _known if not far.is_here]:
        with suppress(Exception):
            far.read()


def _unread_mates(wanted: list[Far]) -> list[Far]:
    others = {id(far): far for one in wanted for mate in one._mates if (far := mate())}
    for far in wanted:
        others.pop(id(far), None)
    return [far for far in others.values() if far._array is None]


def came_together(came: Iterable[Far]) -> None:
    """Who reads one of these, which came in one batch, reads all that are on this node:
    that moves nothing, and costs one question instead of many."""
    node = _core.store_node()
    here = [far for far in came if node and far.object[0] == node[0]]
    if len(here) > 1 and sum(far.nbytes for far in here) <= MATES_MAX:
        mates = [ref(far) for far in here]
        for far in here:
            far._mates = mates


def _write(wanted: list[tuple[Far, NDArray[Any]]]) -> None:
    written = _core.piece_write([bytes_of for _, bytes_of in wanted])
    for (far, _), (held, offset) in zip(wanted, written, strict=True):
        far._held, far._offset = held, offset


def joined(parts: list[Any]) -> Far | None:
    """One array of what lies one after another in an object; None: it does not."""
    first = parts[0]
    end = first._offset
    for part in parts:
        if (part.object, part._offset, part.dtype) != (first.object, end, first.dtype):
            return None
        end += part.nbytes
    rows = sum(map(len, parts))
    return Far(first._held, first._offset, first.dtype, (rows, *first.shape[1:]))


class together:
    """What becomes far in here is written at the end of it: one question to the store's
    agent rather than one for each."""

    def __enter__(self) -> None:
        self._is_outermost = collecting.later is None
        if self._is_outermost:
            collecting.later = []

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if not self._is_outermost:
            return
        wanted, collecting.later = collecting.later, None
        if wanted and kind is None:
            _write(wanted)


def _load_far(
    name: _core.PieceName, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> Far:
    return Far(_core.piece_hold(name), offset, dtype, shape)


class FarObjects:
    """A row of Python objects in a store."""

    __slots__ = ("__weakref__", "_objects", "_ref", "shape")

    dtype = np.dtype(object)

    def __init__(self, ref: Ref, count: int) -> None:
        self._ref = ref
        self._objects: NDArray[Any] | None = None
        self.shape = (count,)
        _known.add(self)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def is_here(self) -> bool:
        return self._objects is not None

    def read(self) -> NDArray[Any]:
        """The array of them."""
        if self._objects is None:
            found = self._ref.get()
            if not isinstance(found, np.ndarray):
                made = np.empty(len(found), dtype=object)
                for i, value in enumerate(found):
                    made[i] = value
                found = made
            self._objects = found
        return self._objects

    def __reduce__(self) -> tuple[Any, ...]:
        return FarObjects, (self._ref, self.shape[0])

    def __repr__(self) -> str:
        return f"<{self.shape[0]} far objects>"


def own(array: NDArray[Any]) -> NDArray[Any]:
    """The same numbers, to be written by us alone: copied page by page when that happens,
    or at once where the memory is not the store's."""
    if array.nbytes >= FAR_MIN and array.flags.c_contiguous:
        memory = _core.store_own(array.reshape(-1).view(np.uint8), array.nbytes)
        if memory is not None:
            return np.frombuffer(memory, array.dtype).reshape(array.shape)
    return array.copy()


def is_stored(array: NDArray[Any]) -> bool:
    """It lies in the store of this node, in one piece."""
    if not array.flags.c_contiguous or array.nbytes < STORED_MIN:
        return False
    return _core.piece_is_stored(array.reshape(-1).view(np.uint8))


def sent(array: NDArray[Any]) -> NDArray[Any] | Far:
    """What is pickled for an array of numbers."""
    if array.nbytes >= FAR_MIN or is_stored(array):
        return Far.of(array)
    return np.ascontiguousarray(array)
