"""What a cluster sends to start: how each rank is started, and the worker's class."""

from __future__ import annotations

import os
import sys
import warnings

from muster import api
from muster._env import (
    DEVICE_VARIABLE,
    VISIBLE_DEVICES,
    device_variable,
    rank_env,
    visible_env,
)
from muster._package import is_inside, send_again
from muster._serialize import Once
from muster._uses import modules_used
from muster.dispatch import methods_of
from muster.errors import ClusterError, DeadlineExceeded, SerializationError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from muster import _core
    from muster._env import Placement
    from muster.config import WorkerConfig
    from muster.dispatch import Method

Place = tuple[str, list[int]]  # node's name, device indexes on it
START_S = 120.0  # processes, without their constructors
_STARTS = {"fork": 0, "exec": 1}
_COMMAND = 2
_NATIVE = 3


def start(
    head: _core.Head, name: str, ranks: list[_core.RankSpec]
) -> list[tuple[int, int, str, str]]:
    package = api.session().package
    if package is not None:
        send_again(package)
    try:
        return head.create_cluster(name, ranks, START_S)
    except FileExistsError as e:
        raise ClusterError(
            f"{e.args[-1]}: destroy() it, or take another name"
        ) from None
    except TimeoutError as e:
        raise DeadlineExceeded(f"the workers of {name!r} did not start: {e}") from None


def rank_specs(
    name: str,
    worker_cls: type | str,
    role: WorkerConfig,
    placements: list[Placement],
    nodes: list[tuple[str, int, int, int]],
    master: tuple[str, int],
    session: api.Session,
    detached: bool,
) -> list[_core.RankSpec]:
    if role.http_open:
        warnings.warn(
            f"http_open: whoever reaches the ports of {name!r} can run anything in its "
            "workers",
            stacklevel=4,
        )
    common = _common_spec(worker_cls, role, session)
    session.nodes()  # one of a known name may be another one by now
    specs = []
    for rank, (node, devices) in enumerate(placements):
        env = rank_env(
            name,
            rank,
            placements,
            master=master,
            names=session.device_names(nodes[node][0]),
            visible=role.visible,
            user=role.env,
        )
        spec = common.copy()
        spec["env"] = [f"{key}={value}" for key, value in env.items()]
        spec["devices"] = devices
        spec["node"] = nodes[node][0]
        spec["cpu_milli"] = round(role.num_cpus * 1000)
        spec["detached"] = int(detached)
        specs.append(spec)
    return specs


def helper_specs(
    ranks: list[_core.RankSpec],
    rank: int,
    uid: int,
    further: Sequence[Place],
    session: api.Session,
) -> list[_core.RankSpec]:
    """Of the helpers of a rank that is wider than a node: its environment, with the
    devices of their own nodes."""
    like = ranks[rank]
    hidden = {variable for variable, _ in session.device_names(like["node"])}
    hidden |= {VISIBLE_DEVICES, DEVICE_VARIABLE, "MUSTER_HELPER"}
    env = [pair for pair in like["env"] if pair.partition("=")[0] not in hidden]
    specs = []
    for number, (node, devices) in enumerate(further, 1):
        names = session.device_names(node)
        own = visible_env(names, devices)
        own[DEVICE_VARIABLE] = device_variable(names, devices)
        own["MUSTER_HELPER"] = str(number)
        spec = like.copy()
        spec["env"] = [*env, *(f"{key}={value}" for key, value in own.items())]
        spec["node"] = node
        spec["devices"] = devices
        spec["helps"] = uid
        specs.append(spec)
    return specs


def _common_spec(
    worker_cls: type | str, role: WorkerConfig, session: api.Session
) -> _core.RankSpec:
    """What all ranks have in common."""
    if is_native(worker_cls):
        native: _core.RankSpec = {"start": _NATIVE, "memory": role.memory}
        if role.working_dir:
            native["working_dir"] = os.path.abspath(role.working_dir)
        return native
    spec: _core.RankSpec = {
        "start": _STARTS[role.start] if isinstance(role.start, str) else _COMMAND,
        "preload": [
            module
            for module in dict.fromkeys([*modules_of(worker_cls), *role.preload])
            if not is_inside(module, session.code)
        ],
        "memory": role.memory,
        "http_open": int(role.http_open),
    }
    if role.python:
        spec["python"] = role.python
    if role.working_dir:
        spec["working_dir"] = os.path.abspath(role.working_dir)
    if not isinstance(role.start, str):
        spec["command"] = role.start
    return spec


# ---- a worker's class in a shared library ---------------------------------------------


def is_native(worker_cls: type | str) -> bool:
    """Such as "libreward.so:reward": a library and a symbol of it."""
    if not isinstance(worker_cls, str):
        return False
    library, _, symbol = worker_cls.rpartition(":")
    name = os.path.basename(library)
    return bool(symbol) and (name.endswith(".so") or ".so." in name)


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
