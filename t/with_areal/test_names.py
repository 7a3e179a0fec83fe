"""Names in Ray (name_resolve), which AReaL's engines and controllers find each other by."""

from pathlib import Path

import pytest
from helpers import Driver, processes, until

SLOW_S = 300

SCRIPT = """
import asyncio, os, sys, warnings
warnings.simplefilter("ignore")
out = os.dup(1)
os.dup2(2, 1)  # what AReaL and Ray say
from areal.api import Job
from areal.api.cli_args import (
    BaseExperimentConfig, ClusterSpecConfig, NameResolveConfig, SchedulingSpec)
from areal.utils import name_resolve
from muster.areal import MusterScheduler

cluster = ClusterSpecConfig(
    fileroot=sys.argv[0] + "-files", name_resolve=NameResolveConfig(type="ray"))
config = BaseExperimentConfig(experiment_name="e", trial_name="t", cluster=cluster)
with MusterScheduler(exp_config=config) as scheduler:
    tasks = [SchedulingSpec(cpu=0, mem=0)]
    scheduler.create_workers(Job(role="actor", replicas=2, tasks=tasks))
    for i in (0, 1):
        engine = scheduler.create_engine(f"actor/{i}", "areal_engines.Engine")
        asyncio.run(engine)
    name_resolve.add("e/t/driver", "of the driver")
    scheduler.call_engine("actor/0", "tell_name", None, "e/t/worker", "of actor/0")
    seen = [
        name_resolve.get("e/t/worker"),
        scheduler.call_engine("actor/1", "find_name", None, "e/t/driver"),
        scheduler.call_engine("actor/1", "find_name", None, "e/t/worker"),
    ]
os.write(out, repr(seen).encode())
"""


@pytest.mark.timeout(SLOW_S)
def test_names_in_ray(tmp_path: Path) -> None:
    driver = Driver(SCRIPT, tmp_path)
    code, said, err = driver.end(SLOW_S)
    assert code == 0, err
    assert said == "['of actor/0', 'of the driver', 'of actor/0']"
    until(lambda: not processes(driver.mark), lambda: processes(driver.mark))
