"""DataProto through the dispatch modes of real clusters."""

from collections.abc import Callable, Iterator
from typing import Any

import muster
import numpy as np
import pytest
from dataproto_workers import Plain, RollActor, VerlActor
from muster import roll, verl
from muster._adapters.lazy_column import LazyColumn

BIG = 1 << 16  # rows whose columns go through the store


def proto(flavour: Any, count: int, **meta: Any) -> Any:
    numbers = np.arange(count)
    return flavour.DataProto.from_dict(
        {"ids": numbers, "wide": np.stack([numbers, numbers + 0.5], 1)},
        {"text": [f"row {n}" for n in range(count)]},
        dict(meta),
    )


@pytest.fixture(scope="module")
def actors(session: Any) -> Iterator[roll.Cluster]:
    """Eight ranks: tp 2, pp 2, dp 2."""
    cluster = roll.Cluster(
        name="proto_train",
        worker_cls=RollActor,
        resource_manager=roll.ResourceManager(num_gpus_per_node=4, num_nodes=1),
        worker_config=roll.WorkerConfig(
            world_size=8,
            strategy_args={
                "strategy_name": "megatron_train",
                "strategy_config": {
                    "tensor_model_parallel_size": 2,
                    "pipeline_model_parallel_size": 2,
                },
            },
        ),
    )
    yield cluster
    cluster.destroy(grace=0.2)


@pytest.fixture(scope="module")
def group(session: Any) -> Iterator[verl.RayWorkerGroup]:
    pool = verl.RayResourcePool([4], use_gpu=False)
    made = verl.RayWorkerGroup(pool, verl.RayClassWithInitArgs(VerlActor))
    yield made
    made.destroy(grace=0.2)
    pool.remove()


# ---- ROLL's ----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [8, 9, 3])
def test_roll_divides_and_joins(actors: roll.Cluster, count: int) -> None:
    data = proto(roll, count, step=3)
    got = actors.double(data)
    assert isinstance(got, roll.DataProto)
    assert got.batch["doubled"].tolist() == (data.batch["wide"] * 2).tolist()
    assert got.batch["ids"].tolist() == list(range(count))
    assert got.meta_info["step"] == 3
    assert got.meta_info["metrics"]["rows"] == [(count + 1) // 2, count // 2]
    assert len(data.batch.keys()) == 2  # the caller's is as it was
    assert data.meta_info == {"step": 3}


def test_roll_wants_a_row_for_each_dp_group(actors: roll.Cluster) -> None:
    with pytest.raises(ValueError, match="batch_size 1 < chunks 2"):
        actors.double(proto(roll, 1))


def test_roll_does_not_wait(actors: roll.Cluster) -> None:
    data = proto(roll, 6)
    refs = actors.double(data, blocking=False)
    got = roll.DataProto.materialize_concat(refs, global_keys={"metrics"})
    assert got == actors.double(data)
    assert roll.materialize_concat(refs) == got


def test_meta_information_beside_rows_goes_to_all(actors: roll.Cluster) -> None:
    more = roll.DataProto(meta_info={"flavour": "plum"})
    got = actors.double(proto(roll, 4), more)
    assert got.meta_info["more"] == {"flavour": "plum"}


def test_results_that_are_numbers_alone(actors: roll.Cluster) -> None:
    got = actors.measure(proto(roll, 5))
    assert len(got) == 0
    assert got.meta_info == {"metrics": {"rows": [3, 2]}}


def test_dispatch_first_sends_the_others_meta_information_alone(
    actors: roll.Cluster,
) -> None:
    got = actors.arrived(proto(roll, BIG, step=3))
    half = BIG // 2
    assert [g["rows"] for g in got] == [half, 0, half, 0, 0, 0, 0, 0]
    for g in got:
        assert g["meta"] == {"step": 3}
        assert g["columns"] == (["ids", "text", "wide"] if g["rows"] else [])
        assert g["bytes"] == g["rows"] * 24  # its own rows, nothing beside them


def test_what_is_passed_on_is_not_copied(actors: roll.Cluster) -> None:
    data = proto(roll, BIG)
    data.non_tensor_batch.clear()
    first = muster.store_stats()["copied"]
    got = actors.echo(data)
    before = muster.store_stats()["copied"]
    assert before - first == BIG * 24  # each row once, for eight ranks
    again = actors.echo(got)
    assert isinstance(got.batch.cell("wide"), LazyColumn)  # nobody has read it yet
    assert muster.store_stats()["copied"] == before
    assert again == data


def test_arrays_that_arrive_are_read_only(actors: roll.Cluster) -> None:
    with pytest.raises(ValueError, match="read-only"):
        actors.scribble(proto(roll, BIG))


# ---- verl's ----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [8, 12, 4])
def test_verl_divides_and_joins(group: verl.RayWorkerGroup, count: int) -> None:
    data = proto(verl, count, step=3)
    got = group.double(data)
    assert got.batch["doubled"].tolist() == (data.batch["wide"] * 2).tolist()
    sizes = [len(c) for c in np.array_split(np.arange(count), 4)]
    assert got.meta_info == {"step": 3, "metrics": {"rows": sizes}}


@pytest.mark.parametrize("count", [10, 3])
def test_verl_divides_equally_alone(group: verl.RayWorkerGroup, count: int) -> None:
    with pytest.raises(ValueError, match=f"only equal chunks .*: {count} rows"):
        group.double(proto(verl, count))


def test_verl_pads_if_it_is_asked_to(group: verl.RayWorkerGroup) -> None:
    data = proto(verl, 10)
    data.meta_info["_verl_auto_padding"] = True
    got = group.double(data)
    assert got.meta_info["metrics"] == {"rows": [3, 3, 3, 3]}
    assert got.batch["ids"].tolist() == list(range(10))
    assert len(data) == 10


def test_verl_results_that_are_numbers_alone(group: verl.RayWorkerGroup) -> None:
    got = group.measure(proto(verl, 8))
    assert got.meta_info == {"metrics": {"rows": [2, 2, 2, 2]}}


def test_verl_future(group: verl.RayWorkerGroup) -> None:
    data = proto(verl, 8)
    future = group.later(data)
    assert isinstance(future, verl.DataProtoFuture)
    assert [len(part.get()) for part in future.chunk(2)] == [8, 8]
    assert group.double(future).batch["ids"].tolist() == sorted([*range(8)] * 2)
    assert future.get() == data.repeat(2)


# ---- muster's own ----------------------------------------------------------------------


@pytest.mark.parametrize("flavour", [roll, verl], ids=["roll", "verl"])
def test_padding_of_a_method(cluster: Callable[..., Any], flavour: Any) -> None:
    plain = cluster(Plain, 4)
    data = proto(flavour, 6, step=3)
    got = plain.padded(data)
    assert got.batch["ids"].tolist() == list(range(6))
    assert got.meta_info == {"step": 3, "metrics": {"rows": [2, 2, 2, 2]}}
