"""AReaL's own controllers over MusterScheduler, and controllers that die."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import MARK, Driver, new_mark, processes, until

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "areal"
SLOW_S = 300


def train(tmp_path: Path, *options: str) -> str:
    """What the example prints; nothing of it is left."""
    mark = new_mark()
    python = subprocess.check_output([ROOT / "tools" / "ray-venv"], text=True).strip()
    path = os.pathsep.join([str(Path(python).parent), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", EXAMPLE / "train.py", *options],
        env=os.environ | {MARK: mark, "PATH": path},
        capture_output=True,
        text=True,
        timeout=SLOW_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    until(lambda: not processes(mark), lambda: processes(mark))
    return done.stdout


@pytest.mark.parametrize("options", [(), ("--on", "ray")], ids=["local", "ray"])
@pytest.mark.timeout(SLOW_S)
def test_train_and_rollout_controllers(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    said = train(tmp_path, "--fileroot", str(tmp_path), *options)
    lines = said.splitlines()
    [curve] = [line for line in lines if line.startswith("reward ")]
    assert float(curve.split()[-4]) >= 0.9, said
    assert lines[-1] == "logs: actor.log, merged.log, rollout.log"


SCRIPT = """
import asyncio, os, sys, warnings
warnings.simplefilter("ignore")
out = os.dup(1)
os.dup2(2, 1)  # what AReaL says
from areal.api import Job
from areal.api.cli_args import SchedulingSpec
from muster.areal import MusterScheduler

scheduler = MusterScheduler(log_dir=sys.argv[0] + "-logs")
tasks = [SchedulingSpec(cpu=0, mem=0)]
scheduler.create_workers(Job(role="actor", replicas=2, tasks=tasks))
scheduler.fork_workers("proxy", "actor")
for i in (0, 1):
    asyncio.run(scheduler.create_engine(f"actor/{i}", "areal_engines.Engine"))
os.write(out, b"ready\\n")
if sys.stdin.readline() == "raise\\n":
    raise RuntimeError("the controller fails")
scheduler.call_engine("actor/0", "run", None, "long", 1000)
"""


@pytest.mark.timeout(SLOW_S)
@pytest.mark.parametrize("how", ["exception", "killed", "killed in a call"])
def test_nothing_is_left_of_a_controller_that_dies(tmp_path: Path, how: str) -> None:
    driver = Driver(SCRIPT, tmp_path)
    assert driver.line(SLOW_S) == "ready"  # AReaL is imported twice
    if how == "exception":
        driver.send("raise")
        code, _, err = driver.end()
        assert code == 1 and "the controller fails" in err
    else:
        if how == "killed in a call":
            driver.send("call")
        driver.signal(signal.SIGKILL)
        driver.end()
    until(lambda: not processes(driver.mark), lambda: processes(driver.mark))
