"""Inside a worker: its engines by name, their places in meshes, and its configuration."""

from __future__ import annotations

import sys

from muster._arguments import check_count
from muster.config import MESH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

engines: dict[str, Any] = {}  # of this process
constructing: list[str] = []  # those whose constructors run
config: Any = None
# by engine; None: registered outside of one, for all
meshes: dict[str | None, dict[str, tuple[int, bool]]] = {}


def worker_config() -> Any:
    """Inside a worker: what `cluster.configure(...)` gave to it; None elsewhere."""
    return config


def _of_caller() -> str | None:
    """The engine whose constructor or method runs, as the stack of this thread tells it."""
    if constructing:
        return constructing[-1]
    names = {id(engine): name for name, engine in engines.items()}
    frame: Any = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_argcount:
            name = names.get(id(frame.f_locals.get(code.co_varnames[0])))
            if name is not None:
                return name
        frame = frame.f_back
    return None


def register_mesh(name: str, dp_rank: int, is_collect: bool = True) -> None:
    """Inside a worker: this rank works on chunk `dp_rank` of what goes to the mesh `name`
    (`muster.nd_mesh(name)`), and its result is part of the result if `is_collect`. Said in
    the constructor or a method of an engine it is of that engine, else of all that have not
    said it themselves."""
    check_count(dp_rank, "dp_rank", 0)
    meshes.setdefault(_of_caller(), {})[name] = (dp_rank, bool(is_collect))


def registered_mesh(engine: str, name: str) -> tuple[int, bool] | None:
    return (meshes.get(None, {}) | meshes.get(engine, {})).get(name)


def rank_info(engine: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """(tp, cp, dp, pp) of its rank, and the sizes of those and of ep."""
    # If it tells them: by `rank_info` or `get_rank_info`, attribute or method, object
    # or dict.
    info = getattr(engine, "rank_info", None)
    if info is None:
        info = getattr(engine, "get_rank_info", None)
    if callable(info):
        info = info()
    if info is None:
        return None

    def number(field: str, default: int) -> int:
        if isinstance(info, dict):
            return int(info.get(field, default))
        return int(getattr(info, field, default))

    place = tuple(number(f"{d}_rank", 0) for d in MESH[:4])
    return place, tuple(number(f"{d}_size", 1) for d in MESH)
