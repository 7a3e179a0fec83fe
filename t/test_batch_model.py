"""Batches of all kinds of columns against lists of rows: any operations, through the store
and through pickles, give what the lists give."""

import copy
import pickle
import sys
import time
from typing import Any

import muster
import numpy as np
import pytest
from muster import Batch, Ragged

SIZE = 12
WIDE = 1 << 10  # so that a few rows go to the store by themselves
NAN = float("nan")


def columns(random: np.random.Generator, count: int) -> dict[str, Any]:
    """One of each kind, strided, broadcast and empty ones too."""
    lengths = random.integers(0, 4, size=count)
    lengths[random.random(count) < 0.5] = 0
    offsets = np.concatenate([[2], 2 + np.cumsum(lengths)])
    values = random.random(int(offsets[-1]) + 3)
    bits = random.integers(-9, 9, size=count, dtype=np.int16)
    days = random.integers(0, 99, size=count).astype("M8[D]")
    days[random.random(count) < 0.2] = np.datetime64("NaT")
    return {
        "bool": random.random(count) < 0.5,
        "half": random.random((count, 3)).astype(np.float16),
        "bfloat16": bits.view([("bfloat16", np.int16)]),
        "text": random.choice(np.array(["", "a", "abc"]), size=count),
        "bytes": random.choice(np.array([b"", b"xy"]), size=count),
        "days": days,
        "swapped": random.integers(0, 99, size=count).astype(">i4"),
        "complex": random.random(count) * 1j,
        "every second": random.integers(0, 99, size=(2 * count, 2))[::2],
        "backwards": random.integers(0, 99, size=count)[::-1],
        "columns": np.asfortranarray(random.random((count, 3))),
        "one for all": np.broadcast_to(np.float32(random.random()), (count, 2)),
        "nothing": np.zeros((count, 0)),
        "wide": random.integers(0, 99, size=(count, WIDE)),
        "ragged": Ragged(values, offsets),
        "ragged pairs": Ragged(random.random((len(values), 2)), offsets),
        "wide ragged": Ragged.of(
            [random.random(WIDE * int(n)) for n in lengths], np.float64
        ),
        "objects": [[None, i, [i], NAN][random.integers(4)] for i in range(count)],
    }


def row_of(value: Any) -> Any:
    """As bytes: NaN and -0.0 are what they are."""
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        return array.dtype.str, array.shape, array.tobytes()
    return repr(value)


def rows_of(batch: Batch) -> list[dict[str, Any]]:
    read = batch.to_dict()
    rows: list[dict[str, Any]] = [{} for _ in range(len(batch))]
    for name, values in read.items():
        assert len(values) == len(batch)
        for i, row in enumerate(rows):
            row[name] = row_of(values[i])
    return rows


def given(made: dict[str, Any], count: int) -> list[dict[str, Any]]:
    return [{n: row_of(v[i]) for n, v in made.items()} for i in range(count)]


