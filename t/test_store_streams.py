"""Big items of generators: through the store, and gone when nobody wants them."""

import gc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import muster
import numpy as np
import pytest
from conftest import _started
from helpers import until

MIB = 1 << 20


class Source:
    """Gives arrays of 1 MiB, one after another, each with its number in it."""

    def arrays(self, count: int) -> Iterator[Any]:
        for i in range(count):
            yield np.full(MIB, i % 256, np.uint8)

    def same(self, data: Any, count: int) -> Iterator[Any]:
        for _ in range(count):
            yield data

    def refs(self, count: int) -> Iterator[Any]:
        for i in range(count):
            yield muster.put(np.full(MIB, i, np.uint8)) if i % 2 else i

    def breaks(self) -> Iterator[Any]:
        yield np.ones(MIB, np.uint8)
        raise LookupError("no more")

    def copied(self) -> int:
        return int(muster.store_stats()["copied"])


class LaterSource:
    async def later(self, count: int) -> AsyncIterator[Any]:
        for i in range(count):
            yield {"number": i, "data": np.full(MIB, i % 256, np.uint8)}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    yield from _started(num_nodes=2)


@pytest.fixture(scope="module")
def source(nodes: Any) -> Iterator[Any]:
    """Rank 0 on the driver's node, rank 1 on the other."""
    with muster.Cluster("source", Source, world_size=2) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _nothing_is_left(source: Any) -> Iterator[None]:
    yield
    gc.collect()
    until(lambda: not muster.store_stats()["objects"], muster.stored_objects)


@pytest.mark.parametrize("rank", [0, 1])
def test_items_are_views_of_shared_memory(source: Any, rank: int) -> None:
    before = source.execute_rank_sync(rank, "copied")
    seen = 0
    for i, item in enumerate(source.execute_rank_sync(rank, "arrays", 40)):
        assert not item.flags.writeable
        assert (item == i % 256).all()
        seen += 1
    assert seen == 40
    assert source.execute_rank_sync(rank, "copied") - before == 40 * MIB


def test_what_arrived_is_given_again_without_a_copy(source: Any) -> None:
    data = muster.empty(MIB, np.uint8)
    data[:] = 7
    before = source.execute_rank_sync(0, "copied")
    for item in source.execute_rank_sync(0, "same", data, 5):
        assert item.__array_interface__["data"] != data.__array_interface__["data"]
        assert (item == 7).all()
    assert source.execute_rank_sync(0, "copied") == before
    del data, item


@pytest.mark.parametrize("rank", [0, 1])
def test_refs_are_items_too(source: Any, rank: int) -> None:
    for i, item in enumerate(source.execute_rank_sync(rank, "refs", 6)):
        assert item == i if i % 2 == 0 else (item.get() == i).all()
    del item


def test_a_stream_that_is_closed(source: Any) -> None:
    """What was sent and not taken goes at once, not when its lease ends."""
    stream = source.execute_rank_sync(0, "arrays", 1000)
    assert next(stream)[0] == 0
    until(lambda: muster.store_stats()["objects"] > 2, muster.stored_objects)
    stream.close()


def test_a_stream_that_breaks(source: Any) -> None:
    stream = source.execute_rank_sync(1, "breaks")
    assert next(stream).sum() == MIB
    with pytest.raises(muster.RemoteError, match="no more"):
        next(stream)


def test_of_an_async_engine(nodes: Any) -> None:
    with muster.Cluster("later", LaterSource, world_size=1) as later:
        taken = list(later.execute_rank_sync(0, "later", 30))
        assert [item["number"] for item in taken] == list(range(30))
        assert all((item["data"] == i).all() for i, item in enumerate(taken))
        del taken
