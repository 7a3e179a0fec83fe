"""DataProto: verl's and ours, over many random batches: what one gives, so does the
other, or doc/adapters.md says why not."""

import copy
import inspect
import pickle
import random
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip(
    "verl", reason="verl is not installed here: `make test-verl` has it"
)

import muster
import numpy as np
import torch
import verl.protocol as theirs
from dataproto_workers import RollActor, VerlActor
from muster import roll
from muster import verl as ours
from muster._adapters.lazy_column import LazyColumn
from muster._data import remote_array
from tensordict import TensorDict

CASES = 60
REFUSALS = (
    AssertionError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    RuntimeError,
)
DTYPES = [torch.int64, torch.int32, torch.float32, torch.bfloat16, torch.bool]


# ---- the same in both ------------------------------------------------------------------


def made(rng: random.Random, count: int | None = None) -> dict[str, Any]:
    """What both are made of."""
    count = rng.randint(1, 24) if count is None else count
    draw = torch.Generator().manual_seed(rng.randrange(1 << 30))
    tensors = {}
    for i in range(rng.randint(1, 4)):
        shape = [count] + [rng.randint(1, 5) for _ in range(rng.randint(0, 2))]
        values = torch.randint(-9, 9, shape, generator=draw)
        tensors[f"t{i}"] = values.to(rng.choice(DTYPES))
    others: dict[str, Any] = {}
    for i in range(rng.randint(0, 3)):
        kind = rng.randint(0, 2)
        if kind == 0:
            others[f"n{i}"] = np.array([f"s{rng.randint(0, 3)}" for _ in range(count)])
        elif kind == 1:
            others[f"n{i}"] = np.array([rng.random() for _ in range(count)])
        else:
            rows = np.empty(count, dtype=object)
            for j in range(count):
                rows[j] = [rng.randint(0, 9)] * rng.randint(0, 3)
            others[f"n{i}"] = rows
    meta: dict[str, Any] = {"step": rng.randint(0, 9), "list": [1, {"a": 2}]}
    return {"tensors": tensors, "non_tensors": others, "meta_info": meta}


def both(parts: dict[str, Any]) -> tuple[Any, Any]:
    return (
        theirs.DataProto.from_dict(**copy.deepcopy(parts)),
        ours.DataProto.from_dict(**copy.deepcopy(parts)),
    )


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.equal(b)
    if isinstance(a, np.ndarray):
        if not isinstance(b, np.ndarray) or (a.shape, a.dtype) != (b.shape, b.dtype):
            return False
        return all(map(equal, a.tolist(), b.tolist()))
    if isinstance(a, dict):
        return (
            isinstance(b, dict)
            and a.keys() == b.keys()
            and all(equal(a[k], b[k]) for k in a)
        )
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)


def check(theirs_got: Any, ours_got: Any) -> None:
    """Of two results: DataProtos, rows, or lists of them."""
    if isinstance(theirs_got, (list, tuple)):
        assert len(theirs_got) == len(ours_got)
        for a, b in zip(theirs_got, ours_got, strict=True):
            check(a, b)
        return
    if not isinstance(theirs_got, (theirs.DataProto, theirs.DataProtoItem)):
        assert theirs_got == ours_got
        return
    assert isinstance(ours_got, (ours.DataProto, ours.DataProtoItem, roll.DataProto))
    a, b = theirs_got.batch, ours_got.batch
    assert (a is None) == (b is None)
    assert equal({} if a is None else dict(a.items()), {} if b is None else dict(b))
    assert equal(theirs_got.non_tensor_batch, ours_got.non_tensor_batch)
    assert equal(theirs_got.meta_info, ours_got.meta_info)
    if isinstance(theirs_got, theirs.DataProto):
        assert len(theirs_got) == len(ours_got)


def divisor(rng: random.Random, count: int) -> int:
    return rng.choice([n for n in range(1, count + 1) if count % n == 0])


def some(rng: random.Random, names: Any) -> list[str]:
    names = sorted(names)
    return rng.sample(names, rng.randint(0, len(names)))


def indexes(rng: random.Random, count: int) -> Any:
    chosen = [rng.randrange(-count, count) for _ in range(rng.randint(1, 9))]
    mask = [rng.random() < 0.5 for _ in range(count)]
    kind = rng.randint(0, 5)
    if kind < 3:
        return (chosen, np.array(chosen), torch.tensor(chosen))[kind]
    return (mask, np.array(mask), torch.tensor(mask))[kind - 3]


Operation = Callable[[random.Random, Any, Any], Any]


def op_chunk(rng: random.Random, data: Any, lib: Any) -> Any:
    return data.chunk(divisor(rng, len(data)))


