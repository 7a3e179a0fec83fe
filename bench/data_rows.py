"""The rows of the data plane on one node: beside Ray, plain C, verl's DataProto, memcpy."""

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path

from lab import Lab, take_turns
from native import SharedProgram
from report import Line, Target, median, quantile
from side import Side
from verl_rows import OURS, THEIRS

RANKS = 8
FLOOR_TIMES = 1.3  # "the same work in plain C": how much more it may take
MEMCPY_TIMES = 1.25  # "the memcpy floor"
PUBLISHED_S = 1.32  # verl's serialise and deserialise of 6400 x 20480 int64

Slices = dict[str, list[float]]


# ---- 256 MiB to all ranks --------------------------------------------------------------


class PlainC:
    """Takes its turn like a side; it runs in its own turn alone."""

    name = "plain C"
    stopped = contextlib.nullcontext

    def __init__(self, folder: Path, mib: int, count: int) -> None:
        self.program = SharedProgram(folder)
        self.arguments = (mib, RANKS, count)

    def measure(self) -> dict[str, float]:
        return self.program.measure(*self.arguments)


def broadcast(lab: Lab) -> list[Line]:
    """Ray has no other way than to copy; what is built in place is held against that."""
    mib, count = lab.size(256, 64), lab.size(7, 3)

    def measure(side: Side | PlainC) -> dict[str, float]:
        if isinstance(side, PlainC):
            return side.measure()
        ways = {"copied": False} | ({"in_place": True} if side.name == "muster" else {})
        return {
            how: quantile(
                side.ask("broadcast", in_place=in_place, mib=mib, count=count), 0.5
            )
            for how, in_place in ways.items()
        }

    with tempfile.TemporaryDirectory(prefix="mb", dir="/tmp") as folder:
        with lab.sides(["ray", "muster"], ranks=RANKS) as sides:
            plain = PlainC(Path(folder), mib, count)
            found = take_turns([*sides, plain], lab.size(5, 2), measure)
            counted = count_bytes(sides, mib)
    return [*_broadcast_lines(mib, found), *counted]


def _broadcast_lines(mib: int, found: dict[str, list[dict[str, float]]]) -> list[Line]:
    work = f"{mib} MiB to {RANKS} ranks, every page read, "
    slices = {
        (name, how): [turn[how] for turn in turns]
        for name, turns in found.items()
        for how in (turns[0] if turns else ())
    }

    def line(what: str, ours: str, peer: str, theirs: str, target: Target) -> Line:
        pair = {
            "muster": slices.get(("muster", ours), []),
            peer: slices.get((peer, theirs), []),
        }
        return _line(work + what, target, peer, pair)

    in_place = "built in place"
    return [
        line("copied once", "copied", "ray", "copied", Target("better", 1, "s")),
        line(in_place, "in_place", "ray", "copied", Target("better", 3, "s")),
        line(
            in_place,
            "in_place",
            "plain C",
            "in_place",
            Target("at_most_peer", FLOOR_TIMES, "s"),
        ),
        line(
            "copied once",
            "copied",
            "plain C",
            "copied",
            Target("at_most_peer", FLOOR_TIMES, "s"),
        ),
        line(
            "copied once; peer: its memcpy alone",
            "copied",
            "plain C",
            "memcpy",
            Target("told", 0, "s"),
        ),
    ]


def count_bytes(sides: list[Side], mib: int) -> list[Line]:
    """What a broadcast copies on a node, over all of its processes."""
    for side in sides:
        if side.name == "muster":
            copied = side.ask("count_broadcast", mib=mib) / (1 << 20)
            work = f"bytes copied on a node by {mib} MiB to {RANKS} ranks"
            return [
                Line(work, Target("at_most", mib, "MiB"), "-", "none", copied, None)
            ]
    return []


def _line(work: str, target: Target, peer: str, slices: Slices) -> Line:
    ours = slices.get("muster") or slices.get(OURS)
    theirs = slices.get(peer)
    detail: dict[str, object] = {"slices": slices}
    return Line(work, target, "idle", peer, median(ours), median(theirs), detail)


# ---- batches, beside verl's DataProto on Ray -------------------------------------------


def batch_dp(lab: Lab) -> list[Line]:
    """A batch divided over the ranks, which read all of it; and given back."""
    rows = lab.size(1000, 200)
    count = {OURS: lab.size(9, 3), THEIRS: lab.size(3, 1)}
    ways: dict[str, tuple[str, float]] = {
        "dispatch": ("dispatched to {} ranks by DP, every page read", 10),
        "echo": ("the same, and collected again", 10),
        "echo_read": ("the same, and the driver reads every page", 10),
    }
    found: dict[str, Slices] = {}
    with lab.sides([THEIRS, OURS], ranks=RANKS) as sides:
        mb = max((side.ask("make_batch", rows=rows) for side in sides), default=0) / 1e6
        for op in ways:

            def measure(side: Side, op: str = op) -> float:
                return quantile(side.ask(op, count=count[side.name], warm_up=1), 0.5)

            found[op] = take_turns(sides, lab.size(5, 2), measure)
    return [
        _verl_line(f"{mb:.0f} MB batch, " + what.format(RANKS), better, found[op])
        for op, (what, better) in ways.items()
    ]


def _verl_line(work: str, better: float, slices: Slices) -> Line:
    pair = {OURS: slices.get(OURS, []), "verl": slices.get(THEIRS, [])}
    return _line(work, Target("better", better, "s"), "verl", pair)


def big_tensor(lab: Lab) -> list[Line]:
    """One tensor to all ranks, beside a memcpy of it and what verl has published for its
    pickling alone, which takes 20 GB of memory here and is not done."""
    shape = (lab.size(6400, 640), 20480)
    share = shape[0] / 6400
    slices: dict[str, list[float]] = {"dispatch": [], "memcpy": []}
    with lab.sides([OURS], ranks=RANKS) as sides:
        for side in sides:
            side.ask("make_tensor", shape=shape)
            for _ in range(lab.size(3, 2)):
                for op, times in slices.items():
                    took = side.ask(op, count=lab.size(3, 2), warm_up=1)
                    times.append(quantile(took, 0.5))
    ours, floor = slices["dispatch"], median(slices["memcpy"])
    limit = max(PUBLISHED_S * share / 10, (floor or 0) * MEMCPY_TIMES)
    work = f"{shape[0]} x {shape[1]} int64 dispatched to {RANKS} ranks"
    memcpy = {OURS: ours, "memcpy": slices["memcpy"]}
    published = {OURS: ours, "verl, published": [PUBLISHED_S * share]}
    return [
        _line(work, Target("at_most", limit, "s"), "memcpy", memcpy),
        _line(work, Target("told", 0, "s"), "verl, published", published),
    ]


DATA_ROWS: dict[str, Callable[[Lab], list[Line]]] = {"broadcast": broadcast}
DATA_VERL_ROWS: dict[str, Callable[[Lab], list[Line]]] = {
    "batch-dp": batch_dp,
    "big-tensor": big_tensor,
}
