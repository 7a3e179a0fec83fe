"""The spec of a cluster: all that its workers are started with."""

# What is made of it (places, environments, processes, engines) is the head's matter;
# see src/cluster/spec.h and doc/clusters.md.

from __future__ import annotations

import os
import warnings
from _pickle import dumps as plain_dumps
from _pickle import loads as plain_loads

from muster import _core, api
from muster._cluster.binding import UNKNOWN, Binding
from muster._cluster.worker_class import engine_spec, is_native, modules_of
from muster._core import CODEC_PICKLE, CODEC_PLAIN
from muster._data.serialize import PROTOCOL, dumps_inline
from muster._session.package import is_inside
from muster.config import mesh_sizes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Self

    from muster.config import WorkerConfig
    from muster.dispatch import Method

Place = tuple[str, list[int]]  # node's name, device indexes on it
Placement = tuple[int, list[int]]  # node's index, device indexes on it


class Step:
    """Something that is done to every worker when it starts, as the spec has it."""

    def __init__(self, op: int, engine: str, argument: Any, codec: int) -> None:
        self.codec, body, objects, self.kept = _core.encode_operation(
            argument, codec, False
        )
        self.message: dict[str, Any] = {
            "op": op,
            "engine": engine,
            "codec": self.codec,
            "arguments": [body],
            "objects": objects,
        }


def call_step(engine: str, method: str, arguments: list[Any]) -> dict[str, Any]:
    """A call of a method, with an argument for each rank. Plain values."""
    bodies = [
        _core.encode_operation((argument,), CODEC_PICKLE, True)
        for argument in arguments
    ]
    return {
        "op": 0,
        "engine": engine,
        "method": method,
        "codec": bodies[0][0],
        "arguments": [body for _, body, _, _ in bodies],
    }


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
            f"http_open: any client that reaches the ports of {name!r} can run code in its "
            "workers",
            stacklevel=4,
        )
    path = worker_cls if isinstance(worker_cls, str) else ""
    modules = [] if path else modules_of(worker_cls)  # else C knows them
    spec = _core.role_spec(
        name=name,
        worker_cls=path,
        start=role.start if isinstance(role.start, str) else list(role.start),
        env=[f"{key}={value}" for key, value in role.env.items()],
        preload=[*modules, *role.preload],
        python=list(role.python or ()),
        mesh=role.mesh,
        visible=role.visible,
        memory=role.memory,
        working_dir=os.path.abspath(role.working_dir) if role.working_dir else "",
        http_open=role.http_open,
        cpu_milli=round(role.num_cpus * 1000),
        step_ns=_core.ns(role.start_timeout or 0),
        detached=detached,
    )
    spec["place"] = place
    if zygote := spec["worker"]["zygote"]:
        code = api.session().code
        zygote["preload"] = [m for m in zygote["preload"] if not is_inside(m, code)]
    return spec


def beside_spec(
    name: str, beside: str, worker: dict[str, Any], env: Mapping[str, str]
) -> dict[str, Any]:
    """The same of one whose ranks run beside those of another cluster."""
    worker["env"] = [f"{key}={value}" for key, value in env.items()]
    return {"name": name, "beside": beside, "worker": worker}


def engine_step(
    name: str,
    worker_cls: type | str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    max_concurrency: int | None = None,
    mesh: Mapping[str, int] | None = None,
) -> Step:
    codec = CODEC_PLAIN if is_native(worker_cls) else CODEC_PICKLE
    made = engine_spec(name, worker_cls, args, kwargs, max_concurrency, mesh)
    return Step(_core.OP_CREATE_ENGINE, name, made, codec)


# ---- what drivers tell each other -----------------------------------------------------
#
# Beside what the head knows. The outer part is made of plain values alone; classes and
# functions are in a part that is read only where it is needed, and may be missing there.


class ClusterMeta:
    """How a cluster is called."""

    def __init__(
        self,
        native: bool,
        timeout: float | None = None,
        methods: Mapping[str, Method] | None = None,
        mesh: Mapping[str, int] | None = None,
        codec: int | None = None,
    ) -> None:
        usual = _core.CODEC_PLAIN if native else _core.CODEC_PICKLE
        self.codec = usual if codec is None else codec
        self.native = native
        self.timeout = timeout
        self.methods = methods  # registered ones; None: a worker has to be asked
        self.mesh = mesh  # as it was given

    def encode(self, bound: Binding) -> bytes:
        """What others are told. A mesh is fixed only with the number of workers."""
        data = _dump_binding(bound)
        meta = {
            "codec": self.codec,
            "timeout": self.timeout,
            "mesh": self.mesh,
            "bound": data if len(data) <= _core.META_MAX else b"",
        }
        return plain_dumps(meta, PROTOCOL)

    @classmethod
    def decode(
        cls, name: str, size: int, meta: bytes, native: bool
    ) -> tuple[Self, Binding]:
        """From the data of another driver; without data the defaults."""
        data: dict[str, Any] = plain_loads(meta) if meta else {}
        made = cls(
            native, data.get("timeout"), mesh=data.get("mesh"), codec=data.get("codec")
        )
        bound = _load_binding(data.get("bound", b""))
        if bound is None:
            bound = Binding(name, "default", size, None, UNKNOWN)
        bound.resize(size)
        if made.mesh:
            bound.mesh = mesh_sizes(made.mesh, size)
        return made, bound


def _dump_binding(bound: Binding) -> bytes:
    try:
        return plain_dumps(bound, PROTOCOL)
    except Exception:
        pass  # a function of its own in it
    try:
        return dumps_inline(bound)
    except Exception:
        return b""  # then its methods are asked for


def _load_binding(data: bytes) -> Any:
    try:
        return plain_loads(data) if data else None
    except Exception:
        return None  # a class of its is not here
