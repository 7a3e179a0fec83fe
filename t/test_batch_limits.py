"""Batches where the store is small, or there is none."""

import gc
from pathlib import Path
from typing import Any

import muster
import numpy as np
import pytest
from batch_workers import Keeper
from conftest import _started
from helpers import until
from muster import Batch

SMALL = Batch({"a": np.ones((1000, 100)), "o": [{"i": i} for i in range(1000)]})
BIG = Batch({"a": np.ones((1000, 4000))})  # 32 MB


@pytest.fixture
def keepers(request: Any) -> Any:
    for _ in _started(store_limit=request.param):
        with muster.Cluster("keepers", Keeper, world_size=2) as cluster:
            yield cluster


@pytest.mark.parametrize("keepers", ["8MiB"], indirect=True)
def test_a_full_store_is_said_and_nothing_is_lost(keepers: Any) -> None:
    with pytest.raises(muster.StoreFull, match="store_limit"):
        keepers.echo(BIG)
    with pytest.raises(muster.StoreFull, match="store_limit"):
        Batch.allocate(1000, {"a": ((4000,), float)})
    assert keepers.echo(SMALL) == SMALL


@pytest.mark.parametrize("keepers", [0], indirect=True)
def test_without_a_store_all_travels_in_the_message(keepers: Any) -> None:
    assert keepers.echo(BIG) == BIG
    got = keepers.echo(SMALL)
    assert got.is_here("a") and got.is_here("o")
    assert got == SMALL
    with pytest.raises(muster.StoreFull, match="its store_limit is 0"):
        Batch.allocate(1, {"a": float})


def test_nothing_is_allocated_before_init() -> None:
    with pytest.raises(muster.MusterError, match=r"muster\.init"):
        Batch.allocate(1, {"a": float})


def test_rows_of_a_column_that_was_spilled(tmp_path: Path) -> None:
    """It is read back, and only the rows go to the other node."""
    rows, wide = 4096, 128
    for _ in _started(num_nodes=2, store_limit="24MiB", spill=str(tmp_path)):
        with muster.Cluster("keepers", Keeper, world_size=2) as keepers:
            data = keepers.execute_rank_sync(0, "made", rows, wide)  # 2 x 4 MiB
            rest = [muster.put(np.zeros(6 << 20, np.uint8)) for _ in range(5)]
            assert muster.store_stats()["spilled"] >= 2 * rows * wide * 8
            assert keepers.execute_rank_sync(1, "sums", data[:8], "b") == 4 * 8 * wide
            assert keepers.execute_rank_sync(1, "stats")["received"] == 8 * wide * 8
            del data, rest
            gc.collect()
            until(lambda: not muster.store_stats()["objects"], muster.stored_objects)
