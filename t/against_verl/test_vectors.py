"""The functions that divide arguments and collect results: verl's and ours, over many
random shapes."""

import inspect
import random
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip(
    "verl", reason="verl is not installed here: `make test-verl` has it"
)

import numpy as np
import ray
import torch
import verl.single_controller.base.decorator as theirs
import verl.single_controller.ray.base as their_ray
from muster import verl as ours
from tensordict import TensorDict
from verl import DataProto
from verl.single_controller.base import Worker, WorkerGroup

CASES = 200
AUTO_PADDING = {"_verl_auto_padding": True}


class Group(WorkerGroup):
    """Of workers that are only counted; both implementations take it."""

    def __init__(self, dp_ranks: list[int], collects: list[bool]) -> None:
        super().__init__(None)
        self._workers = [None] * len(dp_ranks)
        self.dp_ranks = dp_ranks
        self.collects = collects

    def _query_dispatch_info(self, mesh_name: str) -> list[int]:
        return self.dp_ranks

    def _query_collect_info(self, mesh_name: str) -> list[bool]:
        return self.collects


@pytest.fixture(scope="module", autouse=True)
def _ray(ray_options: dict[str, Any]) -> Iterator[None]:
    """verl puts each chunk into Ray's store."""
    ray.init(**{**ray_options, "num_cpus": 1})
    yield
    ray.shutdown()


def cases(seed: int) -> Iterator[random.Random]:
    for case in range(CASES):
        yield random.Random(seed * 1_000_003 + case)


def mesh(rng: random.Random, in_order: bool) -> Group:
    """dp groups of several ranks, one of which collects."""
    dp, width = rng.randint(1, 6), rng.randint(1, 5)
    ranks = [d for d in range(dp) for _ in range(width)]
    if not in_order:
        rng.shuffle(ranks)
    chosen = {rng.choice([r for r, d in enumerate(ranks) if d == g]) for g in range(dp)}
    return Group(ranks, [r in chosen for r in range(len(ranks))])


def flat(rng: random.Random) -> Group:
    size = rng.randint(1, 16)
    return Group(list(range(size)), [True] * size)


def proto(rng: random.Random, rows: int, **meta_info: Any) -> DataProto:
    tensors = {
        f"t{i}": torch.randint(0, 99, (rows, *rng.sample([1, 2, 3], rng.randint(0, 2))))
        for i in range(rng.randint(1, 3))
    }
    others = {"name": np.array([rng.random() for _ in range(rows)], dtype=object)}
    return DataProto.from_dict(tensors, others, meta_info=meta_info)


def plain(value: Any) -> Any:
    """To be compared."""
    if isinstance(value, ray.ObjectRef):
        return plain(ray.get(value))
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, DataProto):
        return [
            plain(value.batch),
            value.non_tensor_batch["name"].tolist(),
            value.meta_info,
        ]
    if isinstance(value, TensorDict):
        return {key: one.tolist() for key, one in value.items()}
    return value


def same(name: str, *args: Any, **kwargs: Any) -> None:
    mine = getattr(ours, name)(*args, **kwargs)
    their = getattr(theirs, name)(*args, **kwargs)
    assert plain(mine) == plain(their), (name, args, kwargs)


def test_lists() -> None:
    for rng in cases(1):
        group = flat(rng)
        size = group.world_size
        lists = [[rng.random() for _ in range(size)] for _ in range(rng.randint(0, 3))]
        same("dispatch_one_to_all", group, *lists, x=rng.random())
        same("dispatch_all_to_all", group, *lists, x=rng.random())
        same("dispatch_dp_compute", group, *lists, x=tuple(range(size)))
        same("collect_dp_compute", group, list(range(size)))
        same("collect_all_to_all", group, list(range(size)))


def test_n_d_vectors() -> None:
    for rng in cases(2):
        group = mesh(rng, in_order=rng.random() < 0.5)
        dp = max(group.dp_ranks) + 1
        args = [[rng.random() for _ in range(dp)] for _ in range(rng.randint(1, 3))]
        named = {"x": [rng.random() for _ in range(dp)]}
        same("dispatch_nd_compute", group.dp_ranks, dp, group, *args, **named)
        output = [rng.random() for _ in range(group.world_size)]
        same("collect_nd_compute", group.collects, group, output)


def test_chunks_of_batches() -> None:
    for rng in cases(3):
        group = mesh(rng, in_order=True)
        dp = max(group.dp_ranks) + 1
        rows = dp * rng.randint(1, 4)
        args = [proto(rng, rows, step=3), TensorDict({"x": torch.arange(rows)}, rows)]
        named = {"more": proto(rng, rows)}
        how = (group.dp_ranks, dp, group)
        same("dispatch_nd_compute_dataproto", *how, *args, **named)
        same("dispatch_lazy_compute_data_proto", "m", group, *args, **named)
        output = [proto(random.Random(7), rng.randint(1, 3)) for _ in group.dp_ranks]
        same("collect_nd_compute_dataproto", group.collects, group, output)
        same("collect_lazy_compute_data_proto", "m", group, output)


