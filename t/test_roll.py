"""muster.roll: user code written against ROLL, with the import line changed."""

import types
from collections.abc import Callable, Iterator
from typing import Any

import muster
import pytest
from muster import roll
from roll_workers import Actor, AsyncActor, Plain, Rows, WithStrategy

Make = Callable[..., roll.Cluster]


@pytest.fixture(scope="module")
def rm(session: Any) -> roll.ResourceManager:
    return roll.ResourceManager(num_gpus_per_node=4, num_nodes=1)


@pytest.fixture
def make(rm: roll.ResourceManager) -> Iterator[Make]:
    made: list[roll.Cluster] = []

    def new(worker_cls: Any = Actor, name: str = "", **fields: Any) -> roll.Cluster:
        config = roll.WorkerConfig(learning_rate=1e-6, **fields)
        one = roll.Cluster(
            name=name or f"actor_{len(made)}",
            worker_cls=worker_cls,
            resource_manager=rm,
            worker_config=config,
        )
        made.append(one)
        return one

    yield new
    for one in made:
        one.destroy(grace=0.2)


def test_the_workers_know_who_they_are(make: Make) -> None:
    cluster = make(
        name="actor_train",
        device_mapping="list(range(0, 4))",
        system_envs={"FLAVOUR": "plum"},
    )
    cluster.execute_all_sync("initialize", types.SimpleNamespace(exp_name="try"))
    assert cluster.describe() == [
        {
            "rank": r,
            "name": f"actor_train-{r}-G{r}",
            "cluster": "actor_train",
            "gpus": [str(r)],
            "devices": [{"rank": 0, "node_rank": 0, "gpu_rank": r}],
            "lr": 1e-6,
            "config": "try",
            "flavour": "plum",
        }
        for r in range(4)
    ]
    assert cluster.whoami() == "Actor(actor_train-0-G0)"


def test_the_cluster_knows_its_workers(make: Make) -> None:
    cluster = make(device_mapping="0-3", num_gpus_per_worker=2)
    assert cluster.world_size == 2
    assert [cluster.rank2worker[r] for r in range(2)] == cluster.workers
    assert [cluster.worker2rank[w] for w in cluster.workers] == [0, 1]
    assert cluster.rank2devices == {
        r: [{"rank": i, "node_rank": 0, "gpu_rank": 2 * r + i} for i in range(2)]
        for r in range(2)
    }
    addresses = cluster.execute_all_sync("get_node_ip")
    assert [cluster.worker2nodes[w] for w in cluster.workers] == addresses
    master = cluster.execute_all_sync("get_master_addr_and_port")
    assert master == [(cluster.master_addr, cluster.master_port)] * 2
    name = cluster.workers[1].env.remote("WORKER_NAME")
    assert muster.get(name) == f"{cluster.cluster_name}-1-G23"


def test_a_worker_without_devices(make: Make) -> None:
    cluster = make(world_size=3)
    assert [d["name"] for d in cluster.describe()] == [
        "actor_0-0",
        "actor_0-1",
        "actor_0-2",
    ]
    assert cluster.rank2devices[2] == [{"rank": 0, "node_rank": 0, "gpu_rank": None}]


def test_the_mesh_is_what_the_workers_say_after_initialize(make: Make) -> None:
    cluster = make(world_size=8)
    assert (cluster.dp_size, cluster.tp_size) == (8, 1)
    cluster.initialize(types.SimpleNamespace(shape=(2, 2)))
    assert (cluster.tp_size, cluster.pp_size, cluster.dp_size) == (2, 2, 2)
    info = cluster.get_rank_info(7)
    assert (info.tp_rank, info.dp_rank, info.pp_rank) == (1, 1, 1)
    assert info.is_pipeline_last_stage
    # of each dp group the rank of tp 0 and the last stage: 4 and 6
    assert cluster.train_step([10, 11, 12, 13]) == [(10, 4), (11, 4), (12, 6), (13, 6)]
    with pytest.raises(ValueError, match=r"list of 3 rows .* among 2 dp groups"):
        cluster.train_step([10, 11, 12])
    with pytest.raises(ValueError, match=r"list of 1 rows .* among 2 dp groups"):
        cluster.train_step([10])
    rows = cluster.train_step(Rows([1, 2, 3, 4], {"step": 7}))
    assert rows.batch == [(1, 4), (2, 4), (3, 6), (4, 6)]
    assert cluster.seen(Rows([1, 2], {"step": 7})) == [
        ([1], 7), (None, 7), ([2], 7), (None, 7),
        (None, 7), (None, 7), (None, 7), (None, 7),
    ]  # fmt: skip


