"""Jobs that are submitted: one file and one driver, on this machine and on Ray."""

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import muster.jobs
import pytest
from cli_rig import home  # noqa: F401
from helpers import MARK, processes
from jobs_rig import Jobs, jobs, until  # noqa: F401
from ray_rig import SLOW_S, RayCluster, words

pytestmark = pytest.mark.timeout(600)  # Ray needs most of it to start

JOB = """
name: both
nodes: [{name: "m[0-1]", cpus: 2, gpus: 2}]
roles:
  actor: {worker_cls: jobs_workers.Echo, device_mapping: "0-3", args: [7]}
  side: {worker_cls: jobs_workers.Echo, world_size: 1, restart: rank}
driver: [python, train.py]
checkpoint: ./ckpt
env: {FLAVOUR: plum}
"""
# It waits for the file `go` in the folder of its checkpoint, on whatever machine that is.
TRAIN = """
import os, pathlib, time
import muster

muster.init()
actor, side = muster.get_cluster("actor"), muster.get_cluster("side")
assert os.environ["FLAVOUR"] == "plum"
print("pids", *actor.execute_all_sync("pid"), flush=True)
ckpt = pathlib.Path(os.environ["MUSTER_CHECKPOINT"])
ckpt.mkdir(exist_ok=True)
(ckpt / "attempt").write_text(os.environ["MUSTER_ATTEMPT"])
while not (ckpt / "go").exists():
    side.execute_all_sync("pid")
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def ray() -> Iterator[RayCluster]:
    one = RayCluster(2, dashboard=True)
    yield one
    one.stop()


def checkpoint(jobs: Jobs) -> Path:  # noqa: F811
    """When the driver of this attempt has come so far; what it has printed is there."""
    job = jobs.get("both")
    found = Path(job["folder"]) / "ckpt"
    until(lambda: (found / "attempt").exists(), SLOW_S)
    until(lambda: (found / "attempt").read_text() == str(job["attempt"]), SLOW_S)
    assert "pids " in jobs.run("logs", "--job", "both")
    return found


def kill_one(jobs: Jobs) -> None:  # noqa: F811
    """A rank of `side` is replaced by itself."""
    job = jobs.wait_running("both", SLOW_S)
    before = {role["name"]: role["restarts"] for role in job["roles"]}
    jobs.run("restart", "both/side/0")
    until(
        lambda: (
            {r["name"]: r["restarts"] for r in jobs.get("both")["roles"]} != before
            or "restarted" in jobs.texts("both")
        )
    )
    jobs.wait_running("both", SLOW_S)


def workers(ray: RayCluster) -> set[int]:
    """What the job runs on Ray's nodes."""
    return {p for p in processes(ray.mark) if words(p)[1:2] == ["agent"]} | {
        p for p in processes(ray.mark) if "train.py" in words(p)
    }


def head_of(ray: RayCluster) -> int:
    [pid] = [p for p in processes(ray.mark) if words(p)[1:2] == ["host"]]
    return pid


def kill_head(jobs: Jobs, ray: RayCluster, name: str) -> None:  # noqa: F811
    """It is started again, finds its journal, and goes on with what runs."""
    before, running = jobs.get(name), workers(ray)
    said = jobs.texts(name).count("the controller was restarted")
    os.kill(head_of(ray), signal.SIGKILL)

    def is_back() -> bool:
        roles = jobs.get(name)["roles"]
        return (
            jobs.texts(name).count("the controller was restarted") > said
            and not jobs.get(name)["is_recovering"]
            and all(r["running"] == r["wanted"] for r in roles)
        )

    until(is_back, SLOW_S)
    after = jobs.get(name)
    assert after["driver_runs"] == before["driver_runs"]
    assert after["attempt"] == before["attempt"]
    assert sorted(after["nodes"]) == sorted(before["nodes"])
    assert [r["restarts"] for r in after["roles"]] == [
        r["restarts"] for r in before["roles"]
    ]
    assert "lost" not in jobs.texts(name)
    assert workers(ray) == running


