"""A job on a head that is named, by --head or MUSTER_ADDRESS, and on nodes that have joined it."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_rig import home  # noqa: F401
from daemon_rig import Daemon, daemon  # noqa: F401
from jobs_rig import Jobs, jobs, until  # noqa: F401

ROOM_S = 40.0  # less than the minute after which a role looks for room by itself

JOB = """
name: far
roles:
  actor: {worker_cls: jobs_workers.Echo, world_size: 2, num_gpus_per_worker: 2, restart: rank}
driver: [python, train.py]
"""
TRAIN = """
import muster, pathlib, time

muster.init()
print("pids", *muster.get_cluster("actor").execute_all_sync("pid"), flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.05)
"""


@pytest.fixture
def far(jobs: Jobs, daemon: Daemon) -> Jobs:  # noqa: F811
    """Commands know that head by MUSTER_ADDRESS alone: its sessions are not in their home."""
    daemon.agent("m0")
    daemon.agent("m1")
    jobs.home.env["MUSTER_ADDRESS"] = daemon.address
    jobs.home.env["MUSTER_SECRET_FILE"] = daemon.secret_file
    jobs.home.env["PATH"] = f"{Path(sys.executable).parent}:{jobs.home.env['PATH']}"
    jobs.write(TRAIN, "train.py")
    return jobs


def workers(far: Jobs) -> dict[str, Any]:
    """Of the job: node and process."""
    return {
        f"{w['cluster']}/{w['rank']}": (w["node"], w["pid"])
        for w in json.loads(far.run("list", "workers", "--json"))
        if w["state"] == "running"
    }


def wait_driver(far: Jobs) -> None:
    """It runs, and calls nobody any more."""
    far.wait_running("far")
    until(lambda: "pids " in far.run("logs", "--job", "far"))


def finish(far: Jobs) -> None:
    (far.folder / "go").write_text("")
    far.run("wait", "far")


def test_by_address(far: Jobs, daemon: Daemon) -> None:  # noqa: F811
    assert far.submit(JOB) == "far"
    job = far.wait_running("far")
    assert sorted(job["nodes"]) == ["m0", "m1"]
    found = workers(far)
    assert {found["far.actor/0"][0], found["far.actor/1"][0]} == {"m0", "m1"}
    assert found["far.driver/0"][0] in ("m0", "m1")
    wait_driver(far)
    assert "far" in far.run("list", "jobs")
    finish(far)
    until(lambda: workers(far) == {})
    assert all(
        a.process.poll() is None for a in daemon.agents.values()
    )  # they are not the job's
    far.run("delete", "far")


def test_by_option(far: Jobs, daemon: Daemon) -> None:  # noqa: F811
    far.home.env["MUSTER_ADDRESS"] = "127.0.0.1:1"  # --head goes first
    at = ["--head", daemon.address]
    far.write('name: opt\nroles: {a: {command: [sleep, "1000"], world_size: 1}}\n')
    assert far.run("submit", *at, "job.yaml").splitlines()[0] == "opt"
    until(lambda: '"running": 1' in far.run("get", "job/opt", "--json", *at))
    far.run("stop", "job", "opt", *at)
    far.run("wait", "opt", *at, code=143)
    assert "job 'opt' already" in far.run("submit", *at, "job.yaml", code=1)
    far.run("delete", "opt", *at)
    assert list(far.home.path.iterdir()) == []  # no head was started here


def test_a_worker_and_an_agent_die(far: Jobs, daemon: Daemon) -> None:  # noqa: F811
    far.submit(JOB)
    wait_driver(far)
    before = workers(far)
    os.kill(before["far.actor/1"][1], signal.SIGKILL)
    until(lambda: far.get("far")["roles"][0]["restarts"] == 1)
    far.wait_running("far")
    [lost] = {"m0", "m1"} - {before["far.driver/0"][0]}
    daemon.agents[lost].kill()
    until(lambda: far.get("far")["roles"][0]["running"] == 1)
    daemon.agent(lost)
    far.wait_running("far")
    after = workers(far)
    assert {after["far.actor/0"][0], after["far.actor/1"][0]} == {"m0", "m1"}
    assert after["far.driver/0"] == before["far.driver/0"]
    finish(far)


def test_a_node_that_joins_later(far: Jobs, daemon: Daemon) -> None:  # noqa: F811
    far.submit(
        'name: more\nroles: {a: {command: [sleep, "1000"], world_size: "1:3", '
        "num_gpus_per_worker: 2, restart: rank}}\n"
    )

    def running() -> int:
        return int(far.get("more")["roles"][0]["running"])

    until(lambda: running() == 2)
    daemon.agent("m2")
    until(lambda: running() == 3, ROOM_S)
    far.run("delete", "more")


def test_the_head_dies(far: Jobs, daemon: Daemon) -> None:  # noqa: F811
    """The next one has the job, on the same nodes, and nothing was started again."""
    far.submit(JOB)
    wait_driver(far)
    before = workers(far)
    daemon.head.kill()
    daemon.start()
    job = far.wait_running("far")
    assert sorted(job["nodes"]) == ["m0", "m1"]
    assert workers(far) == before
    assert "the controller was restarted" in far.texts("far")
    os.kill(before["far.actor/0"][1], signal.SIGKILL)
    until(lambda: far.get("far")["roles"][0]["restarts"] == 1)
    far.wait_running("far")
    finish(far)
