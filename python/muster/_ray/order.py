"""Which piece is which: pure decisions about bundles, nodes and devices."""

from __future__ import annotations

import math
import re
from typing import Any, Callable

LABEL_NODE = "ray.io/node-id"
# Ray wants something in every bundle, and an actor that it starts wants some of it.
LEAST_CPU = 0.001


def natural(text: str) -> list[tuple[int, int, str]]:
    """ "n2" before "n10" """
    parts = re.split(r"(\d+)", text)
    return [(1, int(p), "") if p.isdecimal() else (0, 0, p) for p in parts if p]


def bundle_of(piece: dict[str, Any]) -> dict[str, float]:
    """What Ray is asked for, for one piece."""
    wanted = {
        "CPU": float(piece.get("cpus") or 0),
        "GPU": float(piece.get("gpus") or 0),
        "memory": float(piece.get("memory") or 0),
    }
    for name, amount in (piece.get("resources") or {}).items():
        wanted[name] = float(amount)
    wanted = {name: amount for name, amount in wanted.items() if amount > 0}
    return wanted or {"CPU": LEAST_CPU}


def total(bundles: list[dict[str, float]]) -> dict[str, float]:
    """What they hold together."""
    out: dict[str, float] = {}
    for bundle in bundles:
        for name, amount in bundle.items():
            out[name] = out.get(name, 0.0) + amount
    return {name: round(amount, 4) for name, amount in out.items()}


def by_node(places: dict[int, str]) -> dict[str, list[int]]:
    """Bundles of each node."""
    out: dict[str, list[int]] = {}
    for index in sorted(places):
        out.setdefault(places[index], []).append(index)
    return out


def _kinds(pieces: list[dict[str, Any]], indexes: list[int]) -> list[list[int]]:
    """Those that ask for the same."""
    out: dict[str, list[int]] = {}
    for index in indexes:
        asks = [sorted(bundle_of(pieces[index]).items()), pieces[index].get("labels")]
        out.setdefault(repr(asks), []).append(index)
    return list(out.values())


def _assign(
    pieces: list[dict[str, Any]], slots: dict[int, int], key: Callable[[int], Any]
) -> dict[int, int]:
    """The slots of bundles anew, by `key`. Those that ask for different things keep the
    slots that they were asked for in."""
    out: dict[int, int] = {}
    for kind in _kinds(pieces, sorted(slots)):
        theirs = sorted(slots[i] for i in kind)
        out.update(zip(sorted(kind, key=lambda i: (key(i), i)), theirs))
    return out


def number(
    pieces: list[dict[str, Any]], places: dict[int, str], names: dict[str, str]
) -> dict[int, int]:
    """The piece of each bundle: by the name of its node."""
    slots = {i: i for i in range(len(pieces))}
    return _assign(pieces, slots, lambda i: natural(names[places[i]]))


def number_on_node(
    pieces: list[dict[str, Any]], numbers: dict[int, int], devices: dict[int, list[str]]
) -> dict[int, int]:
    """The same of one node, whose devices are known now: by them."""
    return _assign(pieces, numbers, lambda i: [natural(d) for d in devices[i]])


def whole_cpus(pieces: list[dict[str, Any]]) -> int:
    """-1: none of them asks for any, so they are not counted."""
    cpus = sum(float(p.get("cpus") or 0) for p in pieces)
    return math.ceil(cpus - 1e-9) if cpus > 0 else -1


def selectors(
    pieces: list[dict[str, Any]], avoided: list[str]
) -> list[dict[str, str]] | None:
    """What each bundle asks of its node's labels; None: nothing."""
    out = []
    for piece in pieces:
        one = {str(k): str(v) for k, v in (piece.get("labels") or {}).items()}
        if avoided:
            one[LABEL_NODE] = f"!in({','.join(avoided)})"
        out.append(one)
    return out if any(out) else None


def amounts_text(amounts: dict[str, float]) -> str:
    """ "8 CPU, 4 GPU, 1 GiB memory" """
    out = []
    for name in sorted(amounts, key=lambda n: (n not in ("CPU", "GPU"), n)):
        amount = amounts[name]
        if name == "memory":
            out.append(f"{amount / (1 << 30):.3g} GiB memory")
        else:
            out.append(f"{amount:g} {name}")
    return ", ".join(out) or "nothing"
