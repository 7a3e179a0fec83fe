"""The environment of a role's workers, as AReaL's schedulers set it."""

from __future__ import annotations

import shlex

from areal.infra.scheduler.exceptions import (  # type: ignore[import-not-found]
    WorkerCreationError,
)
from areal.infra.utils.launcher import (  # type: ignore[import-not-found]
    BASE_ENVIRONS,
    get_thread_env_vars,
)
from areal.utils.offload import get_tms_env_vars  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from muster._cluster.spec import Place
    from muster.areal.roles import Role

# commands whose work Muster's workers do
_SERVERS = ("areal.infra.rpc.rpc_server", "areal.infra.rpc.guard")
_LATE = ("NCCL_", "GLOO_", "HCCL_")  # read when a process group is made
_OURS = "muster.areal.rpc_server"


def check_command(role: str, command: str | None) -> None:
    """A worker is Muster's, whichever server AReaL's configuration names."""
    words = shlex.split(command or "")
    if not words:
        return
    if "--port" in words:
        raise WorkerCreationError(
            role, "cmd: --port is the scheduler's to give", command
        )
    if not any(word in (*_SERVERS, _OURS) for word in words):
        raise WorkerCreationError(
            role,
            "cmd: workers are Muster's own, in place of AReaL's servers",
            f"{command!r} is none of {', '.join(_SERVERS)}: fork_workers(command=...) runs "
            "another program beside them",
        )


class Environment:
    """`early`: what libraries may read when they are imported, so that workers of another
    one are forked from another interpreter. `late`: what is read when it is used."""

    def __init__(self, early: dict[str, str], late: dict[str, str]) -> None:
        self.early = early
        self.late = late


def environments(specs: Sequence[Any], exp_config: Any) -> list[Environment]:
    """Of each worker. What all have in common is early alone."""
    made: dict[int, tuple[dict[str, str], dict[str, str]]] = {}
    for spec in specs:
        if id(spec) not in made:
            made[id(spec)] = _of(spec, exp_config)
    first, *rest = [early for early, _ in made.values()]
    shared = {k: v for k, v in first.items() if all(e.get(k) == v for e in rest)}
    return [
        Environment(shared, {**late, **{k: early[k] for k in early.keys() - shared}})
        for early, late in (made[id(spec)] for spec in specs)
    ]


def _of(spec: Any, exp_config: Any) -> tuple[dict[str, str], dict[str, str]]:
    given = {str(k): str(v) for k, v in (spec.env_vars or {}).items()}
    late = dict(BASE_ENVIRONS)
    if spec.cpu:
        late |= get_thread_env_vars(spec.cpu, given)
    late |= {k: v for k, v in given.items() if k.startswith(_LATE)}
    early = {k: v for k, v in given.items() if k not in late}
    if exp_config is not None and exp_config.enable_offload:
        early = get_tms_env_vars() | early
    return early, late | {k: v for k, v in given.items() if k in late}


def visible(
    name: str, count: int, places: Sequence[Place], target: Role
) -> list[dict[str, str]]:
    """The devices of each of `count` workers that stand on those of another role, which
    has as many workers, more, or fewer."""
    cluster = target.cluster
    assert cluster is not None  # it stands in places
    devices = cluster.execute_all_sync("visible_devices")
    there = len(devices)
    if there < count:
        parts = count // there
        return [_share(devices[i // parts], i % parts, parts) for i in range(count)]
    wide, made = there // count, []
    for i in range(count):
        own = range(i * wide, (i + 1) * wide)
        if len({places[j][0] for j in own}) > 1:
            raise WorkerCreationError(
                name,
                f"{name}/{i} would be on several nodes",
                f"{target.name}/{own.start} to {target.name}/{own.stop - 1}",
            )
        made.append(
            {k: ",".join(devices[j][k] for j in own) for k in devices[own.start]}
        )
    return made


def _share(devices: dict[str, str], index: int, count: int) -> dict[str, str]:
    """One of `count` equal parts of them; all, if there are too few."""
    made = {}
    for name, value in devices.items():
        words = [word for word in value.split(",") if word]
        size = len(words) // count
        own = words[index * size : (index + 1) * size] if size else words
        made[name] = ",".join(own)
    return made
