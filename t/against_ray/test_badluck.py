"""Bad luck on a real Ray that wants a token, through the whole chain; in this order."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import muster
import pytest
from cli_rig import CLI
from helpers import DEADLINE_S, Driver, processes, until, wait_gone
from ray_rig import SLOW_S, RayCluster, words

TOKEN = "a-token-of-the-tests-0123456789abcdef"
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def ray() -> Iterator[RayCluster]:
    """One node."""
    one = RayCluster(
        1,
        dashboard=True,
        RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN=TOKEN,
    )
    yield one
    one.stop()


@pytest.fixture
def url(ray: RayCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    yield f"http://{ray.where['url'].removeprefix('http://')}"
    muster.shutdown()


def bridges(ray: RayCluster) -> list[int]:
    found = []
    for pid in processes(ray.mark):
        if any(word.endswith("muster/ray_bridge.py") for word in words(pid)):
            found.append(pid)
    return found


@pytest.mark.parametrize("token", ["", "another-one"])
def test_wrong_token(url: str, tmp_path: Path, token: str) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("nodes: [{name: n0, gpus: 1}]\ndriver: [echo, never]\n")
    env = os.environ | {"HOME": str(tmp_path), "RAY_AUTH_TOKEN": token}
    done = subprocess.run(
        [CLI, "run", "--on", "ray", "--address", url, str(job)],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SLOW_S,
    )
    assert done.returncode == 1 and "token" in done.stderr, done
    assert done.stdout == ""


def test_the_bridge_is_killed_while_a_reservation_waits(
    ray: RayCluster, url: str
) -> None:
    muster.init(orchestrator="ray", address=url, num_nodes=0, timeout=SLOW_S)
    small = muster.reserve("small", num_gpus=1, timeout=SLOW_S)
    failed: list[Any] = []

    def ask() -> None:
        try:
            muster.reserve("big", 3, num_gpus=4, timeout=2 * SLOW_S)
        except muster.MusterError as e:
            failed.append(e)

    thread = threading.Thread(target=ask)
    thread.start()
    until(lambda: len(ray.held()[1]) == 2, ray.held, SLOW_S)
    [bridge] = bridges(ray)
    os.kill(bridge, signal.SIGKILL)
    thread.join(SLOW_S)
    assert not thread.is_alive() and len(failed) == 1
    assert not isinstance(failed[0], muster.DeadlineExceeded), failed
    ray.assert_nothing_held()
    # it went with the bridge
    until(lambda: small.pieces[0].phase == "ended", lambda: small.pieces, DEADLINE_S)
    small.release()
    again = muster.reserve("again", num_gpus=1, timeout=2 * SLOW_S)
    assert [p.phase for p in again.pieces] == ["running"]
    muster.shutdown()
    ray.assert_nothing_held()


DRIVER = """
import sys
import muster
if __name__ == "__main__":
    muster.init(orchestrator="ray", address={url!r}, num_nodes=0)
    print("there", flush=True)
    muster.reserve("big", 3, num_gpus=4, timeout=300)
"""


def test_the_driver_is_killed_while_a_reservation_waits(
    ray: RayCluster, url: str, tmp_path: Path
) -> None:
    driver = Driver(DRIVER.format(url=url), tmp_path)
    until(lambda: ray.held()[1], ray.held, SLOW_S)
    [bridge] = bridges(ray)
    driver.process.kill()
    driver.process.communicate(timeout=DEADLINE_S)
    assert wait_gone([bridge], SLOW_S) == []
    ray.assert_nothing_held()
    until(lambda: ray.records() == [], ray.records, SLOW_S)


def test_rays_head_dies(ray: RayCluster, url: str) -> None:
    """What is lent goes on without it for a while; what is asked for is not had."""
    muster.init(orchestrator="ray", address=url, num_gpus=1, timeout=2 * SLOW_S)
    [node] = muster.nodes()
    agent = node.agent_pid
    ray.ask("kill", what="gcs_server")
    with pytest.raises(muster.MusterError):
        muster.reserve("more", num_gpus=1, timeout=10)
    assert wait_gone([agent], 0.0) == [agent]
    left = [agent, *bridges(ray)]
    assert len(left) == 2
    muster.shutdown()
    assert wait_gone(left, SLOW_S) == []
