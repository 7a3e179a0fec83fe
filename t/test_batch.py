"""The batch: rows over shared memory."""

import pickle

import numpy as np
import pytest
from muster import Batch, Ragged
from muster.batch import copied_bytes


def batch(count, start=0):
    numbers = np.arange(start, start + count)
    return Batch(
        {
            "ids": numbers * 10,
            "wide": np.stack([numbers, numbers + 0.5], axis=1),
            "tokens": Ragged.of([np.full(n % 4, n) for n in numbers], dtype=np.int32),
            "text": [f"row {n}" for n in numbers],
        },
        {"step": 3},
    )


def rows_of(b):
    """What is in it, row by row, in plain Python."""
    columns = [b["ids"], b["wide"], b["tokens"], b["text"]]
    return [
        (int(i), tuple(w), tuple(t.tolist()), s)
        for i, w, t, s in zip(*columns, strict=True)
    ]


# ---- against lists ---------------------------------------------------------------------


def chunked(rows, n):
    return [part.tolist() for part in np.array_split(np.arange(len(rows)), n)]


@pytest.mark.parametrize("seed", range(40))
def test_any_operations(seed):
    random = np.random.default_rng(seed)
    b = Batch.concat([batch(7), batch(5, 100)])
    rows = rows_of(b)
    for _ in range(12):
        size = len(rows)
        what = random.integers(7)
        if what == 0:
            order = random.permutation(size)
            b, rows = b.reorder(order), [rows[i] for i in order]
        elif what == 1:
            n = int(random.integers(1, 6))
            parts = b.chunk(n)
            assert [len(p) for p in parts] == [len(c) for c in chunked(rows, n)]
            random.shuffle(lists := list(range(n)))
            b = Batch.concat([parts[i] for i in lists])
            rows = [rows[j] for i in lists for j in chunked(rows, n)[i]]
        elif what == 2:
            start, end = sorted(random.integers(0, size + 1, size=2))
            b, rows = b[start:end], rows[start:end]
        elif what == 3:
            step = int(random.choice([-2, -1, 2, 3]))
            b, rows = b[::step], rows[::step]
        elif what == 4 and size < 200:
            b, rows = b.repeat(2), [r for r in rows for _ in range(2)]
        elif what == 5 and size < 200:
            b, rows = b.repeat(2, interleave=False), rows * 2
        else:
            mask = random.random(size) < 0.7
            b, rows = b[mask], [r for r, m in zip(rows, mask, strict=True) if m]
        assert len(b) == len(rows)
        assert rows_of(b) == rows
        assert rows_of(pickle.loads(pickle.dumps(b, protocol=5))) == rows
        if not rows:
            return


# ---- nothing is copied -----------------------------------------------------------------


def test_row_operations_copy_no_payload():
    big = Batch({"x": np.zeros((1 << 14, 1 << 10), dtype=np.float32)})
    before = copied_bytes()
    parts = big.chunk(7)
    again = Batch.concat(parts)
    assert again.is_view("x")
    assert np.shares_memory(again["x"], big["x"])
    mixed = again.reorder(np.random.default_rng(1).permutation(len(big)))
    assert not mixed.is_view("x")
    mixed.select(["x"]).repeat(2).chunk(3)
    assert all(np.shares_memory(p["x"], big["x"]) for p in parts)
    assert copied_bytes() == before
    assert mixed["x"].nbytes == big["x"].nbytes
    assert copied_bytes() == before + big["x"].nbytes
    assert mixed["x"] is mixed["x"]


def test_no_operation_copies_payload():
    values = np.zeros(1 << 16, dtype=np.int32)
    b = Batch(
        {
            "x": np.zeros((256, 1 << 10)),
            "r": Ragged(values, np.arange(257) * 256),
            "k": np.arange(256) % 3,
        },
        {"step": 1},
    )
    before = copied_bytes()
    made = [
        *b.chunk(5),
        *b.split(100),
        b[7],
        b[3:90:2],
        b[[5, 1, 1]],
        b[np.arange(256) % 2 == 0],
        b.slice(1, 9),
        b.take([0, -1]),
        b.reorder(np.arange(256)[::-1]),
        b.repeat(3),
        b.repeat(3, interleave=False),
        b.select(["x"], []),
        b.rename({"x": "y"}),
        b.union(Batch({"z": np.zeros(256)})),
        b.union(b.select(["x", "r"])),
        b.pad(100)[0],
        b.pad(100, "cycle")[0].unpad(44),
        Batch.concat([b, b[3:], b]),
        *b.group_by("k").values(),
        *b.balance(3, "r"),
        *b.balance(3, np.arange(256), "differencing"),
        *b.batches(64, epochs=2, seed=1),
        b.meta_only(),
        b.select(["r"]).pop(["r"]),
    ]
    assert copied_bytes() == before
    memory = [m._column("x").parts[0] for m in made if "x" in m]
    assert all(np.shares_memory(m, b["x"]) for m in memory)
    assert len(b[7]) == 1 and len(b.take([0, -1])) == 2
    copies = b[::-1].materialize()
    assert not np.shares_memory(copies["x"], b["x"])
    assert copies == b[::-1]
    assert Batch.from_dict(b.to_dict(), b.meta) == b
    assert np.shares_memory(b.to_dict()["x"], b["x"])


