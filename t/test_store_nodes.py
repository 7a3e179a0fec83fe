"""Objects between the nodes of one machine: one copy for each node, along a chain."""

import gc
import os
import signal
from collections.abc import Iterator
from typing import Any

import muster
import numpy as np
import pytest
from conftest import _started
from helpers import below, until, wait_gone

BIG = 1 << 20  # float64: 8 MiB
NODES = 3


class Worker:
    def total(self, x: Any) -> float:
        return float(np.sum(x))

    def make(self, count: int, value: float) -> Any:
        return np.full(count, value)

    def put(self, count: int, value: float) -> Any:
        return muster.put(np.full(count, value))

    def firsts(self, refs: Any) -> list[float]:
        return [float(ref.get()[0]) for ref in refs]

    def keep(self, x: Any) -> None:
        self.kept = x

    def again(self) -> float:
        return float(np.sum(self.kept.get()))

    def stats(self) -> dict[str, Any]:
        return muster.store_stats()

    def pid(self) -> int:
        return os.getpid()


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    yield from _started(num_nodes=NODES)


@pytest.fixture(scope="module")
def actors(nodes: Any) -> Iterator[Any]:
    """Two ranks on each node."""
    with muster.Cluster("spread", Worker, world_size=2 * NODES) as cluster:
        yield cluster


def stats_of(cluster: Any) -> dict[str, dict[str, Any]]:
    return {s["node"]: s for s in cluster.execute_all_sync("stats")}


def wait_empty(cluster: Any) -> None:
    gc.collect()
    until(
        lambda: not any(s["objects"] for s in stats_of(cluster).values()),
        lambda: stats_of(cluster),
    )


def test_a_broadcast_travels_once_to_each_node(actors: Any) -> None:
    before = stats_of(actors)
    copied = muster.store_stats()["copied"]
    x = np.arange(3 * BIG, dtype=np.float64)
    assert actors.execute_all_sync("total", x) == [float(x.sum())] * (2 * NODES)
    after = stats_of(actors)
    got = {n: after[n]["received"] - before[n]["received"] for n in after}
    sent = {n: after[n]["sent"] - before[n]["sent"] for n in after}
    assert got == {"n0": 0, "n1": x.nbytes, "n2": x.nbytes}
    assert sent["n0"] == x.nbytes  # a chain: the next one goes on
    assert sum(sent.values()) == 2 * x.nbytes
    # each node has its bytes once: n0's were copied by the driver, the others' received
    assert muster.store_stats()["copied"] - copied == x.nbytes
    assert all(after[n]["copied"] == before[n]["copied"] for n in ("n1", "n2"))
    made = {n: after[n]["allocated"] - before[n]["allocated"] for n in after}
    assert made == dict.fromkeys(after, x.nbytes)
    wait_empty(actors)


def test_answers_of_other_nodes(actors: Any) -> None:
    got = actors.execute_all_sync("make", BIG, 2.0)
    assert [float(x.sum()) for x in got] == [2.0 * BIG] * (2 * NODES)
    del got
    wait_empty(actors)


def test_a_driver_that_only_holds_refs_moves_no_data(actors: Any) -> None:
    received = muster.store_stats()["received"]
    refs = actors.execute_all_sync("put", BIG, 4.0)
    assert actors.execute_all_sync("total", refs[1]) == [4.0 * BIG] * (2 * NODES)
    assert actors.execute_rank_sync(2, "firsts", refs) == [4.0] * (2 * NODES)
    # n0 has fetched one object, for its own ranks
    assert muster.store_stats()["received"] - received <= 8 * BIG
    del refs
    wait_empty(actors)


def test_futures_between_nodes(actors: Any) -> None:
    received = muster.store_stats()["received"]
    future = actors.execute_rank_async(1, "make", BIG, 3.0)
    assert actors.execute_rank_sync(2, "total", future) == 3.0 * BIG
    assert muster.store_stats()["received"] == received
    del future
    wait_empty(actors)


def test_a_ref_of_a_dead_maker(actors: Any) -> None:
    with muster.Cluster("mortal", Worker, world_size=NODES) as cluster:
        ref = cluster.execute_rank_sync(1, "put", BIG, 6.0)
        kept = cluster.execute_rank_sync(2, "put", BIG, 7.0)
        actors.execute_rank_sync(0, "keep", kept)
        for pid in cluster.execute_all_sync("pid"):
            os.kill(pid, signal.SIGKILL)
        assert float(ref.get()[0]) == 6.0  # its node's agent has it
        assert actors.execute_all_sync("total", kept) == [7.0 * BIG] * (2 * NODES)
    del ref, kept
    actors.execute_rank_sync(0, "keep", None)
    wait_empty(actors)


def test_a_lost_node_is_an_error(nodes: Any) -> None:
    with muster.Cluster("doomed", Worker, world_size=NODES) as cluster:
        ref = cluster.execute_rank_sync(2, "put", BIG, 6.0)
        agents = {n.name: n for n in muster.nodes()}
        node = cluster._members[2].node[1]
        pid = agents[node].agent_pid
        assert agents[node].alive
        orphans = below(pid)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(muster.ObjectLost, match="node"):
            ref.get()
        assert wait_gone(orphans) == []
