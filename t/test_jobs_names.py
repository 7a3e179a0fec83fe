"""A job's clusters are its own: one of the same name that somebody else has made is left alone."""

import sys

from cli_rig import home  # noqa: F401
from jobs_rig import Jobs, jobs, until  # noqa: F401

MAKER = """
import os, time
import muster, jobs_workers

muster.init()
while not os.path.exists("make"):
    time.sleep(0.05)
room = muster.ResourceManager().placement_group([{"mine": 1}])  # on the node of this job
made = muster.Cluster("later.a", jobs_workers.Echo, room)
while not os.path.exists("done"):
    time.sleep(0.05)
assert made.execute_all_sync("pid") == [int(open("made").read())]
"""
LATER = "name: later\nnodes: [{name: n0, cpus: 1}]\nroles: {a: {command: [sleep, '1000']}}\n"


def test_a_cluster_of_somebody_else(jobs: Jobs) -> None:  # noqa: F811
    jobs.write(MAKER, "maker.py")
    jobs.submit(
        "name: own\nnodes: [{name: n0, cpus: 0, resources: {mine: 1}}]\n"
        f"driver: [{sys.executable}, maker.py]\n"
    )
    jobs.submit(
        "name: first\nnodes: [{name: n0, cpus: 100000}]\n"
        "roles: {a: {command: [sleep, '1000']}}\n"
    )
    jobs.submit(LATER)  # waits for the first
    jobs.write("", "make")
    pid = until(lambda: jobs.workers().get("later.a/0"))
    jobs.write(str(pid), "made")
    jobs.run("delete", "first")
    jobs.run("wait", "later", code=1)
    assert "there is a cluster 'later.a' already" in jobs.texts("later")
    assert jobs.workers()["later.a/0"] == pid
    jobs.run("delete", "later")
    until(lambda: "later" not in jobs.run("list", "jobs"))
    jobs.write(LATER)
    said = jobs.run("submit", "job.yaml", code=1)
    assert "there is a cluster 'later.a' already, which is not of this job" in said
    jobs.kill_head()
    jobs.wait_stage("own", "running")
    assert until(lambda: jobs.workers().get("later.a/0")) == pid
    jobs.write("", "done")
    jobs.run("wait", "own")


KEYS = """
import os, time
import muster

muster.init()
while not os.path.exists("look"):
    time.sleep(0.05)
print(*muster.kv.keys("muster/job/"), file=open("keys.new", "w"), flush=True)
os.rename("keys.new", "keys")
"""


def test_what_drivers_are_told_of_a_job_goes_with_it(jobs: Jobs) -> None:  # noqa: F811
    jobs.write(KEYS, "keys.py")
    jobs.submit(
        "name: looks\nnodes: [{name: n0, cpus: 0}]\n"
        f"driver: [{sys.executable}, keys.py]\n"
    )
    jobs.submit("name: gone\non: sim\nroles: {x: {command: [sh]}}\n")
    jobs.run("delete", "gone")
    until(lambda: "gone" not in jobs.run("list", "jobs"))
    jobs.write("", "look")
    until((jobs.folder / "keys").exists)
    assert (jobs.folder / "keys").read_text().split() == ["muster/job/looks"]
