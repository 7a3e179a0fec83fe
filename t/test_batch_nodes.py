"""Batches between nodes: only columns that somebody reads are moved."""

import gc
from collections.abc import Iterator
from typing import Any

import muster
import numpy as np
import pytest
from batch_workers import Keeper
from conftest import _started
from helpers import until
from muster import Batch

NODES = 2
ROWS, WIDE = 1 << 10, 1 << 7
COLUMN = ROWS * WIDE * 8  # bytes


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    yield from _started(num_nodes=NODES)


@pytest.fixture(scope="module")
def keepers(nodes: Any) -> Iterator[Any]:
    """Ranks 0 and 2 on n0, where the driver is, ranks 1 and 3 on n1."""
    with muster.Cluster("keepers", Keeper, world_size=2 * NODES) as cluster:
        yield cluster


def batch() -> Batch:
    numbers = np.arange(ROWS * WIDE).reshape(ROWS, WIDE)
    return Batch({"a": numbers, "b": numbers + 1, "c": numbers + 2})


class Moved:
    """What each node has received since this was made."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.before = self.now()

    def now(self) -> dict[str, int]:
        stats = self.cluster.execute_all_sync("stats")
        return {s["node"]: s["received"] for s in stats}

    def to(self) -> dict[str, int]:
        return {node: got - self.before[node] for node, got in self.now().items()}


def wait_empty(cluster: Any) -> None:
    gc.collect()
    until(
        lambda: not any(s["objects"] for s in cluster.execute_all_sync("stats")),
        muster.stored_objects,
    )


def test_untouched_columns_are_never_moved(keepers: Any) -> None:
    data = batch()
    moved = Moved(keepers)
    keepers.here(data)
    assert moved.to() == {"n0": 0, "n1": 0}
    told = keepers.here(data, "b")
    assert told.count({"a": False, "b": True, "c": False}) == 2
    assert told.count({"a": True, "b": True, "c": True}) == 2  # on its node all of them
    assert moved.to() == {"n0": 0, "n1": COLUMN // 2}  # the rows of its two ranks
    wait_empty(keepers)


def test_a_column_travels_once_for_all_ranks_of_a_node(keepers: Any) -> None:
    data = batch()
    moved = Moved(keepers)
    got = keepers.execute_all_sync("sums", data, "a")
    assert got == [float(data["a"].sum())] * 4
    assert moved.to() == {"n0": 0, "n1": COLUMN}
    wait_empty(keepers)


def test_results_do_not_pass_through_the_driver(keepers: Any) -> None:
    moved = Moved(keepers)
    copied = muster.store_stats()["copied"]
    parts = [keepers.execute_rank_sync(rank, "made", ROWS, WIDE) for rank in (1, 3)]
    whole = Batch.concat(parts)  # in n1
    order = np.random.default_rng(3).permutation(len(whole))
    mixed = whole.reorder(order).select(["a"]).union(whole.reorder(order))
    on_n1 = keepers[1::2]
    again = on_n1.echo(mixed)
    assert [on_n1.execute_all_sync("sums", again, "b")] == [[4.0 * 2 * ROWS * WIDE] * 2]
    assert moved.to() == {"n0": 0, "n1": 0}
    assert muster.store_stats()["copied"] == copied
    assert again["a"].sum() == 3 * 2 * ROWS * WIDE  # only this moves something
    assert moved.to() == {"n0": 2 * COLUMN, "n1": 0}
    del parts, whole, mixed, again
    wait_empty(keepers)


def test_a_chunk_fetches_only_the_parts_that_its_rows_are_in(keepers: Any) -> None:
    made = [keepers.execute_rank_sync(rank, "made", ROWS, WIDE) for rank in range(4)]
    whole = Batch.concat(made)
    moved = Moved(keepers)
    told = keepers.here(whole, "a")  # rank i gets what rank i has made
    assert told == [{"a": True, "b": True}] * 4  # its own are on its node
    assert moved.to() == {"n0": 0, "n1": 0}
    keepers.here(Batch.concat([whole[ROWS:], whole[:ROWS]]), "a")  # of the next one
    assert moved.to() == {"n0": 2 * COLUMN, "n1": 2 * COLUMN}
    del made, whole
    wait_empty(keepers)


def test_a_future_of_a_batch_does_not_pass_through_the_driver(keepers: Any) -> None:
    moved = Moved(keepers)
    future = keepers.execute_rank_async(1, "made", ROWS, WIDE)
    assert keepers.execute_rank_sync(3, "sums", future, "a") == 3.0 * ROWS * WIDE
    joined = keepers.echo(batch(), blocking=False)
    assert keepers.execute_rank_sync(0, "sums", joined, "a") == batch()["a"].sum()
    assert moved.to() == {"n0": 0, "n1": 0}  # what was echoed is where it was
    del future, joined
    wait_empty(keepers)