def op_split(rng: random.Random, data: Any, lib: Any) -> Any:
    return data.split(rng.randint(1, 9))


def op_slice(rng: random.Random, data: Any, lib: Any) -> Any:
    start, end = rng.randint(-9, 9), rng.randint(-9, 9)
    return [data[start:end], data[:end], data.slice(start, None, rng.randint(1, 3))]


def op_row(rng: random.Random, data: Any, lib: Any) -> Any:
    return data[rng.randrange(-len(data), len(data))]


def op_select_idxs(rng: random.Random, data: Any, lib: Any) -> Any:
    chosen = indexes(rng, len(data))
    return [data.select_idxs(chosen), data[chosen]]


def op_select(rng: random.Random, data: Any, lib: Any) -> Any:
    keys = some(rng, data.batch.keys()), some(rng, data.non_tensor_batch)
    meta = some(rng, [*data.meta_info, "absent"])
    deep = rng.random() < 0.5
    return [
        data.select(*keys, meta, deepcopy=deep),
        data.select(keys[0]),
        data.select(),
    ]


def op_pop(rng: random.Random, data: Any, lib: Any) -> Any:
    keys = some(rng, data.batch.keys()), some(rng, data.non_tensor_batch)
    taken = data.pop(*keys, some(rng, data.meta_info))
    return [taken, data]


def op_rename(rng: random.Random, data: Any, lib: Any) -> Any:
    old = rng.choice(sorted(data.batch.keys()))
    return data.rename(rng.choice([old, [old]]), "new")


def op_reorder(rng: random.Random, data: Any, lib: Any) -> Any:
    order = list(range(len(data)))
    rng.shuffle(order)
    assert data.reorder(torch.tensor(order)) is None
    return data


def op_repeat(rng: random.Random, data: Any, lib: Any) -> Any:
    return data.repeat(rng.randint(1, 4), interleave=rng.random() < 0.5)


def op_sample_level_repeat(rng: random.Random, data: Any, lib: Any) -> Any:
    times = [rng.randint(0, 3) for _ in range(len(data))]
    return data.sample_level_repeat(rng.choice([times, np.array(times)]))


def op_union(rng: random.Random, data: Any, lib: Any) -> Any:
    text = [k for k, v in data.non_tensor_batch.items() if v.dtype.kind == "U"]
    data.pop(None, text)  # verl asks whether text is NaN, which numpy refuses
    other = copy.deepcopy(data)  # what verl's select gives shares its TensorDict
    extra = other.pop(some(rng, other.batch.keys())[:1], None, ["step"])
    taken = extra.batch is not None and len(extra.batch.keys())
    if taken and len(other.batch.keys()):
        extra.rename(next(iter(extra.batch.keys())), "extra")
        other = extra.union(data.select(list(data.batch.keys()), None, ["list"]))
    return [data.union(copy.deepcopy(data)), other]


def op_concat(rng: random.Random, data: Any, lib: Any) -> Any:
    parts = [copy.deepcopy(p) for p in data.split(rng.randint(1, 6))]
    kinds = [0.5, [1, 2], None, "x"]
    for part in parts:
        told = rng.randint(0, 3)
        metrics = {"loss": rng.random(), "each": rng.choice(kinds)}
        if told == 1:
            part.meta_info["metrics"] = metrics
        elif told == 2:
            part.meta_info["metrics"] = [metrics, {"loss": 1}]
        elif told == 3:
            part.meta_info["metrics"] = None
    return lib.DataProto.concat(parts)


def op_pad(rng: random.Random, data: Any, lib: Any) -> Any:
    padded, more = lib.pad_dataproto_to_divisor(data, rng.randint(1, 40))
    return [padded, more, lib.unpad_dataproto(padded, more)]


def op_padding(rng: random.Random, data: Any, lib: Any) -> Any:
    data = data.select()
    data.padding(rng.randint(0, 5), rng.choice(["", "first", "last"]))
    return data


def op_iterate(rng: random.Random, data: Any, lib: Any) -> Any:
    options = {"shuffle": True} if rng.random() < 0.7 else None
    data = data.select(None, [])  # verl makes objects of arrays here
    size = divisor(rng, len(data))
    seed = rng.randint(0, 99)
    return list(data.make_iterator(size, 2, seed, options))


def op_pickle(rng: random.Random, data: Any, lib: Any) -> Any:
    part = data[rng.randint(0, 3) :]
    return [pickle.loads(pickle.dumps(part)), copy.deepcopy(part), copy.copy(part)]


def op_to(rng: random.Random, data: Any, lib: Any) -> Any:
    return data.to("cpu")


