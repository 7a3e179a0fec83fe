"""The resource manager of a daemon head: several drivers, nodes that go, restarts."""

import signal
import threading
from pathlib import Path

import muster
import pytest
from daemon_rig import Daemon, Process, daemon  # noqa: F401  (fixture)
from helpers import DEADLINE_S, Driver, wait_gone
from workers import Echo

_DRIVER = """
import sys
import muster
from workers import Echo
muster.init()
rm = muster.ResourceManager()
CPUS = rm.nodes[0][1] * 0.3  # two of them: more than half
mine = None
print("ready", flush=True)
for line in sys.stdin:
    what, name = line.split()
    if mine is not None:
        mine.destroy() if isinstance(mine, muster.Cluster) else mine.remove()
        mine = None
    try:
        if what == "cluster":
            mine = muster.Cluster(name, Echo, rm, device_mapping="0-1", num_cpus=CPUS)
        elif what == "group":
            mine = rm.placement_group([{"GPU": 2}], name=name)
        print("won" if mine else "done", flush=True)
    except muster.PlacementError:
        print("lost", flush=True)
"""


def drivers(daemon: Daemon, folder: Path, count: int) -> list[Driver]:  # noqa: F811
    at = {"MUSTER_ADDRESS": daemon.address, "MUSTER_SECRET_FILE": daemon.secret_file}
    made = [Driver(_DRIVER, folder, **at) for _ in range(count)]
    assert [driver.line() for driver in made] == ["ready"] * count
    return made


def test_two_drivers_never_get_the_same(daemon: Daemon, tmp_path: Path) -> None:  # noqa: F811
    """Both ask for more than half of the node at the same time: one of them gets it."""
    daemon.agent("n1")
    pair = drivers(daemon, tmp_path, 2)
    for i in range(40):
        what = "cluster" if i % 10 == 0 else "group"
        for driver, letter in zip(pair, "ab", strict=True):
            driver.send(f"{what} {letter}{i}")
        told = sorted(driver.line() for driver in pair)
        assert told == ["lost", "won"]
        for driver in pair:
            driver.send("nothing x")
            assert driver.line() == "done"
    for driver in pair:
        assert driver.end()[0] == 0


def test_a_driver_that_is_killed_gives_back(daemon: Daemon, tmp_path: Path) -> None:  # noqa: F811
    daemon.agent("n1")
    (other,) = drivers(daemon, tmp_path, 1)
    muster.init(address=daemon.address, secret_file=daemon.secret_file)
    rm = muster.ResourceManager()
    before = str(rm)
    for what in ("group", "cluster"):
        other.send(f"{what} x")
        assert other.line() == "won"
        assert rm.plan("y", muster.WorkerConfig(world_size=1)) == [(0, [])]
        with pytest.raises(muster.PlacementError):
            rm.placement_group([{"GPU": 1}])
    other.signal(signal.SIGKILL)
    group = rm.placement_group([{"GPU": 2}], timeout=DEADLINE_S)
    assert group.placement == [("n1", [0, 1])]
    group.remove()
    assert str(rm) == before
    muster.shutdown()
    other.end()
    assert other.left() == []


def test_a_node_that_goes_breaks_groups(daemon: Daemon) -> None:  # noqa: F811
    daemon.agent("n1")
    daemon.agent("n2")
    muster.init(address=daemon.address, secret_file=daemon.secret_file)
    rm = muster.ResourceManager()
    one = rm.placement_group([{"GPU": 2}], name="one")
    both = rm.placement_group([{"GPU": 1}] * 2, name="two", detached=True)
    assert [one.placement[0][0], both.placement[0][0]] == ["n1", "n2"]
    gone = threading.Event()
    muster.on_node(lambda node: None if node.alive else gone.set())
    daemon.agents.pop("n2").kill()
    waiting = rm.placement_group([{"GPU": 1}], timeout=DEADLINE_S, wait=False)
    assert gone.wait(DEADLINE_S)
    states = (one.state, both.state, waiting.state)
    assert states == ("placed", "broken", "waiting")
    with pytest.raises(ValueError, match="a node of it is gone"):
        muster.Cluster("a", Echo, both)
    assert "n2 (gone)" in str(rm)
    both.remove()
    daemon.agent("n2")  # it is back, or another one of that name
    assert waiting.wait(DEADLINE_S).placement == [("n2", [0])]
    muster.shutdown()


