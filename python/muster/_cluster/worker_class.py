"""The class of a cluster's workers: how it is sent, and what it needs imported."""

# A class that workers can import goes by its name, any other one by value. One in a
# shared library, "libreward.so:reward", is told as plain data.

from __future__ import annotations

import os
import sys
from types import CodeType, ModuleType

from muster import _core
from muster._data.serialize import PickledOnce
from muster.dispatch import methods_of
from muster.errors import SerializationError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from muster.dispatch import Method

_KNOWN = frozenset({"muster", "cloudpickle", *sys.stdlib_module_names})


def is_native(worker_cls: type | str) -> bool:
    """Such as "libreward.so:reward": a library and a symbol of it."""
    return isinstance(worker_cls, str) and _core.class_is_native(worker_cls)


def engine_spec(
    name: str,
    worker_cls: type | str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    max_concurrency: int | None,
    mesh: Mapping[str, int] | None = None,
) -> PickledOnce | dict[str, Any]:
    """The argument of CREATE_ENGINE: pickled once for all ranks, or plain data."""
    spec: dict[str, Any] = {"name": name, "cls": worker_cls, "args": list(args)}
    spec["kwargs"] = dict(kwargs)
    if is_native(worker_cls):
        library, _, symbol = str(worker_cls).rpartition(":")
        if os.path.exists(library):  # else it is looked for where the worker is
            spec["cls"] = f"{os.path.abspath(library)}:{symbol}"
        return spec
    by_name = not args and not kwargs
    if isinstance(worker_cls, type):
        _send_by_value_if_needed(worker_cls)
        by_name = by_name and _importable(worker_cls)
    elif not isinstance(worker_cls, str):
        raise TypeError(f"worker_cls: neither a class nor its path: {worker_cls!r}")
    elif worker_cls.endswith(".so") or "/" in worker_cls:
        raise ValueError(
            f"worker_cls: {worker_cls!r} is a library: name its symbol too, as in "
            '"libreward.so:reward"'
        )
    elif not modules_of(worker_cls):
        raise ValueError(
            f'worker_cls: not a path "package.module.Class": {worker_cls!r}'
        )
    if isinstance(worker_cls, str):
        spec["cls"] = worker_cls.replace(":", ".")
    spec["max_concurrency"] = max_concurrency
    spec["mesh"] = dict(mesh) if mesh else None
    try:
        return PickledOnce(spec, plain=by_name)
    except SerializationError as e:
        what = str(e).removeprefix("value")
        fields = {"cls": "worker_cls", "args": "args", "kwargs": "kwargs"}
        for key, field in fields.items():
            what = what.replace(f"[{key!r}]", field, 1)
        raise SerializationError(what) from None


def bound_methods(worker_cls: type | str) -> dict[str, Method] | None:
    """The registered methods of a class; None: it is not imported here."""
    if isinstance(worker_cls, type):
        return methods_of(worker_cls)
    return {} if is_native(worker_cls) else None


def modules_of(worker_cls: type | str) -> list[str]:
    """What to import before the fork: its module, or those that it uses."""
    if isinstance(worker_cls, str):
        module, colon, _ = worker_cls.partition(":")
        if not colon:
            module = worker_cls.rpartition(".")[0]
        return [module] if module else []
    if _importable(worker_cls):
        return [worker_cls.__module__]
    used = modules_used(worker_cls)
    return [module for module in used if _findable(module.partition(".")[0])]


def _importable(cls: type) -> bool:
    """A worker finds the class by its name."""
    if cls.__module__ in ("__main__", "__mp_main__", "builtins"):
        return False
    found: Any = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is cls and _findable(cls.__module__.partition(".")[0])


def _findable(module: str) -> bool:
    """Not only in sys.modules, but where an import would look."""
    spec = getattr(sys.modules.get(module), "__spec__", None)
    origin = getattr(spec, "origin", None) or ""
    folder = os.path.dirname(origin.removesuffix("/__init__.py"))
    if folder in sys.path and os.path.exists(origin):  # a fifth of the search's time
        return True
    for finder in sys.meta_path:
        try:
            if finder.find_spec(module, None) is not None:
                return True
        except Exception:
            continue
    return False


def _send_by_value_if_needed(cls: type) -> None:
    """Have cloudpickle send all of a module that workers could not import."""
    module = sys.modules.get(cls.__module__)
    if module is None or cls.__module__ in ("__main__", "builtins"):
        return
    if not _findable(cls.__module__.partition(".")[0]):
        import cloudpickle

        cloudpickle.register_pickle_by_value(module)


# ---- the modules that a class uses ---------------------------------------------------


def modules_used(cls: type) -> list[str]:
    """By the code of the class, and by what it uses of its own module, in order."""
    found: dict[str, None] = {}
    seen: set[int] = set()
    todo: list[Any] = [cls]
    while todo:
        thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, ModuleType):
            found[thing.__name__] = None
            continue
        module = getattr(thing, "__module__", None)
        if module != cls.__module__:
            if isinstance(module, str):
                found[module] = None
            continue
        todo += _parts(thing)
    loaded = found.keys() & sys.modules.keys()
    return sorted(name for name in loaded if name.partition(".")[0] not in _KNOWN)


def _parts(thing: Any) -> Iterator[Any]:
    if isinstance(thing, type):
        yield from thing.__bases__
        for member in vars(thing).values():
            yield getattr(member, "__func__", None) or getattr(member, "fget", member)
    code = getattr(thing, "__code__", None)
    if isinstance(code, CodeType):
        around = thing.__globals__
        for name in _names(code):
            if name in around:
                yield around[name]
        yield from _contents(thing.__closure__ or ())


def _contents(cells: tuple[Any, ...]) -> Iterator[Any]:
    for cell in cells:
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            continue


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
