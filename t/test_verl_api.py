"""muster.verl: user code written against verl, with the import line changed."""

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import muster
import pytest
from helpers import parent_of
from muster import verl
from verl_workers import Actor, AsyncActor, Critic, Rows

Make = Callable[..., verl.RayWorkerGroup]


@pytest.fixture
def make(session: Any) -> Iterator[Make]:
    """Makes groups that end with the test, and so do their pools."""
    made: list[verl.RayWorkerGroup] = []

    def new(
        cls: Any, pool: Any = 4, use_gpu: bool = False, **options: Any
    ) -> verl.RayWorkerGroup:
        if isinstance(pool, int):
            pool = verl.RayResourcePool([pool], use_gpu=use_gpu)
        if not isinstance(cls, verl.ClassWithInitArgs):
            cls = verl.RayClassWithInitArgs(cls)
        group = verl.RayWorkerGroup(
            resource_pool=pool, ray_cls_with_init=cls, **options
        )
        made.append(group)
        return group

    yield new
    for group in made:
        group.destroy(grace=0.2)
    for group in made:
        if group.resource_pool is not None:
            group.resource_pool.remove()


# ---- groups ---------------------------------------------------------------------------


def test_a_group_and_its_workers(make: Make) -> None:
    group = make(
        verl.RayClassWithInitArgs(verl.remote(Actor), scale=3),
        use_gpu=True,
        name_prefix="try",
        worker_env={"FLAVOUR": "plum"},
    )
    assert group.world_size == 4
    assert group.worker_names == [f"tryActor_0:{i}" for i in range(4)]
    env = group.execute_all_sync("environment")
    assert [e["RANK"] for e in env] == list("0123")
    assert [e["CUDA_VISIBLE_DEVICES"] for e in env] == list("0123")
    assert {e["WORLD_SIZE"] for e in env} == {"4"}
    assert {e["WG_PREFIX"] for e in env} == {"try"}
    assert {e["FLAVOUR"] for e in env} == {"plum"}
    assert {(e["MASTER_ADDR"], e["MASTER_PORT"]) for e in env} == {
        (group.master_address, group.master_port)
    }
    assert muster.get(group.workers[2].how_many.remote()) == 0
    assert pickle.loads(pickle.dumps(group.workers[2])) == group.workers[2]


def test_groups_come_from_the_same_interpreter(make: Make) -> None:
    """Though each has a prefix and a size of its own in the environment: modules are
    imported once."""
    parents = set()
    for ranks in (1, 2):
        made = verl.RayClassWithInitArgs(verl.remote(Actor), scale=3)
        group = make(made, pool=ranks)
        parents |= {parent_of(pid) for pid in group._cluster.pids}
    assert len(parents) == 1


def test_execute(make: Make) -> None:
    group = make(Actor)
    assert group.execute_all_sync("add", [1, 2, 3, 4], y=[1, 1, 1, 1]) == [2, 4, 6, 8]
    assert group.execute_all_sync("add", 1, y=1) == [2, 3, 4, 5]
    assert muster.get(group.execute_all("add", 1)) == [1, 2, 3, 4]
    assert muster.get(group.execute_all_async("add", 1)) == [1, 2, 3, 4]
    assert group.execute_rank_zero_sync("add", 5) == 5
    assert muster.get(group.execute_rank_zero("add", 5)) == 5
    assert muster.get(group.execute_rank_zero_async(method_name="add", x=5)) == 5


def test_registered_methods(make: Make) -> None:
    group = make(Actor)
    assert group.add([1, 2, 3, 4], y=(1, 1, 1, 1)) == [2, 4, 6, 8]
    with pytest.raises(ValueError, match="a list of 4 elements"):
        group.add([1, 2, 3])
    assert group.only_first([1, 2, 3, 4]) == (0, [1, 2, 3, 4])
    assert group.echo([1, 2, 3, 4]) == [((i,), {}) for i in (1, 2, 3, 4)]
    assert group.echo("all", x=1) == [(("all",), {"x": 1})] * 4
    later = group.later(2)
    assert [f.result() for f in later] == [0, 2, 4, 6]
    assert group.execute_func_rank_zero(max, 3, 4) == 4
    told = group.execute_with_func_generator(_ranked, Rows([1, 2, 3, 4]))
    assert told.rows == [(0, 1), (1, 2), (2, 3), (3, 4)]


def _ranked(worker: Actor, data: Rows) -> Rows:
    return Rows([(worker.rank, row) for row in data.rows])


