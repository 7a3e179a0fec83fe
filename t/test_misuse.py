"""What people get wrong, and what they are told: at once, by the name that they used."""

from typing import Any

import muster
import pytest
from muster import roll, verl
from workers import Echo


@pytest.mark.parametrize(
    "given, told",
    [
        (("8", 4), "num_gpus_per_node: an integer is needed: '8'"),
        ((8, 4.0), r"num_nodes: an integer is needed: 4\.0"),
        ((True,), "num_gpus_per_node: an integer is needed: True"),
    ],
)
def test_numbers_of_a_resource_manager(
    session: Any, given: tuple[Any, ...], told: str
) -> None:
    with pytest.raises(TypeError, match=told):
        muster.ResourceManager(*given)
    with pytest.raises(TypeError, match="nodes: a list of names is needed: 'n0'"):
        muster.ResourceManager(nodes="n0")


def test_arguments_of_a_cluster(session: Any) -> None:
    make: Any = muster.Cluster
    with pytest.raises(TypeError, match="name: a cluster's name is a str: 3"):
        make(3, Echo)
    with pytest.raises(TypeError, match=r"resource_manager: .*: WorkerConfig"):
        make("x", Echo, muster.WorkerConfig(world_size=1))
    with pytest.raises(TypeError, match="'wordl_size'; is 'world_size' meant"):
        make("x", Echo, wordl_size=2)
    with pytest.raises(TypeError, match="'num_gpus'; is 'num_gpus_per_worker' meant"):
        make("x", Echo, num_gpus=1)
    with pytest.raises(TypeError, match=r"no argument 'zebra'$"):
        make("x", Echo, zebra=1)
    with pytest.raises(ValueError, match="is a library: name its symbol too"):
        make("x", "./libreward.so")


def test_a_field_that_was_misspelt() -> None:
    make: Any = muster.WorkerConfig
    with pytest.raises(TypeError, match="'world_sze'; is 'world_size' meant"):
        make(world_sze=4)
    with pytest.raises(TypeError, match="'num_gpus'; is 'num_gpus_per_worker' meant"):
        make(num_gpus=1)
    with pytest.raises(TypeError, match=r"has no argument 'zebra'$"):
        muster.WorkerConfig.of({"zebra": 1})
    with pytest.raises(
        TypeError, match="'world_sze' is misspelt: 'world_size' is meant"
    ):
        roll.WorkerConfig(world_sze=4)
    with pytest.raises(TypeError, match="'infer_batchsize' is misspelt"):
        roll.WorkerConfig(infer_batchsize=4)
    kept = roll.WorkerConfig(training_args={}, infer_batch_size=4, tags=["a"], device=1)
    assert kept.tags == ["a"] and kept.device == 1 and kept.infer_batch_size == 4


@pytest.mark.parametrize("register", [muster.register, roll.register, verl.register])
def test_an_argument_of_register_that_was_misspelt(register: Any) -> None:
    with pytest.raises(TypeError, match="'dispach_mode'; is 'dispatch_mode' meant"):
        register(dispach_mode=muster.Dispatch.ONE_TO_ALL)


def test_other_arguments_that_were_misspelt(session: Any) -> None:
    make: Any = muster.init
    with pytest.raises(TypeError, match="'num_node'; is 'num_nodes' meant"):
        make(num_node=4)
    with pytest.raises(TypeError, match="'worker_nv' is misspelt: 'worker_env'"):
        verl.WorkerGroup(worker_nv={})
    with muster.Cluster("spelt", Echo) as one:
        view: Any = one
        with pytest.raises(TypeError, match="'timout'; is 'timeout' meant"):
            view.options(timout=3)


def test_numbers_of_workers(session: Any) -> None:
    with muster.Cluster("numbered", Echo, world_size=2) as one:
        for wrong in ("0", 1.0, None):
            for use in (one.replace, lambda i: one[[i]]):
                with pytest.raises(TypeError, match="the number of a worker is an int"):
                    use(wrong)
        assert one.execute_all_sync("echo", 3) == [3, 3]


@pytest.mark.parametrize(
    "bundles, error, told",
    [
        ([{"gpu": 1}], ValueError, "no 'gpu': write 'GPU'"),
        ([{"GPUs": 1}], ValueError, "no 'GPUs': write 'GPU'"),
        ([{"cpus": 1}], ValueError, "no 'cpus': write 'CPU'"),
        ([{"GPU": "1"}], ValueError, "GPU of a bundle: a number of at least 0: '1'"),
        ([{"CPU": -1}], ValueError, "CPU of a bundle: a number of at least 0: -1"),
        ([{"licence": "x"}], ValueError, "'licence': a whole number is needed: 'x'"),
        ({"GPU": 1}, TypeError, "bundles a list of them: 'GPU'"),
    ],
)
def test_bundles(session: Any, bundles: Any, error: type, told: str) -> None:
    with pytest.raises(error, match=told):
        muster.ResourceManager().placement_group(bundles)


def test_a_bundle_has_the_keys_of_a_plan(session: Any) -> None:
    """As `muster plan` takes them."""
    rm = muster.ResourceManager()
    group = rm.placement_group([{"GPU": 2, "kind": "gpu", "one_domain": True}])
    assert group.placement[0][1] == [0, 1]
    group.remove()
    asked = [{"GPU": 1, "labels": {"rack": "r9"}, "resources": {"licence": 1}}]
    with pytest.raises(muster.PlacementError, match="rack"):
        rm.placement_group(asked)


@pytest.mark.parametrize("register", [muster.register, roll.register])
def test_a_decorator_without_parentheses(register: Any) -> None:
    with pytest.raises(TypeError, match=r"before 'step' .* write @register\("):

        @register
        def step(self: Any) -> None: ...
