"""A head for several machines: drivers that join, nodes, restarts, ends.

The nodes are agents of this machine, each with a folder and TCP ports of its own.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import muster
import pytest
from daemon_rig import Daemon, daemon  # noqa: F401  (fixture)
from helpers import DEADLINE_S, Bell, Driver, wait_gone
from muster import api
from workers import Echo


@pytest.fixture
def joined(daemon: Daemon) -> Iterator[Daemon]:  # noqa: F811
    """Two nodes of two devices, and this process as a driver."""
    daemon.agent("n1")
    daemon.agent("n2")
    join(daemon)
    yield daemon
    muster.shutdown()


def join(daemon: Daemon, **options: Any) -> None:  # noqa: F811
    muster.init(address=daemon.address, secret_file=daemon.secret_file, **options)


def other_driver(daemon: Daemon, tmp_path: Path, body: str) -> Driver:  # noqa: F811
    """Joins the same head and does `body`; stays until its stdin ends."""
    script = f"""
import sys
import muster
from workers import Echo
muster.init()
{body}
print("ready", flush=True)
sys.stdin.read()
"""
    return Driver(
        script,
        tmp_path,
        MUSTER_ADDRESS=daemon.address,
        MUSTER_SECRET_FILE=daemon.secret_file,
    )


def test_a_cluster_over_two_nodes(joined: Daemon) -> None:
    assert [(n.name, n.gpus, n.alive) for n in muster.nodes()] == [
        ("n1", 2, True),
        ("n2", 2, True),
    ]
    c = muster.Cluster("actor", Echo, device_mapping="0-3")
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")
    names += ("MUSTER_LOCAL_RANK", "CUDA_VISIBLE_DEVICES")
    envs = c.execute_all_sync("env", *names)
    assert [e["RANK"] for e in envs] == ["0", "1", "2", "3"]
    assert [e["NODE_RANK"] for e in envs] == ["0", "0", "1", "1"]
    assert [e["MUSTER_LOCAL_RANK"] for e in envs] == ["0", "1", "0", "1"]
    assert {e["LOCAL_WORLD_SIZE"] for e in envs} == {"2"}
    assert [e["CUDA_VISIBLE_DEVICES"] for e in envs] == ["0", "1", "0", "1"]
    assert list(c.worker2nodes.values()) == ["n1", "n1", "n2", "n2"]
    ports = {c.address(rank).rpartition(":")[2] for rank in range(4)}
    assert len(ports) == 4 and all(port.isdecimal() for port in ports)
    masters = c.execute_all_sync("env", "MASTER_ADDR", "MASTER_PORT")
    assert all(m == masters[0] for m in masters)
    assert c.execute_all_sync("echo", b"x" * 100_000) == [b"x" * 100_000] * 4
    pids = c.pids
    c.destroy()
    assert wait_gone(pids, 0) == []


def test_what_does_not_fit_names_the_nodes(joined: Daemon) -> None:
    with pytest.raises(muster.PlacementError) as caught:
        muster.Cluster("big", Echo, device_mapping="0-7")
    assert "n1" in caught.value.table and "n2" in caught.value.table


def test_two_drivers_and_a_detached_cluster(joined: Daemon, tmp_path: Path) -> None:
    two = other_driver(
        joined,
        tmp_path,
        """
muster.Cluster("mine", Echo, world_size=2)
kept = muster.Cluster("kept", Echo, world_size=2, detached=True)
kept.execute_all_sync("note", "from two")
""",
    )
    assert two.line() == "ready"
    with pytest.raises(muster.ClusterError, match=r"'mine' already.*driver-.*\.py"):
        muster.Cluster("mine", Echo)
    mine, kept = muster.get_cluster("mine"), muster.get_cluster("kept")
    own = muster.Cluster("own", Echo, world_size=2)
    assert kept.execute_all_sync("get", "seen") == [["from two"]] * 2

    two.signal(signal.SIGKILL)
    assert wait_gone(mine.pids) == []
    assert own.execute_all_sync("rank") == [0, 1]
    again = muster.get_cluster("kept")
    assert again.execute_all_sync("get", "seen") == [["from two"]] * 2
    mine.destroy()  # which ends nothing any more: it returns when the head knows the end
    with pytest.raises(muster.ClusterError, match="no cluster 'mine'"):
        muster.get_cluster("mine")
    two.end()

    muster.shutdown()
    assert wait_gone(own.pids, 0) == []
    assert wait_gone([again.pids[0]], 0) == again.pids[:1]  # it outlives us too
    join(joined)
    kept = muster.get_cluster("kept")
    kept.destroy()
    assert wait_gone(kept.pids, 0) == []


def test_a_detached_cluster_whose_maker_dies_in_between(
    joined: Daemon, tmp_path: Path, bell: Any
) -> None:
    """Its constructors still run: nobody could use it, and nobody would end it."""
    here = bell()
    two = other_driver(
        joined,
        tmp_path,
        f"""
