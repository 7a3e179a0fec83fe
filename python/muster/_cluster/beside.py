"""Processes beside the workers of a cluster, on the same devices."""

from __future__ import annotations

from muster import _core, api
from muster._cluster.binding import check_names
from muster._cluster.spec import ClusterMeta, beside_spec, engine_step, ns
from muster._cluster.worker_class import bound_methods, is_native
from muster._core import Refused
from muster.errors import ClusterError, cluster_refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Self

    from muster.cluster import Cluster


class Processes:
    """One process beside each worker of a cluster, by a command. They end with
    `destroy()`, and each with the worker that it runs beside."""

    def __init__(
        self, name: str, workers: list[dict[str, Any]], session: api.Session
    ) -> None:
        self.name = name
        self.pids = [one["pid"] for one in workers]
        self.log_paths = [one["log_path"] for one in workers]
        self._session = session
        self._uid = workers[0]["uid"]
        self._gone = False

    def __len__(self) -> int:
        return len(self.pids)

    def __repr__(self) -> str:
        return f"<muster.Processes {self.name!r}: {len(self)}>"

    def destroy(self, *, grace: float = _core.STOP_GRACE_S) -> None:
        """End them: SIGTERM, and SIGKILL `grace` seconds later. Idempotent."""
        if not self._gone and self._session.head.alive:
            self._session.destroy_cluster(self.name, True, self._uid, grace)
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


def fork_processes(
    parent: Cluster, name: str, command: list[str], env: Mapping[str, str]
) -> Processes:
    session = api.session()
    worker = {"start": _core.START_COMMAND, "command": command}
    spec = beside_spec(name, parent._name, worker, env)
    try:
        status = session.head.ask("create", {"spec": spec}).result(None)
    except Refused as e:
        raise cluster_refused(e) from None
    return Processes(name, status["workers"], session)


def fork_cluster(
    parent: Cluster,
    name: str,
    worker_cls: type | str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    env: Mapping[str, str],
    timeout: float,
) -> Cluster:
    if is_native(worker_cls):
        raise ClusterError("fork_cluster: a class in C is a cluster of its own")
    session = api.session()
    step = engine_step("default", worker_cls, args, kwargs)
    methods = bound_methods(worker_cls)
    cls = type(parent)
    check_names(cls, methods or {})
    spec = beside_spec(name, parent._name, {"start": _core.START_FORK}, env)
    spec["step_timeout_ns"] = ns(timeout)
    mesh = parent._bound.mesh if isinstance(parent._bound.mesh, dict) else None
    meta = ClusterMeta(False, methods=methods, mesh=mesh)
    child = cls.__new__(cls)
    child._ask(name, session, meta, parent._nodes, spec, [step])
    return child.wait()
