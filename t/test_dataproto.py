"""DataProto of muster.roll and muster.verl, without torch: numpy arrays are its tensors.

`make test-verl` compares it with verl's own, over tensors."""

import copy
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from muster import Batch, Ragged, roll, verl
from muster._adapters.lazy_column import LazyColumn

FLAVOURS: list[Any] = [roll, verl]


@pytest.fixture(params=FLAVOURS, ids=["roll", "verl"])
def flavour(request: pytest.FixtureRequest) -> Any:
    return request.param


def proto(flavour: Any, count: int, start: int = 0, **meta: Any) -> Any:
    numbers = np.arange(start, start + count)
    return flavour.DataProto.from_dict(
        tensors={"ids": numbers * 10, "wide": np.stack([numbers, numbers + 0.5], 1)},
        non_tensors={"text": [f"row {n}" for n in numbers]},
        meta_info=dict(meta),
    )


def rows_of(data: Any) -> list[tuple[int, list[float], str]]:
    """What is in it, row by row."""
    columns = data.batch["ids"], data.batch["wide"], data.non_tensor_batch["text"]
    return [(int(i), w.tolist(), t) for i, w, t in zip(*columns, strict=True)]


# ---- against lists ---------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_any_operations(flavour: Any, seed: int) -> None:
    random = np.random.default_rng(seed)
    data = proto(flavour, 13, step=3)
    rows = rows_of(data)
    for _ in range(15):
        size = len(rows)
        what = random.integers(8)
        if what == 0:
            order = random.permutation(size)
            data.reorder(order)
            rows = [rows[i] for i in order]
        elif what == 1:
            n = int(random.integers(1, 6))
            sizes = [len(p) for p in np.array_split(np.arange(size), n)]
            parts = data.chunk(n)
            assert [len(p) for p in parts] == sizes
            data = flavour.DataProto.concat(parts)
        elif what == 2:
            start, end = sorted(random.integers(0, size + 1, 2).tolist())
            data, rows = data[start:end], rows[start:end]
        elif what == 3 and size < 60:
            tiled = bool(random.integers(2))
            data = data.repeat(2, interleave=not tiled)
            rows = rows * 2 if tiled else [r for r in rows for _ in range(2)]
        elif what == 4 and size:
            chosen = random.integers(-size, size, 7).tolist()
            data, rows = data[chosen], [rows[i] for i in chosen]
        elif what == 5:
            mask = random.integers(0, 2, size).astype(bool)
            data = data.select_idxs(mask.tolist() if size else mask)
            rows = [r for r, m in zip(rows, mask, strict=True) if m]
        elif what == 6 and size:
            n = int(random.integers(1, 9))
            data, more = flavour.pad_dataproto_to_divisor(data, n)
            assert len(data) % n == 0
            assert rows_of(data) == rows + [rows[i % size] for i in range(more)]
            data = flavour.unpad_dataproto(data, more)
        else:
            data, rows = data[::-1], rows[::-1]
        assert rows_of(data) == rows
        assert len(data) == len(rows)
    assert data.meta_info == {"step": 3}


def test_chunks_are_views_with_meta_information_of_their_own(flavour: Any) -> None:
    data = proto(flavour, 10, step=[1])
    chunks = data.chunk(4)
    assert [len(c) for c in chunks] == [3, 3, 2, 2]
    for part in (*chunks, *data.split(4), data[2:7], data[::2]):
        assert np.shares_memory(part.batch["wide"], data.batch["wide"])
        part.meta_info["step"].append(2)
    assert data.meta_info == {"step": [1]}
    assert [len(c) for c in data[:2].chunk(4)] == [1, 1, 0, 0]


def test_meta_information_that_cannot_be_copied_is_shared(flavour: Any) -> None:
    lock = threading.Lock()
    chunks = proto(flavour, 4, lock=lock, list=[1]).chunk(2)
    assert chunks[0].meta_info["lock"] is lock
    assert chunks[0].meta_info["list"] is not chunks[1].meta_info["list"]


# ---- columns ---------------------------------------------------------------------------