def test_a_failure_leaves_no_trace():
    b = batch(3)
    with pytest.raises(KeyError):
        b.pop(["ids", "none"])
    with pytest.raises(KeyError):
        b.pop(["ids"], ["none"])
    with pytest.raises(ValueError):
        b["new"] = [1]
    assert b == batch(3)


def test_what_is_read_is_read_only_and_the_users_own_is_not():
    own = np.arange(4)
    values = np.arange(6)
    b = Batch({"a": own, "r": Ragged(values, [0, 1, 3, 6, 6])})
    for array in (b["a"], b["r"].values, b[[2, 0]]["a"]):
        with pytest.raises(ValueError):
            array[0] = 9
    own[0] = values[0] = 5
    assert b["a"][0] == 5


def test_materialize_owns_its_memory():
    own = np.arange(4)
    b = Batch({"a": own})[1:3].materialize()
    own[:] = 0
    assert b["a"].tolist() == [1, 2]


# ---- columns ---------------------------------------------------------------------------


def test_columns():
    b = batch(3)
    assert b.keys() == ["ids", "wide", "tokens", "text"]
    assert [b.kind(n) for n in b.keys()] == ["fixed", "fixed", "ragged", "objects"]
    assert b.select(["ids"]).keys() == ["ids"]
    assert b.select(["ids"], []).meta == {}
    renamed = b.rename({"ids": "id"})
    assert "id" in renamed and "ids" not in renamed and "ids" in b
    popped = b.pop(["text"], ["step"])
    assert popped.keys() == ["text"] and popped.meta == {"step": 3}
    assert "text" not in b and b.meta == {}
    b["new"] = [1, 2, 3]
    assert b.union(popped)["text"].tolist() == ["row 0", "row 1", "row 2"]
    del b["new"]
    assert "new" not in b


def test_union_compares_what_both_have():
    a = Batch({"x": np.array([1.0, np.nan]), "y": np.zeros(2)})
    assert a.union(Batch({"x": np.array([1.0, np.nan])})).keys() == ["x", "y"]
    with pytest.raises(ValueError, match="'x' is in both"):
        a.union(Batch({"x": np.array([1.0, 2.0])}))
    with pytest.raises(ValueError, match="'k' differs"):
        Batch(meta={"k": 1}).union(Batch(meta={"k": 2}))
    with pytest.raises(ValueError, match="union of 2 and 3"):
        a.union(Batch({"z": np.zeros(3)}))


def test_meta_is_not_shared():
    b = Batch({"x": np.arange(4)}, {"metrics": {"loss": [1]}})
    one, two = b.chunk(2)
    one.meta["metrics"]["loss"].append(2)
    assert two.meta == b.meta == {"metrics": {"loss": [1]}}


def test_concat_merges_metrics_and_compares_the_rest():
    parts = [
        Batch({"x": np.arange(2)}, {"step": 1, "metrics": {"loss": i, "all": [i, i]}})
        for i in range(2)
    ]
    joined = Batch.concat(parts)
    assert joined.meta == {"step": 1, "metrics": {"loss": [0, 1], "all": [0, 0, 1, 1]}}
    for i, part in enumerate(parts):
        part.meta["metrics"] = {"a": np.array([i, i]), "n": np.float32(i), f"m{i}": i}
    assert Batch.concat(parts).meta["metrics"] == {
        "a": [0, 0, 1, 1],
        "n": [0, 1],
        "m0": [0],
        "m1": [1],
    }
    more = Batch.concat(parts, merge=("metrics", "step"))
    assert more.meta["step"] == [1, 1]
    parts[1].meta["step"] = 2
    with pytest.raises(ValueError, match="'step' differs"):
        Batch.concat(parts)


