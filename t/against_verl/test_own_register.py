"""Classes that are decorated with verl's own `register`, in a group of muster.verl."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

verl = pytest.importorskip(
    "verl", reason="verl is not installed here: `make test-verl` has it"
)
import muster  # noqa: E402
import torch  # noqa: E402
from muster import verl as ours  # noqa: E402
from tensordict import TensorDict  # noqa: E402
from verl.single_controller.base import Worker  # noqa: E402
from verl.single_controller.base.decorator import (  # noqa: E402
    Dispatch,
    Execute,
    make_nd_compute_dataproto_dispatch_fn,
    register,
)


class Theirs(Worker):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self._register_dispatch_collect_info(
            "pairs", self.rank // 2, self.rank % 2 == 0
        )

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def twice(self, data: Any) -> Any:
        return verl.DataProto.from_dict({"x": data.batch["x"] * 2})

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("pairs"))
    def by_mesh(self, data: Any) -> Any:
        rank = torch.full((len(data),), self.rank)
        return verl.DataProto.from_dict({"x": data.batch["x"], "rank": rank})

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, execute_mode=Execute.RANK_ZERO)
    def first(self, value: int) -> int:
        return value + self.rank

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def jagged(self, data: Any) -> Any:
        return data


class Ours(ours.Worker):
    @ours.register(dispatch_mode=ours.Dispatch.ONE_TO_ALL)
    def tell(self) -> list[Any]:
        names = "_rank _world_size _local_rank _local_world_size _master_addr".split()
        found = [getattr(self, name) for name in names]
        return [*found, os.environ["RAY_LOCAL_WORLD_SIZE"]]

    @ours.register(dispatch_mode=ours.Dispatch.ONE_TO_ALL)
    def become(self, rank: int) -> int:
        self._rank = rank
        return self.rank


@pytest.fixture(scope="module", autouse=True)
def _session() -> Iterator[None]:
    muster.init(num_gpus=4)
    yield
    muster.shutdown()


def group_of(cls: type) -> ours.RayWorkerGroup:
    pool = ours.RayResourcePool([4], use_gpu=False)
    return ours.RayWorkerGroup(pool, ours.RayClassWithInitArgs(cls))


def test_methods_of_their_register() -> None:
    group: Any = group_of(Theirs)
    data = verl.DataProto.from_dict({"x": torch.arange(8)})
    assert group.twice(data).batch["x"].tolist() == [2 * i for i in range(8)]
    found = group.by_mesh(data).batch
    assert found["x"].tolist() == list(range(8))
    assert found["rank"].tolist() == [0] * 4 + [2] * 4
    assert group.first(5) == 5
    lengths = [3, 1, 4, 1, 5, 9, 2, 6]
    rows = [torch.arange(n) for n in lengths]
    nested = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
    sent = TensorDict({"ids": nested, "n": torch.tensor(lengths)}, batch_size=[8])
    back = group.jagged(sent)
    assert [row.tolist() for row in back["ids"].unbind()] == [r.tolist() for r in rows]
    assert back["n"].tolist() == lengths
    group.destroy(grace=0)


def test_names_of_a_worker() -> None:
    group: Any = group_of(Ours)
    told = group.tell()
    assert [one[:4] for one in told] == [[r, 4, 0, 4] for r in range(4)]
    assert {one[5] for one in told} == {"4"}
    assert group.become(7) == [7] * 4
    group.destroy(grace=0)