def test_chunks_for_each_rank_and_padding() -> None:
    for rng in cases(4):
        group = flat(rng)
        rows = group.world_size * rng.randint(1, 3)
        same(
            "dispatch_dp_compute_data_proto",
            group,
            proto(rng, rows),
            x=proto(rng, rows),
        )
        same(
            "dispatch_dp_compute_data_proto_with_func",
            group,
            plain_rows,
            proto(rng, rows),
        )
        output = [proto(random.Random(7), 2) for _ in range(group.world_size)]
        same("collect_dp_compute_data_proto", group, output)
        rows = rng.randint(1, 40)
        data = proto(rng, rows, **AUTO_PADDING)
        mine = ours.dispatch_dp_compute_data_proto(group, data, x=data)
        assert len(data) == rows  # theirs adds the padding to the caller's
        other = proto_copy(data)
        their = theirs.dispatch_dp_compute_data_proto(group, other, x=proto_copy(data))
        assert plain(mine) == plain(their)


def plain_rows(worker: Any, data: Any) -> Any:
    return data


def proto_copy(data: DataProto) -> DataProto:
    return data.select(deepcopy=True)


def test_results_are_in_the_order_of_the_input() -> None:
    """Where the ranks of a mesh are not in order of their chunks, verl's results are in
    the order of ranks; ours are in that of the rows."""
    differ = 0
    for rng in cases(5):
        group = mesh(rng, in_order=False)
        rows = (max(group.dp_ranks) + 1) * 2
        data = proto(rng, rows)
        (parts,), _ = ours.dispatch_lazy_compute_data_proto("m", group, data)
        assert plain(ours.collect_lazy_compute_data_proto("m", group, parts)) == plain(
            data
        )
        group._dispatch_info.clear()
        (refs,), _ = theirs.dispatch_lazy_compute_data_proto("m", group, data)
        their = theirs.collect_lazy_compute_data_proto("m", group, ray.get(refs))
        in_order = sorted(
            d for d, c in zip(group.dp_ranks, group.collects, strict=True) if c
        )
        collected = [
            d for d, c in zip(group.dp_ranks, group.collects, strict=True) if c
        ]
        assert (plain(their) == plain(data)) == (collected == in_order)
        differ += collected != in_order
    assert differ > 10


class Seats:
    """The places of a pool's entry, which nobody has asked a head for."""

    def __init__(self, count: int) -> None:
        self.id = id(self)
        self._seats = [(self, i) for i in range(count)]


def test_pools() -> None:
    for rng in cases(6):
        store = [rng.randint(1, 8)] * rng.randint(1, 4)
        pools = []
        for api in (their_ray, ours):
            pool = api.RayResourcePool(list(store), use_gpu=False, name_prefix="p")
            pool.pgs = [Seats(count) for count in store]  # they are not asked for
            pools.append(pool)
        size = pools[0].world_size
        assert size == pools[1].world_size
        for method in ("local_world_size_list", "local_rank_list", "__call__"):
            assert getattr(pools[0], method)() == getattr(pools[1], method)()
        sizes = split_sizes(rng, size)
        their, mine = (
            api.split_resource_pool(pool, sizes)
            for api, pool in zip((their_ray, ours), pools, strict=True)
        )
        assert [where(p) for p in their] == [where(p) for p in mine]
        again = split_sizes(rng, their[-1].world_size)
        their, mine = (
            api.split_resource_pool(part, again)
            for api, part in ((their_ray, their[-1]), (ours, mine[-1]))
        )
        assert [where(p) for p in their] == [where(p) for p in mine]
        both = []
        for api, pool in zip((their_ray, ours), pools, strict=True):
            other = api.RayResourcePool([3, 1], use_gpu=False, name_prefix="q")
            other.pgs = [Seats(3), Seats(1)]
            both.append(api.merge_resource_pool(pool, other))
        assert both[0].store == both[1].store
        assert both[0].name_prefix == both[1].name_prefix


def split_sizes(rng: random.Random, size: int) -> Any:
    if rng.random() < 0.5:
        return rng.choice([d for d in range(1, size + 1) if size % d == 0])
    cuts = sorted(rng.sample(range(1, size), rng.randint(0, min(3, size - 1))))
    return [b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)]


def where(pool: Any) -> tuple[int, int, str]:
    return pool.world_size, int(pool.start_bundle_index), pool.name_prefix


# ---- names and arguments --------------------------------------------------------------

# what doc/adapters.md says is not there
LEFT_OUT = {
    "RayWorkerGroup": {"fused_worker_execute_fn_name", "start_worker_aliveness_check"},
}


def public(cls: type) -> set[str]:
    return {n for n in dir(cls) if not n.startswith("_") and hasattr(cls, n)}


@pytest.mark.parametrize(
    "name",
    ["RayResourcePool", "SubRayResourcePool", "RayClassWithInitArgs", "RayWorkerGroup"]
    + ["ResourcePoolManager"],
)
def test_names_of_classes(name: str) -> None:
    missing = public(getattr(their_ray, name)) - public(getattr(ours, name))
    assert missing == LEFT_OUT.get(name, set())


def test_names_of_the_worker() -> None:
    assert public(Worker) - public(ours.Worker) == set()


def test_modes_and_arguments() -> None:
    assert ours.Dispatch.names() == theirs.Dispatch.names()
    assert ours.Execute.names() == theirs.Execute.names()
    for name in ("register", "register_dispatch_mode", "update_dispatch_mode"):
        their, mine = (inspect.signature(getattr(api, name)) for api in (theirs, ours))
        assert list(their.parameters) == list(mine.parameters)
    for name in ("RayResourcePool", "RayWorkerGroup"):
        their_init, my_init = (
            list(inspect.signature(getattr(api, name).__init__).parameters)
            for api in (their_ray, ours)
        )
        assert my_init[: len(their_init)] == their_init
