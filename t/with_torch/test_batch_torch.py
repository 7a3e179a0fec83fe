"""Tensors of torch as columns of batches: the same memory, both ways."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import muster
import numpy as np
import pytest
from batch_workers import Keeper
from muster import Batch, Ragged
from muster.batch import copied_bytes

torch = pytest.importorskip(
    "torch", reason="torch is not installed here: `make test-verl` has it"
)

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.float8_e4m3fn,
]


def numbers(dtype: Any, rows: int = 12) -> Any:
    whole = torch.arange(rows * 6).reshape(rows, 6) % 50
    return whole.to(torch.float32).to(dtype) if dtype.itemsize < 2 else whole.to(dtype)


def same(a: Any, b: Any) -> bool:
    """Also of numbers that torch itself does not compare."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return not a.numel() or bool(
        a.contiguous().view(torch.uint8).equal(b.contiguous().view(torch.uint8))
    )


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_same_memory_both_ways(dtype: Any) -> None:
    tensor = numbers(dtype)
    batch = Batch({"x": tensor})
    before = copied_bytes()
    got = batch.torch("x")
    assert got.data_ptr() == tensor.data_ptr()
    assert same(got, tensor)
    for part, want in (
        (batch[3:9], tensor[3:9]),
        (batch[::2], tensor[::2]),
        (batch.chunk(5)[4], tensor[10:]),
        (Batch.concat(batch.chunk(3)), tensor),
    ):
        view = part.torch("x")
        assert view.data_ptr() == want.data_ptr()
        assert view.stride() == want.stride()
        assert same(view, want)
    assert copied_bytes() == before
    order = [5, 0, 11, 5]
    assert same(batch.take(order).torch("x"), tensor[torch.tensor(order)])
    assert same(batch[::-1].torch("x"), tensor.flip(0))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_strided_tensors_are_right(dtype: Any) -> None:
    tensor = numbers(dtype)
    for odd in (tensor[::3], tensor[:, ::2], tensor.t(), tensor[:, 1], tensor[2:2]):
        batch = Batch({"x": odd})
        assert same(batch.torch("x"), odd)
        assert same(batch[1:].torch("x"), odd[1:])
    assert Batch({"x": tensor[::3]}).torch("x").data_ptr() == tensor.data_ptr()
    row = tensor[:1].expand(4, 6)
    assert same(Batch({"x": row}).torch("x"), row)


def test_tensors_with_gradients_and_of_subclasses() -> None:
    weight = torch.nn.Parameter(torch.arange(4.0))
    batch = Batch({"w": weight, "c": torch.tensor([1 + 2j, 3j]).conj().repeat(2)})
    assert batch.torch("w").tolist() == [0, 1, 2, 3]
    assert not batch.torch("w").requires_grad
    assert batch.torch("c").tolist() == [1 - 2j, -3j] * 2


def test_numpy_has_the_bits_of_what_it_does_not_know() -> None:
    batch = Batch({"x": torch.tensor([1.0, -2.0]).bfloat16()})
    assert batch["x"]["bfloat16"].tolist() == [0x3F80, 0xC000 - 0x10000]
    assert batch == Batch({"x": batch["x"]})
    assert "bfloat16" in repr(batch)
    with pytest.raises(ValueError, match="'x' is"):
        Batch.concat([batch, Batch({"x": torch.zeros(2).half()})])


def test_ragged_of_tensors() -> None:
    rows = [torch.arange(n) for n in (2, 0, 3)]
    assert Ragged.of(rows).tolist() == [[0, 1], [], [0, 1, 2]]
    values = torch.arange(5)
    ragged = Ragged(values, [0, 2, 2, 5])
    assert ragged.values.ctypes.data == values.data_ptr()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            torch.empty(2, device="meta"),
            r"'x': the tensor is on meta: \.cpu\(\) it first",
        ),
        (torch.eye(2).to_sparse(), r"'x': a tensor of layout torch\.sparse_coo"),
    ],
    ids=["device", "sparse"],
)
def test_what_is_no_memory_of_this_host(value: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        Batch({"x": value})


def test_no_tensor_of_what_is_none() -> None:
    batch = Batch({"r": Ragged.of([[1]]), "o": ["text"], "u": np.array(["text"])})
    for name in batch.keys():
        with pytest.raises(TypeError, match=f"column '{name}' is no tensor"):
            batch.torch(name)


def test_in_shared_memory(tmp_path: Path) -> None:
    muster.init()
    try:
        rows = 1 << 12
        batch = Batch.allocate(
            rows, {"x": ((64,), torch.bfloat16), "m": torch.bool, "y": ((64,), "int64")}
        )
        tensor = batch.torch("x", write=True)
        tensor[:] = torch.arange(64)
        batch.torch("m", write=True)[:] = True
        batch.torch("y", write=True)[:] = 1
        copied = muster.store_stats()["copied"]
        with muster.Cluster("torch", Keeper, world_size=2) as cluster:
            got = cluster.echo(batch.reorder(np.arange(rows)[::-1]))
            assert muster.store_stats()["copied"] == copied
            assert not got.is_here("x")
            assert same(got.torch("x"), tensor)
            assert got.torch("m").all()
            assert same(got[7:9].torch("y"), torch.ones(2, 64, dtype=torch.int64))
        got.save(tmp_path / "saved")
        assert Batch.load(tmp_path / "saved") == batch
    finally:
        muster.shutdown()


def test_memory_of_a_column_is_not_used_again_while_a_tensor_lives() -> None:
    def read(value: int) -> Any:
        half = torch.full((512, 1024), value, dtype=torch.int64)
        whole = Batch.concat([Batch({"x": half}), Batch({"x": half})])
        return whole.torch("x")

    kept = read(1)
    part = read(2).view(-1)[::512]
    where = (dead := read(3)).data_ptr()
    del dead
    others = [read(value) for value in range(4, 8)]
    assert others[0].data_ptr() == where
    assert bool((kept == 1).all())
    assert bool((part == 2).all())
    assert [int(t.sum()) for t in others] == [v << 20 for v in range(4, 8)]
