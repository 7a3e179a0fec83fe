"""Calls that came by HTTP: JSON in, JSON out, as AReaL's clients speak it."""

# The worker's C host reads the request, checks who sent it and puts it into the
# engine's queue; here it is decoded, run and encoded, on the engine's thread. What JSON
# does not have goes as an object with a "type" (doc/http.md). Such an object can name a
# class, but only a dataclass or an enumeration is made of it, and without calling any
# of its code beyond the import of its module.

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import importlib
import inspect
import io
import json
import subprocess
import sys
import traceback
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeAlias

from muster import _core
from muster._worker import broadcast
from muster._worker.main import find_class

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from muster._worker.main import Worker

_Arguments: TypeAlias = tuple[list[Any], dict[str, Any]]


class _Refused(Exception):
    """The request is answered with this status and text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


# ---- types that JSON does not have: in --------------------------------------------------


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as e:
        raise _Refused(400, f"a tensor came, and torch is not here: {e}") from None


def _class_at(path: Any) -> Any:
    module, _, name = str(path).rpartition(".")
    if not module or not name.isidentifier():
        raise _Refused(400, f"not the path of a class: {path!r}")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as e:
        raise _Refused(400, f"the class {path!r} is not here: {e}") from None


def _array_of(data: str, dtype: Any, shape: list[int]) -> Any:
    # a copy: what is decoded can be written to
    import numpy

    return numpy.frombuffer(base64.b64decode(data), dtype=dtype).copy().reshape(shape)


def _read_ndarray(value: dict[str, Any]) -> Any:
    import numpy

    dtype = numpy.dtype(value["dtype"])
    if dtype.hasobject:
        raise _Refused(400, "an ndarray of objects does not travel")
    return _array_of(value["data"], dtype, value["shape"])


def _dtype_of(torch: Any, name: str) -> Any:
    found = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(found, torch.dtype):
        raise _Refused(400, f"torch has no dtype {name!r}")
    return found


def _read_tensor(value: dict[str, Any]) -> Any:
    torch = _torch()
    dtype = _dtype_of(torch, value["dtype"])
    if value["data"] is None:
        return torch.empty(value["shape"], dtype=dtype, device="meta")
    # bfloat16 comes as float32: numpy does not have it
    stored = torch.float32 if dtype is torch.bfloat16 else dtype
    numpy_dtype = torch.empty(0, dtype=stored).numpy().dtype
    array = _array_of(value["data"], numpy_dtype, value["shape"])
    return torch.from_numpy(array).to(dtype)


def _read_enum(value: dict[str, Any]) -> Any:
    cls = _class_at(value["class_path"])
    if not (isinstance(cls, type) and issubclass(cls, enum.Enum)):
        raise _Refused(400, f"{value['class_path']!r} is no enumeration")
    return cls(value["value"])


def _read_dataclass(value: dict[str, Any]) -> Any:
    cls = _class_at(value["class_path"])
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise _Refused(400, f"{value['class_path']!r} is no dataclass")
    made = object.__new__(cls)  # it was constructed before it was sent
    for name, content in value["data"].items():
        object.__setattr__(made, name, decode(content))
    return made


def _read_image(value: dict[str, Any]) -> Any:
    try:
        image_module = importlib.import_module("PIL.Image")
    except ImportError as e:
        raise _Refused(400, f"an image came, and Pillow is not here: {e}") from None
    image = image_module.open(io.BytesIO(base64.b64decode(value["data"])))
    image.load()
    mode = value.get("mode")
    return image if mode in (None, image.mode) else image.convert(mode)


def _read_nothing(value: dict[str, Any]) -> Any:
    raise _Refused(
        400, f"a {value['type']} does not travel by HTTP: send its name or path"
    )


# type -> the fields that it needs, and what makes it
_READERS: dict[str, tuple[set[str], Callable[[dict[str, Any]], Any]]] = {
    "tensor": ({"data", "shape", "dtype"}, _read_tensor),
    "ndarray": ({"data", "shape", "dtype"}, _read_ndarray),
    "bytes": ({"data"}, lambda value: base64.b64decode(value["data"], validate=True)),
    "dataclass": ({"class_path", "data"}, _read_dataclass),
    "enum": ({"class_path", "value"}, _read_enum),
    "torch_dtype": ({"value"}, lambda value: _dtype_of(_torch(), value["value"])),
    "pil_image": ({"data"}, _read_image),
    "tokenizer": ({"data", "name_or_path"}, _read_nothing),
    "processor": ({"data", "name_or_path"}, _read_nothing),
    "ray_object_ref": ({"data"}, _read_nothing),
}


def decode(value: Any) -> Any:
    """What JSON gave, with objects of a known "type" as what they stand for."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("type")
    found = _READERS.get(kind) if isinstance(kind, str) else None
    if found is None or not found[0] <= value.keys():
        return {key: decode(content) for key, content in value.items()}
    try:
        return found[1](value)
    except _Refused:
        raise
    except Exception as e:
        raise _Refused(400, f"a {kind} cannot be decoded: {e}") from None