def test_select_pop_rename_union(flavour: Any) -> None:
    data = proto(flavour, 5, step=3, name="x")
    part = data.select(["ids"], [], ["step", "absent"])
    assert set(part.batch.keys()) == {"ids"}
    assert part.non_tensor_batch == {}
    assert part.meta_info == {"step": 3}
    part.batch["new"] = np.zeros(5)
    assert "new" not in data.batch

    taken = data.pop(["wide"], ["text"], ["name"])
    assert set(data.batch.keys()) == {"ids"}
    assert (data.non_tensor_batch, data.meta_info) == ({}, {"step": 3})
    assert taken.rename("wide", "broad") is taken
    assert data.union(taken) is data
    assert set(data.batch.keys()) == {"ids", "broad"}
    assert data.meta_info == {"step": 3, "name": "x"}
    assert data.union(data.clone()) == data


def test_a_failed_operation_changes_nothing(flavour: Any) -> None:
    data = proto(flavour, 5, step=3)
    before = data.clone()
    other = proto(flavour, 5, step=3)
    other.batch["wide"][4, 1] = 7
    other.batch["more"] = np.zeros(5)
    for wrong in (
        lambda: data.union(other),
        lambda: data.union(proto(flavour, 4)),
        lambda: data.union(proto(flavour, 5, step=4)),
        lambda: data.pop(["ids"], ["absent"]),
        lambda: data.pop(["ids", "absent"]),
        lambda: data.rename(["ids", "absent"], ["a", "b"]),
        lambda: data.rename("ids", "wide"),
        lambda: data.rename(["ids"], ["a", "b"]),
        lambda: data.reorder([0, 5]),
    ):
        with pytest.raises((ValueError, KeyError, IndexError)):
            wrong()
        assert data == before


def test_unequal_columns_and_wrong_types(flavour: Any) -> None:
    make = flavour.DataProto.from_dict
    with pytest.raises(ValueError, match="'b' has 3 rows, the others have 2"):
        make({"a": np.zeros(2), "b": np.zeros(3)})
    with pytest.raises(ValueError, match=r"\['t'\] has 3 rows, there are 2"):
        make({"a": np.zeros(2)}, {"t": [1, 2, 3]})
    with pytest.raises(TypeError, match="'a': an array or a tensor is needed"):
        make({"a": [1, 2]})
    with pytest.raises(ValueError, match="single number"):
        make({"a": np.float64(1)})
    with pytest.raises(ValueError, match="'x': a tensor or an array is needed"):
        flavour.DataProto.from_single_dict({"x": [1]})
    data = proto(flavour, 3)
    with pytest.raises(IndexError, match="no row 3"):
        data[3]
    with pytest.raises(IndexError, match="a mask of 2"):
        data[np.array([True, False])]
    with pytest.raises(TypeError, match="by a float"):
        data[1.0]
    with pytest.raises(ValueError, match=r"only some have the columns \['ids'\]"):
        flavour.DataProto.concat([data, data.select(["wide"])])
    with pytest.raises(ValueError, match="chunks"):
        data.chunk(0)


def test_one_row() -> None:
    item = proto(verl, 3, step=3)[-1]
    assert isinstance(item, verl.DataProtoItem)
    assert item.batch["wide"].tolist() == [2, 2.5]
    assert (item.non_tensor_batch, item.meta_info) == ({"text": "row 2"}, {"step": 3})

    row = proto(roll, 3, step=3)[-1]
    assert isinstance(row, roll.DataProto)
    assert rows_of(row) == [(20, [2, 2.5], "row 2")]


def test_a_column_by_its_name() -> None:
    data = proto(roll, 3)
    assert data["text"].tolist() == ["row 0", "row 1", "row 2"]
    data["more"] = np.array([None, 1, "x"], dtype=object)
    del data["ids"]
    assert "ids" not in data.batch
    assert data[1:]["more"].tolist() == [1, "x"]
    with pytest.raises(KeyError, match="ids"):
        data["ids"]
    with pytest.raises(ValueError, match="2 rows"):
        data["more"] = np.array([1, 2])


def test_group_by(flavour: Any) -> None:
    data = flavour.DataProto.from_dict(
        {"n": np.array([1, 2, 1, 2, 1])}, {"t": ["a", "a", "a", "b", "c"]}
    )
    groups = data.group_by("n")
    assert {k: g.batch["n"].tolist() for k, g in groups.items()} == {
        "1": [1, 1, 1],
        "2": [2, 2],
    }
    assert list(data.group_by(["t", "n"])) == ["a|1", "a|2", "b|2", "c|1"]


# ---- metrics ---------------------------------------------------------------------------


