"""Objects to bytes and back: pickle protocol 5, buffers out of band."""

# What is defined in `__main__`, a notebook, or a function goes by value (cloudpickle);
# what can be imported goes by name. A tensor on a GPU is refused with a sentence, not
# copied through the host by surprise.

from __future__ import annotations

import functools
import io
import sys
import types
from _pickle import PickleBuffer
from _pickle import dumps as plain_dumps
from _pickle import loads as plain_loads

from muster._core import PAYLOAD_BUFFER_MIN as BUFFER_MIN
from muster._core import Held
from muster._data.store import collecting, resolve_arguments
from muster.errors import (
    MusterError,
    ObjectLost,
    RemoteError,
    SerializationError,
    StoreFull,
    rebuild,
    state_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

PROTOCOL = 5
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
STEPS_MAX = 2000  # attempts to find the part that cannot be pickled
DEPTH_MAX = 16


class _DeviceTensor(Exception):
    pass


@functools.cache
def _is_tensor_type(cls: type) -> bool:
    return any(
        c.__name__ == "Tensor" and c.__module__.partition(".")[0] == "torch"
        for c in cls.__mro__
    )


def _refuse_device_tensor(tensor: Any) -> None:
    device = tensor.device
    if device.type not in ("cpu", "meta"):
        raise _DeviceTensor(
            f"a torch tensor on {device}: device memory does not travel in a call; "
            "send tensor.cpu(), or move it with a collective"
        )


def _reduce_tensor(tensor: Any) -> Any:
    """By its numbers, which go out of band; torch itself would put its whole storage into
    the pickle. Where there is more to a tensor than its numbers: as torch does it."""
    from muster._data.torch_arrays import array_of, is_plain

    _refuse_device_tensor(tensor)
    if (
        tensor.requires_grad
        or not is_plain(tensor)
        or tensor.nbytes < BUFFER_MIN
        or tensor.__dict__
    ):
        return NotImplemented
    return _load_tensor, (array_of(tensor),)


def _load_tensor(array: Any) -> Any:
    """To be written by this process alone: torch has no read-only tensors."""
    from muster._data.remote_array import private_copy
    from muster._data.torch_arrays import tensor_of

    return tensor_of(private_copy(array))


_PACKAGES = ("muster", "numpy")  # what is theirs is at the other end too
_by_name: dict[Any, bool] = {}


def _goes_by_name(obj: Any) -> bool:
    """A class or a function that is found by its name; looked at once for each."""
    try:
        known = _by_name.get(obj)
        if known is None and obj.__module__.partition(".")[0] in _PACKAGES:
            module = sys.modules.get(obj.__module__)
            known = getattr(module, obj.__qualname__, None) is obj
            _by_name[obj] = known
    except (TypeError, AttributeError):  # it has no hash, or no module
        return False
    return bool(known)


@functools.cache
def _pickler() -> Any:
    try:
        import cloudpickle  # takes 10 ms
    except Exception as e:
        raise MusterError(f"cloudpickle cannot be imported: {e}") from e

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            cls: Any = type(obj)
            if cls is types.FunctionType or issubclass(cls, type):
                if _goes_by_name(obj):
                    return NotImplemented
                return super().reducer_override(obj)
            if not _is_tensor_type(cls):
                return NotImplemented
            if cls.__module__ == "torch" and cls.__name__ == "Tensor":
                return _reduce_tensor(obj)
            _refuse_device_tensor(obj)
            return NotImplemented

    return Pickler


def _pickle(obj: Any, callback: Callable[[PickleBuffer], Any]) -> bytes:
    out = io.BytesIO()
    _pickler()(out, protocol=PROTOCOL, buffer_callback=callback).dump(obj)
    return out.getvalue()


Pickled = tuple[bytes, list[memoryview], list[Held]]


def dumps(obj: Any) -> Pickled:
    """The pickle, the buffers that `loads` wants, what it refers to in a store."""
    if type(obj) is PickledOnce:
        return plain_dumps(obj, PROTOCOL), [], obj.held
    buffers: list[memoryview] = []

    def take(buffer: PickleBuffer) -> bool:
        """True: put it into the pickle."""
        raw = buffer.raw()
        if raw.nbytes < BUFFER_MIN:
            return True
        buffers.append(raw)
        return False

    _pickler()  # its failure is not the object's
    try:
        data, held = _pickle_refs(obj, take)
    except (StoreFull, ObjectLost):
        raise  # of what was to be left in the store
    except Exception as e:
        raise _explain(obj, e) from None
    return data, buffers, held


def dumps_alone(obj: Any) -> Pickled:
    """The same for those who have no store: nothing of batches is left there."""
    outer, collecting.by_name = collecting.by_name, False
    try:
        return dumps(obj)
    finally:
        collecting.by_name = outer


def dumps_call(call: tuple[tuple[Any, ...], dict[str, Any] | None]) -> Pickled:
    """The same of a call's arguments: refs and futures among them become their values."""
    return dumps(resolve_arguments(*call))


def _pickle_refs(
    obj: Any, callback: Callable[[PickleBuffer], Any]
) -> tuple[bytes, list[Held]]:
    outer, collecting.held = collecting.held, []
    line, collecting.line = collecting.line, ""
    writes, collecting.writes = collecting.writes, None  # of this pickle: at its end
    try:
        return _pickle(obj, callback), collecting.held
    finally:
        collecting.held, collecting.line, collecting.writes = outer, line, writes


def dumps_inline(obj: Any) -> bytes:
    """The pickle of `obj` alone, with all in it."""
    return _pickle(obj, lambda _: True)


def to_bytes(obj: Any) -> bytes:
    """The same for users' objects: what cannot be pickled is named."""
    _pickler()  # its failure is not the object's
    try:
        return dumps_inline(obj)
    except Exception as e:
        raise _explain(obj, e) from None


class PickledOnce:
    """Pickles `value` now, and is pickled as that: for what goes to many workers."""

    # `plain`: all in it goes by name, and cloudpickle need not be imported.

    def __init__(self, value: Any, plain: bool = False) -> None:
        self.plain = plain
        self.held: list[Held] = []
        if not plain:
            _pickler()
        try:
            if plain:
                self.data = plain_dumps(value, PROTOCOL)
            else:
                self.data, self.held = _pickle_refs(value, lambda _: True)
        except Exception as e:
            raise _explain(value, e) from None

    def __reduce__(self) -> tuple[Any, ...]:
        if self.plain:
            return plain_loads, (self.data,)
        import cloudpickle

        return _load_pickled, (PYTHON, cloudpickle.__version__, self.data)


def _load_pickled(python: str, pickler: str, data: bytes) -> Any:
    """What a `PickledOnce` of that Python and that cloudpickle holds."""
    # A class by value is code of one minor version of Python: another one may crash on
    # it, so it does not try.
    if python != PYTHON:
        raise SerializationError(
            f"the sender runs Python {python}, this process Python {PYTHON}: what goes by "
            "value needs the same minor version at both ends; use one, or put the class "
            "into a module that workers can import"
        )
    try:
        return plain_loads(data)
    except Exception as e:
        here = _pickler_version()
        if here == pickler:
            raise
        raise SerializationError(
            f"the sender has cloudpickle {pickler}, this process {here or 'none'}, and "
            f"cannot read what was sent: {e}"
        ) from e


def _pickler_version() -> str:
    try:
        import cloudpickle
    except Exception:
        return ""
    return str(cloudpickle.__version__)


def loads(data: Any, buffers: list[Any]) -> Any:
    return plain_loads(data, buffers=buffers)


# ---- exceptions -----------------------------------------------------------------------


def _reduce_exception(error: BaseException) -> tuple[Any, ...]:
    """Without its constructor, and without those parts that cannot be sent."""
    args = tuple(a if _can_pickle(a) else repr(a) for a in error.args)
    state = {k: v for k, v in state_of(error).items() if _can_pickle(v)}
    return rebuild, (type(error), args, state)


def dumps_exception(error: BaseException) -> bytes:
    """What remote_error() takes; empty if its class cannot be sent."""
    out = io.BytesIO()
    try:
        _exception_pickler()(out, protocol=PROTOCOL).dump(error)
    except Exception:
        return b""
    return out.getvalue()


@functools.cache
def _exception_pickler() -> Any:
    class Pickler(_pickler()):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, BaseException) and not isinstance(obj, RemoteError):
                return _reduce_exception(obj)
            return super().reducer_override(obj)

    return Pickler


