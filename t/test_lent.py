"""init(orchestrator="local"): all nodes are lent to the driver, and given back."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import muster
import pytest
from helpers import (
    DEADLINE_S,
    MARK,
    Driver,
    below,
    leftovers,
    new_mark,
    processes,
    wait_gone,
)
from muster import api
from workers import Echo

NODES = 'nodes: [{name: "n[0-3]", cpus: 8, gpus: 4}]\n'


class Rig:
    """What may be lent, and what must be gone at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes = str(folder / "nodes.yaml")
        Path(self.nodes).write_text(NODES)
        self.mark = new_mark()

    def init(self, **options: object) -> None:
        muster.init(orchestrator="local", **options)  # type: ignore[arg-type]

    def agent(self, text: str) -> None:
        """Agents are this shell script from now on."""
        path = self.folder / "muster"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        os.environ["MUSTER_BIN"] = str(path)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    os.environ[MARK] = rig.mark
    try:
        yield rig
        folder = api.session().head.session_dir if muster.is_initialized() else None
    finally:
        muster.shutdown()
        os.environ.pop("MUSTER_BIN", None)
        del os.environ[MARK]
    assert leftovers(rig.mark, folder) == []


def test_a_gang(rig: Rig) -> None:
    rig.init(num_nodes=2, num_gpus=2)
    assert [(n.name, n.gpus) for n in muster.nodes()] == [("n0", 2), ("n1", 2)]
    own = muster.reservation()
    assert own.nodes == ["n0", "n1"]
    assert [p.devices for p in own.pieces] == [[0, 1], [0, 1]]
    c = muster.Cluster("echo", Echo, device_mapping="0-3")
    assert c.execute_all_sync("rank") == [0, 1, 2, 3]
    rig.init(num_nodes=2, num_gpus=2)  # the same again is nothing
    with pytest.raises(muster.PlacementError, match="described"):
        own.grow()


def test_a_part_of_what_there_is(rig: Rig) -> None:
    rig.init(nodes=rig.nodes, num_nodes=2, num_gpus=1)
    assert [n.gpus for n in muster.nodes()] == [1, 1]
    rollout = muster.reserve("rollout", num_gpus=2)
    assert rollout.nodes == ["n0.2"]
    assert rollout.pieces[0].machine == "n0"
    assert rollout.grow(2) == ["n1.2", "n2"]
    c = muster.Cluster("r", Echo, rollout.resource_manager(), device_mapping="0-5")
    seen = [
        e["CUDA_VISIBLE_DEVICES"]
        for e in c.execute_all_sync("env", "CUDA_VISIBLE_DEVICES")
    ]
    assert seen == ["1", "2", "1", "2", "0", "1"]
    rollout.shrink(["n0.2"])
    assert rollout.nodes == ["n1.2", "n2"]
    with pytest.raises(muster.WorkerDied, match=r"r/0@n0\.2"):
        c.execute_all_sync("rank")
    rollout.shrink(1)
    assert rollout.nodes == ["n1.2"]
    with pytest.raises(muster.PlacementError, match="no node n7"):
        rollout.shrink(["n7"])
    rollout.release()
    rollout.release()  # what is not there is given back already
    assert [n.name for n in muster.nodes()] == ["n0", "n1"]
    with pytest.raises(muster.PlacementError, match="no reservation 'rollout'"):
        rollout.grow()
    again = muster.reserve("rollout", num_gpus=2)  # the name is free again
    assert muster.reservation("rollout") is again


def test_another_one_of_the_same_name(rig: Rig) -> None:
    """A node that was given back is lent again, with more and other devices."""
    rig.init(nodes=rig.nodes, num_nodes=0)
    for count in (1, 3, 2):
        one = muster.reserve("one", num_gpus=count)
        assert one.nodes == ["n0"]
        devices = f"0-{count - 1}"
        c = muster.Cluster("c", Echo, one.resource_manager(), device_mapping=devices)
        shown = c.execute_all_sync("env", "CUDA_VISIBLE_DEVICES")
        assert shown == [{"CUDA_VISIBLE_DEVICES": str(i)} for i in range(count)]
        c.destroy()
        one.release()


def test_nothing_at_first(rig: Rig) -> None:
    rig.init(nodes=rig.nodes, num_nodes=0)
    assert muster.nodes() == []
    with pytest.raises(muster.PlacementError, match="no reservation 'init'"):
        muster.reservation()
    muster.reserve("train", 2, num_gpus=4, num_cpus=4)
    assert [(n.cpus, n.gpus) for n in muster.nodes()] == [(4, 4), (4, 4)]
    assert muster.Cluster("e", Echo, device_mapping="0-7").execute_all_sync("rank")


