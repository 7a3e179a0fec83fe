"""How far data shards are is a part of the checkpoint that a job's driver starts again from."""

import json
import os
import signal
import sys
from collections import Counter

from jobs_rig import Jobs, jobs, until  # noqa: F401  (fixture)

SHARDS = 24
# The model is the list of shards that it was trained with. A checkpoint is every fourth.
TRAIN = f"""
import json, os, time
from pathlib import Path
import muster

CHECKPOINTS = Path(os.environ["MUSTER_CHECKPOINT"])
FOLDER = CHECKPOINTS.parent


def latest():
    found = sorted(CHECKPOINTS.glob("step-??"))
    return found[-1] if found else None


def save(step, model):
    part = CHECKPOINTS / f"step-{{step:02}}.part"
    part.mkdir(parents=True, exist_ok=True)
    (part / "model").write_text(json.dumps(model))
    assert muster.save_shards(part) == 1
    part.rename(CHECKPOINTS / f"step-{{step:02}}")


muster.init()
CHECKPOINTS.mkdir(exist_ok=True)
shards = muster.Shards("train", size={SHARDS}, shard_size=1, shuffle=True, seed=3)
start = latest()
model = json.loads((start / "model").read_text()) if start else []
assert muster.restore_shards(start or CHECKPOINTS) == bool(start)
assert shards.status()["done"] == len(model), (shards.status(), model)
# workers that outlive the driver took shards of which the model knows nothing
taker = muster.get_cluster("taker")
taker.execute_all_async("take", shards)
for shard in shards:
    with shard:
        model.append(shard.start)
        with open(FOLDER / "given", "a") as f:
            f.write(f"{{os.environ['MUSTER_ATTEMPT']}} {{os.getpid()}}\\n")
    if len(model) % 4 == 0:
        save(len(model), model)
    (FOLDER / "model.part").write_text(json.dumps(model))
    (FOLDER / "model.part").rename(FOLDER / "model")
    time.sleep(0.05)
    while len(model) == 16 and not (FOLDER / "calm").exists():
        time.sleep(0.05)  # not over before all has been killed that shall be
assert shards.status()["state"] == "complete"
"""

WORKER = """
import time


class Taker:
    def take(self, shards):
        shard = shards.take()
        time.sleep(0.5)
        shard.give_back()  # void, if the driver has gone back to a checkpoint meanwhile
"""

JOB = """
name: data
nodes: [{{name: n0, cpus: 4}}]
roles:
  taker: {{worker_cls: takes.Taker, world_size: 1}}
driver: {{command: [{python}, train.py], budget: {{failed: 9, preempted: unlimited}}}}
checkpoint: ./ckpt
"""


def test_driver_and_head_are_killed(jobs: Jobs) -> None:  # noqa: F811
    """In the end the model has seen each shard once, whatever was killed in between."""
    (jobs.folder / "train.py").write_text(TRAIN)
    (jobs.folder / "takes.py").write_text(WORKER)
    name = jobs.submit(JOB.format(python=sys.executable))
    given = jobs.folder / "given"

    def attempts() -> list[list[int]]:
        lines = given.read_text().splitlines() if given.exists() else []
        return [[int(word) for word in line.split()] for line in lines]

    def wait_given(attempt: int, count: int) -> int:
        """The process of this attempt, when it has got so many."""

        def found() -> list[int]:
            assert not jobs.get(name)["is_over"], jobs.texts(name)
            pids = [pid for number, pid in attempts() if number == attempt]
            return pids if len(pids) >= count else []

        return int(until(found)[0])

    os.kill(wait_given(1, 2), signal.SIGKILL)  # before the first checkpoint
    wait_given(2, 6)
    jobs.kill_head()  # the driver goes on, and its queue is as it was
    os.kill(wait_given(2, 7), signal.SIGKILL)
    os.kill(wait_given(3, 3), signal.SIGKILL)
    jobs.kill_head()  # both at once
    jobs.write("", "calm")
    jobs.run("wait", name)
    model = sorted((jobs.folder / "ckpt").glob("step-??"))[-1] / "model"
    trained = Counter(json.loads(model.read_text()))
    said = jobs.texts(name) + jobs.run("logs", "--job", name)
    assert trained == Counter(range(SHARDS)), said
    assert max(number for number, _ in attempts()) >= 4, said


FAILS = """
import muster

muster.init()
shards = muster.Shards("train", size=40, shard_size=10, max_failures=2, max_deaths=1)
taker = muster.get_cluster("taker")
try:
    taker.execute_all_sync("hold", shards)  # dies with a shard
except muster.MusterError:
    pass
try:
    for shard in shards:
        with shard:
            if shard.start == 20:
                raise ValueError("record 23 is torn")
except ValueError:
    pass
try:
    for shard in shards:
        with shard:
            if shard.start == 20:
                raise ValueError("record 23 is torn")
except ValueError:
    pass
try:
    for shard in shards:
        with shard:
            pass
except muster.ShardsFailed as e:
    print("@", e, flush=True)
"""
HOLDER = """
import os


class Taker:
    def hold(self, shards):
        self.shard = shards.take()
        os._exit(3)
"""


def test_shards_that_are_set_aside_are_events(jobs: Jobs) -> None:  # noqa: F811
    (jobs.folder / "train.py").write_text(FAILS)
    (jobs.folder / "takes.py").write_text(HOLDER)
    name = jobs.submit(JOB.format(python=sys.executable))
    jobs.run("wait", name)
    assert "@" in jobs.run("logs", "--job", name)
    said = [e["text"] for e in jobs.events(name) if "set aside" in e["text"]]
    assert len(said) == 2, jobs.texts(name)
    assert said[0].startswith(
        "shards train: 0 to 9 of epoch 0 are set aside (failures: 0"
    )
    assert "workers: 1): the worker that had it has died" in said[0]
    assert said[1].startswith(
        "shards train: 20 to 29 of epoch 0 are set aside (failures: 2"
    )
    assert "record 23 is torn" in said[1]
