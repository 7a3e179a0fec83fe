"""Rows between nodes: a node fetches those that it needs, not the columns they are in."""

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

NODES = 4
ROWS, WIDE = 1 << 10, 1 << 8
COLUMN = ROWS * WIDE * 8  # bytes: 2 MiB
QUARTER = ROWS // NODES


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    yield from _started(num_nodes=NODES)


@pytest.fixture(scope="module")
def keepers(nodes: Any) -> Iterator[Any]:
    """Rank i on node n<i>; the driver is on n0."""
    with muster.Cluster("keepers", Keeper, world_size=NODES) as cluster:
        yield cluster


@pytest.fixture
def received(keepers: Any) -> Iterator[Any]:
    """What has come to each node since the last question. At the end nothing is left."""

    def now() -> list[int]:
        return [s["received"] for s in keepers.execute_all_sync("stats")]

    def since() -> list[int]:
        before[:], got = now(), [a - b for a, b in zip(now(), before, strict=True)]
        return got

    before = now()
    yield since
    gc.collect()
    until(
        lambda: not any(s["objects"] for s in keepers.execute_all_sync("stats")),
        muster.stored_objects,
    )


def numbers() -> np.ndarray:
    return np.random.default_rng(5).integers(0, 1 << 40, (ROWS, WIDE))


def column() -> Batch:
    """One object of n0, however it is divided."""
    data = Batch.allocate(ROWS, {"a": ((WIDE,), np.int64)})
    data.write("a")[:] = numbers()
    return data


def ragged() -> Batch:
    lengths = np.arange(ROWS) % 7 * 64
    data = Batch.allocate(ROWS, {}, ragged={"a": (lengths, np.int64)})
    values = data.write("a").values
    values[:] = np.arange(len(values))
    return data


def each(keepers: Any, method: str, parts: list[Batch], *args: Any) -> list[Any]:
    """Part i to rank i."""
    futures = [
        keepers.execute_rank_async(rank, method, part, *args)
        for rank, part in enumerate(parts)
    ]
    return [future.result() for future in futures]


def test_each_node_gets_its_rows(keepers: Any, received: Any) -> None:
    got = each(keepers, "sums", column().chunk(NODES), "a")
    assert got == [float(q.sum()) for q in np.split(numbers(), NODES)]
    assert received() == [0, *[COLUMN // NODES] * 3]


def test_rows_of_unequal_length(keepers: Any, received: Any) -> None:
    data = ragged()
    parts = data.chunk(NODES)
    sizes = [part["a"]._used().nbytes for part in parts]
    told = each(keepers, "tell", parts)
    assert [rows for columns, _ in told for rows in columns["a"]] == data["a"].tolist()
    assert received() == [0, *sizes[1:]]


def test_rows_here_and_there(keepers: Any, received: Any) -> None:
    """What is between them comes too; where that is most of it, all does."""
    data = column()
    few = data.take([QUARTER - 1, 5, 3, 3])
    assert keepers.execute_rank_sync(1, "tell", few)[0]["a"] == few["a"].tolist()
    assert received() == [0, (QUARTER - 3) * WIDE * 8, 0, 0]
    many = data.take([ROWS - 1, 7, 0])
    assert keepers.execute_rank_sync(2, "tell", many)[0]["a"] == many["a"].tolist()
    assert received() == [0, 0, COLUMN, 0]


def test_ranks_of_a_node_share_what_they_both_want(keepers: Any, received: Any) -> None:
    part = column()[:QUARTER]
    futures = [keepers.execute_rank_async(1, "sums", part, "a") for _ in range(3)]
    assert [f.result() for f in futures] == [float(numbers()[:QUARTER].sum())] * 3
    assert received()[1] <= 3 * COLUMN // NODES  # once for each that came too late
    futures = keepers.execute_all_async("sums", part, "a")
    assert [f.result() for f in futures] == [float(numbers()[:QUARTER].sum())] * 4
    assert received() == [0, *[COLUMN // NODES] * 3]


def test_first_rows_then_all(keepers: Any, received: Any) -> None:
    data = column()
    held = keepers.execute_rank_sync(1, "read_of", data[:QUARTER], "a")
    assert received() == [0, COLUMN // NODES, 0, 0]
    assert keepers.execute_rank_sync(1, "sums", data, "a") == float(numbers().sum())
    assert received() == [0, COLUMN, 0, 0]
    assert (held["a"] == numbers()[:QUARTER]).all()
    assert received() == [0, 0, 0, 0]


def test_what_was_fetched_goes_on_by_its_name(keepers: Any, received: Any) -> None:
    """Also when nobody holds the column that it is of any more."""
    data = column()
    held = keepers.execute_rank_sync(1, "read_of", data[:QUARTER], "a")
    del data
    want = float(numbers()[:QUARTER].sum())
    assert keepers.execute_rank_sync(2, "sums", held, "a") == want
    assert received() == [0, COLUMN // NODES, COLUMN // NODES, 0]
    assert held["a"].sum() == want
    few = held[3:9]
    assert keepers.execute_rank_sync(3, "sums", few, "a") == numbers()[3:9].sum()
    assert received() == [0, 0, 0, 6 * WIDE * 8]


def test_echoed_rows_are_where_they_were(keepers: Any, received: Any) -> None:
    again = keepers.echo(column())
    assert (again["a"] == numbers()).all()
    assert received() == [0, 0, 0, 0]