def test_a_strategy_says_the_mesh_and_the_width() -> None:
    megatron = {
        "strategy_name": "megatron_train",
        "strategy_config": {
            "tensor_model_parallel_size": 2,
            "pipeline_model_parallel_size": 2,
            "virtual_pipeline_model_parallel_size": 4,
        },
    }
    config = roll.WorkerConfig(
        device_mapping="list(range(0,8)) + [8,9,10,11]",
        num_gpus_per_worker=4,
        strategy_args=megatron,
    )
    assert config.world_size == 12
    assert config.num_gpus_per_worker == 1
    assert config.device_mapping == list(range(12))
    assert config.mesh == {"tp": 2, "pp": 2}
    vllm = roll.WorkerConfig(
        device_mapping="0-7",
        strategy_args=roll.StrategyArguments("vllm", {"tensor_parallel_size": 4}),
    )
    assert (vllm.num_gpus_per_worker, vllm.world_size) == (4, 2)
    assert vllm.mesh == {}
    again = roll.WorkerConfig.of(vllm)
    assert again.fields() == vllm.fields()
    with pytest.raises(ValueError, match="6 devices do not divide"):
        roll.WorkerConfig(device_mapping="0-5", num_gpus_per_worker=4)
    with pytest.raises(ValueError):
        roll.WorkerConfig(device_mapping="__import__('os').getpid()")


def test_initialize_as_a_method(make: Make) -> None:
    """It counts as much as execute_all_sync("initialize"); a later one is seen too."""
    cluster = make(world_size=4)
    cluster.initialize(types.SimpleNamespace(shape=(2, 1)))
    assert cluster.initialized
    first = cluster.worker_rank_info
    assert cluster.worker_rank_info is first  # nobody is asked again
    assert first[0].tp_size == 2 == cluster.tp_size
    cluster.initialize(types.SimpleNamespace(shape=(1, 1)))
    assert cluster.get_rank_info(3).tp_size == 1 == cluster.tp_size
    for worker in cluster.workers:
        muster.get(worker.initialize.remote(types.SimpleNamespace(shape=(2, 2))))
    assert cluster.get_rank_info(3).pp_size == 2 == cluster.pp_size


def test_a_megatron_role(make: Make) -> None:
    strategy = {
        "strategy_name": "megatron_train",
        "strategy_config": {
            "tensor_model_parallel_size": 2,
            "virtual_pipeline_model_parallel_size": 4,
        },
    }
    cluster = make(device_mapping="0-3", strategy_args=strategy)
    assert (cluster.tp_size, cluster.dp_size, cluster.vp_size) == (2, 2, 4)
    assert [i.dp_rank for i in cluster.worker_rank_info] == [0, 0, 1, 1]
    assert cluster.train_step([1, 2]) == [(1, 0), (2, 2)]


def test_calls_that_are_not_waited_for(make: Make) -> None:
    cluster = make(world_size=4)
    refs = cluster.add([1, 2, 3, 4], blocking=False)
    assert muster.get(refs) == [1, 3, 5, 7]
    cluster.initialize(types.SimpleNamespace(shape=(2, 1)))
    wrapped = cluster.train_step([1, 2, 3, 4], blocking=False)
    assert [w.collected for w in wrapped] == [True, False, True, False]
    assert roll.materialize_concat(wrapped) == [(1, 0), (2, 0), (3, 2), (4, 2)]
    one = cluster.whoami(blocking=False)
    assert [w.collected for w in one] == [True, False, False, False]
    assert cluster.execute_all_sync("add", [1, 2, 3, 4]) == cluster.execute_all_sync(
        "add", muster.each([1, 2, 3, 4])
    )
    plain = cluster.execute_all("add", [1, 1, 1, 1])
    assert muster.get(plain) == [1, 2, 3, 4]
    assert muster.get(cluster.execute_rank_zero(method_name="add", value=7)) == 7


