"""Batches in shared memory: built in place, sent without a copy, read when wanted."""

import gc
from collections.abc import Callable, Iterator
from typing import Any

import muster
import numpy as np
import pytest
from batch_workers import Keeper
from helpers import until
from muster import Batch, Ragged
from muster.batch import copied_bytes

ROWS, WIDE = 1 << 10, 1 << 7
BIG = ROWS * WIDE * 8  # bytes of a column


@pytest.fixture(scope="module")
def keepers(session: Any) -> Iterator[muster.Cluster]:
    with muster.Cluster("keepers", Keeper, world_size=4) as cluster:
        yield cluster


def allocated() -> Batch:
    made = Batch.allocate(
        ROWS,
        {"a": ((WIDE,), np.int64), "b": ((WIDE,), "bfloat16"), "c": np.bool_},
        {"tokens": (np.full(ROWS, WIDE), np.int64)},
        {"step": 1},
    )
    made.write("a")[:] = np.arange(ROWS * WIDE).reshape(ROWS, WIDE)
    made.write("b")["bfloat16"][:] = 0
    made.write("c")[:] = True
    made.write("tokens").values[:] = 7
    return made


def copied() -> int:
    return int(muster.store_stats()["copied"])


def wait_empty() -> None:
    """What others let go of goes in their own time."""
    gc.collect()
    until(lambda: not muster.store_stats()["objects"], muster.stored_objects)


# ---- built in place --------------------------------------------------------------------


def test_what_was_allocated_is_sent_without_a_copy(keepers: Any) -> None:
    batch = allocated()
    before = copied()
    total = float(np.arange(ROWS * WIDE).sum())
    assert keepers.execute_all_sync("sums", batch, "a") == [total] * 4
    got = keepers.echo(batch)
    assert np.array_equal(got["a"], batch["a"])
    assert keepers.only(batch, "a")["a"].sum() == 2 * total
    mixed = batch.reorder(np.random.default_rng(1).permutation(ROWS))
    got = keepers.echo(mixed)
    assert copied() == before
    assert np.array_equal(got["a"], mixed["a"])
    assert got["tokens"] == mixed["tokens"]
    assert got == mixed


def test_results_are_passed_on_without_a_copy(keepers: Any) -> None:
    batch = Batch({"a": np.arange(ROWS * WIDE).reshape(ROWS, WIDE)})
    before = copied()
    got = keepers.echo(batch)
    assert copied() - before == BIG  # each row once, for four ranks
    again = keepers.echo(got[::-1])
    assert copied() - before == BIG
    assert np.array_equal(again["a"], batch["a"][::-1])


@pytest.mark.parametrize("read", ["", "a", "tokens"])
def test_what_comes_back_lies_together(keepers: Any, read: str) -> None:
    """Chunks are written at once; those that come back as they were are one view."""
    numbers = np.arange(ROWS * WIDE).reshape(ROWS, WIDE)
    lengths = np.arange(ROWS) % WIDE
    tokens = Ragged.of([np.full(n, n) for n in lengths])
    data = Batch({"a": numbers, "tokens": tokens, "few": np.arange(ROWS)})
    wait_empty()
    before = copied()
    got = keepers.echoed(data, read)
    assert copied() - before == BIG + tokens.values.nbytes
    assert muster.store_stats()["objects"] == 2  # a and tokens
    gathered = copied_bytes()
    assert got.is_view("a")
    assert got.is_view("tokens")
    assert np.array_equal(got["a"], numbers)
    assert got["tokens"] == tokens
    assert copied_bytes() == gathered
    assert got["few"].tolist() == list(range(ROWS))
    back = keepers.echo(got.reorder(np.arange(ROWS)[::-1]))
    assert np.array_equal(back["a"], numbers[::-1])
    assert back["tokens"].tolist() == tokens.tolist()[::-1]