class Both:
    """A batch, and its rows as a list."""

    def __init__(self, batch: Batch, rows: list[dict[str, Any]]) -> None:
        self.batch = batch
        self.rows = rows

    def check(self) -> None:
        assert len(self.batch) == len(self.rows)
        assert rows_of(self.batch) == self.rows

    def take(self, random: np.random.Generator) -> "Both":
        count = len(self.rows)
        if not count:
            return self
        found = random.integers(-count, count, size=random.integers(0, 2 * SIZE))
        return Both(self.batch.take(found), [self.rows[i] for i in found])

    def mask(self, random: np.random.Generator) -> "Both":
        mask = random.random(len(self.rows)) < 0.7
        kept = [r for r, is_kept in zip(self.rows, mask, strict=True) if is_kept]
        return Both(self.batch[mask], kept)

    def slice(self, random: np.random.Generator) -> "Both":
        ends = [None, -(1 << 70), -7, -1, 0, 1, 3, 9, 1 << 70]
        steps = [None, 1, 2, 5, -1, -3, 1 << 62, -(1 << 62), 1 << 70]
        start, end = (ends[i] for i in random.integers(len(ends), size=2))
        part = slice(start, end, steps[random.integers(len(steps))])
        return Both(self.batch[part], self.rows[part])

    def repeat(self, random: np.random.Generator) -> "Both":
        times = int(random.integers(0, 3))
        if random.random() < 0.5:
            return Both(self.batch.repeat(times, interleave=False), self.rows * times)
        again = [row for row in self.rows for _ in range(times)]
        return Both(self.batch.repeat(times), again)

    def chunks(self, random: np.random.Generator) -> "Both":
        parts = int(random.integers(1, 6))
        order = random.integers(0, parts, size=random.integers(1, 5))
        chunks = self.batch.chunk(parts)
        rows = [list(a) for a in np.array_split(np.arange(len(self.rows)), parts)]
        return Both(
            Batch.concat([chunks[i] for i in order]),
            [self.rows[j] for i in order for j in rows[i]],
        )

    def more(self, random: np.random.Generator) -> "Both":
        count = int(random.integers(0, 4))
        made = columns(random, count)
        made["text"] = made["text"].astype("U3")
        made["bytes"] = made["bytes"].astype("S2")
        both = [(self.batch, self.rows), (Batch(made), given(made, count))]
        if random.random() < 0.5:
            both.reverse()
        return Both(Batch.concat([b for b, _ in both]), both[0][1] + both[1][1])

    def one_by_one(self, random: np.random.Generator) -> "Both":
        if not self.rows:
            return self
        return Both(Batch.concat([*self.batch]), self.rows)

    def pad(self, random: np.random.Generator) -> "Both":
        batch, added = self.batch.pad(4, "cycle" if random.random() < 0.5 else "last")
        again = batch.unpad(added)
        assert again == self.batch
        return Both(again, self.rows)

    def copied(self, random: np.random.Generator) -> "Both":
        ways = [
            Batch.materialize,
            copy.deepcopy,
            # of what is not contiguous numpy's pickle turns the bytes around
            lambda b: pickle.loads(pickle.dumps(b.materialize(), protocol=5)),
        ]
        return Both(ways[random.integers(len(ways))](self.batch), self.rows)

    def stored(self, random: np.random.Generator) -> "Both":
        return Both(muster.put(self.batch).get(), self.rows)

    def balanced(self, random: np.random.Generator) -> "Both":
        way = ["longest", "differencing"][random.integers(2)]
        found = self.batch.partition(3, "ragged", way)
        together = np.concatenate(found)
        assert sorted(together) == list(range(len(self.rows)))
        return Both(self.batch.take(together), [self.rows[i] for i in together])


OPERATIONS = [
    getattr(Both, name) for name in vars(Both) if name != "check" and name[0] != "_"
]


@pytest.mark.parametrize("seed", range(24))
def test_any_columns(session: Any, seed: int) -> None:
    random = np.random.default_rng(seed)
    made = columns(random, SIZE)
    made["text"] = made["text"].astype("U3")
    made["bytes"] = made["bytes"].astype("S2")
    both = Both(Batch(made), given(made, SIZE))
    for _ in range(12):
        both = OPERATIONS[random.integers(len(OPERATIONS))](both, random)
        if random.random() < 0.4:
            both.check()
        if len(both.rows) > 4 * SIZE:
            both = Both(both.batch[:SIZE], both.rows[:SIZE])
    both.check()


# ---- kinds -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.array([1, 2]), np.array([1, 2], dtype=">i8")),
        (np.zeros(2, [("x", "i4"), ("y", "f4")]), np.zeros(2, [("x", "f8")])),
        (np.zeros(2, "M8[s]"), np.zeros(2, "M8[ms]")),
        (np.zeros(2, "U2"), np.zeros(2, "U3")),
    ],
)
def test_what_is_written_otherwise_is_not_put_together(one: Any, other: Any) -> None:
    with pytest.raises(ValueError, match=r"is .* in one and .* in another"):
        Batch.concat([Batch({"x": one}), Batch({"x": other})])


@pytest.mark.parametrize("kind", ["U3", "S3", ">i8", "M8[s]", "?", "f2"])
def test_a_row_again_and_again_keeps_its_kind(kind: str) -> None:
    batch = Batch({"x": np.zeros(2, kind)})[1:].repeat(3)
    assert batch["x"].dtype == np.dtype(kind)
    assert len(batch["x"]) == 3


