"""The example of doc/torch.md: a DDP group that loses a rank, and a hand-over of weights."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip(
    "torch", reason="torch is not installed here: `make test-verl` has it"
)
ROOT = Path(__file__).resolve().parents[2]


def test_a_group_forms_again_and_hands_its_weights_over() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/torch/ddp.py")],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[0] == "trained 20 steps"
    assert said[1].endswith("all ranks again")
    assert said[2].startswith("trained 200 steps")
    assert said[3] == "replicas have the weights: True"