# ---- and out ----------------------------------------------------------------------------


def _text64(data: bytes | bytearray | memoryview) -> str:
    return base64.b64encode(data).decode("ascii")


def _write_tensor(torch: Any, tensor: Any) -> dict[str, Any]:
    shape, dtype, data = list(tensor.shape), str(tensor.dtype), None
    if not tensor.is_meta:
        tensor = tensor.detach().cpu()
        if tensor.dtype is torch.bfloat16:
            tensor = tensor.to(torch.float32)
        data = _text64(tensor.numpy().tobytes())
    return {"type": "tensor", "data": data, "shape": shape, "dtype": dtype}


def _write_array(array: Any) -> dict[str, Any]:
    if array.dtype.hasobject:
        raise TypeError("an ndarray of objects does not travel by HTTP")
    shape, data = list(array.shape), _text64(array.tobytes())
    return {"type": "ndarray", "data": data, "shape": shape, "dtype": array.dtype.str}


def _write_image(image: Any) -> dict[str, Any]:
    out = io.BytesIO()
    image.save(out, format="PNG")
    return {"type": "pil_image", "data": _text64(out.getvalue()), "mode": image.mode}


def _path_of(cls: type) -> str:
    return f"{cls.__module__}.{cls.__name__}"


def _encode_loaded(value: Any) -> Any:
    """Values of libraries that are loaded here; None if it is of none."""
    modules = sys.modules
    if (torch := modules.get("torch")) is not None:
        if isinstance(value, torch.Tensor):
            return _write_tensor(torch, value)
        if isinstance(value, torch.dtype):
            return {"type": "torch_dtype", "value": str(value)}
    if (numpy := modules.get("numpy")) is not None:
        if isinstance(value, numpy.ndarray):
            return _write_array(value)
        if isinstance(value, numpy.generic):
            return value.item()
    images = modules.get("PIL.Image")
    if images is not None and isinstance(value, images.Image):
        return _write_image(value)
    return None


