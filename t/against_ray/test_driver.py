"""Drivers on Ray: init(orchestrator="ray") from outside, `muster run --on ray` inside."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import muster
import pytest
from cli_rig import CLI
from helpers import DEADLINE_S, Driver, processes, until, wait_gone
from ray_rig import DRIVER, SLOW_S, RayCluster
from workers import Echo

NODES = 2  # of 8 CPUs and 4 devices
pytestmark = pytest.mark.timeout(600)  # Ray needs most of it to start


@pytest.fixture(scope="module")
def ray() -> Iterator[RayCluster]:
    one = RayCluster(NODES, dashboard=True)
    yield one
    one.stop()


@pytest.fixture
def url(ray: RayCluster) -> Iterator[str]:
    """Nothing is held there before and after."""
    ray.assert_nothing_held()
    yield f"http://{ray.where['url'].removeprefix('http://')}"
    muster.shutdown()
    ray.assert_nothing_held()


# ---- from outside ---------------------------------------------------------------------


def test_driver_has_its_nodes_lent(url: str) -> None:
    muster.init(orchestrator="ray", address=url, num_nodes=2, num_gpus=2)
    assert sorted((n.name, n.gpus) for n in muster.nodes()) == [("n0", 2), ("n1", 2)]
    c = muster.Cluster("echo", Echo, device_mapping="0-3")
    assert c.execute_all_sync("rank") == [0, 1, 2, 3]

    rollout = muster.reserve("rollout", num_gpus=1)
    assert len(rollout.grow()) == 1
    assert {p.machine for p in rollout.pieces} == {"n0", "n1"}
    e = muster.Cluster("r", Echo, rollout.resource_manager(), device_mapping="0-1")
    assert e.execute_all_sync("rank") == [0, 1]
    e.destroy()
    rollout.shrink()
    assert len(rollout.nodes) == 1
    rollout.release()
    assert sorted(n.name for n in muster.nodes()) == ["n0", "n1"]

    with pytest.raises(muster.DeadlineExceeded, match=r"5 x .*4 GPU.*n0: .*of 4 GPU"):
        muster.reserve("big", 5, num_gpus=4, timeout=3)

    waiting = c.execute_rank_zero_async("hang")
    os.kill(muster.nodes()[0].agent_pid, signal.SIGKILL)
    with pytest.raises(muster.WorkerDied, match=r"has ended: ray: signaled: .*SIGKILL"):
        waiting.result(DEADLINE_S)
    [dead] = [p for p in muster.reservation().pieces if p.phase == "ended"]
    assert (dead.cause, dead.code) == ("signaled", 9)


def test_killed_driver_leaves_nothing(
    ray: RayCluster, url: str, tmp_path: Path
) -> None:
    driver = Driver(DRIVER.format(url=url), tmp_path)
    assert driver.process.stdout is not None
    workers = [int(pid) for pid in driver.process.stdout.readline().split()]
    assert len(workers) == 2
    assert len(ray.records()) == 1
    driver.process.kill()
    driver.process.communicate(timeout=DEADLINE_S)
    assert wait_gone([*workers, *processes(driver.mark)], SLOW_S) == []
    until(lambda: ray.records() == [], ray.records, SLOW_S)  # nor what Ray remembers


def test_nobody_is_there() -> None:
    with pytest.raises(muster.MusterError, match=r"127\.0\.0\.1:1\b"):
        muster.init(orchestrator="ray", address="http://127.0.0.1:1", timeout=20)
    assert not muster.is_initialized()


# ---- inside ---------------------------------------------------------------------------

TRAIN = """
import os, sys
import muster
import beside

if __name__ == "__main__":
    muster.init()
    c = muster.Cluster("echo", beside.Where, device_mapping="0-3")
    print("@", os.environ["STEPS"], *c.execute_all_sync("devices"), flush=True)
    more = muster.reserve("more", num_gpus=1)
    print("@", len(more.nodes), len(muster.nodes()), flush=True)
    if sys.argv[1] == "wait":
        print("waiting", flush=True)
        c.execute_all_sync("hang")
    sys.exit(int(sys.argv[1]))
"""
BESIDE = """
import os, threading

class Where:
    def devices(self):
        return os.environ["CUDA_VISIBLE_DEVICES"]
    def hang(self):
        threading.Event().wait()
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "beside.py").write_text(BESIDE)
    return tmp_path


def write(folder: Path, word: str) -> str:
    path = folder / "job.yaml"
    path.write_text(
        'name: first\nnodes: [{name: "n[0-1]", gpus: 2}]\n'
        "roles: {echo: {device_mapping: '0-3'}}\n"
        f"driver: [python, train.py, '{word}']\nenv: {{STEPS: '100'}}\ntimeout: 90\n"
    )
    return str(path)


def test_run(ray: RayCluster, url: str, job: Path) -> None:
    done = subprocess.run(
        [CLI, "run", "--on", "ray", "--address", url, "--json", write(job, "7")],
        cwd=job,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=4 * SLOW_S,
    )
    assert done.returncode == 7, done
    said = [line for line in done.stdout.splitlines() if line.startswith("@")]
    assert said == ["@ 100 0 1 0 1", "@ 1 3"]
    events = [json.loads(line) for line in done.stderr.splitlines()]
    assert [e["event"] for e in events] == [
        *("submitted", "begun", "reserved"),
        *("driver_started", "driver_ended", "released"),
    ]
    assert sorted(p["node"] for p in events[2]["pieces"]) == ["n0", "n1"]


def test_interrupted_run(ray: RayCluster, url: str, job: Path) -> None:
    run = subprocess.Popen(
        [CLI, "run", "--on", "ray", "--address", url, write(job, "wait")],
        cwd=job,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    assert any(line == "waiting\n" for line in run.stdout)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=SLOW_S)
    assert run.returncode == 128 + signal.SIGINT


def test_run_without_a_cluster(job: Path) -> None:
    at = "http://127.0.0.1:1"
    done = subprocess.run(
        [CLI, "run", "--on", "ray", "--address", at, write(job, "0")],
        cwd=job,
        capture_output=True,
        text=True,
        timeout=SLOW_S,
    )
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr
    assert done.stdout == ""
