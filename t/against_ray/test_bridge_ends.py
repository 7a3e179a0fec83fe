"""How pieces end, and that nothing is left, whoever dies."""

import errno
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from helpers import wait_gone
from ray_rig import Bridge, RayCluster


def parent(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def keepers(bridge: Bridge) -> list[int]:
    said = bridge.ray.ask("held")["actors"]
    return [a["pid"] for a in said if "MusterBundle" in a["class"]]


def wait_ended(bridge: Bridge, key: str, number: int) -> dict[str, Any]:
    said = bridge.wait_event("piece", key=key, number=number, phase="ended")
    return dict(said)


def test_an_agent_ends_by_itself(bridge: Bridge) -> None:
    said = bridge.reserve("each", 3, cpus=1, strategy="STRICT_SPREAD")
    assert said["rc"] == 0, said
    os.kill(bridge.agent_pid("n1"), signal.SIGUSR1)
    ended = wait_ended(bridge, "each", 1)
    assert (ended["cause"], ended["code"]) == ("exited", 7)
    assert "ended with exit code 7" in ended["detail"]
    os.kill(bridge.agent_pid("n2"), signal.SIGKILL)
    ended = wait_ended(bridge, "each", 2)
    assert (ended["cause"], ended["code"]) == ("signaled", 9)
    assert bridge.of("each")[0]["phase"] == "running"
    # the bundle's actor: its agent dies with it, at once
    agent = bridge.agent_pid("n0")
    os.kill(parent(agent), signal.SIGKILL)
    assert wait_gone([agent], 5.0) == []
    ended = wait_ended(bridge, "each", 0)
    assert ended["cause"] == "unknown" and "worker" in ended["detail"]
    bridge.ray.assert_nothing_held()  # all have ended: the placement group is gone
    assert len(bridge.of("each")) == 3  # and they are told until they are released
    assert bridge.do("release", key="each")["rc"] == 0
    assert bridge.of("each") == []


def test_an_actor_without_an_agent_dies(bridge: Bridge) -> None:
    assert bridge.reserve("both", 2, cpus=1, strategy="STRICT_PACK")["rc"] == 0
    node = bridge.of("both")[0]["node"]
    host = parent(bridge.agent_pid(node))
    [other] = [pid for pid in keepers(bridge) if pid != host]
    os.kill(other, signal.SIGKILL)
    ended = bridge.wait_event("piece", key="both", phase="ended")
    left = [p for p in bridge.of("both") if p["phase"] != "ended"]
    assert ended["cause"] == "unknown" and [p["phase"] for p in left] == ["running"]
    assert parent(bridge.agent_pid(node)) == host


def test_an_agent_that_does_not_join(bridge: Bridge) -> None:
    agent: dict[str, Any] = {"head": "127.0.0.1:1", "env": {"FAKE_FAIL": "1"}}
    said = bridge.reserve("fails", 2, cpus=1, agent=agent)
    assert said["rc"] == -errno.ECHILD
    assert "exit code 3" in said["why"] and "the head said no" in said["why"]
    bridge.ray.assert_nothing_held()
    agent["env"] = {"FAKE_LATE": "1"}
    said = bridge.reserve("late", 1, cpus=1, agent=agent, timeout_s=20)
    assert said["rc"] == -errno.ETIMEDOUT
    assert "have not joined the head at 127.0.0.1:1" in said["why"]
    bridge.ray.assert_nothing_held()


def test_no_program_there(ray_cluster: RayCluster) -> None:
    bridge = ray_cluster.bridge(muster="/no/such/muster")
    said = bridge.reserve("none", 1, cpus=1)
    assert said["rc"] == -errno.ECHILD
    assert "cannot start /no/such/muster" in said["why"]
    bridge.quit()


def test_the_secret_is_on_no_command_line(bridge: Bridge, tmp_path: Path) -> None:
    secret = os.urandom(32).hex()
    agent = {
        "head": "127.0.0.1:1",
        "secret": secret,
        "env": {"FAKE_DIR": str(tmp_path)},
    }
    assert bridge.reserve("quiet", 1, cpus=1, gpus=1, agent=agent)["rc"] == 0
    [file] = list(tmp_path.iterdir())
    words, told = file.read_text().splitlines()
    assert told == secret and secret not in words
    env = Path(f"/proc/{file.name}/environ").read_bytes()
    assert secret.encode() not in env and b"CUDA_VISIBLE_DEVICES" not in env


@pytest.mark.parametrize("how", ["killed", "terminated", "end of input", "end"])
def test_the_bridge_ends(ray_cluster: RayCluster, how: str) -> None:
    """While it holds something and something else is pending."""
    bridge = ray_cluster.bridge()
    assert bridge.reserve("held", 2, cpus=1)["rc"] == 0
    wide = bridge.ask("reserve", **bridge.request("wide", 4, cpus=8))
    bridge.wait_event("piece", key="wide", phase="pending")
    agent = bridge.agent_pid(bridge.of("held")[0]["node"])
    if how == "killed":
        bridge.process.kill()
    elif how == "terminated":
        bridge.process.terminate()
    elif how == "end":
        assert bridge.do("end")["rc"] == 0
        assert bridge.answer(wide)["rc"] == -errno.ECANCELED
    else:
        bridge.close_input()
    assert bridge.end() == (-signal.SIGKILL if how == "killed" else 0)
    assert wait_gone([agent]) == []
    ray_cluster.assert_nothing_held()
