"""replace(rank) through a head of its own, on several nodes."""

import os
import signal
from typing import Any

import muster
import pytest
from daemon_rig import Daemon, daemon  # noqa: F401  (a fixture)
from helpers import until
from muster import Cluster, WorkerConfig, WorkerDied, _core
from replace_workers import Counter


@pytest.fixture
def two(daemon: Daemon) -> Any:  # noqa: F811
    daemon.agent("n1")
    daemon.agent("n2")
    muster.init(address=daemon.address, secret_file=daemon.secret_file)
    role = WorkerConfig(device_mapping="0-3")
    try:
        with Cluster("actor", Counter, worker_config=role) as cluster:
            yield cluster
    finally:
        muster.shutdown()


def died(cluster: Any, rank: int) -> None:
    os.kill(cluster.pids[rank], signal.SIGKILL)
    with pytest.raises(WorkerDied):
        while True:
            cluster.execute_rank_sync(rank, "count")


def test_through_a_daemon(two: Any) -> None:
    two.execute_all_sync("keep", two)
    for rank in (0, 3):
        died(two, rank)
        two.replace(rank)
        assert two.execute_rank_sync(rank, "count")[1] == 2
        for asker in (1, 2):  # on the same node, and on the other one
            assert two.execute_rank_sync(asker, "call_other", rank)[1] == 2


def test_a_head_that_was_started_again_knows_the_new_one(
    two: Any,
    daemon: Daemon,  # noqa: F811
) -> None:
    died(two, 1)
    two.replace(1)
    two.replace(0, grace=0)
    daemon.head.kill()
    daemon.start()
    assert two.execute_all_sync("sleep", 0) == two.pids
    found = muster.get_cluster("actor")
    assert found.pids == two.pids
    assert [found.incarnation(rank) for rank in range(4)] == [2, 2, 1, 1]
    two.replace(1, grace=0)
    assert two.execute_rank_sync(1, "count")[1] == 3


def test_a_node_that_is_gone(two: Any, daemon: Daemon) -> None:  # noqa: F811
    daemon.agents["n2"].kill()
    with pytest.raises(muster.MusterError):
        while True:
            two.execute_rank_sync(3, "count")
    with pytest.raises(muster.PlacementError, match="node n2 is gone"):
        two.replace(3)  # its mapping names a device there
    assert two.execute_rank_sync(0, "count")[1] == 1


def test_workers_that_two_heads_have_not_heard_of(
    two: Any,
    daemon: Daemon,  # noqa: F811
) -> None:
    """What the first one keeps of the cluster meanwhile does not forget them."""
    daemon.head.kill()
    daemon.agents["n2"].kill()
    daemon.start()
    two._note(_core.OP_DESTROY_ENGINE, "other", None)  # kept with the cluster
    daemon.head.kill()
    daemon.start()

    def exits() -> list[str]:
        [told] = muster.status()["clusters"]
        found = {one["rank"]: one["exit"] for one in told["workers"]}
        return [found[rank]["detail"] for rank in (2, 3) if found.get(rank)]

    until(lambda: len(exits()) == 2, exits)
    assert all("nobody has reported it" in detail for detail in exits())
    assert two.execute_rank_sync(0, "count")[1] == 1
