"""What a cluster's maker tells the head of it, for `muster.get_cluster` elsewhere.

The outer part is made of plain values alone; classes and functions are in parts that are
read only by who needs them, and may be missing there.
"""

from __future__ import annotations

from _pickle import dumps as plain_dumps
from _pickle import loads as plain_loads

from muster._bind import UNKNOWN, Binding
from muster._replace import Recipe
from muster._serialize import PROTOCOL, Once, dumps_inline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SET_ENV = 17  # wire/frame.h, enum ms_op
META_MAX = 4 << 20  # base/limits.h, MS_META_MAX


def _bound_data(bound: Binding) -> bytes:
    try:
        return plain_dumps(bound, PROTOCOL)
    except Exception:
        pass  # a function of its own in it
    try:
        return dumps_inline(bound)
    except Exception:
        return b""  # then its methods are asked for


def _done(recipe: Recipe, native: bool) -> list[tuple[int, str, bool, bytes]]:
    """(operation, engine, is pickled data, the argument). What is pickled data is read
    in the workers alone."""
    out = []
    for op, engine, argument in recipe.done:
        if native or op == SET_ENV:
            out.append((op, engine, False, plain_dumps(argument, PROTOCOL)))
        else:
            once = argument if isinstance(argument, Once) else Once(argument)
            out.append((op, engine, True, once.data))
    return out


def describe(
    codec: int,
    native: bool,
    timeout: float | None,
    bound: Binding,
    recipe: Recipe | None,
) -> bytes:
    meta: dict[str, Any] = {
        "codec": codec,
        "native": native,
        "timeout": timeout,
        "bound": _bound_data(bound),
    }
    short = plain_dumps(meta, PROTOCOL)
    if recipe is None or recipe.beside:
        return short
    try:
        meta["ranks"] = recipe.ranks
        meta["wide"] = sorted(recipe.wide)
        meta["start_timeout"] = recipe.timeout
        meta["done"] = _done(recipe, native)
        meta["calls"] = recipe.calls
        data = plain_dumps(meta, PROTOCOL)
    except Exception:
        return short  # then its maker alone can replace its workers
    return data if len(data) <= META_MAX else short


class Found:
    """What such a description says; of an empty one what is usual."""

    def __init__(self, name: str, size: int, meta: bytes) -> None:
        said: dict[str, Any] = plain_loads(meta) if meta else {}
        self.codec: int = said.get("codec", 1)
        self.native: bool = said.get("native", False)
        self.timeout: float | None = said.get("timeout")
        self.bound = _load_bound(said.get("bound", b""))
        if self.bound is None:
            self.bound = Binding(name, "default", size, None, UNKNOWN)
        self.recipe = _load_recipe(said) if "ranks" in said else None


def _load_recipe(said: dict[str, Any]) -> Recipe | None:
    recipe = Recipe(said["ranks"], timeout=said["start_timeout"])
    recipe.wide = frozenset(said.get("wide", ()))
    recipe.calls = said.get("calls", [])
    try:
        for op, engine, is_pickled, data in said["done"]:
            argument = Once.of(data, engine) if is_pickled else plain_loads(data)
            recipe.add(op, engine, argument)
    except Exception:
        return None  # a library of a tensor in it is not here
    return recipe


def _load_bound(data: bytes) -> Any:
    try:
        return plain_loads(data) if data else None
    except Exception:
        return None  # a class of its is not here
