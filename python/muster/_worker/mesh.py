"""Inside a worker: where it is in the meshes of its cluster."""

from __future__ import annotations

from muster._worker import engines as _engines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# by engine; None: by nobody's method, for all
_registered: dict[str | None, dict[str, tuple[int, bool]]] = {}
_DIMENSIONS = ("tp", "cp", "dp", "pp")


def register_mesh(name: str, dp_rank: int, is_collect: bool = True) -> None:
    """Inside a worker: this rank works on chunk `dp_rank` of what goes to the mesh `name`
    (`muster.nd_mesh(name)`), and its result is part of the result if `is_collect`. Said in the constructor or a method
    of an engine it is of that engine, else of all that have not said it themselves."""
    if isinstance(dp_rank, bool) or not isinstance(dp_rank, int) or dp_rank < 0:
        raise ValueError(f"dp_rank: must be an integer of at least 0: {dp_rank!r}")
    mine = _registered.setdefault(_engines.of_caller(), {})
    mine[name] = (dp_rank, bool(is_collect))


def registered(engine: str, name: str) -> tuple[int, bool] | None:
    for known in (_registered.get(engine), _registered.get(None)):
        if known is not None and name in known:
            return known[name]
    return None


def forget(engine: str) -> None:
    """It is gone."""
    _registered.pop(engine, None)


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
