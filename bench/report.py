"""A line of the result, what it has to reach, and how it is printed."""

import dataclasses
import statistics
from collections.abc import Sequence


def median(values: Sequence[float] | None) -> float | None:
    return statistics.median(values) if values else None


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which that share of all values lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


@dataclasses.dataclass(frozen=True)
class Target:
    """`at least N times better than the peer`, `at most N times it`, or `at most N`."""

    kind: str  # "better", "at_most_peer", "at_most", "at_least"; "told": only told
    limit: float
    unit: str

    def ratio(self, muster: float | None, peer: float | None) -> float | None:
        """What the target is about: a number that people compare with its limit."""
        if not muster or not peer:
            return None
        more_is_better = self.unit == "calls/s"
        if self.kind in ("at_most_peer", "told") or more_is_better:
            return muster / peer
        return peer / muster

    def is_met(self, muster: float | None, peer: float | None) -> bool | None:
        """None: not measured."""
        if self.kind == "at_most":
            return None if muster is None else muster <= self.limit
        if self.kind == "at_least":
            return None if muster is None else muster >= self.limit
        ratio = self.ratio(muster, peer)
        if ratio is None or self.kind == "told":
            return None
        return ratio >= self.limit if self.kind == "better" else ratio <= self.limit

    def __str__(self) -> str:
        if self.kind == "told":
            return "-"
        if self.kind in ("at_most", "at_least"):
            sign = "<= " if self.kind == "at_most" else ">= "
            return sign + show(self.limit, self.unit)
        return (">= " if self.kind == "better" else "<= ") + f"{self.limit:g}x"


@dataclasses.dataclass(frozen=True)
class Line:
    work: str
    target: Target
    cores: str  # "idle" or "awake"
    peer_name: str
    muster: float | None
    peer: float | None
    detail: dict[str, object] = dataclasses.field(default_factory=dict)

    @property
    def is_met(self) -> bool | None:
        return self.target.is_met(self.muster, self.peer)

    def cells(self) -> list[str]:
        unit = self.target.unit
        ratio = self.target.ratio(self.muster, self.peer)
        verdict = {True: "ok", False: "missed", None: "-"}[self.is_met]
        return [
            self.work,
            show(self.muster, unit),
            f"{self.peer_name} {show(self.peer, unit)}",
            "-"
            if ratio is None
            else f"{ratio:.3g}x"
            if ratio < 100
            else f"{ratio:.0f}x",
            str(self.target),
            verdict,
            self.cores,
        ]

    def as_json(self) -> dict[str, object]:
        return {
            "work": self.work,
            "unit": self.target.unit,
            "muster": self.muster,
            "peer_name": self.peer_name,
            "peer": self.peer,
            "ratio": self.target.ratio(self.muster, self.peer),
            "target": str(self.target),
            "met": self.is_met,
            "cores": self.cores,
            "detail": self.detail,
        }


def show(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "s":
        for scale, name in ((1, "s"), (1e3, "ms")):
            if abs(value) * scale >= 1:
                return f"{value * scale:.3g} {name}"
        return f"{value * 1e6:.3g} µs"
    return f"{value:,.0f} {unit}" if abs(value) >= 100 else f"{value:.3g} {unit}"


HEADER = ["work", "muster", "peer", "ratio", "target", "", "cores"]


def table(lines: Sequence[Line]) -> str:
    rows = [HEADER, *(line.cells() for line in lines)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    )