def test_async_workers(make: Make) -> None:
    cluster = make(AsyncActor, world_size=2)
    refs = cluster.generate("hello", blocking=False)
    cluster.go()
    assert muster.get(refs, timeout=20) == ["hello 0", "hello 1"]


def test_a_cluster_travels(make: Make, cluster: Any) -> None:
    """Inside of another worker it is called as here."""
    actors = make(world_size=2)
    caller = cluster(Caller)
    told = caller.execute_rank_zero_sync("ask", actors)
    assert told == ["actor_0", [5, 6], 2, 1]


class Caller:
    def ask(self, actors: roll.Cluster) -> list[Any]:
        first = muster.get(actors.workers[0].get_rank_info.remote())
        return [
            actors.cluster_name,
            actors.add([5, 5]),
            first.dp_size,
            actors.worker2rank[actors.workers[1]],
        ]


def test_a_class_that_is_not_ours_and_one_by_its_path(make: Make) -> None:
    assert make(Plain, world_size=2).execute_all_sync("double", 4) == [8, 8]
    named = make("roll_workers.Actor", name="by_path", world_size=2)
    assert named.add([1, 1]) == [1, 2]


def test_ports_are_held(make: Make) -> None:
    cluster = make(world_size=2)
    ports = [cluster.execute_rank_zero_sync("get_free_port") for _ in range(4)]
    assert len(set(ports)) == 4
    assert cluster.execute_rank_zero_sync("is_port_available", ports[0]) is False


