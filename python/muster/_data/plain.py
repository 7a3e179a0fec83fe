"""Tensors as plain data has them (codec 2), and back."""

# The rest of it is in the extension.
#
# numpy arrays and torch tensors on the CPU go; what comes is a numpy array over the
# message's own memory (`torch.from_numpy` makes a tensor of it without a copy), or, for
# bfloat16, which numpy does not know, a torch tensor.

from __future__ import annotations

import sys

from muster import _core
from muster._data.serialize import _is_tensor_type

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CODES = {name: code for code, name in enumerate(_core.DTYPES) if name}
_BFLOAT16 = _CODES["bfloat16"]


def tensor_of(obj: Any) -> Any:
    """(dtype, shape, buffer) of a tensor, a plain number, or None for anything else."""
    # ValueError with the reason for one that cannot be sent.
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        if isinstance(obj, numpy.generic):
            number = obj.item()
            return number if isinstance(number, (bool, int, float)) else None
        if isinstance(obj, numpy.ndarray):
            return _of_array(numpy, obj)
    kind: Any = type(obj)
    if _is_tensor_type(kind):
        return _of_torch(obj)
    return None


def _of_array(numpy: Any, array: Any) -> tuple[int, tuple[int, ...], Any]:
    code = _CODES.get(array.dtype.name)
    if code is None:
        raise ValueError(f"a numpy array of {array.dtype}: plain data has no such type")
    data = numpy.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return code, array.shape, data.reshape(-1).view(numpy.uint8)


def _of_torch(tensor: Any) -> tuple[int, tuple[int, ...], Any]:
    if tensor.device.type != "cpu":
        raise ValueError(
            f"a torch tensor on {tensor.device}: device memory does not travel in a "
            "call; send tensor.cpu(), or move it with a collective"
        )
    torch: Any = sys.modules["torch"]
    code = _CODES.get(str(tensor.dtype).removeprefix("torch."))
    if code is None or tensor.layout != torch.strided:
        raise ValueError(
            f"a torch tensor of {tensor.dtype}, {tensor.layout}: plain data has no such type"
        )
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return code, tuple(tensor.shape), flat.view(torch.uint8).numpy()


def tensor(code: int, shape: tuple[int, ...], data: memoryview) -> Any:
    """What tensor_of took apart. `data` is kept."""
    if code == _BFLOAT16:
        torch = _torch()
        flat = torch.frombuffer(data, dtype=torch.bfloat16) if len(data) else None
        if flat is None:
            return torch.empty(shape, dtype=torch.bfloat16)
        return flat.reshape(shape)
    try:
        import numpy
    except ImportError:
        raise ValueError("a tensor has come, and numpy is not here") from None
    return numpy.frombuffer(data, dtype=_core.DTYPES[code]).reshape(shape)


def _torch() -> Any:
    import importlib

    try:
        return importlib.import_module("torch")
    except ImportError:
        raise ValueError("a bfloat16 tensor has come, and torch is not here") from None
