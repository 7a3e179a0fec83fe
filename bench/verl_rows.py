"""The rows against verl's WorkerGroup on Ray: the same user code on both sides."""

from lab import Lab, take_turns
from report import Line, Target, median
from side import Side

OURS, THEIRS = "muster_verl", "verl"
RANKS = 8


def _line(work: str, target: Target, slices: dict[str, list[float]]) -> Line:
    ours, theirs = median(slices.get(OURS)), median(slices.get(THEIRS))
    return Line(work, target, "idle", "verl", ours, theirs, {"slices": slices})


def fan_out(lab: Lab) -> list[Line]:
    """`execute_all_sync` of an empty method."""
    count = {OURS: lab.size(1000, 100), THEIRS: lab.size(40, 10)}

    def measure(side: Side) -> float | None:
        return median(side.ask("fan_out", count=count[side.name], warm_up=5))

    with lab.sides([THEIRS, OURS], ranks=RANKS) as sides:
        slices = take_turns(sides, lab.size(9, 2), measure)
    work = f"execute_all_sync on {RANKS} ranks, empty"
    return [_line(work, Target("better", 25, "s"), slices)]


def start(lab: Lab) -> list[Line]:
    """A group with torch until all workers answer; each round ends it again.

    Muster's workers are forked from an interpreter that has the modules: the first group
    waits for it to import them, later ones do not. Both are told."""
    first: dict[str, list[float]] = {}
    again: dict[str, list[float]] = {}
    rounds = {THEIRS: lab.size(2, 1), OURS: lab.size(9, 3)}
    for name in rounds:
        if lab.has(name):
            with lab.side(name) as side:
                first[name] = [side.ask("start", ranks=RANKS)]
                again[name] = [
                    side.ask("start", ranks=RANKS) for _ in range(rounds[name])
                ]
    work = f"group of {RANKS} workers with torch, all answered"
    return [
        _line(f"{work} (modules warm)", Target("better", 50, "s"), again),
        _line(f"{work} (first of all)", Target("better", 1, "s"), first),
    ]


VERL_ROWS = {"verl-fan-out": fan_out, "verl-start": start}
