"""Real agents on Ray's nodes: a driver calls workers there."""

import json
from pathlib import Path

import pytest
from daemon_rig import CLI, Daemon, daemon  # noqa: F401  (a fixture)
from helpers import Driver, wait_gone
from ray_rig import Bridge, RayCluster

DRIVER = """
import json, os
import muster

class Where:
    def tell(self):
        return os.environ["CUDA_VISIBLE_DEVICES"], os.environ.get("RAY_ADDRESS")

muster.init()
one = muster.Cluster("where", Where, device_mapping="0-3")
print(json.dumps(one.execute_all_sync("tell")), flush=True)
input()
"""


@pytest.fixture
def secret(daemon: Daemon) -> str:  # noqa: F811
    return Path(daemon.secret_file).read_text().strip()


def test_a_driver_calls_workers_on_rays_nodes(
    ray_cluster: RayCluster,
    daemon: Daemon,  # noqa: F811
    secret: str,
    tmp_path: Path,
) -> None:
    others = ray_cluster.bridge()  # have the first device of every node
    assert others.reserve("first", 3, gpus=1, strategy="STRICT_SPREAD")["rc"] == 0
    bridge = ray_cluster.bridge(muster=CLI)
    agent = {"head": daemon.address, "secret": secret}
    said = bridge.reserve("gang", 2, gpus=2, strategy="STRICT_SPREAD", agent=agent)
    assert said["rc"] == 0, said
    names = [p["agent"] for p in bridge.of("gang")]
    listed = json.loads(daemon.run("list", "nodes", "--json").stdout)
    assert sorted(n["name"] for n in listed) == names
    assert [n["gpus"] for n in listed] == [2, 2]
    assert [p["devices"] for p in bridge.of("gang")] == [[1, 2], [1, 2]]
    driver = Driver(
        DRIVER,
        tmp_path,
        MUSTER_ADDRESS=daemon.address,
        MUSTER_SECRET_FILE=daemon.secret_file,
    )
    told = json.loads(driver.line())
    assert told == [["1", None], ["2", None]] * 2
    driver.send("")
    assert driver.end()[0] == 0
    pids = [bridge.agent_pid(name) for name in names]
    assert bridge.do("release", key="gang")["rc"] == 0
    assert wait_gone(pids, 0.5) == []
    others.quit()
    bridge.quit()


def test_the_head_is_not_there(ray_cluster: RayCluster, secret: str) -> None:
    """At an address that nobody listens at: the error names it."""
    bridge: Bridge = ray_cluster.bridge(muster=CLI)
    agent = {"head": "127.0.0.1:9", "secret": secret}
    said = bridge.reserve("gang", 1, cpus=1, agent=agent, timeout_s=15)
    assert said["rc"] < 0 and "127.0.0.1:9" in said["why"], said
    agent = {"head": "127.0.0.1:9", "secret": "short"}
    said = bridge.reserve("gang", 1, cpus=1, agent=agent)
    assert said["rc"] == -10 and "64 hexadecimal digits" in said["why"], said
    bridge.quit()
