"""Workers that are wider than a node, and their helpers."""

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import muster
import pytest
from dispatch_workers import Trainer
from helpers import DEADLINE_S, MARK, Bell, below, leftovers, new_mark, wait_gone
from muster import api
from workers import Echo

Bells = Callable[[], Bell]


class Wide(Echo):
    """One that makes use of its helpers from the beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = muster.helpers().create_engine("part", Echo)

    def ask(self, *names: str) -> Any:
        return self.parts.execute_all_sync("env", *names)

    def helper_pids(self) -> list[int]:
        return self.parts.pids


@pytest.fixture
def session() -> Iterator[api.Session]:
    mark = os.environ[MARK] = new_mark()
    muster.init(num_nodes=4, num_gpus=8)
    folder = api.session().head.session_dir
    yield api.session()
    muster.shutdown()
    del os.environ[MARK]
    assert leftovers(mark, folder) == []


def clusters() -> list[str]:
    status = api.session().head.request("status", {}, DEADLINE_S)
    return [cluster["name"] for cluster in status["clusters"]]


def test_devices_and_environment(session: Any) -> None:
    config = muster.WorkerConfig(device_mapping="0-23", num_gpus_per_worker=12)
    c = muster.Cluster("wide", Wide, worker_config=config)
    names = ("RANK", "WORLD_SIZE", "MUSTER_HELPER", "CUDA_VISIBLE_DEVICES")
    assert [tuple(e.values()) for e in c.execute_all_sync("env", *names)] == [
        ("0", "2", None, "0,1,2,3,4,5,6,7"),
        ("1", "2", None, "4,5,6,7"),
    ]
    asked = c.execute_all_sync("ask", *names)
    assert [[tuple(e.values()) for e in one] for one in asked] == [
        [("0", "2", "1", "0,1,2,3")],
        [("1", "2", "1", "0,1,2,3,4,5,6,7")],
    ]
    assert c.helpers(0).pids == c.execute_rank_sync(0, "helper_pids")
    assert c.helpers(1).ranks == [0]
    more = c.helpers(1).create_engine("more", Echo)
    assert more.execute_all_sync("rank") == [1]
    everybody = [*c.pids, *c.helpers(0).pids, *c.helpers(1).pids]
    c.destroy()
    assert wait_gone(everybody, 0) == []
    assert clusters() == []
    again = muster.Cluster("wide", Wide, worker_config=config)  # all is free again
    assert again.execute_all_sync("rank") == [0, 1]


def test_who_is_on_one_node_has_none(session: Any) -> None:
    c = muster.Cluster("narrow", Echo, device_mapping="0-7", num_gpus_per_worker=8)
    with pytest.raises(muster.ClusterError, match="has no helpers"):
        c.helpers(0)
    with pytest.raises(muster.ClusterError, match="wider than a node"):
        muster.helpers()


@pytest.mark.parametrize("how", ["helper", "agent"])
def test_a_helper_dies(session: Any, bell: Bells, how: str) -> None:
    c = muster.Cluster("wide", Wide, device_mapping="0-31", num_gpus_per_worker=16)
    begun = bell()
    pending = c.execute_rank_async(1, "hang", begun.path)
    begun.hear()
    agents = {node.name: node.agent_pid for node in muster.nodes()}
    victim = c.helpers(1).pids[0]
    orphans = below(agents["n3"]) if how == "agent" else []
    os.kill(victim if how == "helper" else agents["n3"], signal.SIGKILL)
    with pytest.raises(muster.WorkerDied, match=r"its helper 1 on node n3 ") as died:
        pending.result(DEADLINE_S)
    assert died.value.rank == 1
    assert wait_gone([victim, c.pids[1], *orphans]) == []
    assert c.execute_rank_sync(0, "rank") == 0
    with pytest.raises(muster.WorkerDied) as dead:
        c.helpers(1).options(engine="part").execute_rank_zero_sync("rank")
    assert dead.value.rank == 1


def test_helpers_end_with_their_worker(session: Any) -> None:
    c = muster.Cluster("wide", Wide, device_mapping="0-31", num_gpus_per_worker=32)
    parts = c.helpers(0).pids
    assert len(parts) == 3
    os.kill(c.pids[0], signal.SIGKILL)
    assert wait_gone(parts) == []


def test_a_wide_worker_is_replaced(session: Any) -> None:
    c = muster.Cluster("wide", Wide, device_mapping="0-15", num_gpus_per_worker=16)
    before = [*c.pids, *c.helpers(0).pids]
    c.replace(0, grace=0)
    assert wait_gone(before) == []
    before = [*c.pids, *c.helpers(0).pids]
    found = muster.get_cluster("wide")  # anybody may
    assert found.helpers(0).pids == c.helpers(0).pids
    found.replace(0, grace=0)
    assert wait_gone(before) == []
    assert found.execute_rank_sync(0, "helper_pids") == found.helpers(0).pids
    c.replace(0, grace=0)
    assert c.execute_rank_sync(0, "helper_pids") == c.helpers(0).pids
    part = c.helpers(0).create_engine("more", Echo)
    assert part.execute_all_sync("env", "MUSTER_HELPER") == [{"MUSTER_HELPER": "1"}]


def test_rows_are_shared_out_to_helpers(session: Any) -> None:
    c = muster.Cluster("wide", Echo, device_mapping="0-31", num_gpus_per_worker=32)
    parts = c.helpers(0)
    assert parts.ranks == [0, 1, 2]
    trainer = parts.create_engine("trainer", Trainer)
    assert trainer.compute([1, 2, 3]) == [(0, 1), (0, 2), (0, 3)]


def test_all_or_none(session: Any) -> None:
    taken = muster.Cluster("wide.0.helpers", Echo)
    with pytest.raises(muster.ClusterError, match=r"wide\.0\.helpers"):
        muster.Cluster("wide", Echo, device_mapping="0-15", num_gpus_per_worker=16)
    assert clusters() == ["wide.0.helpers"]
    taken.destroy()
    ok = muster.Cluster("wide", Echo, device_mapping="0-15", num_gpus_per_worker=16)
    assert ok.execute_all_sync("rank") == [0]