from workers import Hangs
muster.Cluster("half", Hangs, args=({here.path!r},), world_size=1, detached=True)
""",
    )
    here.hear()
    with pytest.raises(muster.ClusterError, match="no cluster 'half'"):
        muster.get_cluster("half")  # not yet

    def pids() -> list[int]:
        found = api.session().head.request("status", {}, DEADLINE_S)["clusters"]
        return [w["pid"] for c in found if c["name"] == "half" for w in c["workers"]]

    living = pids()
    two.signal(signal.SIGKILL)
    assert len(living) == 1 and wait_gone(living) == []
    while pids():
        pass  # until the head knows the end
    two.end()


def test_the_head_is_killed_and_started_again(
    joined: Daemon, tmp_path: Path, bell: Any
) -> None:
    c = muster.Cluster("actor", Echo, device_mapping="0-3")
    before, here, go = c.pids, bell(), bell()
    c.execute_all_sync("note", 1)
    long = c.execute_rank_async(3, "wait_for", here.path, go.path)
    here.hear()
    joined.head.kill()
    assert c.execute_rank_sync(0, "rank") == 0  # calls need no head
    with pytest.raises(TimeoutError, match="the head is away"):
        api.session().head.request("resources", {"scope": {}}, 0.2)
    joined.start()
    late = muster.Cluster("late", Echo, device_mapping="0-3")  # waits for the nodes
    assert late.execute_all_sync("rank") == [0, 1, 2, 3]
    go.ring()
    assert long.result(timeout=DEADLINE_S) == "went on"
    assert c.execute_all_sync("get", "seen") == [[1]] * 4
    assert c.pids == before == [w.pids[0] for w in muster.get_cluster("actor")]
    assert len(muster.nodes()) == 2

    os.kill(c.pids[1], signal.SIGKILL)  # and deaths are told as before
    with pytest.raises(muster.WorkerDied):
        c.execute_rank_sync(1, "rank")
    c.destroy()
    late.destroy()


def test_an_agent_is_killed(joined: Daemon, bell: Any) -> None:
    c = muster.Cluster("actor", Echo, device_mapping="0-3")
    here: Bell = bell()
    hanging = c.execute_rank_async(2, "hang", here.path)
    here.hear()
    joined.agents["n2"].kill()
    with pytest.raises(muster.WorkerDied) as caught:
        hanging.result(timeout=DEADLINE_S)
    assert "n2" in str(caught.value)
    assert c.execute_rank_sync(0, "rank") == 0
    assert wait_gone(c.pids[2:]) == []
    assert [n.name for n in muster.nodes()] == ["n1"]
    c.destroy()


def test_an_agent_ends_in_order(joined: Daemon) -> None:
    c = muster.Cluster("actor", Echo, device_mapping="0-3")
    joined.agents["n1"].signal(signal.SIGTERM)
    assert joined.agents["n1"].end() == 0
    assert wait_gone(c.pids[:2]) == []
    with pytest.raises(muster.WorkerDied):
        c.execute_rank_sync(0, "rank")
    joined.agents["n1"] = joined.agent("n1")  # it may come again
    assert len(muster.nodes()) == 2


def test_goodbye_ends_everything(joined: Daemon) -> None:
    c = muster.Cluster("actor", Echo, world_size=2)
    done = joined.run("stop", "session", "--yes")
    assert done.returncode == 0, done
    assert wait_gone(c.pids) == []
    assert wait_gone([a.pid for a in joined.agents.values()]) == []
    with pytest.raises(muster.MusterError):
        c.execute_rank_zero_sync("rank")
    with pytest.raises(muster.MusterError, match="the head was stopped"):
        muster.nodes()


def test_auto_finds_the_head_of_this_machine(
    daemon: Daemon,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MUSTER_HOME", str(daemon.folder))
    daemon.agent("n1")
    muster.init(address="auto")
    try:
        assert api.session().head.session == "head"
        assert muster.Cluster("a", Echo).execute_all_sync("rank") == [0]
        with pytest.raises(ValueError, match="muster agent"):
            muster.init(address="auto", num_gpus=2)
    finally:
        muster.shutdown()


def test_detached_needs_a_daemon(own_session: Any) -> None:
    with pytest.raises(muster.ClusterError, match="muster head"):
        muster.Cluster("a", Echo, detached=True)


def test_a_wrong_secret_opens_nothing(
    daemon: Daemon,  # noqa: F811
    tmp_path: Path,
) -> None:
    wrong = tmp_path / "secret"
    wrong.write_text("ab" * 32)
    wrong.chmod(0o600)
    with pytest.raises(muster.MusterError, match="secret"):
        muster.init(address=daemon.address, secret_file=str(wrong), timeout=5)
    one = daemon.begin_agent("n1", secret=str(wrong))
    assert one.end() != 0
    assert "secret" in one.said
    assert "abab" not in one.said
    wrong.chmod(0o644)
    with pytest.raises(muster.MusterError, match="others"):
        muster.init(address=daemon.address, secret_file=str(wrong))
    assert not muster.is_initialized()


def test_nobody_listens(daemon: Daemon) -> None:  # noqa: F811
    with pytest.raises(muster.MusterError, match=r"127\.0\.0\.1:1"):
        muster.init(address="127.0.0.1:1", secret_file=daemon.secret_file, timeout=5)


def test_a_head_that_does_not_answer(joined: Daemon) -> None:
    pid = joined.head.process.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(muster.DeadlineExceeded) as caught:
            muster.status(0.5)
    finally:
        os.kill(pid, signal.SIGCONT)
    where = f"the head at {joined.address} has not answered within 0.5 s"
    assert str(caught.value) == f"status: {where}"
