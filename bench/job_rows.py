"""The job controller: how soon it decides, how much it holds; bench/c/jobs.c measures."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from lab import Lab
from native import jobs
from report import Line, Target, median

KIB = 1024
# what of bench/c/jobs.c, which number of it, by how much it is divided, the target
MEASURED: list[tuple[str, str, int, float, Target]] = [
    (
        "job of 1,000 on sim: death told to the head until its replacement runs, p50",
        "decision",
        0,
        1,
        Target("at_most", 0.005, "s"),
    ),
    (
        "job of 1,000 on sim: death told to the head until its replacement runs, p99",
        "decision",
        1,
        1,
        Target("at_most", 0.005, "s"),
    ),
    (
        "job of 1,000 on sim, all lost at once: requests until all run again",
        "lost",
        2,
        1,
        Target("at_most", 1, "requests"),
    ),
    (
        "job of 1,000 on sim, all lost at once: time until all run again",
        "lost",
        0,
        1,
        Target("at_most", 0.01, "s"),
    ),
    (
        "job of 1,000: events of the pure core per second",
        "events",
        0,
        1,
        Target("at_least", 1_000_000, "events/s"),
    ),
    (
        "job of 100,000 on sim: heap of the head, of each instance",
        "memory",
        1,
        KIB,
        Target("at_most", 1, "KiB"),
    ),
    (
        "job of 10,000 on sim: start of the next head until it knows what runs",
        "recovery",
        0,
        1,
        Target("at_most", 1, "s"),
    ),
]


def controller(lab: Lab) -> list[Line]:
    with tempfile.TemporaryDirectory(prefix="mb", dir="/tmp") as folder:
        rounds = [jobs(Path(folder)) for _ in range(lab.size(7, 3))]
    lines = []
    for work, name, index, unit, target in MEASURED:
        found = [measured[name][index] / unit for measured in rounds]
        detail: dict[str, object] = {"slices": {"muster": found}}
        lines.append(Line(work, target, "idle", "none", median(found), None, detail))
    return lines


JOB_ROWS: dict[str, Callable[[Lab], list[Line]]] = {"jobs": controller}
