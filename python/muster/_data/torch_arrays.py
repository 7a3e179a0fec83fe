"""Tensors of torch as arrays of numpy in the same memory, and back."""

# Numbers that numpy does not know, such as bfloat16, are arrays with one field of that
# name, which has their bits: `array["bfloat16"]`. torch is never imported before there
# is a tensor to be made.

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BITS = {1: np.uint8, 2: np.int16}
_UNKNOWN = {  # to numpy, with their sizes
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
}


def is_tensor(value: Any) -> bool:
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def the_torch() -> Any:
    import torch  # type: ignore[import-not-found]

    return torch


def dtype_of(kind: Any) -> np.dtype[Any]:
    """From whatever names a kind of numbers, torch's too."""
    name = str(kind).removeprefix("torch.")
    if name in _UNKNOWN:
        kind = [(name, _BITS[_UNKNOWN[name]])]
    elif type(kind).__module__ == "torch":
        kind = name
    found: np.dtype[Any] = np.dtype(kind)
    return found


def name_of(dtype: np.dtype[Any]) -> str:
    """torch's name of it, where it has one; of two that differ never the same."""
    if dtype.names and len(dtype.names) == 1 and dtype.names[0] in _UNKNOWN:
        return dtype.names[0]
    if dtype.names:
        return str(dtype)
    return dtype.name if dtype.isnative else dtype.str


def is_plain(tensor: Any) -> bool:
    """Its numbers lie in this host's memory, at equal distances."""
    return (
        tensor.device.type == "cpu"
        and tensor.layout == the_torch().strided
        and not tensor.is_nested
        and not tensor.is_quantized
    )


def array_of(tensor: Any) -> NDArray[Any]:
    """The same memory. TypeError in one sentence if there is none."""
    if tensor.device.type != "cpu":
        raise TypeError(
            f"the tensor is on {tensor.device}: .cpu() it first; batches live in host "
            "memory"
        )
    if not is_plain(tensor):
        raise TypeError(
            f"a tensor of layout {tensor.layout} has no rows of numbers: .to_dense() it, "
            "or use muster.Ragged"
        )
    bare = tensor.detach().resolve_conj().resolve_neg()
    name = str(bare.dtype).removeprefix("torch.")
    if name not in _UNKNOWN:
        array: NDArray[Any] = bare.numpy()
        return array
    torch = the_torch()
    bits = bare.view(torch.uint8 if _UNKNOWN[name] == 1 else torch.int16)
    return np.asarray(bits.numpy().view(dtype_of(name)))


def tensor_of(array: NDArray[Any]) -> Any:
    """In the same memory, unless its rows run backwards."""
    # It must not be written if the array must not.
    torch = the_torch()
    if min(array.strides, default=0) < 0:
        array = array.copy()
    names = array.dtype.names
    bits = array[names[0]] if names else array
    tensor = torch.from_numpy(bits) if bits.flags.writeable else _read_only(bits)
    return tensor.view(getattr(torch, names[0])) if names else tensor


def _read_only(bits: NDArray[Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that torch knows no such thing
        return the_torch().from_numpy(bits)


def has_tensors(dtype: np.dtype[Any]) -> bool:
    """torch has such numbers."""
    if dtype.names:
        return name_of(dtype) in _UNKNOWN
    return dtype.kind in "biufc" and dtype.isnative and dtype.itemsize <= 16