def test_group_by():
    b = Batch({"kind": ["b", "a", "b"], "n": np.array([1, 1, 2])})
    assert {k: v["n"].tolist() for k, v in b.group_by("kind").items()} == {
        "b": [1, 2],
        "a": [1],
    }
    assert list(b.group_by("kind", "n")) == ["b|1", "a|1", "b|2"]
    twins = Batch({"a": ["x|y", "x"], "b": ["z", "y|z"]})
    with pytest.raises(ValueError, match="the same name"):
        twins.group_by("a", "b")
    long = np.zeros((2, 5000), dtype=int)
    long[1, 2500] = 1  # where numpy's text has dots
    assert len(Batch({"x": long}).group_by("x")) == 2


# ---- shape -----------------------------------------------------------------------------


def test_pad():
    b = Batch({"x": np.arange(5)})
    last, added = b.pad(4)
    assert (last["x"].tolist(), added) == ([0, 1, 2, 3, 4, 4, 4, 4], 3)
    cycle, _ = b.pad(8, "cycle")
    assert cycle["x"].tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert cycle.unpad(3) == b
    assert b.pad(5) == (b, 0)
    assert b[:0].pad(3)[1] == 0


def test_fewer_rows_than_chunks():
    parts = batch(2).chunk(4)
    assert [len(p) for p in parts] == [1, 1, 0, 0]
    assert parts[3]["tokens"].tolist() == []
    assert parts[3]["wide"].shape == (0, 2)
    assert rows_of(Batch.concat(parts)) == rows_of(batch(2))


@pytest.mark.parametrize("way", ["longest", "differencing"])
def test_balance(way):
    random = np.random.default_rng(5)
    lengths = random.integers(1, 2000, size=101)
    b = Batch({"tokens": Ragged.of([np.zeros(n, dtype=np.int8) for n in lengths])})
    parts = b.balance(8, "tokens", way)
    assert sorted(len(p) for p in parts) == [12] * 3 + [13] * 5
    weights = [int(p["tokens"].lengths.sum()) for p in parts]
    assert sum(weights) == lengths.sum()
    assert max(weights) <= 1.02 * lengths.sum() / 8 + lengths.max() * 0.2
    indexes = np.concatenate(b.partition(8, lengths, way, equal=False))
    assert sorted(indexes.tolist()) == list(range(101))


def test_batches_repeat_by_seed():
    b = Batch({"x": np.arange(10)})
    plain = [p["x"].tolist() for p in b.batches(4, epochs=2)]
    assert plain == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]] * 2
    mixed = [p["x"].tolist() for p in b.batches(4, epochs=2, seed=1)]
    assert mixed == [p["x"].tolist() for p in b.batches(4, epochs=2, seed=1)]
    assert mixed[:3] != mixed[3:]
    assert sorted(x for part in mixed[:3] for x in part) == list(range(10))


def test_save_and_load(tmp_path):
    b = batch(6)[::-1]
    b.save(tmp_path / "b")
    assert Batch.load(tmp_path / "b") == b
    (tmp_path / "no").write_bytes(b"something else")
    with pytest.raises(ValueError, match="not a saved batch"):
        Batch.load(tmp_path / "no")
    whole = (tmp_path / "b").read_bytes()
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="is damaged"):
        Batch.load(tmp_path / "cut")
    with pytest.raises(FileNotFoundError):
        Batch.load(tmp_path / "absent")
    before = sorted(tmp_path.iterdir())
    with pytest.raises((AttributeError, pickle.PicklingError)):
        Batch({"x": [lambda: 0]}).save(tmp_path / "b")
    assert Batch.load(tmp_path / "b") == b  # which is still there
    assert sorted(tmp_path.iterdir()) == before


def test_a_slice_pickles_without_its_neighbours():
    b = Batch(
        {
            "x": np.zeros((1000, 1000), dtype=np.int8),
            "r": Ragged.of([np.zeros(1000, dtype=np.int8)] * 1000),
        }
    )
    assert len(pickle.dumps(b[5:7], protocol=5)) < 10_000


def test_meta_only():
    only = batch(3).meta_only()
    assert (len(only), only.keys(), only.meta) == (0, [], {"step": 3})