def test_ragged_rows_have_no_objects() -> None:
    mine = [object(), object()]
    counts = [sys.getrefcount(x) for x in mine]
    with pytest.raises(TypeError, match="Python objects"):
        Ragged.of([mine, []], dtype=object)
    with pytest.raises(TypeError, match="Python objects"):
        Ragged(np.array(mine), [0, 1, 2])
    assert [sys.getrefcount(x) for x in mine] == counts


# ---- equality --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "column",
    [
        np.array([1, NAN]),
        np.array(["2026-01-01", "NaT"], dtype="M8[D]"),
        Ragged.of([[NAN, 1], [2]]),
        [NAN, {"a": [NAN]}],
        [np.float32(NAN), np.array([NAN])],
    ],
)
def test_nothing_equals_nothing(column: Any) -> None:
    batch = Batch({"x": column}, {"kl": NAN, "all": [{"kl": np.float64(NAN)}]})
    other = Batch({"x": copy.deepcopy(column)}, copy.deepcopy(batch.meta))
    assert batch == other
    assert batch.union(other) == batch
    assert Batch.concat(batch.chunk(2)) == batch


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (np.zeros(0), 1, False),
        (np.ones(2), 1, False),
        (np.arange(2), [0, 1], True),
        (np.arange(2), [0, 1, 2], False),
        (np.arange(2), [[0], [1, 2]], False),
        (np.arange(2), "ab", False),
        (np.arange(2), None, False),
        (NAN, 1.0, False),
        (NAN, "nan", False),
    ],
)
def test_meta_information_of_unlike_kinds(one: Any, other: Any, is_same: bool) -> None:
    for a, b in ((one, other), (other, one)):
        batches = [Batch({"x": [1]}, {"m": a}), Batch({"y": [1]}, {"m": b})]
        if is_same:
            assert batches[0].union(batches[1]).keys() == ["y", "x"]
        else:
            with pytest.raises(ValueError, match="differs"):
                batches[0].union(batches[1])


# ---- numbers that are too big ------------------------------------------------------------


def test_huge_numbers() -> None:
    batch = Batch({"x": np.arange(3)})
    with pytest.raises(IndexError, match="no row 18446744073709551615"):
        batch.take(np.array([2**64 - 1], dtype=np.uint64))
    assert batch.take(np.array([2], dtype=np.uint64))["x"].tolist() == [2]
    with pytest.raises(OverflowError):
        batch.repeat(2**64 + 1)
    with pytest.raises(OverflowError):
        batch.repeat(2**40)
    assert len(batch[:0].repeat(2**62, interleave=False)) == 0


# ---- many parts --------------------------------------------------------------------------


def test_a_few_rows_of_many_parts() -> None:
    """They cost as much as they are, and keep no more than they need."""
    count = 4096
    many = Batch.concat(
        [
            Batch({"x": np.array([i]), "r": Ragged.of([[i] * (i % 3)], int), "o": [i]})
            for i in range(count)
        ]
    )
    began = time.process_time()
    rows = list(many)
    assert sum(int(row["x"][0]) for row in rows) == count * (count - 1) // 2
    assert sum(int(row.lengths("r")[0]) for row in rows) == count - 1
    assert [row["o"][0] for row in rows] == list(range(count))
    assert Batch.concat(rows) == many
    assert time.process_time() - began < 10  # of one part for each row: minutes
    assert len(rows[7]._columns["x"].parts) == 1
    assert len(many[:0]._columns["r"].parts) == 1


# ---- batches in batches ------------------------------------------------------------------


def test_a_batch_in_a_column_of_another(session: Any) -> None:
    inner = Batch({"y": np.arange(100_000)})
    outer = Batch({"x": [inner, inner[::-1]], "z": np.arange(200_000).reshape(2, -1)})
    got = muster.put(outer).get()
    assert np.array_equal(got["x"][0]["y"], np.arange(100_000))
    assert np.array_equal(got["x"][1]["y"], np.arange(100_000)[::-1])
    assert np.array_equal(got["z"], outer["z"])