def test_chunks_padding_and_futures(make: Make) -> None:
    group = make(Actor)
    assert group.compute(Rows([1, 2, 3, 4])).rows == [(i + 1, i) for i in range(4)]
    with pytest.raises(ValueError, match="only equal chunks are supported: 5 rows"):
        group.compute(Rows([1, 2, 3, 4, 5]))
    assert group.count(Rows([1, 2, 3, 4])) == [1, 1, 1, 1]
    mine = Rows([1, 2, 3, 4, 5], padding=True)
    padded = group.compute(mine)
    assert padded.rows == [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2)]
    assert group.execute_all_sync("how_many") == [2, 2, 2, 2]
    assert mine.rows == [1, 2, 3, 4, 5]
    assert group.count(mine) == [2, 2, 2, 2]
    future = group.compute_later(Rows([1, 2, 3, 4, 5], padding=True))
    assert isinstance(future, verl.DataProtoFuture)
    assert future.get().rows == [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2)]
    again = group.compute(group.compute_later(Rows([1, 2, 3, 4])))
    assert again.rows == [((i + 1, i), i) for i in range(4)]


def test_names_of_the_group_are_not_hidden(make: Make) -> None:
    class Hiding(verl.Worker):
        @verl.register(dispatch_mode=verl.Dispatch.ONE_TO_ALL)
        def destroy(self) -> None: ...

    with pytest.raises(
        muster.ClusterError, match="'destroy' of Hiding cannot be bound"
    ):
        make(Hiding)
    roles = {"a": verl.RayClassWithInitArgs(Hiding)}
    with pytest.raises(
        muster.ClusterError, match="'destroy' of Hiding cannot be bound"
    ):
        make(verl.create_colocated_worker_cls(roles))


def test_meshes(make: Make) -> None:
    group = make(Actor, pool=8)
    group.init_mesh(4)
    group.train(Rows([1, 2]))
    assert group._dispatch_info["train"] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert group._collect_info["train"] == [r % 4 == 0 for r in range(8)]
    assert group.train(Rows([1, 2, 3, 4])).rows == [(1, 0), (2, 0), (3, 4), (4, 4)]
    assert group.infer(Rows([1, 2, 3, 4])).rows == [(1, 0), (2, 0), (3, 1), (4, 1)]
    with pytest.raises(muster.MusterError, match="'train' is registered already"):
        group.init_mesh(2)


def test_a_mode_of_ones_own(make: Make) -> None:
    def odd(worker_group: Any, *args: Any) -> tuple[Any, Any]:
        return tuple([a if i % 2 else None for i in range(4)] for a in args), {}

    def last(worker_group: Any, output: list[Any]) -> Any:
        return output[-1]

    verl.register_dispatch_mode("odd_ones", odd, last)
    try:
        assert (
            pickle.loads(pickle.dumps(verl.Dispatch.ODD_ONES)) is verl.Dispatch.ODD_ONES
        )
        assert "ODD_ONES" in verl.Dispatch
        with pytest.raises(ValueError, match="there already"):
            verl.Dispatch.register("ODD_ONES")

        class Own(Actor):
            @verl.register(dispatch_mode=verl.Dispatch.ODD_ONES)
            def pick(self, x: Any) -> Any:
                return self.rank, x

            @verl.register(dispatch_mode={"dispatch_fn": odd, "collect_fn": _all})
            def pick_all(self, x: Any) -> Any:
                return x

        group = make(Own)
        assert group.pick(7) == (3, 7)
        assert group.pick_all(7) == [None, 7, None, 7]
    finally:
        verl.Dispatch.remove("ODD_ONES")


def _all(worker_group: Any, output: Any) -> Any:
    return output


def _first(worker_group: Any, *args: Any) -> tuple[Any, Any]:
    return tuple(a[0] for a in args), {}


def _told(worker_group: Any, output: Any) -> Any:
    return "told", output


def test_a_mode_of_ones_own_on_rank_zero(make: Make) -> None:
    class Own(Actor):
        @verl.register(
            dispatch_mode={"dispatch_fn": _first, "collect_fn": _told},
            execute_mode=verl.Execute.RANK_ZERO,
        )
        def pick(self, x: Any) -> Any:
            return self.rank, x

        @verl.register(
            dispatch_mode=verl.Dispatch.ONE_TO_ALL,
            execute_mode=verl.Execute.RANK_ZERO,
        )
        def plain(self, x: Any) -> Any:
            return self.rank, x

    group = make(Own, pool=2)
    assert group.pick([7, 8]) == ("told", (0, 7))
    assert group.plain([7, 8]) == (0, [7, 8])


