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


WIDE = """
import muster
from muster.roll import Cluster, ResourceManager, Worker, WorkerConfig

muster.init(num_nodes=4, num_gpus=2)
config = WorkerConfig(
    device_mapping="0-7", num_gpus_per_worker=4, strategy_args={"strategy_name": "sglang"}
)
cluster = Cluster("infer", Worker, ResourceManager(2, 4), config)
told = cluster.execute_all_sync("get_devices_info")
assert told == [cluster.rank2devices[rank] for rank in range(2)]
print(*((d["node_rank"], d["gpu_rank"]) for d in told[1]))
muster.shutdown()
"""


def test_a_worker_wider_than_a_node_knows_all_of_its_devices(tmp_path: Path) -> None:
    script = tmp_path / "wide.py"
    script.write_text(WIDE)
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(2, 0) (2, 1) (3, 0) (3, 1)\n"
