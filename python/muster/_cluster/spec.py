"""The spec of a cluster: all that its workers are started with, and start with again.

What is made of it (places, environments, processes, engines) is the head's matter; see
src/cluster/spec.h and doc/clusters.md.
"""

from __future__ import annotations

import os
import warnings

from muster import _core, api
from muster._cluster.worker_class import engine_spec, is_native, modules_of
from muster._core import CODEC_PICKLE, CODEC_PLAIN
from muster._session.package import is_inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from muster.config import WorkerConfig

Place = tuple[str, list[int]]  # node's name, device indexes on it
Placement = tuple[int, list[int]]  # node's index, device indexes on it
_STARTS = {"fork": _core.START_FORK, "exec": _core.START_EXEC}
_VISIBLE = {"own": _core.VISIBLE_OWN, "node": _core.VISIBLE_NODE}
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
    bodies = [_core.encode_call((argument,), CODEC_PICKLE) for argument in arguments]
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
        "start": _core.START_NATIVE if native else _start_kind(role),
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
    return _STARTS[role.start] if isinstance(role.start, str) else _core.START_COMMAND


def engine_step(
    name: str,
    worker_cls: type | str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    max_concurrency: int | None = None,
    mesh: Mapping[str, int] | None = None,
) -> Step:
    """What makes an engine of that name."""
    codec = CODEC_PLAIN if is_native(worker_cls) else CODEC_PICKLE
    made = engine_spec(name, worker_cls, args, kwargs, max_concurrency, mesh)
    return Step(_core.OP_CREATE_ENGINE, name, made, codec)