def test_padding_leaves_what_has_other_rows(make: Make) -> None:
    class Own(Actor):
        @verl.register(dispatch_mode=verl.Dispatch.DP_COMPUTE_PROTO)
        def columns(self, data: Rows) -> dict[str, Any]:
            return {"x": data.rows, "rank": [self.rank]}

        @verl.register(dispatch_mode=verl.Dispatch.DP_COMPUTE_PROTO)
        def total(self, data: Rows) -> int:
            return sum(data.rows)

        @verl.register(dispatch_mode=verl.Dispatch.DP_COMPUTE_PROTO, blocking=False)
        def columns_later(self, data: Rows) -> dict[str, Any]:
            return self.columns(data)

    group = make(Own, pool=2)
    rows = Rows([1, 2, 3], padding=True)
    assert group.columns(rows) == {"x": [1, 2, 3], "rank": [0, 1]}
    assert group.columns_later(rows).get() == {"x": [1, 2, 3], "rank": [0, 1]}
    assert group.total(rows) == [3, 6]


def test_async_workers(make: Make) -> None:
    group = make(AsyncActor, pool=2)
    futures = group.generate("hello")
    group.go()
    assert muster.get(futures, timeout=20) == ["hello 0", "hello 1"]


# ---- several roles in one process -----------------------------------------------------


def _roles() -> dict[str, verl.ClassWithInitArgs]:
    return {
        "actor": verl.RayClassWithInitArgs(Actor, 3),
        "critic": verl.RayClassWithInitArgs(cls=Critic, bias=100),
    }


def test_colocated_roles(make: Make) -> None:
    both = make(verl.create_colocated_worker_cls(_roles()))
    assert both.critic_value(Rows([1, 2, 3, 4])).rows == [101, 102, 103, 104]
    groups = both.spawn(prefix_set=_roles().keys())
    actor, critic = groups["actor"], groups["critic"]
    actor.init_mesh(2)
    assert actor.train(Rows([1, 2])).rows == [(3, 0), (6, 2)]
    assert both.actor_train(Rows([1, 2])).rows == [(3, 0), (6, 2)]
    assert critic.value(Rows([1, 2, 3, 4])).rows == [101, 102, 103, 104]
    pids = actor._view.pids
    assert critic.beside() == [(pid, 3) for pid in pids]
    assert actor.execute_all_sync("how_many") == [2, 2, 2, 2]
    assert both.execute_all_sync("actor_how_many") == [2, 2, 2, 2]
    assert actor.execute_all_sync("actor_how_many") == [2, 2, 2, 2]
    assert muster.get(critic.workers[1].beside.remote()) == (pids[1], 3)


def test_a_replaced_worker_has_its_roles(make: Make) -> None:
    both = make(verl.create_colocated_worker_cls(_roles()), pool=2)
    critic = both.spawn(["critic"])["critic"]
    before = critic.workers[1]
    both._cluster.replace(1, grace=0)
    assert muster.get(before.beside.remote()) == (both._cluster.pids[1], 3)
    assert before in {critic.workers[1]}


def test_fused_roles(make: Make) -> None:
    both = make(verl.create_colocated_worker_cls_fused(_roles()))
    both.fuse(["actor", "critic"])
    assert both.critic.value(Rows([1, 2, 3, 4])).rows == [101, 102, 103, 104]
    assert both.actor.add([1, 2, 3, 4]) == [1, 3, 5, 7]
    with pytest.raises(ValueError, match="there is no role 'ref'"):
        both.spawn(["ref"])


def test_a_role_that_fails_leaves_nothing(make: Make) -> None:
    roles = {"critic": verl.RayClassWithInitArgs(Critic)}  # without its bias
    with pytest.raises(muster.MusterError, match="bias"):
        make(verl.create_colocated_worker_cls(roles), name_prefix="bad")
    assert make(Actor, name_prefix="bad").world_size == 4


# ---- groups of workers that are there -------------------------------------------------