# ---- wrong input -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (
            lambda: Batch({"a": np.arange(2), "b": np.arange(3)}),
            ValueError,
            "'b' has 3",
        ),
        (lambda: Batch({"a": np.float32(1)}), TypeError, "'a'"),
        (lambda: Batch({"a": np.array(1)}), ValueError, "no rows"),
        (lambda: Batch({"a": {}}), TypeError, "not dict"),
        (lambda: batch(3)[3], IndexError, "no row 3: there are 3"),
        (lambda: batch(3)[-4], IndexError, "no row -4"),
        (lambda: batch(3)[[0, 9]], IndexError, "no row 9"),
        (lambda: batch(3)[[0.5]], IndexError, "a list of numbers"),
        (lambda: batch(3)[np.array([True])], IndexError, "mask"),
        (lambda: batch(3)["none"], KeyError, "no column 'none'; there are: ids"),
        (lambda: batch(3).reorder([0, 0, 1]), ValueError, "exactly once"),
        (lambda: batch(3).rename({"ids": "wide"}), ValueError, "two columns"),
        (lambda: batch(3).chunk(0), ValueError, "at least 1"),
        (lambda: batch(3).split(0), ValueError, "at least 1"),
        (lambda: batch(3).repeat(-1), ValueError, "negative"),
        (lambda: batch(3).unpad(4), ValueError, "there are 3"),
        (lambda: batch(3).partition(0, "tokens"), ValueError, "at least 1"),
        (lambda: batch(3).partition(2, "ids"), TypeError, "not ragged"),
        (lambda: batch(3).partition(2, [1, 2]), ValueError, "for 3 rows"),
        (lambda: batch(3).partition(2, [1, -2, 3]), ValueError, "weight -2"),
        (lambda: Batch.concat([]), ValueError, "no batches"),
        (
            lambda: Batch.concat([batch(1), batch(1).select(["ids"])]),
            ValueError,
            "only some",
        ),
        (
            lambda: Batch.concat(
                [Batch({"a": np.arange(2)}), Batch({"a": np.arange(2.0)})]
            ),
            ValueError,
            "'a' is",
        ),
        (lambda: Batch({1: np.arange(2)}), TypeError, "must be text: 1"),
        (lambda: Batch({"a": np.zeros(2, [("o", object)])}), TypeError, "'a'"),
        (lambda: Batch({"a": np.zeros((2, 2), object)}), ValueError, "one dimension"),
        (lambda: batch(3).select(["ids", "ids"]), ValueError, "named twice"),
        (lambda: batch(3).select("ids"), TypeError, "list of names"),
        (lambda: batch(3).select(["none"]), KeyError, "no column 'none'"),
        (lambda: batch(3).select(["ids"], ["none"]), KeyError, "information 'none'"),
        (lambda: batch(3).pop(["ids", "ids"]), ValueError, "named twice"),
        (lambda: batch(3).pop(["none"]), KeyError, "no column"),
        (lambda: batch(3).rename({"none": "a"}), KeyError, "no column"),
        (lambda: batch(3).group_by(), ValueError, "no keys"),
        (lambda: batch(3).group_by("none"), KeyError, "no column"),
        (lambda: batch(3).pad(0), ValueError, "a divisor"),
        (lambda: batch(3).pad(2, "middle"), ValueError, "last"),
        (lambda: batch(3).unpad(-1), ValueError, "there are 3"),
        (lambda: batch(3).partition(2, [0.5, 1, 2]), TypeError, "whole numbers"),
        (lambda: batch(3).partition(2, "tokens", "best"), ValueError, "way"),
        (lambda: batch(3).partition(2, "none"), KeyError, "no column"),
        (lambda: list(batch(3).batches(0)), ValueError, "at least 1"),
        (lambda: batch(3).__setitem__("a", [1]), ValueError, "'a' has 1 rows"),
        (lambda: batch(3).__delitem__("none"), KeyError, "no column"),
        (lambda: batch(3).lengths("ids"), TypeError, "not ragged"),
        (lambda: Batch.concat([batch(1), [1]]), TypeError, "a list is no batch"),
        (lambda: Ragged([1, 2], [0, 3]), ValueError, "not within the 2"),
        (lambda: Ragged([1, 2], [2, 1]), ValueError, "must not fall"),
        (lambda: Ragged.of([1, 2]), ValueError, "row 0"),
    ],
)
def test_wrong_input(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_ragged():
    r = Ragged.of([[1, 2], [], [3]])
    assert r.tolist() == [[1, 2], [], [3]]
    assert r.lengths.tolist() == [2, 0, 1]
    assert r.padded(-1).tolist() == [[1, 2], [-1, -1], [3, -1]]
    assert r.padded(length=3).shape == (3, 3)
    assert r[-1].tolist() == [3]
    with pytest.raises(IndexError):
        r[3]
    with pytest.raises(ValueError, match="longest row has 2"):
        r.padded(length=1)


def test_other_columns_over_the_same_rows():
    b = Batch({"x": np.arange(4), "y": np.arange(4) + 1})
    assert b != b.rename({"x": "y", "y": "x"})
    assert b == b.rename({"x": "a"}).rename({"a": "x"})