def encode(value: Any) -> Any:
    """What json.dumps takes; what it does not know it names itself."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, enum.Enum):
        path = _path_of(type(value))
        return {"type": "enum", "class_path": path, "value": encode(value.value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        data = {name: encode(getattr(value, name)) for name in names}
        return {"type": "dataclass", "class_path": _path_of(type(value)), "data": data}
    if isinstance(value, dict):
        return {key: encode(content) for key, content in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"type": "bytes", "data": _text64(value)}
    if isinstance(value, subprocess.Popen):
        return None  # of a server that was launched: its process stays here
    loaded = _encode_loaded(value)
    return value if loaded is None else loaded


# ---- requests ---------------------------------------------------------------------------


def _answer(status: int, body: dict[str, Any]) -> bytes:
    return f"{status:03d}{json.dumps(body)}".encode()


def _success(**more: Any) -> bytes:
    return _answer(200, {"status": "success"} | more)


def _failure(status: int, text: str, error: BaseException | None = None) -> bytes:
    body = {"status": "error", "error": text}
    if error is not None:
        cls = type(error)
        body["type"] = f"{cls.__module__}.{cls.__qualname__}"
        body["traceback"] = "".join(
            traceback.format_exception(cls, error, error.__traceback__)
        )
    return _answer(status, body)


def _field(body: dict[str, Any], name: str, kind: type, default: Any = None) -> Any:
    value = body.get(name, default)
    if not isinstance(value, kind) or value == "":
        raise _Refused(400, f"'{name}' must be {_KINDS[kind]}")
    return value


_KINDS: dict[type, str] = {
    str: "a string, and not empty",
    dict: "an object",
    list: "a list",
}


def _configure(worker: Worker, body: dict[str, Any]) -> bytes:
    for name in ("config", "rank"):
        if body.get(name) is None:
            raise _Refused(400, f"'{name}' is missing")
    config = decode(body["config"])
    worker.configure(config, seed_of(config, body))
    return _success(message="configured", result=None)


def seed_of(config: Any, body: dict[str, Any]) -> str:
    fields = (
        config if isinstance(config, dict) else {"seed": getattr(config, "seed", "")}
    )
    seed = fields.get("seed")
    return f"{'' if seed is None else seed}{body.get('role') or ''}{body['rank']}"


def _set_env(worker: Worker, body: dict[str, Any]) -> bytes:
    env = _field(body, "env", dict)
    for name, value in env.items():
        if not name or "=" in name or "\0" in f"{name}{value}":
            raise _Refused(400, f"'env': {name!r} cannot be set")
    worker.set_env({name: str(value) for name, value in env.items()})
    return _success()


def _create_engine(worker: Worker, body: dict[str, Any]) -> bytes:
    path = _field(body, "engine", str)
    name = _field(body, "engine_name", str)
    try:
        _core.check_engine_name(name)
    except ValueError as e:
        raise _Refused(400, str(e)) from None
    if name in worker.engines:
        raise _Refused(400, f"there is an engine '{name}' in this worker already")
    args = _field(body, "init_args", list, [])
    kwargs = _field(body, "init_kwargs", dict, {})
    try:
        cls = find_class(path)
    except Exception as e:
        return _failure(400, f"the engine '{path}' cannot be imported: {e}", e)
    if not callable(cls):
        raise _Refused(400, f"'{path}' is no class")
    args, kwargs = decode(args), decode(kwargs)
    try:
        worker.create_engine(name, cls, args, kwargs)
    except Exception as e:
        return _failure(500, f"the engine '{name}' cannot be made: {e}", e)
    return _success(message=f"made '{name}'", engine_name=name, result=None)


def _find_method(worker: Worker, body: dict[str, Any]) -> tuple[Any, Any]:
    """The engine, and its method."""
    method = _field(body, "method", str)
    name = _field(body, "engine_name", str)
    meta = body.get("rpc_meta")
    if meta is not None and not isinstance(meta, dict):
        raise _Refused(400, "'rpc_meta' must be an object or null")
    if not isinstance((meta or {}).get("broadcast", False), bool):
        raise _Refused(400, "'rpc_meta.broadcast' must be true or false")
    if name not in worker.engines:
        there = ", ".join(worker.engines) or "none"
        raise _Refused(404, f"no engine '{name}' in this worker (there: {there})")
    engine = worker.engines[name]
    found = getattr(engine, method, None)
    if not callable(found):
        raise _Refused(400, f"'{type(engine).__name__}' has no method '{method}'")
    return engine, found


def _own_arguments(body: dict[str, Any]) -> _Arguments:
    args = _field(body, "args", list, [])
    kwargs = _field(body, "kwargs", dict, {})
    return decode(args), decode(kwargs)


def _arguments(engine: Any, body: dict[str, Any]) -> tuple[_Arguments, bool]:
    """Its own, or those of the head of its model-parallel group; is its result wanted?"""
    default = broadcast.by_default(engine)
    if not (body.get("rpc_meta") or {}).get("broadcast", default):
        return _own_arguments(body), True
    try:
        target = broadcast.target_of(engine, body["method"])
    except broadcast.CannotBroadcast as e:
        raise _Refused(501, f"'rpc_meta': arguments cannot be broadcast: {e}") from None
    try:
        found = broadcast.broadcast(target, lambda: _own_arguments(body))
    except broadcast.CannotBroadcast as e:
        raise _Refused(400, f"arguments were not broadcast: {e}") from None
    return found, target.is_source


def _result(value: Any) -> bytes:
    try:
        return _success(result=encode(value))
    except (TypeError, ValueError, RecursionError) as e:
        return _failure(500, f"the result cannot be sent as JSON: {e}", e)


def _raised(body: dict[str, Any], error: Exception) -> bytes:
    return _failure(500, f"'{body['method']}' raised: {error}", error)


async def _finish(
    body: dict[str, Any], value: Awaitable[Any], is_wanted: bool
) -> bytes:
    try:
        value = await value
    except Exception as e:
        return _raised(body, e)
    return _result(value if is_wanted else None)


def _call(worker: Worker, body: dict[str, Any]) -> bytes | Awaitable[bytes]:
    engine, method = _find_method(worker, body)
    try:
        (args, kwargs), is_wanted = _arguments(engine, body)
        threads = worker.threads_of(method)
        run: Any = method
        if threads is not None:
            run = functools.partial(threads.submit, method)
        value = run(*args, **kwargs)
        if worker.is_async and isinstance(value, Future):
            from asyncio import wrap_future

            value = wrap_future(value)
        elif isinstance(value, Future):
            value = value.result()
        if inspect.isawaitable(value):
            return _finish(body, value, is_wanted)
    except _Refused:
        raise
    except Exception as e:
        return _raised(body, e)
    return _result(value if is_wanted else None)


_OPERATIONS: dict[int, Callable[[Worker, dict[str, Any]], bytes | Awaitable[bytes]]] = {
    _core.OP_HTTP_CONFIGURE: _configure,
    _core.OP_HTTP_SET_ENV: _set_env,
    _core.OP_HTTP_CREATE_ENGINE: _create_engine,
    _core.OP_HTTP_CALL: _call,
}


def operate(worker: Worker, op: int, data: bytes) -> bytes | Awaitable[bytes]:
    """Three digits of a status and JSON; awaitable if the method is (async worker)."""
    try:
        try:
            body = json.loads(data)
        except (ValueError, RecursionError) as e:
            raise _Refused(400, f"the body is not JSON: {e}") from None
        if not isinstance(body, dict):
            raise _Refused(400, "the body is not a JSON object")
        return _OPERATIONS[op](worker, body)
    except _Refused as e:
        return _failure(e.status, str(e))
    except RecursionError as e:
        return _failure(400, f"the body is nested too deeply: {e}")
