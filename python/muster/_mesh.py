"""Inside a worker: where it is in the meshes of its cluster."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_registered: dict[str, tuple[int, bool]] = {}
_DIMENSIONS = ("tp", "cp", "dp", "pp")


def register_mesh(name: str, dp_rank: int, is_collect: bool = True) -> None:
    """Inside a worker: this rank works on chunk `dp_rank` of what goes to the mesh `name`
    (`muster.nd_mesh(name)`), and its result is part of the result if `is_collect`."""
    if isinstance(dp_rank, bool) or not isinstance(dp_rank, int) or dp_rank < 0:
        raise ValueError(f"dp_rank: must be an integer of at least 0: {dp_rank!r}")
    _registered[name] = (dp_rank, bool(is_collect))


def registered(name: str) -> tuple[int, bool] | None:
    return _registered.get(name)


def rank_info(engine: Any) -> tuple[int, ...] | None:
    """(tp, cp, dp, pp) of its rank, then the sizes of those and of ep, if it tells them:
    by `rank_info` or `get_rank_info`, attribute or method, object or dict."""
    info = getattr(engine, "rank_info", None)
    if info is None:
        info = getattr(engine, "get_rank_info", None)
    if callable(info):
        info = info()
    if info is None:
        return None
    told: dict[str, Any] = info if isinstance(info, dict) else _attributes(info)
    ranks = [int(told.get(f"{d}_rank", 0)) for d in _DIMENSIONS]
    sizes = [int(told.get(f"{d}_size", 1)) for d in (*_DIMENSIONS, "ep")]
    return (*ranks, *sizes)


def _attributes(info: Any) -> dict[str, Any]:
    names = (f"{d}_{what}" for d in (*_DIMENSIONS, "ep") for what in ("rank", "size"))
    return {name: getattr(info, name) for name in names if hasattr(info, name)}