def test_only_the_rows_that_are_meant_are_copied(keepers: Any) -> None:
    batch = Batch({"a": np.arange(ROWS * WIDE).reshape(ROWS, WIDE)})
    few = batch[::4]
    repeated = batch[: ROWS // 4].repeat(8)
    before = copied()
    assert np.array_equal(keepers.echo(few)["a"], few["a"])
    assert copied() - before == BIG // 4
    assert np.array_equal(keepers.echo(repeated)["a"], repeated["a"])
    assert copied() - before == BIG // 2  # each row once, though each is there 8 times


def test_wrong_allocation(session: Any) -> None:
    for make, error, text in (
        (lambda: Batch.allocate(-1), ValueError, "negative"),
        (lambda: Batch.allocate(2, {"a": "float3"}), TypeError, "'a'"),
        (lambda: Batch.allocate(2, {"a": object}), TypeError, "objects"),
        (lambda: Batch.allocate(2, {"a": ((-1,), int)}), ValueError, "negative"),
        (lambda: Batch.allocate(2, {}, {"r": ([1], int)}), ValueError, "each of 2"),
        (lambda: Batch.allocate(1, {}, {"r": ([-1], int)}), ValueError, "negative"),
        (lambda: Batch.allocate(1, {}, {"r": ([0.5], int)}), ValueError, "'r'"),
        (
            lambda: Batch.allocate(1, {"r": int}, {"r": ([1], int)}),
            ValueError,
            "both fixed and ragged",
        ),
    ):
        with pytest.raises(error, match=text):
            make()


def test_what_cannot_be_written(keepers: Any) -> None:
    batch = allocated()
    mixed = batch.reorder(np.random.default_rng(1).permutation(ROWS))
    for wrong in (batch[1:], batch[::-1], Batch.concat([batch, batch]), mixed):
        with pytest.raises(ValueError, match="cannot be written"):
            wrong.write("a")
    with pytest.raises(ValueError, match="cannot be written"):
        keepers.echo(batch).write("a")
    with pytest.raises(KeyError, match="there is no column"):
        batch.write("none")


def test_a_batch_without_rows_is_allocated_and_sent(keepers: Any) -> None:
    empty = Batch.allocate(0, {"a": ((3,), int)}, {"r": ([], int)})
    got = keepers.echo(empty)
    assert (len(got), got["a"].shape, got["r"].tolist()) == (0, (0, 3), [])


# ---- read when wanted ------------------------------------------------------------------


def test_columns_are_mapped_when_they_are_touched(keepers: Any) -> None:
    batch = allocated()
    told = keepers.here(batch)
    assert told == [{"a": False, "b": False, "c": True, "tokens": False}] * 4
    told = keepers.here(batch, "tokens")  # the others with the same question
    assert told == [{"a": True, "b": True, "c": True, "tokens": True}] * 4
    got = keepers.echo(batch)
    assert not got.is_here("a")
    assert got.lengths("tokens").sum() == ROWS * WIDE
    assert not got.is_here("tokens")  # the lengths are known without the values
    assert len(got.balance(3, "tokens")) == 3
    assert not got.is_here("tokens")
    assert got["tokens"].values[0] == 7
    assert got.is_here("tokens")


def test_columns_of_objects_are_read_when_they_are_touched(keepers: Any) -> None:
    texts = [f"{i} " * 100 for i in range(ROWS)]
    batch = Batch({"text": texts, "n": np.arange(ROWS)}, {"step": 1})
    got = keepers.echo(batch)
    assert not got.is_here("text")
    order = np.random.default_rng(2).permutation(ROWS)
    again = keepers.echo(got.reorder(order))
    assert not got.is_here("text")
    assert again["text"].tolist() == [texts[i] for i in order]


@pytest.mark.parametrize("count", [0, 1, 3, 4, 9, ROWS])
def test_any_number_of_rows_for_four_ranks(keepers: Any, count: int) -> None:
    batch = Batch(
        {
            "a": np.arange(count * WIDE).reshape(count, WIDE),
            "r": Ragged.of([np.arange(i % 50) for i in range(count)], np.int64),
            "o": [{"i": i} for i in range(count)],
        },
        {"step": 1},
    )
    got = keepers.echo(batch)
    assert len(got) == count
    assert got.meta == ({"step": 1} if count else batch.meta)
    for name in batch.keys():
        assert got[name].tolist() == batch[name].tolist()


def test_dispatch_first_sends_the_others_meta_information_alone(
    cluster: Callable[..., Any],
) -> None:
    keepers = cluster(Keeper, 4, mesh={"tp": 2})
    before = copied()
    got = keepers.arrived(allocated())
    assert copied() == before
    half, columns = ROWS // 2, ["a", "b", "c", "tokens"]
    assert got == [
        (half, columns, {"step": 1}),
        (0, [], {"step": 1}),
        (half, columns, {"step": 1}),
        (0, [], {"step": 1}),
    ]


def test_collect_merges_metrics(keepers: Any) -> None:
    got = keepers.only(allocated(), "a")
    assert got.meta == {"metrics": {"rows": [ROWS // 4] * 4}}


def test_a_batch_in_a_ref_a_list_and_a_stream(keepers: Any) -> None:
    batch = allocated()
    batch["text"] = ["x" * 50] * ROWS
    ref = muster.put(batch)
    want = float(batch["a"].sum())
    assert keepers.execute_rank_zero_sync("sums", ref, "a") == want
    assert ref.get() == batch
    inside = keepers.execute_rank_zero_sync("tell", batch[:2])
    assert inside == ({n: batch[:2][n].tolist() for n in batch.keys()}, {"step": 1})
    stream = keepers.execute_rank_zero_sync("parts", batch, 3)
    assert Batch.concat(list(stream)) == batch


def test_many_small_parts_are_put_together(keepers: Any) -> None:
    parts = [Batch({"a": np.full((1, WIDE), i)}) for i in range(600)]
    batch = Batch.concat(parts)
    assert np.array_equal(keepers.echo(batch)["a"][:, 0], np.arange(600))


def test_a_dead_batch_leaves_nothing(keepers: Any) -> None:
    got = keepers.echo(allocated())
    assert muster.store_stats()["objects"] > 0
    del got
    wait_empty()


def test_objects_name_the_line_of_the_program(keepers: Any) -> None:
    got = keepers.echo(Batch({"a": np.zeros((ROWS, WIDE))}))
    sites = {one["site"].partition(":")[0] for one in muster.stored_objects()}
    assert sites == {"test_batch_store.py"}
    del got
