"""Workers of a class that was started before, beside the same forks alone."""

from collections.abc import Callable

from lab import Lab, take_turns
from report import Line, Target, median
from side import Side

RANKS = 8


def warm_line(lab: Lab, work: str, op: str) -> Line:
    ops = {"bare": "warm_start", "muster": op}

    def measure(side: Side) -> float | None:
        return median(
            side.ask(ops[side.name], ranks=RANKS, count=lab.size(10, 3), warm_up=2)
        )

    with lab.sides(["bare", "muster"]) as sides:
        slices = take_turns(sides, lab.size(7, 2), measure)
    return Line(
        work,
        Target("at_most_peer", 1.3, "s"),
        "idle",
        "bare",
        median(slices.get("muster")),
        median(slices.get("bare")),
        {"slices": slices},
    )


def warm_start(lab: Lab) -> list[Line]:
    work = f"{RANKS} warm workers, Cluster() until all answered"
    return [warm_line(lab, work, "warm_start")]


def warm_start_nested(lab: Lab) -> list[Line]:
    work = f"{RANKS} warm workers, made by a worker"
    return [warm_line(lab, work, "warm_start_nested")]


WARM_ROWS: dict[str, Callable[[Lab], list[Line]]] = {
    "warm-start": warm_start,
    "warm-start-nested": warm_start_nested,
}
