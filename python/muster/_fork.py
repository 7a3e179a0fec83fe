"""Processes beside the workers of a cluster, on the same devices."""

from __future__ import annotations

import os
from contextlib import suppress

from muster import api
from muster._bind import Binding, check_names
from muster._env import worker_name
from muster._member import Worker
from muster._replace import Recipe
from muster._start import bound_methods, engine_spec, is_native, start
from muster.errors import ClusterError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Self

    from muster import _core
    from muster.cluster import Cluster

_FORK, _COMMAND = 0, 2
ANSWER_S = 30.0
GRACE_S = 3.0

Started = list[tuple[int, int, str, str]]


class Processes:
    """One process beside each worker of a cluster, by a command. They end with
    `destroy()`, and each with the worker that it runs beside."""

    def __init__(self, name: str, started: Started, session: api.Session) -> None:
        self.name = name
        self.pids = [pid for _, pid, _, _ in started]
        self.log_paths = [path for _, _, _, path in started]
        self._session = session
        self._uid = started[0][0]
        self._gone = False

    def __len__(self) -> int:
        return len(self.pids)

    def __repr__(self) -> str:
        return f"<muster.Processes {self.name!r}: {len(self)}>"

    def destroy(self, *, grace: float = GRACE_S) -> None:
        """End them: SIGTERM, and SIGKILL `grace` seconds later. Idempotent."""
        if not self._gone and self._session.head.alive:
            until = grace + ANSWER_S
            self._session.head.destroy_cluster(self.name, True, self._uid, grace, until)
        self._gone = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.destroy()


def command_of(module: str | None, command: Sequence[str] | None) -> list[str]:
    """`-m MODULE` is run by the interpreter of the workers."""
    if module is not None:
        return ["-m", module, *(command or ())]
    words = list(command or ())
    if not words:
        raise ValueError("fork_workers: give module or command")
    return words


def _specs(
    name: str,
    members: Sequence[Worker],
    common: _core.RankSpec,
    env: Mapping[str, str],
) -> list[_core.RankSpec]:
    specs = []
    for w in members:
        names = {
            "CLUSTER_NAME": name,
            "WORKER_NAME": worker_name(name, w.rank, w.devices),
        }
        spec = common.copy()
        spec["beside"] = w.uid
        spec["node"] = w.node[1]
        spec["devices"] = w.devices
        spec["env"] = [f"{key}={value}" for key, value in {**names, **env}.items()]
        specs.append(spec)
    return specs


def fork_processes(
    parent: Cluster, name: str, command: list[str], env: Mapping[str, str]
) -> Processes:
    session = api.session()
    common: _core.RankSpec = {"start": _COMMAND, "command": command}
    specs = _specs(name, parent._members, common, env)
    return Processes(name, start(session.head, name, specs), session)


def fork_cluster(
    parent: Cluster,
    name: str,
    worker_cls: type | str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    env: Mapping[str, str],
    timeout: float,
) -> Cluster:
    from muster.view import CREATE_ENGINE, ENGINE

    if is_native(worker_cls):
        raise ClusterError("fork_cluster: a class in C is a cluster of its own")
    session = api.session()
    spec = engine_spec(ENGINE, worker_cls, args, kwargs, None)
    ports = f"{name}:{os.urandom(4).hex()}"
    members = parent._members
    host, port = session.head.hold_port(ports, members[0].node[1], ANSWER_S)
    master = {"MASTER_ADDR": host, "MASTER_PORT": str(port)}
    specs = _specs(name, members, {"start": _FORK}, {**master, **env})
    try:
        started = start(session.head, name, specs)
    except BaseException:
        with suppress(Exception):
            session.head.drop_port(ports, ANSWER_S)
        raise
    workers = [
        Worker(w.rank, *one, f"{name}/{w.rank}@{w.node[1]}", w.node, w.devices)
        for w, one in zip(members, started, strict=True)
    ]
    methods = bound_methods(worker_cls)
    bound = Binding(name, ENGINE, len(workers), methods, parent._bound.mesh)
    check_names(type(parent), methods or {})
    child = type(parent)._handle(name, workers, ENGINE, None, bound, owner=session)
    child._ports = ports
    child._recipe = Recipe(specs, members, timeout)
    try:
        told = child._operate(CREATE_ENGINE, spec, timeout)
        if methods is None:
            check_names(type(parent), told[0] or {})
            bound.methods = told[0] or {}
        child._describe()
    except BaseException:
        with suppress(Exception):
            child.destroy(grace=0)
        raise
    return child