def test_one_file_on_local_and_ray(
    jobs: Jobs,  # noqa: F811
    ray: RayCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = f"http://{ray.where['url'].removeprefix('http://')}"
    python = Path(sys.executable).parent  # `python` is this one here, and Ray's there
    jobs.home.env["PATH"] = f"{python}:{jobs.home.env['PATH']}"
    jobs.write(TRAIN, "train.py")
    assert jobs.submit(JOB) == "both"
    kill_one(jobs)
    here = checkpoint(jobs)
    (here / "go").write_text("")
    jobs.run("wait", "both")
    jobs.run("delete", "both")
    shutil.rmtree(here)  # this folder goes along
    until(lambda: jobs.run("list", "jobs", "--json").strip() == "[]")

    said = jobs.run(
        "submit", "--on", "ray", "--address", url, "job.yaml", timeout_s=240
    )
    assert said.splitlines()[0] == "both"
    assert "its head is in job muster-both-" in said
    again = jobs.run("submit", "--on", "ray", "--address", url, "job.yaml", code=1)
    assert "there is a job 'both' already" in again
    try:
        job = jobs.wait_running("both", SLOW_S)
        assert (job["on"], len(job["nodes"])) == ("ray", 2)
        assert [r["running"] for r in job["roles"]] == [4, 1]
        kill_one(jobs)
        for name in ("MUSTER_HOME", MARK):
            monkeypatch.setenv(name, jobs.home.env[name])
        assert muster.jobs.get("both").status()["stage"] == "running"
        kill_head(jobs, ray, "both")
        kill_head(jobs, ray, "both")
        kill_one(jobs)
        (checkpoint(jobs) / "go").write_text("")
        jobs.run("wait", "both", timeout_s=SLOW_S)
        texts = jobs.texts("both")
        assert "the driver has succeeded" in texts
        listed = jobs.run("list", "jobs")
        assert "both" in listed and "succeeded" in listed
        ray.assert_nothing_held()  # its head is still there, for those who ask
    finally:
        jobs.run("delete", "both")
    until(lambda: "there is no job" in jobs.run("get", "job/both", code=5))


NODES = """
name: part
nodes: [{name: n, cpus: 1, gpus: 4, count: "2:4"}]
roles:
  side: {command: [sleep, "1000"], num_gpus_per_worker: 4, world_size: "2:4", restart: rank}
"""


def test_three_of_four_nodes_and_one_that_comes_later(jobs: Jobs) -> None:  # noqa: F811
    """Each fills one of Ray's."""
    cluster = RayCluster(3, dashboard=True)
    try:
        url = f"http://{cluster.where['url'].removeprefix('http://')}"
        jobs.write(NODES)
        jobs.run("submit", "--on", "ray", "--address", url, "job.yaml", timeout_s=240)

        def wait_nodes(count: int) -> None:
            until(lambda: len(jobs.get("part")["nodes"]) == count, SLOW_S)
            until(lambda: jobs.get("part")["roles"][0]["running"] == count, SLOW_S)

        wait_nodes(3)
        assert "has 3 of 4 nodes like n0" in jobs.texts("part")
        cluster.add("n3")
        wait_nodes(4)
        assert "has 4 of 4 nodes like n0" in jobs.texts("part")
        kill_head(jobs, cluster, "part")
        time.sleep(8)  # it asks for more every few seconds, if it takes one for missing
        assert jobs.texts("part").count("nodes like n0") == 2
        wait_nodes(4)
        head = head_of(cluster)  # its parent is the Ray job
        parent = int(
            Path(f"/proc/{head}/stat").read_text().rsplit(")", 1)[1].split()[1]
        )
        for pid in (parent, head):
            os.kill(pid, signal.SIGKILL)
        cluster.assert_nothing_held(SLOW_S)
    finally:
        cluster.stop()