def test_from_detached(make: Make) -> None:
    group = make(Actor, detached=True, name_prefix="kept")
    made = verl.RayClassWithInitArgs(Actor)
    by_name = verl.RayWorkerGroup.from_detached(
        name_prefix="kept", worker_names=group.worker_names, ray_cls_with_init=made
    )
    assert by_name.add([1, 2, 3, 4]) == [1, 3, 5, 7]
    some = verl.RayWorkerGroup.from_detached(
        worker_handles=group.workers[1:3], ray_cls_with_init=made
    )
    assert some.world_size == 2
    assert some.add([1, 2]) == [2, 4]
    with pytest.raises(ValueError, match="all 4 workers"):
        verl.RayWorkerGroup.from_detached(worker_names=group.worker_names[:2])


def test_a_class_without_its_arguments(session: Any) -> None:
    with pytest.raises(TypeError, match=r"RayClassWithInitArgs\(Actor, \.\.\.\)"):
        verl.RayWorkerGroup(verl.RayResourcePool([1]), Actor)  # type: ignore[arg-type]


def test_what_cannot_be(make: Make, session: Any) -> None:
    with pytest.raises(ValueError, match="RANK, WORLD_SIZE cannot be given"):
        make(Actor, worker_env={"RANK": "1", "WORLD_SIZE": "1"})
    with pytest.raises(ValueError, match="give both"):
        make(Actor, master_addr="127.0.0.1")
    with pytest.raises(ValueError, match="use_gpu=False"):
        verl.RayWorkerGroup(
            verl.RayResourcePool([2], use_gpu=False),
            verl.RayClassWithInitArgs(Actor),
            use_gpu=True,
        )
    with pytest.raises(muster.PlacementError):
        make(Actor, pool=5, use_gpu=True)
    with pytest.raises(TypeError, match="dispatch_mode"):
        verl.register(dispatch_mode="ONE_TO_ALL")
    with pytest.warns(UserWarning, match="'num_gpus' says nothing"):
        verl.RayClassWithInitArgs(Actor).update_options({"num_gpus": 1})


def test_a_group_travels(make: Make, cluster: Any) -> None:
    """Inside of another worker it is called as here."""
    group = make(Actor, pool=2)
    group.init_mesh(1)
    assert cluster(Caller).execute_rank_zero_sync("ask", group) == [[5, 6], [1, 2]]


class Caller:
    def ask(self, group: verl.RayWorkerGroup) -> list[Any]:
        return [
            group.execute_all_sync("add", 5),
            [row for row, _ in group.train(Rows([1, 2])).rows],
        ]


# ---- pools ----------------------------------------------------------------------------


def test_pools_are_split_and_merged(make: Make) -> None:
    pool = verl.RayResourcePool([4], name_prefix="p", max_colocate_count=3)
    assert (pool.world_size, pool(), pool.store) == (4, [4], [4])
    halves = verl.split_resource_pool(pool, split_size=2)
    assert [half.world_size for half in halves] == [2, 2]
    first, second = (make(Actor, pool=half) for half in halves)
    assert _devices(first) == ["0", "1"]
    assert _devices(second) == ["2", "3"]
    assert second.worker_names[0].endswith("Actor_0:2")
    _, three = verl.split_resource_pool(pool, [1, 3])
    parts = verl.split_resource_pool(three, [2, 1])
    assert [part.start_bundle_index for part in parts] == [1, 3]
    assert _devices(make(Actor, pool=parts[1])) == ["3"]
    for bad in (3, [1, 1], [4, 0]):
        with pytest.raises(ValueError):
            verl.split_resource_pool(pool, bad)
    with pytest.raises(muster.PlacementError):  # a group stands in it
        pool.remove()


def test_two_pools_make_one(make: Make) -> None:
    one, two = verl.RayResourcePool([1]), verl.RayResourcePool([2])
    both = verl.merge_resource_pool(one, two)
    assert both.store == [1, 2]
    assert both.local_world_size_list() == [1, 2, 2]
    assert both.local_rank_list() == [0, 0, 1]
    group = make(Actor, pool=both)
    assert _devices(group) == ["0", "1", "2"]
    assert [n.rpartition("_")[2] for n in group.worker_names] == ["0:0", "1:0", "1:1"]
    with pytest.raises(ValueError, match="use_gpu"):
        verl.merge_resource_pool(one, verl.RayResourcePool([1], use_gpu=False))