def test_metrics_of_roll() -> None:
    make = roll.DataProto
    metas = [
        {"metrics": {"loss": 1.5, "each": [1, 2], "odd": {"a": 1}}, "step": 1},
        {"metrics": {"loss": 2, "each": [3], "new": "x"}, "step": 2},
        {"metrics": None},
    ]
    parts = [proto(roll, 2, **meta) for meta in metas]
    assert make.concat(parts).meta_info == {
        "metrics": {
            "loss": [1.5, 2.0],
            "each": [1, 2, 3],
            "odd": [{"a": 1}],
            "new": ["x"],
        },
        "step": 1,
    }
    assert make.concat(parts, global_keys={"step"}).meta_info["step"] == [1, 2, None]
    assert make.concat(parts[:1]) is parts[0]


def test_metrics_of_verl() -> None:
    make = verl.DataProto
    metas: list[dict[str, Any]] = [
        {"metrics": {"loss": 1.5, "each": [1, 2]}, "step": 1},
        {"metrics": [{"loss": 2}, {"loss": 3}], "other": 2},
        {"metrics": None, "step": 1},
    ]
    parts = [proto(verl, 2, **meta) for meta in metas]
    assert make.concat(parts).meta_info == {
        "metrics": {"loss": [1.5, 2, 3], "each": [[1, 2]]},
        "step": 1,
        "other": 2,
    }
    with pytest.raises(ValueError, match="'step' differs"):
        make.concat([*parts, proto(verl, 1, step=2)])


def test_results_without_rows_are_heard(flavour: Any) -> None:
    make = flavour.DataProto
    told = [make(meta_info={"metrics": {"loss": i}}) for i in range(3)]
    assert make.join_results(told).meta_info == {"metrics": {"loss": [0, 1, 2]}}
    some = [proto(flavour, 2, metrics={"loss": 5}), *told]
    got = make.join_results(some)
    assert len(got) == 2
    assert got.meta_info == {"metrics": {"loss": [5, 0, 1, 2]}}


# ---- the rest --------------------------------------------------------------------------


def test_iterator(flavour: Any) -> None:
    data = proto(flavour, 7, step=3)
    parts = list(data.make_iterator(3, epochs=2))
    assert [len(p) for p in parts] == [3, 3, 1] * 2
    assert np.shares_memory(parts[0].batch["wide"], data.batch["wide"])
    shuffled = {"shuffle": True, "drop_last": True}
    once, again = (
        [
            p.batch["ids"].tolist()
            for p in data.make_iterator(3, 2, seed=1, dataloader_kwargs=dict(shuffled))
        ]
        for _ in range(2)
    )
    assert once == again
    assert [len(p) for p in once] == [3, 3, 3, 3]
    assert once[:2] != once[2:]
    assert len(set(once[0] + once[1])) == 6


def test_clone_copy_and_equality(flavour: Any) -> None:
    data = proto(flavour, 4, step=[3])
    for other in (data.clone(), copy.deepcopy(data), copy.copy(data)):
        assert other == data
        other.meta_info["step"].append(4)
        other.batch["more"] = np.zeros(4)
        assert "more" not in data.batch
        assert other != data
    own = data.clone()
    own.batch["ids"][0] = 77
    assert data.batch["ids"][0] == 0
    assert own != data
    nan = flavour.DataProto.from_dict({"x": np.array([np.nan, 1])})
    assert nan == nan.clone()


def test_pickling_sends_a_slice_alone_and_copies_nothing(flavour: Any) -> None:
    data = proto(flavour, 1000, step=3)
    part = data[100:200]
    buffers: list[pickle.PickleBuffer] = []
    text = pickle.dumps(part, protocol=5, buffer_callback=buffers.append)
    raw = [np.frombuffer(b, dtype=np.uint8) for b in buffers]
    assert sorted(len(r) for r in raw) == [800, 1600]
    assert all(any(np.shares_memory(r, c) for c in data.batch.values()) for r in raw)
    got = pickle.loads(text, buffers=[bytes(b) for b in buffers])
    assert got == part
    assert len(pickle.dumps(part)) < 8000


def test_save_and_load(flavour: Any, tmp_path: Any) -> None:
    data = proto(flavour, 4, step=3)
    data.save_to_disk(tmp_path / "x")
    assert flavour.DataProto.load_from_disk(tmp_path / "x") == data
    (tmp_path / "y").write_bytes(pickle.dumps([1]))
    with pytest.raises(TypeError, match="has a list"):
        flavour.DataProto.load_from_disk(tmp_path / "y")