def test_the_timeout_of_all_calls(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("roll_RPC_TIMEOUT", "1")
    cluster = make(AsyncActor, world_size=1)
    with pytest.raises(muster.DeadlineExceeded):
        cluster.generate("nobody lets it go")


def test_a_resource_manager(rm: roll.ResourceManager) -> None:
    assert (rm.num_nodes, rm.gpu_per_node, rm.num_gpus) == (1, 4, 4)
    assert rm.allocate_placement_group(world_size=2, device_mapping=[0, 1, 2, 3]) == [
        [{"node_rank": 0, "gpu_rank": 0}, {"node_rank": 0, "gpu_rank": 1}],
        [{"node_rank": 0, "gpu_rank": 2}, {"node_rank": 0, "gpu_rank": 3}],
    ]
    assert rm.allocate_placement_group(world_size=2) == [
        [{"node_rank": 0, "gpu_rank": None}],
        [{"node_rank": 0, "gpu_rank": None}],
    ]


def test_the_shared_storage(make: Make) -> None:
    """One for the driver and all workers; a cluster tells where its master is."""
    cluster = make(world_size=2, name="stored")
    storage = roll.SharedStorage.options(
        name=roll.STORAGE_NAME, get_if_exists=True, namespace=roll.RAY_NAMESPACE
    ).remote()
    master = {"MASTER_ADDR": cluster.master_addr, "MASTER_PORT": cluster.master_port}
    assert muster.get(storage.get.remote("stored")) == master
    won = cluster.execute_all_sync("store", "k")
    assert sorted(won) == [False, True]
    assert storage.get("k") == won.index(True)
    storage.put("k", 3)
    assert cluster.execute_rank_zero_sync("stored", "k") == 3
    refs = [storage.get.remote("k"), storage.put_if_absent.remote("k", 4)]
    assert roll.get(refs) == [3, False]
    assert roll.wait(refs, num_returns=2) == (refs, [])
    assert cluster.execute_rank_zero_sync("echo", refs[0]) == 3  # as any other future
    assert storage.delete("k") is True
    with pytest.warns(UserWarning, match="has no 'k'"):
        assert storage.get("k") is None


def test_a_config_that_is_a_dict(rm: roll.ResourceManager) -> None:
    """The workers have it as a WorkerConfig."""
    config = {"world_size": 2, "learning_rate": 0.5}
    with roll.Cluster("told", Actor, rm, config) as cluster:
        assert cluster.world_size == 2
        assert cluster.describe()[1]["lr"] == 0.5


def test_metrics_come_as_theirs_do(make: Make) -> None:
    cluster = make(WithStrategy, name="with_strategy", world_size=2)
    data = cluster.get_metrics()
    assert data.meta_info == {"metrics": {"loss": [0.5, 0.5], "asked": [None, None]}}
    updated = roll.get(cluster.workers[1].start_model_update.remote("broadcast"))
    timed = {"time/with_strategy/model_update/broadcast": 1.5}
    assert updated.meta_info == {"metrics": timed}
    bare = make(world_size=1)
    assert bare.get_metrics().meta_info == {"metrics": {}}


def test_what_ray_gets_and_puts(make: Make) -> None:
    """`import muster.roll as ray`."""
    cluster = make(world_size=2)
    assert roll.get(roll.put([1, 2])) == [1, 2]
    assert roll.get(cluster.workers[1].echo.remote(roll.put("x"))) == "x"


def test_a_replaced_worker_is_the_same_one(make: Make) -> None:
    cluster = make(device_mapping="0-3", num_gpus_per_worker=2)
    kept = cluster.workers[1]
    cluster.replace(1, grace=0)
    assert cluster.worker2rank[kept] == 1
    assert cluster.worker2rank[cluster.workers[1]] == 1
    assert cluster.worker2nodes[kept] == muster.get(kept.get_node_ip.remote())
    devices = muster.get(kept.get_devices_info.remote())
    assert devices == cluster.rank2devices[1]


def test_a_worker_that_a_found_cluster_replaced_is_the_same_one(make: Make) -> None:
    cluster = make(device_mapping="0-3", num_gpus_per_worker=2, name="found")
    muster.get_cluster("found").replace(1, grace=0)
    devices = muster.get(cluster.workers[1].get_devices_info.remote())
    assert devices == cluster.rank2devices[1]


def test_a_replaced_worker_of_another_class(make: Make) -> None:
    cluster = make(Plain, world_size=2)
    cluster.replace(1, grace=0)
    assert cluster.incarnation(1) == 2


def test_the_shared_storage_takes_what_theirs_takes(session: Any) -> None:
    storage = roll.SharedStorage()
    big = bytes(range(256)) * (10 << 12)  # 10 MiB: several entries
    for key in (("step", 3), 7, None, frozenset({"b", "a"}), "x" * 2000):
        storage.put(key, key)
        assert storage.get(key) == key
        assert storage.put_if_absent(key, 0) is False
        assert storage.delete(key) is True
    storage.put("7", "text")
    assert storage.put_if_absent(7, big) is True
    assert storage.put_if_absent(7.0, big) is False
    assert (storage.get(7), storage.get("7")) == (big, "text")
    assert len(muster.kv.keys("roll.piece/")) == 3
    storage.put(7, big[1:])
    assert storage.get(7) == big[1:]
    assert len(muster.kv.keys("roll.piece/")) == 3
    assert storage.delete(7) and storage.delete("7")
    assert muster.kv.keys("roll.piece/") == []
    with pytest.raises(TypeError, match="unhashable"):
        storage.put([1], 1)


def test_config_is_another_name(rm: roll.ResourceManager) -> None:
    config = roll.WorkerConfig(world_size=1)
    cluster = roll.Cluster("other_name", Actor, rm, config=config)
    cluster.destroy(grace=0)
    assert cluster.worker_config is config
    with pytest.raises(TypeError, match="give one of them"):
        roll.Cluster("other_name", Actor, rm, config, config=config)


def test_what_a_worker_has_may_be_set() -> None:
    worker = roll.Worker()
    assert worker.thread_executor is worker.thread_executor
    for name in ("shared_storage", "thread_executor", "logger"):
        setattr(worker, name, 5)
        assert getattr(worker, name) == 5