def test_all_that_is_described(rig: Rig) -> None:
    rig.init(nodes=rig.nodes)
    assert [(n.name, n.gpus) for n in muster.nodes()] == [
        (f"n{i}", 4) for i in range(4)
    ]


def test_a_death_has_its_cause(rig: Rig) -> None:
    rig.init(num_nodes=2, num_gpus=1)
    c = muster.Cluster("echo", Echo, device_mapping="0-1")
    waiting = c.execute_rank_zero_async("hang")
    agent = muster.nodes()[0].agent_pid
    orphans = below(agent)
    os.kill(agent, signal.SIGKILL)
    with pytest.raises(muster.WorkerDied) as e:
        waiting.result(DEADLINE_S)
    assert "node n0 has ended: local: signaled: the agent was killed" in str(e.value)
    assert "ended by itself" not in str(e.value)
    piece = muster.reservation().pieces[0]
    assert (piece.phase, piece.cause, piece.code) == ("ended", "signaled", 9)
    assert muster.reservation().nodes == ["n1"]
    assert [n.name for n in muster.nodes()] == ["n1"]
    muster.reservation().shrink(1)  # of the last ones: n1
    assert muster.nodes() == []
    assert muster.reserve("new", num_gpus=1).nodes == ["n0"]
    assert wait_gone(orphans) == []


def test_infeasible(rig: Rig) -> None:
    with pytest.raises(
        muster.DeadlineExceeded, match=r"(?s)'init'.* 5 .*STRICT_SPREAD"
    ):
        rig.init(nodes=rig.nodes, num_nodes=5, num_gpus=4, timeout=0.3)
    assert not muster.is_initialized()
    rig.init(nodes=rig.nodes, num_nodes=2, num_gpus=4)
    with pytest.raises(muster.DeadlineExceeded) as e:
        muster.reserve("more", 3, num_gpus=4, timeout=0.2)
    assert "dial" not in str(e.value)  # nothing was started
    with pytest.raises(muster.DeadlineExceeded):
        muster.reservation().grow(3, timeout=0.2)
    assert len(muster.nodes()) == 2
    with pytest.raises(ValueError, match="strategy"):
        muster.reserve("odd", strategy="NONE")
    with pytest.raises(ValueError, match="name"):
        muster.reserve("x" * 65)


def test_agents_that_end_while_init_waits(rig: Rig) -> None:
    rig.agent("exit 3")
    with pytest.raises(muster.MusterError) as e:
        rig.init(num_nodes=2)
    assert re.search(r"piece \d on n\d ended \(refused\): .*code 3", str(e.value))
    assert re.search(r"dial the head at 127\.0\.0\.1:\d+", str(e.value))
    assert not muster.is_initialized()


def test_an_agent_killed_while_init_waits(rig: Rig) -> None:
    rig.agent("kill -9 $$")
    with pytest.raises(muster.MusterError, match="signal 9"):
        rig.init(num_nodes=1)


def test_agents_that_never_join(rig: Rig) -> None:
    rig.agent("exec sleep 600")
    with pytest.raises(
        muster.DeadlineExceeded, match=r"not all joined.*dial the head at 127"
    ):
        rig.init(num_nodes=2, timeout=0.5)
    assert leftovers(rig.mark) == []


def test_what_makes_no_sense(rig: Rig) -> None:
    with pytest.raises(ValueError, match="one of local, ray"):
        muster.init(orchestrator="slurm")
    with pytest.raises(ValueError, match="has no address"):
        rig.init(address="http://127.0.0.1:8265")
    with pytest.raises(ValueError, match="address= says where"):
        muster.init(orchestrator="ray")
    with pytest.raises(ValueError, match="num_nodes"):
        rig.init(num_nodes=-1)
    muster.init(num_gpus=1)
    with pytest.raises(muster.PlacementError, match="no orchestrator"):
        muster.reserve("x")


DRIVER = """
import sys
import muster
from workers import Echo
if __name__ == "__main__":
    muster.init(orchestrator="local", num_nodes=2, num_gpus=1)
    c = muster.Cluster("echo", Echo, device_mapping="0-1")
    print(*c.execute_all_sync("pid"), flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("how", ["killed", "over"])
def test_the_end_of_the_driver(tmp_path: Path, how: str) -> None:
    driver = Driver(DRIVER, tmp_path)
    assert len(driver.line().split()) == 2
    pids = processes(driver.mark)
    assert len(pids) >= 5  # it, two agents, two workers
    if how == "killed":
        driver.process.kill()
    else:
        driver.send("")
    driver.process.communicate(timeout=DEADLINE_S)
    assert wait_gone(pids) == []
    assert leftovers(driver.mark) == []
