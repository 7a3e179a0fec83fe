"""Helpers: the processes of a wide worker on the nodes beyond its first one."""

from __future__ import annotations

import os

from muster import _core
from muster._cluster.member import Worker
from muster.errors import ClusterError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from muster.view import View

_VARIABLE = "MUSTER_HELPERS"  # src/head/clusters/helpers.c


def helper_members(
    cluster: str, rank: int, helpers: list[dict[str, Any]], native: bool
) -> list[Worker]:
    """Those of one rank, in the order of the nodes."""
    return [
        Worker(
            number,
            int(one["uid"]),
            one["pid"],
            one["address"],
            one["log_path"],
            f"{cluster}/{rank}@{one['node']}",
            (-1, one["node"]),
            list(one["devices"]),
            native,
        )
        for number, one in enumerate(helpers)
    ]


def helpers() -> View:
    """Inside a worker that is wider than a node: a view of its helpers, in the order of the
    nodes. `create_engine` puts objects into them."""
    from muster.view import View

    told = os.environ.get(_VARIABLE)
    if _core.in_worker() is None or told is None:
        raise ClusterError("helpers() is for workers that are wider than a node")
    import json

    said = json.loads(told)
    name = said["cluster"]
    members = helper_members(name, said["rank"], said["helpers"], False)
    return View(name, members)
