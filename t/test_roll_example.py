"""The example of ROLL's documentation, with its import lines changed."""

import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parent.parent / "examples/roll/main.py"
TIMEOUT_S = 100


def test_it_runs_on_four_nodes_of_eight_devices() -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLE],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stderr
    every, shared, devices = done.stdout.splitlines()
    assert every.startswith("32 ranks, ")
    assert every.endswith("(7.5, 'actor_train-31-G7')")
    # of the last dp group the rank of tp 0 and of the last stage
    assert re.fullmatch(r"dp 8, tp 2, pp 2, .*: \(7\.5, 'actor_train-30-G6'\)", shared)
    assert devices == "rank 31 has [{'rank': 0, 'node_rank': 3, 'gpu_rank': 7}]"