def test_parts_of_a_pool_make_one(make: Make) -> None:
    pool = verl.RayResourcePool([4])
    first, second, rest = verl.split_resource_pool(pool, [1, 2, 1])
    both = verl.merge_resource_pool(first, second)
    assert (both.world_size, both.store) == (3, [3])
    assert _devices(make(Actor, pool=both)) == ["0", "1", "2"]
    back = verl.merge_resource_pool(rest, first)
    assert _devices(make(Critic_, pool=back)) == ["3", "0"]
    _, last = verl.split_resource_pool(both, [1, 2])
    assert _devices(make(Actor, pool=last)) == ["1", "2"]
    with pytest.raises(ValueError, match="in common"):
        verl.merge_resource_pool(pool, second)


def test_groups_share_a_pool(make: Make) -> None:
    pool = verl.RayResourcePool([4])
    actor, critic = make(Actor, pool=pool), make(Critic_, pool=pool)
    assert _devices(actor) == _devices(critic) == ["0", "1", "2", "3"]


class Critic_(Actor):
    pass


def test_a_manager_of_pools(session: Any) -> None:
    manager = verl.ResourcePoolManager(
        resource_pool_spec={"train": [2], "infer": [2]},
        mapping={"actor": "train", "rollout": "infer"},
    )
    manager.create_resource_pool()
    try:
        assert manager.get_n_gpus() == 4
        assert manager.get_resource_pool("rollout").store == [2]
        with pytest.raises(muster.PlacementError):
            verl.RayResourcePool([1]).get_placement_groups()
    finally:
        for pool in manager.resource_pool_dict.values():
            pool.remove()


def test_pools_of_a_manager_are_all_there_or_none(session: Any) -> None:
    spec = {"train": [3], "infer": [2]}
    manager = verl.ResourcePoolManager(resource_pool_spec=spec, mapping={})
    with pytest.raises(muster.PlacementError, match="inferverl_group"):
        manager.create_resource_pool()
    assert manager.resource_pool_dict == {}
    manager.resource_pool_spec["infer"] = [1]
    manager.create_resource_pool()
    for pool in manager.resource_pool_dict.values():
        pool.remove()


def test_pools_of_one_name(session: Any) -> None:
    """Two jobs at one head may call theirs alike."""
    pools = [verl.RayResourcePool([1], name_prefix="global_pool") for _ in range(2)]
    for pool in pools:
        pool.get_placement_groups()
    for pool in pools:
        pool.remove()


def test_what_ray_gets_and_puts(make: Make) -> None:
    """`import muster.verl as ray`."""
    assert verl.get(verl.put([1, 2])) == [1, 2]


def _devices(group: verl.RayWorkerGroup) -> list[str]:
    return group.execute_all_sync("get_cuda_visible_devices")


def test_pools_on_unequal_nodes(tmp_path: Any) -> None:
    """The entry with most processes goes where there is room for it."""
    script = tmp_path / "unequal.py"
    script.write_text(UNEQUAL)
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text("nodes: [{name: n0, gpus: 2}, {name: n1, gpus: 3}]\n")
    done = subprocess.run(
        [sys.executable, script, nodes], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[1, 3] 4", "n0 n1 n1 n1", "0 0 1 2"]


def test_entries_are_on_nodes_of_their_own_in_order(tmp_path: Any) -> None:
    """The tightest node is not the first, and the widest has room for all entries."""
    script = tmp_path / "order.py"
    script.write_text(ORDER)
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text("nodes: [{name: n0, gpus: 4}, {name: n1, gpus: 2}]\n")
    done = subprocess.run(
        [sys.executable, script, nodes], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "n0 n0 n1 n1",
        "n0 n1",
        "n0 n1 n1",
        "n0 n0 n1 n1",
    ]


ORDER = """
import sys
import muster
from muster.verl import RayResourcePool

def show(pool):
    print(*(node for node, _ in pool.placement))

muster.init(nodes=sys.argv[1])
for store, use_gpu in (([2, 2], True), ([1, 1], False), ([1, 1, 1], True)):
    pool = RayResourcePool(store, use_gpu=use_gpu)
    show(pool.place("STRICT_PACK"))
    pool.remove()
pool = muster.ResourcePool([2, 2])
show(pool)
muster.shutdown()
"""

UNEQUAL = """
import sys
import muster
from muster.verl import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup, Worker

muster.init(nodes=sys.argv[1])
pool = RayResourcePool([1, 3])
group = RayWorkerGroup(pool, RayClassWithInitArgs(Worker))
print(pool.store, group.world_size)
print(*(node for node, _ in pool.place("STRICT_PACK").placement))
print(*group.execute_all_sync("get_cuda_visible_devices"))
muster.shutdown()
"""
