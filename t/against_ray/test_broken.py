"""What breaks the cluster: it is the last of its tests, in this order."""

import errno

from helpers import wait_gone
from ray_rig import RayCluster


def test_a_raylet_is_killed(ray_cluster: RayCluster) -> None:
    bridge = ray_cluster.bridge()
    assert bridge.reserve("spread", 3, cpus=1, strategy="STRICT_SPREAD")["rc"] == 0
    agent = bridge.agent_pid("n1")
    ray_cluster.ask("kill", what="raylet", node="n1")
    ended = bridge.wait_event("piece", key="spread", number=1, phase="ended")
    assert ended["cause"] == "node lost" and ended["node"] == "n1"
    assert wait_gone([agent]) == []
    assert [p["phase"] for p in bridge.of("spread")] == ["running", "ended", "running"]
    assert bridge.do("release", key="spread")["rc"] == 0
    bridge.quit()
    ray_cluster.ask("forget", node="n1")


def test_the_memory_monitor_kills(ray_cluster: RayCluster) -> None:
    """A node where Ray finds that all memory is used, always."""
    ray_cluster.add("tight", RAY_memory_usage_threshold="0.001")
    bridge = ray_cluster.bridge()
    said = bridge.reserve("tight", 3, cpus=8)
    if said["rc"] == 0:  # it was lent before Ray looked at the memory
        ended = bridge.wait_event("piece", key="tight", phase="ended")
        assert ended["cause"] == "out of memory", ended
    else:
        assert said["rc"] == -errno.ECHILD and "(out of memory)" in said["why"], said
    bridge.quit()
    ray_cluster.ask("kill", what="raylet", node="tight")  # nothing else lives there
    ray_cluster.ask("forget", node="tight")


def test_ray_falls_silent(ray_cluster: RayCluster) -> None:
    """Its head dies. What runs goes on; what is asked is answered."""
    bridge = ray_cluster.bridge()
    assert bridge.reserve("kept", 1, cpus=1)["rc"] == 0
    agent = bridge.agent_pid(bridge.of("kept")[0]["node"])
    ray_cluster.ask("kill", what="gcs_server")
    bridge.wait_event("silent")
    assert bridge.do("list")["rc"] == -errno.EAGAIN
    said = bridge.reserve("more", 1, cpus=1)
    assert said["rc"] == -errno.EAGAIN and "answer" in said["why"]
    assert wait_gone([agent], 0.0) == [agent]
    bridge.close_input()
    bridge.end()
    assert wait_gone([agent]) == []
