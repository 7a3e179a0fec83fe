"""Fewer ranks of a role that generates: those that go are drained first."""

import shutil
import sys
from pathlib import Path

from cli_rig import home  # noqa: F401
from jobs_rig import Jobs, jobs, until  # noqa: F401

WORKERS = """
import os
from generate_workers import Engine


class Drained(Engine):
    def destroy(self):
        open(f"ended-{os.environ['RANK']}-{len(self.running)}", "w").close()
"""
JOB = f"""
name: fewer
nodes: [{{name: "n[0-1]", cpus: 8}}]
roles:
  infer: {{worker_cls: drain_workers.Drained, world_size: "1:2", restart: rank}}
driver: [{sys.executable}, train.py]
"""
TRAIN = """
import time
import muster
from generate_workers import answer

muster.init()
sched = muster.generate.Scheduler(muster.get_cluster("infer"), slots=4)
sampling = {"length": 240, "pace": 0.05, "chunk": 4}
group = sched.submit([1, 2], n=4, max_new_tokens=1000, sampling=sampling)
while not all(one["tokens"] for one in sched.stats()["replicas"]):
    time.sleep(0.01)
open("generates", "w").close()
found = [list(one.tokens) for one in group.result(timeout=100).samples]
assert found == [answer([1, 2], seq, 240) for seq in range(4)], found
assert len(sched.stats()["replicas"]) == 1, sched.stats()
"""


def test_requests_move_on_before_their_replica_goes(jobs: Jobs) -> None:  # noqa: F811
    shutil.copy(Path(__file__).with_name("generate_workers.py"), jobs.folder)
    jobs.write(WORKERS, "drain_workers.py")
    jobs.write(TRAIN, "train.py")
    assert jobs.submit(JOB) == "fewer"
    until((jobs.folder / "generates").exists)
    jobs.run("scale", "fewer", "infer=1")
    until(lambda: jobs.get("fewer")["roles"][0]["size"] == 1)
    assert [f.name for f in jobs.folder.glob("ended-1-*")] == ["ended-1-0"]
    jobs.run("wait", "fewer", timeout_s=120)
    assert "still have calls" not in jobs.texts("fewer")
