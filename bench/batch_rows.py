"""Rows about batches: what operations on rows cost that must not touch the payload."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from lab import Lab
from report import Line, Target, median
from side import SideError

PROGRAM = Path(__file__).resolve().parent / "batch_ops.py"
MS_MAX = 1
END_S = 120


def batch_ops(lab: Lab) -> list[Line]:
    """chunk, select, reorder, concat of 1 GiB; the bytes that were copied are zero."""
    python = lab.pythons["muster"]
    done = subprocess.run(
        [python, PROGRAM, str(lab.size(200, 20))],
        capture_output=True,
        text=True,
        timeout=END_S,
    )
    if done.returncode != 0:
        raise SideError(f"batch_ops.py: {done.stderr}")
    told = json.loads(done.stdout)
    if told["copied"] != 0:
        raise SideError(f"batch_ops.py: {told['copied']} bytes were copied")
    return [
        Line(
            f"batch of 1 GiB: {name}",
            Target("at_most", MS_MAX / 1000, "s"),
            "idle",
            "none",
            median(took),
            None,
            {"slices": {"muster": took}, "copied": told["copied"]},
        )
        for name, took in told["seconds"].items()
    ]


BATCH_ROWS: dict[str, Callable[[Lab], list[Line]]] = {"batch-ops": batch_ops}
