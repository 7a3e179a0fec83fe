"""A short run on the oldest Ray that Muster runs on."""

import errno
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import Driver, processes, until, wait_gone
from ray_rig import DRIVER, SLOW_S, RayCluster

PYTHON = os.environ.get("OLDEST_RAY_PYTHON", "")
pytestmark = pytest.mark.skipif(not PYTHON, reason="OLDEST_RAY_PYTHON is not set")


@pytest.fixture(scope="module")
def oldest() -> Iterator[RayCluster]:
    one = RayCluster(2, python=PYTHON, dashboard=True)
    yield one
    one.stop()


def test_it_lends_and_takes_back(oldest: RayCluster) -> None:
    bridge = oldest.bridge()
    assert bridge.hello["ray"] == "2.40.0"
    said = bridge.reserve("gang", 4, cpus=1, gpus=2)
    assert said["rc"] == 0, said
    told = [(p["node"], p["devices"]) for p in bridge.of("gang")]
    assert told == [("n0", [0, 1]), ("n0", [2, 3]), ("n1", [0, 1]), ("n1", [2, 3])]
    said = bridge.reserve("wide", 3, gpus=4, timeout_s=1)
    assert said["rc"] == -errno.ETIMEDOUT and "n1: 0 GPU of 4 GPU" in said["why"], said
    # what it cannot do, it says
    for more in ({"labels": {"rack": "a"}}, {"same": "rack"}):
        said = bridge.reserve("new", 1, cpus=1, **more)
        assert said["rc"] == -errno.ENOTSUP and "2.40" in said["why"], said
    assert bridge.do("avoid", node="n0", reason="?")["rc"] == -errno.ENOTSUP
    os.kill(bridge.agent_pid("n1"), signal.SIGUSR1)
    ended = bridge.wait_event("piece", key="gang", number=2, phase="ended")
    assert (ended["cause"], ended["code"]) == ("exited", 7)
    assert bridge.do("release", key="gang")["rc"] == 0
    bridge.quit()


def test_killed(oldest: RayCluster) -> None:
    """This Ray does not end the children of its workers: they do so themselves."""
    bridge = oldest.bridge()
    assert bridge.reserve("gang", 1, cpus=1)["rc"] == 0
    agent = bridge.agent_pid(bridge.of("gang")[0]["node"])
    bridge.process.kill()
    bridge.end()
    assert wait_gone([agent]) == []
    oldest.assert_nothing_held()


@pytest.mark.parametrize("how", ["ends", "is killed"])
def test_a_driver(oldest: RayCluster, tmp_path: Path, how: str) -> None:
    """The whole way: package, job, bridge, agents, workers; and back."""
    url = f"http://{oldest.where['url'].removeprefix('http://')}"
    driver = Driver(DRIVER.format(url=url), tmp_path)
    assert driver.process.stdout is not None
    workers = [int(pid) for pid in driver.process.stdout.readline().split()]
    assert len(workers) == 2
    if how == "is killed":
        driver.process.kill()
    driver.process.communicate(timeout=SLOW_S)
    assert wait_gone([*workers, *processes(driver.mark)], SLOW_S) == []
    oldest.assert_nothing_held()
    until(lambda: oldest.records() == [], oldest.records, SLOW_S)
