"""The spec of a cluster: all that its workers are started with, and start with again.

What is made of it (places, environments, processes, engines) is the head's matter; see
src/cluster/spec.h and doc/clusters.md.
"""

from __future__ import annotations

import os
import sys
import warnings

from muster import _core, api
from muster._cluster.worker_class import modules_used
from muster._data.serialize import Once
from muster._session.package import is_inside
from muster.dispatch import methods_of
from muster.errors import SerializationError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from muster.config import WorkerConfig
    from muster.dispatch import Method

Place = tuple[str, list[int]]  # node's name, device indexes on it
Placement = tuple[int, list[int]]  # node's index, device indexes on it
CREATE_ENGINE = 18  # wire/frame.h, enum ms_op
PICKLE, PLAIN = 1, 2  # wire/frame.h, enum ms_codec
_STARTS = {"fork": 0, "exec": 1}
_COMMAND = 2
_NATIVE = 3
_VISIBLE = {"own": 0, "node": 1}
_NS = 10**9


class Step:
    """Something that is done to every worker when it starts, as the spec has it."""

    def __init__(self, op: int, engine: str, argument: Any, codec: int) -> None:
        self.codec, body, objects, self.kept = _core.encode_operation(argument, codec)
        self.message: dict[str, Any] = {
            "op": op,
            "engine": engine,
            "codec": self.codec,
            "arguments": [body],
            "objects": objects,
        }


def call_step(engine: str, method: str, arguments: list[Any]) -> dict[str, Any]:
    """A call of a method, with an argument for each rank. Plain values."""
    bodies = [_core.encode_call((argument,), PICKLE) for argument in arguments]
    return {
        "op": 0,
        "engine": engine,
        "method": method,
        "codec": bodies[0][0],
        "arguments": [body for _, body, _, _ in bodies],
    }


def ns(seconds: float | None) -> int:
    """As messages have it; None: 0."""
    return 0 if seconds is None else max(1, round(min(seconds, 1e9) * _NS))


def cluster_spec(
    name: str,
    worker_cls: type | str,
    role: WorkerConfig,
    place: dict[str, Any],
    detached: bool,
) -> dict[str, Any]:
    """All but its steps and what drivers tell each other."""
    if role.http_open:
        warnings.warn(
            f"http_open: whoever reaches the ports of {name!r} can run anything in its "
            "workers",
            stacklevel=4,
        )
    fixed = {dim: size for dim, size in role.mesh.items() if dim != "dp" and size > 1}
    return {
        "name": name,
        "place": place,
        "worker": _worker_spec(worker_cls, role),
        "visible": _VISIBLE[role.visible],
        "detached": detached,
        "step_timeout_ns": ns(role.start_timeout),
        "can_resize": not fixed,
    }


def beside_spec(
    name: str, beside: str, worker: dict[str, Any], env: Mapping[str, str]
) -> dict[str, Any]:
    """The same of one whose ranks run beside those of another cluster."""
    worker["env"] = [f"{key}={value}" for key, value in env.items()]
    return {"name": name, "beside": beside, "worker": worker}


def _worker_spec(worker_cls: type | str, role: WorkerConfig) -> dict[str, Any]:
    """What all ranks have in common."""
    native = is_native(worker_cls)
    spec: dict[str, Any] = {
        "start": _NATIVE if native else _start_kind(role),
        "env": [f"{key}={value}" for key, value in role.env.items()],
        "memory_limit": role.memory,
        "cpu_milli": round(role.num_cpus * 1000),
    }
    if role.working_dir:
        spec["working_dir"] = os.path.abspath(role.working_dir)
    if native:
        return spec
    session = api.session()
    preload = dict.fromkeys([*modules_of(worker_cls), *role.preload])
    spec["zygote"] = {
        "python": role.python or [],
        "preload": [m for m in preload if not is_inside(m, session.code)],
    }
    spec["http_open"] = role.http_open
    if not isinstance(role.start, str):
        spec["command"] = role.start
    return spec


def _start_kind(role: WorkerConfig) -> int:
    return _STARTS[role.start] if isinstance(role.start, str) else _COMMAND


# ---- a worker's class in a shared library ---------------------------------------------


def is_native(worker_cls: type | str) -> bool:
    """Such as "libreward.so:reward": a library and a symbol of it."""
    return isinstance(worker_cls, str) and _core.class_is_native(worker_cls)


def native_spec(
    name: str, worker_cls: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The argument of CREATE_ENGINE for one; a file that is here goes by its full path,
    others are looked for where the worker is."""
    library, _, symbol = worker_cls.rpartition(":")
    if os.path.exists(library):
        library = os.path.abspath(library)
    return {
        "name": name,
        "cls": f"{library}:{symbol}",
        "args": list(args),
        "kwargs": dict(kwargs),
    }


# ---- the worker's class ---------------------------------------------------------------


def engine_spec(
    name: str,
    worker_cls: type | str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    max_concurrency: int | None,
    mesh: Mapping[str, int] | None = None,
) -> Once | dict[str, Any]:
    """The argument of CREATE_ENGINE, pickled once for all ranks; plain data for a class
    in a shared library."""
    if is_native(worker_cls):
        return native_spec(name, str(worker_cls), args, kwargs)
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
    spec = {
        "name": name,
        "cls": worker_cls.replace(":", ".")
        if isinstance(worker_cls, str)
        else worker_cls,
        "args": tuple(args),
        "kwargs": dict(kwargs),
        "max_concurrency": max_concurrency,
        "mesh": dict(mesh) if mesh else None,
    }
    try:
        return Once(spec, plain=by_name, name=name)
    except SerializationError as e:
        what = str(e).removeprefix("value")
        for key, field in (
            ("cls", "worker_cls"),
            ("args", "args"),
            ("kwargs", "kwargs"),
        ):
            what = what.replace(f"[{key!r}]", field, 1)
        raise SerializationError(what) from None


def engine_step(
    name: str,
    worker_cls: type | str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    max_concurrency: int | None = None,
    mesh: Mapping[str, int] | None = None,
) -> Step:
    """What makes an engine of that name."""
    codec = PLAIN if is_native(worker_cls) else PICKLE
    made = engine_spec(name, worker_cls, args, kwargs, max_concurrency, mesh)
    return Step(CREATE_ENGINE, name, made, codec)


def bound_methods(worker_cls: type | str) -> dict[str, Method] | None:
    """The registered methods of a worker's class; None: a worker has to be asked, for its
    module is not imported here."""
    if isinstance(worker_cls, type):
        return methods_of(worker_cls)
    return {} if is_native(worker_cls) else None


def modules_of(worker_cls: type | str) -> list[str]:
    """The module to import before the fork; of a class that is sent by value, those that
    it uses."""
    if isinstance(worker_cls, str):
        module = worker_cls.replace(":", ".").rpartition(".")[0]
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
