"""The rows against AReaL's LocalScheduler: the same jobs and engines on both sides."""

from lab import Lab, take_turns
from report import Line, Target, median
from side import Side

OURS, THEIRS = "muster_areal", "areal"
RANKS = 8
TENSOR_BYTES = 64 << 20


def _line(work: str, better: float, slices: dict[str, list[float]]) -> Line:
    ours, theirs = median(slices.get(OURS)), median(slices.get(THEIRS))
    target = Target("better", better, "s")
    return Line(work, target, "idle", "areal", ours, theirs, {"slices": slices})


def calls(lab: Lab) -> list[Line]:
    """`call_engine` of an empty method, the same to 8 workers, and a tensor."""
    counts = {OURS: lab.size(5000, 500), THEIRS: lab.size(200, 30)}
    rounds = lab.size(7, 2)

    def ask(op: str, share: int = 1, **more: int) -> dict[str, list[float]]:
        def measure(side: Side) -> float | None:
            count = max(1, counts[side.name] // share)
            return median(side.ask(op, count=count, warm_up=3, **more))

        return take_turns(sides, rounds, measure)

    with lab.sides([THEIRS, OURS], ranks=RANKS) as sides:
        call, fan_out = ask("call"), ask("fan_out", 5)
        tensor = ask("tensor_back", 200, nbytes=TENSOR_BYTES)
    return [
        _line("call_engine, empty", 60, call),
        _line(f"async_call_engine to {RANKS} workers, empty", 25, fan_out),
        _line("64 MiB tensor through call_engine and back", 50, tensor),
    ]


def start(lab: Lab) -> list[Line]:
    """Workers with AReaL's modules. AReaL imports them in each; Muster once, which begins
    when the scheduler is made."""
    cold: dict[str, list[float]] = {}
    warm: dict[str, list[float]] = {}
    ends: dict[str, list[float]] = {}
    for name, rounds in ((THEIRS, lab.size(2, 1)), (OURS, lab.size(9, 3))):
        if not lab.has(name):
            continue
        with lab.side(name) as side:
            first, end = side.ask("start", ranks=RANKS)
            cold[name], ends[name] = [first], [end]
            for _ in range(rounds):
                seconds, end = side.ask("start", ranks=RANKS)
                warm.setdefault(name, []).append(seconds)
                ends[name].append(end)
    work = f"{RANKS} workers with AReaL, all healthy"
    return [
        _line(f"{work} (modules warm)", 25, warm),
        _line(f"{work} (the first of all)", 5, cold),
        _line(f"{RANKS} workers deleted", 20, ends),
    ]


AREAL_ROWS = {"areal-calls": calls, "areal-start": start}
