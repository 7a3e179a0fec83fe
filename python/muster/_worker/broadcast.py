"""Arguments that came to one rank alone, for the others of its model-parallel group."""

# A controller of AReaL's sends the arguments of a call to the data-parallel heads; the
# other ranks are called with the same method and without arguments, and get them in the
# engine's own process groups of torch, before the method runs. The engine says which: a
# group `context_and_model_parallel_group`, whose rank `current_data_parallel_head()`
# has the arguments.
#
# However many tensors there are, the group hears of them once: a header (the arguments'
# pickle, in which tensors are numbers, and what shape each has), then the small tensors
# as one buffer, and each big one by itself. torch is the engine's: this module never
# imports it.

from __future__ import annotations

import inspect
import io
import pickle
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

# A tensor of this many bytes goes by itself, without being copied.
ALONE_BYTES = 4 << 20
# Tensors begin at multiples of it in the buffer of the small ones.
ALIGN_BYTES = 16


class CannotBroadcast(Exception):
    """What is missing here, for the person who asked."""


class Target(NamedTuple):
    """Where the arguments go: to all ranks of a group, from one of them."""

    torch: Any
    group: Any
    source: int
    device: Any

    @property
    def is_source(self) -> bool:
        return bool(self.torch.distributed.get_rank() == self.source)


class _Shape(NamedTuple):
    dtype: Any
    shape: tuple[int, ...]
    size: int  # in bytes


class _Header(NamedTuple):
    error: str | None  # why there are no arguments
    pickled: bytes
    tensors: list[_Shape]


# ---- whether, and where to --------------------------------------------------------------


def by_default(engine: Any) -> bool:
    """Whether its calls are broadcast if nothing is said: it trains, and is initialized."""
    return not _lacks(engine) and getattr(engine, "initialized", False) is True


def _lacks(engine: Any) -> list[str]:
    names = ("context_and_model_parallel_group", "current_data_parallel_head")
    missing = object()
    # their properties are not run: an engine of another kind may raise there
    return [n for n in names if inspect.getattr_static(engine, n, missing) is missing]


def target_of(engine: Any, method: str) -> Target:
    """Fails with CannotBroadcast."""
    if lacks := _lacks(engine):
        text = " and no ".join(f"'{name}'" for name in lacks)
        raise CannotBroadcast(f"the engine '{type(engine).__name__}' has no {text}")
    torch = sys.modules.get("torch")
    if torch is None:
        raise CannotBroadcast("torch is not loaded in this worker")
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        raise CannotBroadcast("the engine has not made its process groups yet")
    group, device = _group_of(torch, engine, method)
    if group is None:
        raise CannotBroadcast("the engine has not made its model-parallel group yet")
    return Target(torch, group, engine.current_data_parallel_head(), device)


def _group_of(torch: Any, engine: Any, method: str) -> tuple[Any, Any]:
    """An engine that gave its device away for now has the same ranks as a group on CPUs."""
    mirror = getattr(engine, "cpu_model_parallel_group", None)
    if method in getattr(engine, "cpu_staged_rpc_methods", ()):
        return mirror, torch.device("cpu")
    if mirror is not None and getattr(engine, "is_offload", False):
        return mirror, torch.device("cpu")
    return engine.context_and_model_parallel_group, _device_of(torch, engine)


def _device_of(torch: Any, engine: Any) -> Any:
    device = getattr(engine, "device", None)
    if device is not None:
        return torch.device(device)
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None and accelerator.is_available():
        kind = accelerator.current_accelerator().type
        return torch.device(kind, accelerator.current_device_index())
    return torch.device("cpu")


# ---- tensors out of a pickle and into it ------------------------------------------------


def _pickle(target: Target, value: Any) -> tuple[bytes, list[Any]]:
    """The tensors are on the target's device, each once."""
    torch = target.torch
    tensors: list[Any] = []
    numbers: dict[int, int] = {}
    seen: list[Any] = []  # an id is one's own only while it lives

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: Any) -> int | None:
            if not isinstance(obj, torch.Tensor) or obj.layout != torch.strided:
                return None
            if obj.is_meta or obj.is_quantized:
                return None
            number = numbers.setdefault(id(obj), len(tensors))
            if number == len(tensors):
                seen.append(obj)
                tensors.append(obj.detach().to(target.device).contiguous())
            return number

    out = io.BytesIO()
    Pickler(out, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return out.getvalue(), tensors


def _unpickle(data: bytes, tensors: list[Any]) -> Any:
    class Unpickler(pickle.Unpickler):
        def persistent_load(self, pid: Any) -> Any:
            return tensors[pid]

    return Unpickler(io.BytesIO(data)).load()


# ---- the collectives --------------------------------------------------------------------


def _send_header(target: Target, header: _Header | None) -> _Header:
    box = [header]
    target.torch.distributed.broadcast_object_list(
        box, src=target.source, group=target.group, device=target.device
    )
    assert box[0] is not None
    return box[0]


def _send(target: Target, tensor: Any) -> None:
    target.torch.distributed.broadcast(tensor, src=target.source, group=target.group)


def _bytes_of(target: Target, tensor: Any) -> Any:
    return tensor.reshape(-1).view(target.torch.uint8)


def _send_small(target: Target, tensors: list[Any]) -> None:
    """All of them as one buffer."""
    torch = target.torch
    starts, end = [], 0
    for tensor in tensors:
        starts.append(end)
        size = tensor.numel() * tensor.element_size()
        end += -(-size // ALIGN_BYTES) * ALIGN_BYTES
    buffer = torch.empty(end, dtype=torch.uint8, device=target.device)
    parts = [
        (buffer.narrow(0, start, flat.numel()), flat)
        for start, flat in zip(
            starts, [_bytes_of(target, tensor) for tensor in tensors], strict=True
        )
    ]
    if target.is_source:
        for part, flat in parts:
            part.copy_(flat)
    _send(target, buffer)
    if not target.is_source:
        for part, flat in parts:
            flat.copy_(part)


def _send_tensors(target: Target, tensors: list[Any], shapes: list[_Shape]) -> None:
    small = []
    for tensor, shape in zip(tensors, shapes, strict=True):
        if shape.size >= ALONE_BYTES:
            _send(target, tensor)
        elif shape.size > 0:
            small.append(tensor)
    if small:
        _send_small(target, small)


def broadcast(target: Target, make: Callable[[], Any]) -> Any:
    """What `make` gives at the source, at all ranks, on the target's device."""
    # If it raises there, it raises CannotBroadcast at the others. They do not call it.
    if not target.is_source:
        return _receive(target)
    try:
        pickled, tensors = _pickle(target, make())
    except Exception as e:
        _send_header(target, _Header(str(e) or repr(e), b"", []))
        raise
    shapes = [
        _Shape(each.dtype, tuple(each.shape), each.numel() * each.element_size())
        for each in tensors
    ]
    _send_header(target, _Header(None, pickled, shapes))
    _send_tensors(target, tensors, shapes)
    return _unpickle(pickled, tensors)


def _receive(target: Target) -> Any:
    header = _send_header(target, None)
    if header.error is not None:
        raise CannotBroadcast(f"rank {target.source} had no arguments: {header.error}")
    tensors = [
        target.torch.empty(each.shape, dtype=each.dtype, device=target.device)
        for each in header.tensors
    ]
    _send_tensors(target, tensors, header.tensors)
    return _unpickle(header.pickled, tensors)
