"""Types that JSON does not have, as AReaL's clients send and expect them."""

# What JSON does not have goes as an object with a "type" (doc/http.md). Such an object can
# name a class, but only a dataclass or an enumeration is made of it, and without calling
# any of its code beyond the import of its module.

from __future__ import annotations

import base64
import dataclasses
import enum
import importlib
import io
import subprocess
import sys
import tempfile
import zipfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Refused(Exception):
    """The request is answered with this status and text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class _NotHere(Refused):
    """The class that it names cannot be imported."""


# ---- types that JSON does not have: in --------------------------------------------------


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as e:
        raise Refused(400, f"a tensor came, and torch is not here: {e}") from None


def _class_at(path: Any) -> Any:
    module, _, name = str(path).rpartition(".")
    if not module or not name.isidentifier():
        raise Refused(400, f"not the path of a class: {path!r}")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as e:
        raise _NotHere(400, f"the class {path!r} is not here: {e}") from None


def _array_of(data: str, dtype: Any, shape: list[int]) -> Any:
    # a copy: what is decoded can be written to
    import numpy

    return numpy.frombuffer(base64.b64decode(data), dtype=dtype).copy().reshape(shape)


def _read_ndarray(value: dict[str, Any]) -> Any:
    import numpy

    dtype = numpy.dtype(value["dtype"])
    if dtype.hasobject:
        raise Refused(400, "an ndarray of objects does not travel")
    return _array_of(value["data"], dtype, value["shape"])


def _dtype_of(torch: Any, name: str) -> Any:
    found = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(found, torch.dtype):
        raise Refused(400, f"torch has no dtype {name!r}")
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
        raise Refused(400, f"{value['class_path']!r} is no enumeration")
    return cls(value["value"])


def _read_dataclass(value: dict[str, Any]) -> Any:
    try:
        cls = _class_at(value["class_path"])
    except _NotHere:  # as a server of AReaL's does: it may never be looked at
        return _plain(value)
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise Refused(400, f"{value['class_path']!r} is no dataclass")
    made = object.__new__(cls)  # it was constructed before it was sent
    for name, content in value["data"].items():
        object.__setattr__(made, name, decode(content))
    return made


def _read_image(value: dict[str, Any]) -> Any:
    try:
        image_module = importlib.import_module("PIL.Image")
    except ImportError as e:
        raise Refused(400, f"an image came, and Pillow is not here: {e}") from None
    image = image_module.open(io.BytesIO(base64.b64decode(value["data"])))
    image.load()
    mode = value.get("mode")
    return image if mode in (None, image.mode) else image.convert(mode)


def _unpack(value: dict[str, Any], folder: str) -> None:
    """The files of a tokenizer or processor, as `save_pretrained` has written them."""
    data = base64.b64decode(value["data"])
    if value.get("compression", "zip") == "zstd":
        data = importlib.import_module("zstandard").ZstdDecompressor().decompress(data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        archive.extractall(folder)


def _read_pretrained(value: dict[str, Any], loader: str) -> Any:
    try:
        transformers = importlib.import_module("transformers")
    except ImportError as e:
        text = f"a {value['type']} came, and transformers is not here: {e}"
        raise Refused(400, text) from None
    with tempfile.TemporaryDirectory() as folder:
        _unpack(value, folder)
        made = getattr(transformers, loader).from_pretrained(folder)
    if hasattr(made, "name_or_path"):
        made.name_or_path = value["name_or_path"]
    return made


def _read_nothing(value: dict[str, Any]) -> Any:
    raise Refused(
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
    "tokenizer": (
        {"data", "name_or_path"},
        lambda value: _read_pretrained(value, "AutoTokenizer"),
    ),
    "processor": (
        {"data", "name_or_path"},
        lambda value: _read_pretrained(value, "AutoProcessor"),
    ),
    "ray_object_ref": ({"data"}, _read_nothing),
}


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    return {key: decode(content) for key, content in value.items()}


def decode(value: Any) -> Any:
    """What JSON gave, with objects of a known "type" as what they stand for."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("type")
    found = _READERS.get(kind) if isinstance(kind, str) else None
    if found is None or not found[0] <= value.keys():
        return _plain(value)
    try:
        return found[1](value)
    except Refused:
        raise
    except Exception as e:
        raise Refused(400, f"a {kind} cannot be decoded: {e}") from None


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