def test_to_a_batch_and_back(flavour: Any) -> None:
    data = proto(flavour, 6, step=[3])
    batch = data.to_batch()
    assert np.shares_memory(batch["wide"], data.batch["wide"])
    assert batch["text"].tolist() == data.non_tensor_batch["text"].tolist()
    assert batch.meta == data.meta_info
    assert batch.meta["step"] is not data.meta_info["step"]
    back = flavour.DataProto.from_batch(batch)
    assert np.shares_memory(back.batch.shared("wide"), data.batch["wide"])
    assert back == data

    ragged = Batch({"t": Ragged.of([[1], [2, 3]]), "x": np.arange(2)})
    rows = flavour.DataProto.from_batch(ragged)
    assert [r.tolist() for r in rows.non_tensor_batch["t"]] == [[1], [2, 3]]


# ---- joined when read ------------------------------------------------------------------


def test_joined_results_are_put_together_when_they_are_read(flavour: Any) -> None:
    parts = [proto(flavour, n, start=100 * n) for n in (3, 2, 4)]
    whole = flavour.DataProto.join_results(parts)
    chunks = whole.chunk(3)
    assert isinstance(whole.batch.cell("wide"), LazyColumn)
    assert isinstance(
        chunks[1].batch.cell("wide"), LazyColumn
    )  # of the first and second
    assert np.shares_memory(chunks[0].batch["wide"], parts[0].batch["wide"])
    sent = pickle.loads(pickle.dumps(chunks[1], protocol=5))
    expected = [row for part in parts for row in rows_of(part)]
    assert rows_of(sent) == expected[3:6]
    assert rows_of(whole[2:8]) == expected[2:8]
    assert rows_of(whole[1:8:3]) == expected[1:8:3]
    assert rows_of(whole) == expected
    assert not np.shares_memory(whole.batch["wide"], parts[0].batch["wide"])


def test_results_of_unlike_kinds_are_joined_at_once(flavour: Any) -> None:
    make = flavour.DataProto.from_dict
    parts = [make({"x": np.array([1, 2])}), make({"x": np.array([0.5])})]
    assert flavour.DataProto.join_results(parts).batch["x"].tolist() == [1, 2, 0.5]
    with pytest.raises(ValueError, match="concat: tensor 'x'"):
        flavour.DataProto.join_results([*parts, make({"x": np.zeros((1, 2))})])


# ---- verl's ----------------------------------------------------------------------------


def test_of_verl_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    data = proto(verl, 3)
    assert rows_of(data.sample_level_repeat([2, 0, 1])) == [
        rows_of(data)[i] for i in (0, 0, 2)
    ]
    wide = data.unfold_column_chunks(2, ["wide"])
    assert wide.batch["wide"].tolist() == [[0], [0.5], [1], [1.5], [2], [2.5]]
    assert wide.batch["ids"].tolist() == [0, 0, 10, 10, 20, 20]
    folded = verl.fold_batch_dim(proto(verl, 6), 3)
    assert folded.batch["wide"].shape == (3, 2, 2)
    assert verl.unfold_batch_dim(folded) == proto(verl, 6)
    data.padding(2)
    assert rows_of(data)[3:] == [rows_of(data)[2]] * 2
    assert "wide: (5, 2)" in data.get_data_info()

    assert not data.is_padding_enabled()
    make = verl.DataProto.from_single_dict
    assert make({"x": np.zeros(2)}, auto_padding=True).is_padding_enabled()
    monkeypatch.setenv("VERL_AUTO_PADDING", "1")
    assert data.is_padding_enabled()
    monkeypatch.delenv("VERL_AUTO_PADDING")
    verl.DataProtoConfig.auto_padding = True
    try:
        assert data.is_padding_enabled()
    finally:
        verl.DataProtoConfig.auto_padding = False


def test_of_roll_alone() -> None:
    data = proto(roll, 2)
    with pytest.raises(TypeError, match="not of objects"):
        roll.DataProto({"a": np.zeros(2)}, {"b": np.zeros(2)})
    with pytest.raises(ValueError, match="called 'a'"):
        roll.DataProto({"a": np.zeros(1)}, {"a": np.array([None])})
    with pytest.raises(TypeError, match="remote_batch"):
        roll.DataProto(remote_batch={})  # type: ignore[arg-type]
    assert len(data.pop([], ["text"])) == 2
    wide = roll.DataProto.from_dict({"a": np.zeros(2)}, {"b": np.zeros((2, 3))})
    assert wide.non_tensor_batch["b"].shape == (2,)