# ---- which part cannot be sent --------------------------------------------------------


def _can_pickle(obj: Any) -> bool:
    try:
        _pickle_refs(obj, lambda _: None)
    except Exception:
        return False
    return True


def _children(obj: Any) -> Iterator[tuple[str, Any]]:
    """Its parts, each with how one writes the way to it."""
    if isinstance(obj, dict):
        for key, value in obj.items():
            yield f"[{key!r}]", value
            yield f"<key {key!r}>", key
    elif isinstance(obj, (list, tuple)):
        yield from ((f"[{i}]", value) for i, value in enumerate(obj))
    elif isinstance(obj, (set, frozenset)):
        yield from ((f"<element {value!r}>", value) for value in obj)
    elif isinstance(obj, types.FunctionType):
        names, cells = obj.__code__.co_freevars, obj.__closure__ or ()
        for name, cell in zip(names, cells, strict=True):
            yield f"<its variable {name}>", cell.cell_contents
        for name in obj.__code__.co_names:
            if name in obj.__globals__:
                yield f"<its global {name}>", obj.__globals__[name]
    elif isinstance(obj, types.MethodType):
        yield ".__self__", obj.__self__
        yield ".__func__", obj.__func__
    elif not isinstance(obj, type):
        for name, value in getattr(obj, "__dict__", {}).items():
            yield f".{name}", value
        for cls in type(obj).__mro__:
            slots = cls.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if hasattr(obj, name):
                    yield f".{name}", getattr(obj, name)


def _failing_part(obj: Any, path: str, why: Exception) -> tuple[str, Exception]:
    """The deepest part that fails by itself, and why."""
    steps = 0
    for _ in range(DEPTH_MAX):
        for step, child in _children(obj):
            if (steps := steps + 1) > STEPS_MAX:
                return path, why
            try:
                _pickle_refs(child, lambda _: None)
            except Exception as e:
                obj, path, why = child, path + step, e
                break
        else:
            break
    return path, why


def _is_call(obj: Any) -> bool:
    """(args, kwargs), as the arguments of a call come here."""
    return (
        type(obj) is tuple
        and len(obj) == 2
        and type(obj[0]) is tuple
        and (obj[1] is None or type(obj[1]) is dict)
    )


def _explain(obj: Any, why: Exception) -> SerializationError:
    try:
        if _is_call(obj):
            path, reason = _failing_part(obj, "", why)
            root = "kwargs" if path.startswith("[1]") else "args"
            path = root + path[len("[0]") :]
        else:
            path, reason = _failing_part(obj, "value", why)
    except Exception:
        path, reason = "value", why  # a part that cannot even be looked at
    text = str(reason) or type(reason).__name__
    return SerializationError(f"{path}: {text}")
