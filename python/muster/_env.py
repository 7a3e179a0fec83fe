"""The environment of each rank. Pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
DEVICE_VARIABLE = "MUSTER_DEVICE_VARIABLE"  # names the variable with a worker's devices
Placement = tuple[int, list[int]]  # node's index, device indexes on it
DeviceName = tuple[
    str, str
]  # the variable that tells of it, and how it is called there


def session_env(environ: Mapping[str, str]) -> dict[str, str]:
    """What all processes of a session start from: the driver's environment, and one
    thread for each worker's numeric libraries unless the user has said otherwise."""
    env = dict(environ)
    env.pop("MUSTER_SECRET", None)
    env.setdefault("OMP_NUM_THREADS", "1")
    return env


def visible_env(names: Sequence[DeviceName], shown: Sequence[int]) -> dict[str, str]:
    """What tells a process that it may see these devices of its node and no others."""
    if not names:
        return {VISIBLE_DEVICES: ""}
    env: dict[str, list[str]] = {variable: [] for variable, _ in names}
    for device in shown:
        variable, name = names[device]
        env[variable].append(name)
    return {variable: ",".join(found) for variable, found in env.items()}


def device_variable(names: Sequence[DeviceName], shown: Sequence[int]) -> str:
    """The one of these variables that tells a process of its devices."""
    if not names:
        return VISIBLE_DEVICES
    return names[shown[0] if shown else 0][0]


def worker_name(cluster: str, rank: int, devices: Sequence[int]) -> str:
    """As in ROLL."""
    digits = "".join(map(str, devices))
    return f"{cluster}-{rank}-G{digits}" if devices else f"{cluster}-{rank}"


def rank_env(
    cluster: str,
    rank: int,
    placements: Sequence[Placement],
    *,
    master: tuple[str, int],
    names: Sequence[DeviceName],
    visible: str,
    user: Mapping[str, str],
) -> dict[str, str]:
    """What `rank` has on top of the session's environment; `user`'s come last, but which
    devices it sees is no matter of theirs. `names`: of all devices of its node."""
    node, devices = placements[rank]
    beside = [r for r, placement in enumerate(placements) if placement[0] == node]
    local_rank = beside.index(rank)
    used = list(dict.fromkeys(placement[0] for placement in placements))
    if visible == "node":
        shown = list(dict.fromkeys(d for r in beside for d in placements[r][1]))
    else:
        shown = devices
    seen = visible_env(names, shown)
    for variable, value in seen.items():
        if user.get(variable, value) != value:
            raise ValueError(
                f"env: {variable} follows from where each rank is placed (rank {rank} of "
                f"{cluster!r}: {value!r}): leave it out"
            )
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(placements)),
        "LOCAL_RANK": str(local_rank if visible == "node" else 0),
        "MUSTER_LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(len(beside)),
        "NODE_RANK": str(used.index(node)),
        "MASTER_ADDR": master[0],
        "MASTER_PORT": str(master[1]),
        "CLUSTER_NAME": cluster,
        "WORKER_NAME": worker_name(cluster, rank, devices),
        **seen,
        **user,
        DEVICE_VARIABLE: device_variable(names, shown),
    }
