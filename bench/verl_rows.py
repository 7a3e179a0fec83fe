"""The rows against verl's WorkerGroup on Ray: the same user code on both sides."""

import time

from lab import Lab, init_side, take_turns
from report import Line, Target, median
from side import Side

OURS, THEIRS = "muster_verl", "verl"
RANKS = 8
INIT_S = 5  # of Ray, where it does not take part


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

    Muster's workers are forked from an interpreter that has the modules: `init(preload=)`
    begins to import them, else the first group waits for it, and later ones do not. A
    driver that preloads goes on for as long as the other's init took, which is not counted
    either."""
    first: dict[str, list[float]] = {}
    again: dict[str, list[float]] = {}
    preloaded: dict[str, list[float]] = {}
    rounds = {THEIRS: lab.size(2, 1), OURS: lab.size(9, 3)}
    init_s = INIT_S
    for name in rounds:
        if lab.has(name):
            with lab.side(name, init=False) as side:
                seconds = init_side(side)
                first[name] = [side.ask("start", ranks=RANKS)]
                again[name] = [
                    side.ask("start", ranks=RANKS) for _ in range(rounds[name])
                ]
            if name == THEIRS:
                preloaded[name], init_s = first[name], seconds
    for _ in range(lab.size(3, 1)):
        with lab.side(OURS, init=False) as side:
            side.ask("init", preload=True)
            time.sleep(init_s)
            preloaded.setdefault(OURS, []).append(side.ask("start", ranks=RANKS))
    work = f"group of {RANKS} workers with torch, all answered"
    return [
        _line(f"{work} (the first, preloaded)", Target("better", 50, "s"), preloaded),
        _line(f"{work} (modules warm)", Target("better", 50, "s"), again),
        _line(f"{work} (the first of all)", Target("better", 1, "s"), first),
    ]


VERL_ROWS = {"verl-fan-out": fan_out, "verl-start": start}
