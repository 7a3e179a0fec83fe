"""One column of a DataProto: a numpy array or a tensor of torch, whichever it came as.

A column may also be one that is made when it is first read:
- Sealed: a tensor whose bytes lie in memory that must not be written, as those of a call
  do. Whoever reads the column gets a tensor of his own; what is only passed on, divided
  or moved to a device is never copied.
- Joined: the results of several ranks, which are put together when they are read.
torch is never imported before there is a tensor to be made.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np

from muster._batch_parts import equal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from numpy.typing import NDArray

    Cell = Any  # an array, a tensor, Sealed or Joined

_OF_SIZE = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}  # for what numpy has not


def is_tensor(value: Any) -> bool:
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def the_torch() -> Any:
    import torch  # type: ignore[import-not-found]

    return torch


class Sealed:
    """A tensor in memory that is not ours. `dtype`: torch's name of it."""

    __slots__ = ("array", "dtype")

    def __init__(self, array: NDArray[Any], dtype: str) -> None:
        self.array = array
        self.dtype = dtype

    def __len__(self) -> int:
        return len(self.array)

    def read(self) -> Any:
        """A tensor that may be written. The first time that is a copy, unless the memory
        may be written; all who share this cell, and slices from then on, see it."""
        if not self.array.flags.writeable:
            self.array = self.array.copy()
        return self.shared()

    def shared(self) -> Any:
        """A tensor in this very memory: it must not be written."""
        torch = the_torch()
        array = self.array
        if any(stride < 0 for stride in array.strides):
            array = array.copy()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is read-only
            tensor = torch.from_numpy(array)
        dtype = getattr(torch, self.dtype)
        return tensor if tensor.dtype == dtype else tensor.view(dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        return Sealed, (np.ascontiguousarray(self.array), self.dtype)


class Joined:
    """Several cells, one after another."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[Cell]) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def read(self) -> Any:
        """Put together, once."""
        if len(self.parts) > 1 or isinstance(self.parts[0], Sealed):
            self.parts = [join(self.parts)]
        return self.parts[0]

    shared = read

    def run(self, start: int, end: int) -> Cell:
        """Some rows of it, without a copy."""
        found = []
        for part in self.parts:
            a, b = max(start, 0), min(end, len(part))
            if a < b:
                found.append(rows(part, slice(a, b)))
            start, end = start - len(part), end - len(part)
        found = found or [rows(self.parts[0], slice(0, 0))]
        return found[0] if len(found) == 1 else Joined(found)

    def __reduce__(self) -> tuple[Any, ...]:
        return Joined, ([packed(part) for part in self.parts],)


def packed(cell: Cell) -> Cell:
    """As it is sent: the bytes of tensors are buffers beside the pickle."""
    if isinstance(cell, np.ndarray) and not cell.dtype.hasobject:
        return np.ascontiguousarray(cell)
    if not is_tensor(cell):
        return cell
    torch = the_torch()
    if cell.layout != torch.strided or cell.device.type != "cpu" or cell.is_nested:
        return cell  # as torch does it, or muster refuses it
    whole = cell.detach().resolve_conj().resolve_neg().contiguous()
    name = str(whole.dtype).removeprefix("torch.")
    return Sealed(_as_array(whole), name)


def _as_array(tensor: Any) -> NDArray[Any]:
    """The same memory; numbers that numpy does not know become integers of their size."""
    try:
        array: NDArray[Any] = tensor.numpy()
    except TypeError:
        same = getattr(the_torch(), _OF_SIZE[tensor.element_size()])
        array = tensor.view(same).numpy()
    return array


# ---- one column -----------------------------------------------------------------------


def ready(cell: Cell) -> Any:
    """An array or a tensor."""
    return cell.read() if isinstance(cell, (Sealed, Joined)) else cell


def shared(cell: Cell) -> Any:
    """The same, that may be memory which must not be written."""
    return cell.shared() if isinstance(cell, (Sealed, Joined)) else cell


def rows(cell: Cell, chosen: slice) -> Cell:
    """A view, unless the rows are taken backwards."""
    first, end, step = chosen.indices(len(cell))
    if isinstance(cell, Joined):
        return cell.run(first, end) if step == 1 else rows(cell.read(), chosen)
    if isinstance(cell, Sealed):
        return Sealed(cell.array[chosen], cell.dtype)
    if step < 0 and is_tensor(cell):
        return take(cell, np.arange(len(cell))[chosen])
    return cell[chosen]


def take(cell: Cell, indexes: NDArray[Any]) -> Any:
    """The rows of these indexes, or of a mask; a copy."""
    values = shared(cell)
    if is_tensor(values):
        return values[the_torch().from_numpy(np.ascontiguousarray(indexes))]
    return values[indexes]


def repeat(cell: Cell, times: int | NDArray[np.int64], interleave: bool = True) -> Any:
    """Each row several times, or all rows; `times` may be a number for each row."""
    if not interleave:
        return join([cell] * int(times)) if times else rows(cell, slice(0, 0))
    values = shared(cell)
    if is_tensor(values):
        how = times if isinstance(times, int) else the_torch().from_numpy(times)
        return values.repeat_interleave(how, dim=0)
    return np.repeat(values, times, axis=0)


def join(cells: Iterable[Cell]) -> Any:
    """One after another, in new memory."""
    values = [shared(cell) for cell in cells]
    if all(map(is_tensor, values)):
        return the_torch().cat(values, dim=0)
    if any(map(is_tensor, values)):
        raise TypeError("it is a tensor in one and an array in another")
    return np.concatenate(values)


def join_later(cells: list[Cell]) -> Cell:
    """The same, put together when it is read, if nothing has to be changed for that."""
    parts = [p for c in cells for p in (c.parts if isinstance(c, Joined) else [c])]
    if len({_kind(part) for part in parts}) > 1:
        return join(parts)
    return Joined(parts)


def _kind(cell: Cell) -> tuple[Any, ...]:
    """What is the same in cells that are joined without a change."""
    values = cell.array if isinstance(cell, Sealed) else cell
    dtype = cell.dtype
    if is_tensor(cell):
        dtype = str(dtype).removeprefix("torch.")
    array = isinstance(cell, np.ndarray)
    return array, str(dtype), str(getattr(values, "device", "cpu")), values.shape[1:]


def is_numbers(array: NDArray[Any]) -> bool:
    """torch has such numbers too."""
    kind = array.dtype
    return kind.kind in "biufc" and kind.isnative and kind.itemsize <= 16


def same(a: Any, b: Any) -> bool:
    """Equal values; NaN equals NaN."""
    a, b = shared(a), shared(b)
    if a is b:
        return True
    if is_tensor(a) or is_tensor(b):
        if not (is_tensor(a) and is_tensor(b)) or a.dtype != b.dtype:
            return False
        if a.equal(b):
            return True
        differs = (a != b) & ((a == a) | (b == b)) if a.shape == b.shape else None
        return differs is not None and not bool(differs.any())
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    try:
        return equal(a, b) or bool(a != a and b != b)
    except (ValueError, TypeError, RuntimeError):  # of unlike shapes or kinds
        return False


def as_numbers(name: str, cell: Cell) -> Any:
    """An array in the same memory, or what becomes one there."""
    if isinstance(cell, Sealed):
        if cell.array.dtype.name == cell.dtype:
            return cell.array
        raise TypeError(f"tensor {name!r}: numpy has no {cell.dtype}")
    values = ready(cell)
    if is_tensor(values) and values.dtype == the_torch().bfloat16:
        raise TypeError(f"tensor {name!r}: numpy has no bfloat16: .float() it first")
    return values
