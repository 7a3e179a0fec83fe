"""DataProto between nodes: what only passes the driver is not moved there."""

from collections.abc import Iterator
from typing import Any

import muster
import numpy as np
import pytest
from conftest import _started
from dataproto_workers import VerlActor
from muster import verl

ROWS = 1 << 12
COLUMN = ROWS * 64 * 8  # bytes


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    """Ranks 0 and 1 on n0, where the driver is, ranks 2 and 3 on n1."""
    for _ in _started(num_nodes=2):
        pool = verl.RayResourcePool([2, 2], use_gpu=False)
        made = verl.RayWorkerGroup(pool, verl.RayClassWithInitArgs(VerlActor))
        yield made
        made.destroy(grace=0.2)
        pool.remove()


def received(group: Any) -> dict[str, int]:
    return {s["node"]: s["received"] for s in group.stats()}


def since(group: Any, before: dict[str, int]) -> dict[str, int]:
    return {node: got - before[node] for node, got in received(group).items()}


def rows() -> Any:
    return verl.DataProto.from_dict({"ids": np.arange(ROWS)})


def test_ranks_are_where_they_are_said_to_be(group: Any) -> None:
    assert [s["node"] for s in group.stats()] == ["n0", "n0", "n1", "n1"]


def test_a_future_does_not_pass_through_the_driver(group: Any) -> None:
    before = received(group)
    copied = muster.store_stats()["copied"]
    future = group.make(rows())
    assert group.look(future, ["big"] * 4) == [{"big": True, "other": False}] * 4
    assert since(group, before) == {"n0": 0, "n1": 0}
    assert muster.store_stats()["copied"] == copied
    whole = future.get()  # the driver has it now, and has read none of it
    mixed = whole.select_idxs(np.random.default_rng(1).permutation(ROWS))
    assert len(mixed.repeat(2).chunk(3)[1]) == len(
        verl.DataProto.concat([whole] * 3)[:2731]
    )
    assert since(group, before) == {"n0": 0, "n1": 0}
    assert whole.batch["big"].sum() == sum(
        (np.arange(ROWS // 4 * 64) + rank).sum() for rank in range(4)
    )
    assert since(group, before) == {"n0": COLUMN // 2, "n1": 0}
    assert len(whole.non_tensor_batch["text"]) == ROWS
    moved = since(group, before)["n0"] - COLUMN // 2
    assert 0 < moved < COLUMN // 2  # and the texts, when they are read


def test_a_reordered_result_is_gathered_by_the_ranks(group: Any) -> None:
    before = received(group)
    whole = group.make(rows()).get()
    order = np.arange(ROWS).reshape(4, -1)[:, ::-1].reshape(-1)  # within each rank
    whole.reorder(order)
    assert group.look(whole, ["other"] * 4) == [{"big": False, "other": True}] * 4
    assert since(group, before) == {"n0": 0, "n1": 0}


def test_a_whole_future_to_all(group: Any) -> None:
    future = group.make(rows())
    told = group.count(future)
    assert told == [(ROWS, future.get().batch["big"].sum())] * 4


def test_a_failed_future_fails_the_call_that_is_given_it(group: Any) -> None:
    with pytest.raises(muster.RemoteError, match="no luck"):
        group.look(group.fail(rows()))