def op_fold(rng: random.Random, data: Any, lib: Any) -> Any:
    size = divisor(rng, len(data))
    folded = lib.fold_batch_dim(data.select(None, []), size)
    return [folded, lib.unfold_batch_dim(folded)]


def op_unfold_column_chunks(rng: random.Random, data: Any, lib: Any) -> Any:
    wide = [k for k, v in data.batch.items() if v.ndim > 1 and v.shape[1] % 2 == 0]
    return data.unfold_column_chunks(2, some(rng, wide))


def op_tensordict(rng: random.Random, data: Any, lib: Any) -> Any:
    data = data.select(None, [], ["step"])
    whole = data.to_tensordict()
    return [lib.DataProto.from_tensordict(whole), lib.DataProto(batch=whole.select())]


def op_save(rng: random.Random, data: Any, lib: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/saved"
        data[1:].save_to_disk(path)
        return lib.DataProto.load_from_disk(path)


def op_group_by(rng: random.Random, data: Any, lib: Any) -> Any:
    """verl has none: the rule is ROLL's."""
    keys = some(rng, data.non_tensor_batch) or ["t0"]
    if lib is not theirs:
        return [(name, part) for name, part in data.group_by(keys).items()]
    columns = [
        data.non_tensor_batch[k] if k != "t0" else as_numpy(data.batch[k]) for k in keys
    ]
    groups: dict[str, list[int]] = {}
    for i in range(len(data)):
        groups.setdefault("|".join(str(c[i]) for c in columns), []).append(i)
    return [(name, data.select_idxs(found)) for name, found in groups.items()]


def as_numpy(tensor: Any) -> Any:
    return tensor.float().numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


def op_clone(rng: random.Random, data: Any, lib: Any) -> Any:
    mine = copy.deepcopy(data) if lib is theirs else data.clone()
    for tensor in mine.batch.values():
        tensor.zero_()
    return [mine, data]


OPERATIONS: list[Operation] = [
    value for name, value in sorted(globals().items()) if name.startswith("op_")
]


@pytest.mark.parametrize("op", OPERATIONS, ids=lambda op: op.__name__[3:])
def test_the_same_result(op: Operation) -> None:
    for case in range(CASES):
        parts = made(random.Random(case))
        a, b = both(parts)
        check(a, b)
        results = [
            op(random.Random(case), data, lib) for data, lib in ((a, theirs), (b, ours))
        ]
        check(*results)
        check(a, b)  # what was changed in place


@pytest.mark.parametrize("op", OPERATIONS, ids=lambda op: op.__name__[3:])
def test_the_same_of_what_arrived(
    op: Operation, _session: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns that lie in the store, and that nobody has read yet."""
    monkeypatch.setattr(remote_array, "REMOTE_MIN", 1)
    monkeypatch.setattr(remote_array, "STORED_MIN", 1)
    for case in range(CASES // 3):
        a, b = both(made(random.Random(case)))
        b = muster.put(b).get()
        assert all(isinstance(cell, LazyColumn) for cell in b.batch.cells().values())
        results = [
            op(random.Random(case), data, lib) for data, lib in ((a, theirs), (b, ours))
        ]
        check(*results)
        check(a, b)


SAME_IN_ROLL = [
    op_clone,
    op_group_by,
    op_pad,
    op_rename,
    op_reorder,
    op_repeat,
    op_save,
    op_select,
    op_select_idxs,
    op_slice,
    op_split,
    op_union,
]


@pytest.mark.parametrize("op", SAME_IN_ROLL, ids=lambda op: op.__name__[3:])
def test_the_same_result_of_rolls(op: Operation) -> None:
    """Where their rules agree; its arrays are all of objects."""
    for case in range(CASES // 3):
        parts = made(random.Random(case))
        parts["non_tensors"] = {
            k: v for k, v in parts["non_tensors"].items() if v.dtype == object
        }
        a = theirs.DataProto.from_dict(**copy.deepcopy(parts))
        b = roll.DataProto.from_dict(**copy.deepcopy(parts))
        results = [
            op(random.Random(case), data, lib) for data, lib in ((a, theirs), (b, roll))
        ]
        check(*results)
        check(a, b)


def test_rolls_metrics() -> None:
    """doc: those of all parts; the rest is the first one's."""
    parts = [
        roll.DataProto.from_dict(
            {"x": torch.arange(2)},
            meta_info={"step": i, "metrics": {"loss": i, "each": [i, i]}},
        )
        for i in range(3)
    ]
    assert roll.DataProto.concat(parts).meta_info == {
        "step": 0,
        "metrics": {"loss": [0, 1, 2], "each": [0, 0, 1, 1, 2, 2]},
    }


def test_the_same_after_many_operations() -> None:
    for case in range(CASES):
        rng = random.Random(1000 + case)
        a, b = both(made(rng))
        for _ in range(8):
            op = rng.choice(
                [op_slice, op_select_idxs, op_repeat, op_concat, op_reorder]
            )
            seed = rng.random()
            results = [
                op(random.Random(seed), d, lib) for d, lib in ((a, theirs), (b, ours))
            ]
            check(*results)
            if op in (op_slice, op_select_idxs):
                results = [found[0] for found in results]
            if not 0 < len(results[0]) < 200:
                break
            a, b = results
            for data in results:
                data.meta_info.pop("metrics", None)


def test_both_refuse_the_same() -> None:
    parts = made(random.Random(1), 6)
    for wrong in (
        lambda d, lib: d.pop(["absent"]),
        lambda d, lib: d.select(["absent"]),
        lambda d, lib: d.rename("absent", "new"),
        lambda d, lib: d.rename("t0", ["a", "b"]),
        lambda d, lib: d.union(lib.DataProto.from_dict({"x": torch.zeros(5)})),
        lambda d, lib: d.union(lib.DataProto.from_dict({"t0": torch.zeros(6) + 77})),
        lambda d, lib: d.union(
            lib.DataProto.from_dict({"x": torch.zeros(6)}, meta_info={"step": "z"})
        ),
        lambda d, lib: d.select_idxs([6]),
        lambda d, lib: d[6],
        lambda d, lib: d[1.5],
        lambda d, lib: lib.DataProto.concat(
            [
                lib.DataProto.from_dict({k: torch.zeros(2) for k in ks})
                for ks in ("ab", "a")
            ]
        ),
        lambda d, lib: lib.DataProto.concat(
            [
                lib.DataProto.from_dict({"a": torch.zeros(1)}, meta_info={"k": k})
                for k in range(2)
            ]
        ),
        lambda d, lib: lib.DataProto.from_dict(
            {"a": torch.zeros(2), "b": torch.ones(3)}
        ),
        lambda d, lib: lib.DataProto.from_dict({"a": torch.zeros(2)}, {"b": [1]}),
        lambda d, lib: lib.DataProto.from_single_dict({"a": [1]}),
    ):
        refused = []
        for data, lib in zip(both(parts), (theirs, ours), strict=True):
            try:
                wrong(data, lib)
            except REFUSALS as e:
                refused.append(isinstance(e, AssertionError))
        assert len(refused) == 2, inspect.getsource(wrong)
        assert refused[1] or not refused[0], inspect.getsource(wrong)


def test_listed_differences() -> None:
    """What doc/adapters.md says to be otherwise, is."""
    parts = made(random.Random(2), 10)
    a, b = both(parts)
    with pytest.raises(AssertionError, match="equal chunk"):
        a.chunk(4)
    assert [len(c) for c in b.chunk(4)] == [3, 3, 2, 2]
    assert a.chunk(2)[0].meta_info is a.meta_info
    assert b.chunk(2)[0].meta_info is not b.meta_info
    with pytest.raises(AssertionError):
        a.make_iterator(3, 1)
    assert [len(p) for p in b.make_iterator(3, 1)] == [3, 3, 3, 1]
    a.meta_info["metrics"] = b.meta_info["metrics"] = {"loss": 1}
    assert theirs.pad_dataproto_to_divisor(a, 6)[0].meta_info["metrics"] == {
        "loss": [1, 1]
    }
    assert ours.pad_dataproto_to_divisor(b, 6)[0].meta_info["metrics"] == {"loss": 1}


# ---- torch -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_are_sent_beside_the_pickle(dtype: Any) -> None:
    data = ours.DataProto.from_dict(
        {"x": torch.arange(6000).reshape(1000, 6).to(dtype)}
    )
    part = data[10:20]
    buffers: list[pickle.PickleBuffer] = []
    text = pickle.dumps(part, protocol=5, buffer_callback=buffers.append)
    raw = np.frombuffer(buffers[0], dtype=np.uint8)
    assert len(buffers) == 1
    assert raw.nbytes == part.batch["x"].nbytes
    assert raw.ctypes.data == part.batch["x"].data_ptr()  # not a copy

    got = pickle.loads(text, buffers=[bytes(b) for b in buffers])
    assert isinstance(got.batch.cell("x"), LazyColumn)
    assert isinstance(got.chunk(2)[1].batch.cell("x"), LazyColumn)
    shared = got.batch.shared("x")
    assert shared.equal(part.batch["x"])
    mine = got.batch["x"]  # a tensor of one's own
    assert mine.data_ptr() != shared.data_ptr()
    mine.zero_()
    assert got.batch["x"] is mine
    assert shared.equal(part.batch["x"])

    own = pickle.loads(text, buffers=[bytearray(b) for b in buffers])
    assert own.batch.shared("x").data_ptr() == own.batch["x"].data_ptr()


def test_what_shares_a_tensor_that_arrived_shares_its_copy() -> None:
    data = ours.DataProto.from_dict({"x": torch.arange(4000)})
    buffers: list[pickle.PickleBuffer] = []
    text = pickle.dumps(data, protocol=5, buffer_callback=buffers.append)
    got = pickle.loads(text, buffers=[bytes(b) for b in buffers])
    before, other = got[:10], got.select(["x"])
    got.batch["x"].zero_()
    assert other.batch["x"].sum() == got[5:].batch["x"].sum() == 0
    assert pickle.loads(pickle.dumps(other)).batch["x"].sum() == 0
    assert before.batch["x"].tolist() == list(range(10))  # taken before it was read


def test_a_batch_of_tensors_and_back() -> None:
    data = ours.DataProto.from_dict(
        {"x": torch.arange(10.0)}, {"t": list("abcdefghij")}
    )
    back = ours.DataProto.from_batch(data.to_batch())
    assert back.batch.shared("x").data_ptr() == data.batch["x"].data_ptr()
    assert back == data
    half = ours.DataProto.from_dict({"x": torch.arange(3).bfloat16()})
    assert half.to_batch().torch("x").equal(half.batch["x"])
    assert ours.DataProto.from_batch(half.to_batch()) == half


def test_a_tensordict_is_taken() -> None:
    whole = TensorDict({"x": torch.arange(4)}, batch_size=[4])
    data = roll.DataProto(batch=whole, meta_info={"a": torch.ones(1)})
    assert data.to("cpu")["x"] is whole["x"]
    assert data.batch.to_tensordict()["x"].tolist() == [0, 1, 2, 3]
    data.batch = TensorDict({"y": torch.arange(4)}, batch_size=[4])
    assert list(data.group_by("y")) == ["0", "1", "2", "3"]
    with pytest.raises(ValueError, match="one batch dimension"):
        roll.DataProto(batch=TensorDict({}, batch_size=[4, 2]))


@pytest.fixture(scope="module")
def _session() -> Iterator[None]:
    muster.init(num_gpus=4)
    yield
    muster.shutdown()


def test_tensors_through_real_clusters(_session: None) -> None:
    count = 1 << 18
    numbers = torch.arange(count)
    tensors = {
        "ids": numbers,
        "wide": torch.stack([numbers, numbers + 1], 1).bfloat16(),
    }
    pool = ours.RayResourcePool([4], use_gpu=False)
    group = ours.RayWorkerGroup(pool, ours.RayClassWithInitArgs(VerlActor))
    data = ours.DataProto.from_dict(dict(tensors))
    got = group.double(data)
    assert got.batch["ids"].equal(numbers)
    assert got.batch["doubled"].equal(tensors["wide"] * 2)
    got.batch["ids"].zero_()  # may be written
    assert group.double(got.union(data.select(["wide"]))).batch["ids"].sum() == 0
    group.destroy(grace=0.2)

    cluster = roll.Cluster(
        name="proto",
        worker_cls=RollActor,
        resource_manager=roll.ResourceManager(num_gpus_per_node=4, num_nodes=1),
        worker_config=roll.WorkerConfig(world_size=4),
    )
    data = roll.DataProto.from_dict(dict(tensors))
    assert cluster.scribble(data).batch["ids"].eq(-1).all()  # what arrives is their own
    assert data.batch["ids"].equal(numbers)
    first = muster.store_stats()["copied"]
    assert cluster.echo(cluster.echo(data)) == data
    assert muster.store_stats()["copied"] - first == count * 12
    cluster.destroy(grace=0.2)


def test_a_batch_is_a_mapping_as_theirs() -> None:
    tensors = {"x": torch.arange(6).reshape(3, 2), "y": torch.ones(3)}
    a, b = (lib.DataProto.from_dict(dict(tensors)) for lib in (theirs, ours))
    torch.testing.assert_close(b.batch, ours.DataProto.from_dict(dict(tensors)).batch)
    torch.testing.assert_close(b.batch, a.batch)
    with pytest.raises(AssertionError, match="not equal"):
        torch.testing.assert_close(b.batch, b.batch.each(lambda cell: cell + 1))
    assert type(b.batch.batch_size) is torch.Size
    assert b.batch.batch_size == b.batch.shape == a.batch.batch_size
