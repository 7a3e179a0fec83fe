"""Tensors of torch as arguments and results: through the store, each side with its own."""

from typing import Any

import muster
import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="torch is not installed here: `make test-verl` has it"
)
BIG = 1 << 20


class Echo:
    def echo(self, value: Any) -> Any:
        return value

    def add(self, value: Any) -> Any:
        value += 1
        return value

    def add_twice(self, a: Any, b: Any) -> tuple[float, float]:
        a += 1
        return float(a[0]), float(b[0])


@pytest.fixture(scope="module")
def echo(session: Any) -> Any:
    return muster.Cluster("echo", Echo, world_size=2, preload="torch")


@pytest.mark.parametrize("size", [0, 7, 5000, BIG])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64]
)
def test_there_and_back(echo: Any, size: int, dtype: Any) -> None:
    given = (torch.arange(size) % 3).to(dtype)
    got = echo.execute_rank_zero_sync("echo", given)
    assert got.dtype == dtype and torch.equal(got, given)


def test_each_side_may_write(echo: Any) -> None:
    given = torch.zeros(BIG)
    got = echo.execute_all_sync("add", given)
    assert float(given.sum()) == 0
    assert [float(one.sum()) for one in got] == [BIG, BIG]
    got[0] += 1
    assert float(got[1].sum()) == BIG
    assert echo.execute_rank_zero_sync("add_twice", given, given) == (1.0, 1.0)
    assert echo.execute_rank_zero_sync("add_twice", given, given + 0) == (1.0, 0.0)


def test_they_go_through_the_store_once(echo: Any) -> None:
    given = torch.zeros(BIG)
    before = muster.store_stats()["copied"]
    got = echo.execute_all_sync("echo", given)
    assert muster.store_stats()["copied"] - before == given.nbytes
    before = muster.store_stats()["copied"]
    echo.execute_all_sync("echo", got[0])  # as it came
    assert muster.store_stats()["copied"] == before


def test_a_part_is_sent_alone(echo: Any) -> None:
    whole = torch.zeros(64, BIG)
    before = muster.store_stats()["copied"]
    part = echo.execute_rank_zero_sync("echo", whole[3])
    assert muster.store_stats()["copied"] - before == part.nbytes
    columns = torch.arange(BIG).reshape(1024, 1024).t()
    assert torch.equal(echo.execute_rank_zero_sync("echo", columns), columns)


def test_tensors_with_more_to_them(echo: Any) -> None:
    parameter = torch.nn.Parameter(torch.ones(5000))
    assert type(echo.execute_rank_zero_sync("echo", parameter)) is torch.nn.Parameter
    leaf = torch.ones(5000, requires_grad=True)
    assert echo.execute_rank_zero_sync("echo", leaf).requires_grad
    named = torch.ones(5000)
    named.note = "mine"
    assert echo.execute_rank_zero_sync("echo", named).note == "mine"
    meta = torch.empty(5000, device="meta")
    assert echo.execute_rank_zero_sync("echo", meta).is_meta
    sparse = torch.ones(5000).to_sparse()
    assert echo.execute_rank_zero_sync("echo", sparse).is_sparse


def test_put(echo: Any) -> None:
    given = torch.ones(BIG, dtype=torch.bfloat16)
    ref = muster.put([given, np.zeros(3)])
    first, second = ref.get()[0], ref.get()[0]
    first[0] = 7
    assert float(second[0]) == 1
    assert torch.equal(echo.execute_rank_zero_sync("echo", ref)[0], given)