def test_a_head_that_is_started_again_knows_what_is_held(daemon: Daemon) -> None:  # noqa: F811
    daemon.agent("n1", gpus=4)
    muster.init(address=daemon.address, secret_file=daemon.secret_file)
    rm = muster.ResourceManager()
    group = rm.placement_group([{"GPU": 1}], name="g")
    waiting = rm.placement_group([{"GPU": 4}], timeout=60, wait=False)
    cluster = muster.Cluster("a", Echo, rm, device_mapping="1-2", num_cpus=0.5)
    before = str(rm)
    daemon.head.kill()
    daemon.start()
    assert cluster.execute_all_sync("rank") == [0, 1]
    assert str(rm) == before
    assert (group.state, waiting.state) == ("placed", "waiting")
    with pytest.raises(muster.PlacementError, match="a placement group holds it"):
        muster.Cluster("b", Echo, rm, device_mapping="0")
    pids = cluster.pids
    cluster.destroy()
    assert wait_gone(pids) == []
    group.remove()
    assert waiting.wait(DEADLINE_S).state == "placed"
    muster.shutdown()


def test_a_detached_group_outlives_its_driver(daemon: Daemon) -> None:  # noqa: F811
    daemon.agent("n1")
    at = {"address": daemon.address, "secret_file": daemon.secret_file}
    muster.init(**at)
    rm = muster.ResourceManager()
    rm.placement_group([{"GPU": 1}], name="kept", detached=True)
    rm.placement_group([{"GPU": 1}], name="lost")
    muster.shutdown()
    muster.init(**at)
    with pytest.raises(muster.MusterError, match="there is no placement group 'lost'"):
        muster.get_placement_group("lost")
    kept = muster.get_placement_group("kept")
    with muster.Cluster("a", Echo, kept) as c:
        assert list(c.worker2nodes.values()) == ["n1"]
    kept.remove()
    muster.shutdown()


def test_a_detached_group_outlives_its_head_too(daemon: Daemon) -> None:  # noqa: F811
    """Its driver has ended: nobody else could tell the next head of it."""
    daemon.agent("n1")
    at = {"address": daemon.address, "secret_file": daemon.secret_file}
    muster.init(**at)
    rm = muster.ResourceManager()
    first = rm.placement_group([{"GPU": 1}], name="first")
    kept = rm.placement_group(
        [{"GPU": 2}], name="kept", detached=True, wait=False, timeout=60
    )
    rm.placement_group([{"CPU": 1}], name="gone", detached=True).remove()
    first.remove()
    assert kept.wait(DEADLINE_S).state == "placed"
    muster.shutdown()
    daemon.head.kill()
    daemon.start()
    muster.init(**at)
    kept = muster.get_placement_group("kept")
    assert kept.state == "placed"
    with pytest.raises(muster.MusterError, match="there is no placement group 'gone'"):
        muster.get_placement_group("gone")
    with pytest.raises(muster.PlacementError, match="a placement group holds it"):
        muster.Cluster("b", Echo, device_mapping="0")
    with muster.Cluster("a", Echo, kept) as c:
        assert list(c.worker2nodes.values()) == ["n1"]
    kept.remove()
    daemon.head.kill()
    daemon.start()
    muster.Cluster("b", Echo, device_mapping="0").destroy()
    muster.shutdown()


def test_device_memory_is_held_after_a_restart(daemon: Daemon) -> None:  # noqa: F811
    args = ["agent", "--head", daemon.address, "--node-name", "n1", "--num-gpus", "1"]
    args += ["--gpu-memory", "40GiB", "--secret-file", daemon.secret_file]
    daemon.agents["n1"] = Process([*args, "--bind", "127.0.0.1"], daemon.env)
    daemon.agents["n1"].wait_line("has joined")
    muster.init(address=daemon.address, secret_file=daemon.secret_file)
    rm = muster.ResourceManager()
    first = muster.Cluster("a", Echo, rm, device_mapping="0", gpu_memory="30GiB")
    first.replace(0, grace=0)
    daemon.head.kill()
    daemon.start()
    with muster.Cluster("b", Echo, rm, device_mapping="0", gpu_memory="10GiB"):
        with pytest.raises(muster.PlacementError):
            muster.Cluster("c", Echo, rm, device_mapping="0", gpu_memory="1GiB")
    with pytest.raises(muster.PlacementError):
        muster.Cluster("c", Echo, rm, device_mapping="0", gpu_memory="11GiB")
    first.destroy()
    muster.Cluster("c", Echo, rm, device_mapping="0", gpu_memory="40GiB").destroy()
    muster.shutdown()
