"""TensorDicts with jagged tensors are divided and put together as verl does it."""

import random
from typing import Any

import pytest

pytest.importorskip(
    "verl", reason="verl is not installed here: `make test-verl` has it"
)
import torch
from muster.verl import tensordicts
from tensordict import TensorDict
from verl.utils import tensordict_utils as theirs


def made(rng: random.Random, rows: int) -> tuple[Any, dict[str, list[Any]]]:
    lengths = [rng.randint(1, 6) for _ in range(rows)]
    jagged = {
        "ids": [torch.randint(0, 99, (n,)) for n in lengths],
        "wide": [torch.randn(n, 3) for n in lengths],
        "positions": [torch.randint(0, 99, (4, n)) for n in lengths],
    }
    entries: dict[str, Any] = {
        name: torch.nested.as_nested_tensor(found, layout=torch.jagged)
        for name, found in jagged.items()
    }
    entries["plain"] = torch.arange(rows)
    return TensorDict(entries, batch_size=[rows]), jagged


def rows_of(data: Any, name: str) -> list[Any]:
    return [row.tolist() for row in tensordicts._rows_of(data[name])]


@pytest.mark.parametrize("case", range(20))
def test_chunks_and_their_join(case: int) -> None:
    rng = random.Random(case)
    chunks, size = rng.randint(1, 4), rng.randint(1, 4)
    data, jagged = made(rng, chunks * size)
    parts = tensordicts.chunk(data, chunks)
    for i, part in enumerate(parts):
        assert len(part) == size
        for name, rows in jagged.items():
            wanted = [row.tolist() for row in rows[i * size : (i + 1) * size]]
            assert rows_of(part, name) == wanted
    whole = tensordicts.concat(parts)
    for name, rows in jagged.items():
        assert rows_of(whole, name) == [row.tolist() for row in rows]
        assert whole[name].shape[0] == chunks * size
    assert whole["plain"].equal(data["plain"])


@pytest.mark.parametrize("case", range(10))
def test_the_same_as_verl(case: int) -> None:
    rng = random.Random(case)
    data, _ = made(rng, 6)
    mine, their = tensordicts.chunk(data, 3), theirs.chunk_tensordict(data, 3)
    both = [*zip(mine, their, strict=True)]
    both.append((tensordicts.concat(mine), theirs.concat_tensordict(their)))
    for a, b in both:
        for name in ("ids", "wide", "positions"):
            assert a[name].values().equal(b[name].values())
            assert a[name].offsets().equal(b[name].offsets())
            assert a[name]._ragged_idx == b[name]._ragged_idx
        assert a["plain"].equal(b["plain"])


def test_jagged_in_some_alone() -> None:
    data, _ = made(random.Random(1), 4)
    with pytest.raises(ValueError, match="only some of"):
        tensordicts.concat([data, data.exclude("ids")])
