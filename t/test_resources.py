"""The resource manager: device mappings, placement groups, pools."""

import json
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import muster
import pytest
from daemon_rig import CLI
from helpers import DEADLINE_S
from muster import api
from workers import Echo

UNEQUAL = """
nodes:
  - {name: n10, cpus: 8, memory: 32GiB, gpus: 4, gpu_memory: 80GiB, labels: {rack: r2}}
  - {name: n2, cpus: 4, memory: 16GiB, gpus: 2, gpu_memory: 40GiB, labels: {rack: r1}}
  - {name: n3, cpus: 16, memory: 64GiB, labels: {rack: r1}, resources: {licence: 2}}
"""


@pytest.fixture(scope="module")
def _session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    file = tmp_path_factory.mktemp("nodes") / "nodes.yaml"
    file.write_text(UNEQUAL)
    muster.init(nodes=str(file))
    yield
    muster.shutdown()


@pytest.fixture
def rm(_session: None) -> Iterator[muster.ResourceManager]:
    """Unequal nodes, of which nothing is held before and after."""
    manager = muster.ResourceManager()
    before = str(manager)
    yield manager
    assert str(manager) == before


def places(c: muster.Cluster) -> list[tuple[str, str]]:
    told = c.execute_all_sync("env", "CUDA_VISIBLE_DEVICES")
    nodes = list(c.worker2nodes.values())
    return [(n, e["CUDA_VISIBLE_DEVICES"]) for n, e in zip(nodes, told, strict=True)]


# ---- what there is --------------------------------------------------------------------


def test_the_table(rm: muster.ResourceManager) -> None:
    assert str(rm).splitlines() == [
        "NODE  DEVICES  HELD BY  CPUS FREE  MEMORY FREE",
        "n2    0-1      -        4 of 4     16.0 GiB of 16.0 GiB",
        "n3    -        -        16 of 16   64.0 GiB of 64.0 GiB",
        "n10   2-5      -        8 of 8     32.0 GiB of 32.0 GiB",
    ]
    assert (rm.num_nodes, rm.num_gpus) == (3, 6)
    group = rm.placement_group([{"GPU": 1, "CPU": 2}], name="g")
    with muster.Cluster("a", Echo, rm, device_mapping="2-3", num_cpus=1):
        held = str(rm).splitlines()
    group.remove()
    assert held[1].startswith("n2    0-1      0 g      2 of 4 ")
    assert held[3].startswith("n10   2-5      2-3 a    6 of 8 ")


def test_a_part_of_the_nodes(rm: muster.ResourceManager) -> None:
    part = muster.ResourceManager(num_gpus_per_node=2, num_nodes=2)
    assert [node[0] for node in part.nodes] == ["n2", "n10"]
    assert (part.num_gpus_per_node, part.num_gpus) == (2, 4)
    with muster.Cluster("a", Echo, part, device_mapping="0-3") as c:
        assert places(c) == [("n2", "0"), ("n2", "1"), ("n10", "0"), ("n10", "1")]
    group = part.placement_group([{"GPU": 1}] * 4)
    assert group.placement == [("n2", [0]), ("n2", [1]), ("n10", [0]), ("n10", [1])]
    with pytest.raises(muster.PlacementError, match="cannot be placed"):
        part.placement_group([{"GPU": 1}] * 5)
    group.remove()
    with pytest.raises(
        muster.PlacementError, match="2 nodes of 3 devices are asked"
    ) as e:
        muster.ResourceManager(num_gpus_per_node=3, num_nodes=2)
    assert ">  n2    2" in e.value.table


# ---- by mapping -----------------------------------------------------------------------


def test_mapping_over_unequal_nodes(rm: muster.ResourceManager) -> None:
    with muster.Cluster("a", Echo, rm, device_mapping=[5, 0, 1, 2]) as c:
        assert places(c) == [("n10", "3"), ("n2", "0"), ("n2", "1"), ("n10", "0")]
        assert c.rank2devices[0] == [{"node_rank": 2, "gpu_rank": 3}]
        assert c.worker2nodes[c.rank2worker[1]] == "n2"
        with muster.Cluster("b", Echo, rm, device_mapping="0-1") as shared:
            assert places(shared) == [("n2", "0"), ("n2", "1")]
    with muster.Cluster("r", Echo, rm, world_size=4, num_cpus=3) as c:
        assert list(c.worker2nodes.values()) == ["n2", "n3", "n10", "n3"]


def test_devices_without_a_mapping(rm: muster.ResourceManager) -> None:
    """num_gpus_per_worker finds free ones; by default there are none."""
    with muster.Cluster("none", Echo, rm, world_size=2) as none:
        assert places(none) == [("n2", ""), ("n3", "")]
    with (
        muster.Cluster("m", Echo, rm, device_mapping="0"),
        muster.Cluster("a", Echo, rm, num_gpus_per_worker=2) as a,
        muster.Cluster("b", Echo, rm, num_gpus_per_worker=1, world_size=2) as b,
    ):
        assert places(a) == [("n10", "0,1")]
        assert places(b) == [("n2", "1"), ("n10", "2")]
        b.resize(3)
        assert places(b)[2] == ("n10", "3")
        with pytest.raises(muster.PlacementError, match="enough for 0") as e:
            muster.Cluster("c", Echo, rm, num_gpus_per_worker=1)
        assert "> asked: cluster 'c', 1 worker, 1 device each" in e.value.table


@pytest.mark.parametrize(
    ("asked", "sentence", "line", "hint"),
    [
        (
            {"device_mapping": "0-5", "num_gpus_per_worker": 4},
            "6 devices cannot be divided into workers of 4 devices",
            "> asked: cluster 'x', 1 worker, 4 devices each, of 0-5",
            "it fits with 3 GPUs per worker",
        ),
        (
            {"device_mapping": "0-7"},
            "rank 6 wants device 6, but the ids are 0 to 5",
            "> asked: cluster 'x'",
            'it fits with device_mapping="0-5"',
        ),
        (
            {"device_mapping": "0-1", "num_cpus": 3},
            "2 workers on node 'n2' would need 6 CPUs, and 4 is what is free",
            ">  n2    0-1",
            "it fits with 2 CPUs per worker",
        ),
        (
            {"device_mapping": "0-1", "memory": "9GiB"},
            "would need 18.0 GiB of memory, and 16.0 GiB is what is free",
            ">  n2    0-1",
            "it fits with 8.0 GiB of memory per worker",
        ),
        (
            {"device_mapping": "0-5", "gpu_memory": "41GiB"},
            "rank 0 wants 41.0 GiB of the memory of device 0",
            ">  n2    0-1",
            "it fits with 40.0 GiB of the memory of each device",
        ),
        (
            {"world_size": 8, "num_cpus": 4},
            "8 workers are asked for, but the CPUs and memory that are free are enough "
            "for 7",
            "> asked: cluster 'x', 8 workers",
            "it fits with 7 workers",
        ),
    ],
)
def test_what_does_not_fit(
    rm: muster.ResourceManager,
    asked: dict[str, Any],
    sentence: str,
    line: str,
    hint: str,
) -> None:
    with pytest.raises(muster.PlacementError) as e:
        muster.Cluster("x", Echo, rm, **asked)
    assert sentence in str(e.value)
    lines = e.value.table.splitlines()
    assert any(found.startswith(line) for found in lines), e.value.table
    assert lines[-1] == hint
    assert sum(found.startswith(">") for found in lines) == 1


def test_device_memory_is_not_shared(rm: muster.ResourceManager) -> None:
    with muster.Cluster("a", Echo, rm, device_mapping="0", gpu_memory="30GiB"):
        with muster.Cluster("b", Echo, rm, device_mapping="0", gpu_memory="10GiB"):
            pass
        with pytest.raises(
            muster.PlacementError, match=r"and 10\.0 GiB is what is free"
        ):
            muster.Cluster("c", Echo, rm, device_mapping="0", gpu_memory="11GiB")


def test_a_creation_that_fails_gives_back(rm: muster.ResourceManager) -> None:
    with pytest.raises(muster.MusterError):
        muster.Cluster("a", "workers.Nothing", rm, device_mapping="0-5", num_cpus=1)
    with pytest.raises(ValueError, match="mesh"):
        muster.Cluster("a", Echo, rm, device_mapping="0-5", mesh={"tp": 4})


# ---- groups ---------------------------------------------------------------------------


def test_a_group_and_clusters_in_it(rm: muster.ResourceManager) -> None:
    group = rm.placement_group([{"GPU": 1, "CPU": 2}] * 4, name="rollout")
    assert (group.state, len(group)) == ("placed", 4)
    assert group.placement == [("n10", [i]) for i in range(4)]
    assert muster.get_placement_group("rollout").placement == group.placement
    with (
        muster.Cluster("a", Echo, group, num_cpus=1) as a,
        muster.Cluster("b", Echo, group[2:4], num_cpus=1) as b,
    ):
        assert places(a) == [("n10", str(i)) for i in range(4)]
        assert places(b) == [("n10", "2"), ("n10", "3")]
        assert sorted(group.clusters) == ["a", "b"]
        with pytest.raises(
            muster.PlacementError, match="bundle 2 of group 'rollout' has 0"
        ):
            muster.Cluster("c", Echo, group[2:3], num_cpus=1)
        with pytest.raises(muster.PlacementError, match="cluster 'a' stands in it"):
            group.remove()
        with pytest.raises(
            muster.PlacementError, match="but a placement group holds it"
        ):
            muster.Cluster("c", Echo, rm, device_mapping="2")
        with pytest.raises(muster.PlacementError, match="it fits with world_size=4"):
            muster.Cluster("c", Echo, group, world_size=5)
    group.remove()
    group.remove()
    assert group.state == "removed"
    with pytest.raises(
        muster.MusterError, match="there is no placement group 'rollout'"
    ):
        muster.get_placement_group("rollout")


def test_parts_of_groups(rm: muster.ResourceManager) -> None:
    one, two = rm.placement_group([{"CPU": 1}] * 5), rm.placement_group([{"CPU": 1}])
    assert [len(part) for part in one.split(2)] == [3, 2]
    assert [len(part) for part in one.split(1, 4)] == [1, 4]
    assert len(one[1:3] + two) == 3
    for sizes in [(6,), (2, 2), (0, 5)]:
        with pytest.raises(ValueError):
            one.split(*sizes)
    with muster.Cluster("a", Echo, one.split(1, 4)[0] + two) as c:
        assert c.execute_all_sync("rank") == [0, 1]
    one.remove()
    two.remove()


def test_strategies_labels_and_shares(rm: muster.ResourceManager) -> None:
    def nodes(*args: Any, **kwargs: Any) -> list[str]:
        group = rm.placement_group(*args, **kwargs)
        found = [node for node, _ in group.placement]
        group.remove()
        return found

    assert nodes([{"CPU": 1}] * 3, "SPREAD") == ["n2", "n3", "n10"]
    assert nodes([{"CPU": 1}] * 3, "STRICT_SPREAD") == ["n2", "n3", "n10"]
    assert nodes([{"CPU": 1}] * 3, "STRICT_PACK", labels={"rack": "r2"}) == ["n10"] * 3
    assert nodes([muster.Bundle(cpus=1, labels={"rack": "in(r2,r9)"})]) == ["n10"]
    assert nodes([{"licence": 1}] * 2) == ["n3", "n3"]
    assert nodes([{"CPU": 5}] * 3, same="rack") == ["n3"] * 3
    half = rm.placement_group([{"GPU": 0.5}] * 2)
    assert half.placement == [("n2", [0]), ("n2", [0])]
    half.remove()
    with pytest.raises(muster.PlacementError, match="cannot be placed") as e:
        rm.placement_group([{"GPU": 3}] * 2)
    assert "it fits with 2 devices for each, or with 1 bundle" in e.value.table
    with pytest.raises(ValueError, match="strategy 'ROUND' is none of"):
        rm.placement_group([{"CPU": 1}], "ROUND")
    with pytest.raises(ValueError, match="has no bundles"):
        rm.placement_group([])
    with pytest.raises(ValueError):
        rm.placement_group([{"GPU": 1.5}])


def test_groups_wait_and_pass(rm: muster.ResourceManager) -> None:
    first = rm.placement_group([{"GPU": 4}], name="first")
    with pytest.raises(muster.PlacementError, match="is held by others") as e:
        rm.placement_group([{"GPU": 4}])
    assert "2-5 first" in e.value.table
    with pytest.raises(muster.PlacementError, match="cannot be placed"):
        rm.placement_group([{"GPU": 5}], timeout=DEADLINE_S)  # at once: it never fits
    second = rm.placement_group([{"GPU": 4}], timeout=DEADLINE_S, wait=False)
    assert second.state == "waiting"
    third = rm.placement_group([{"GPU": 2}], timeout=DEADLINE_S)  # it may pass
    assert third.placement == [("n2", [0, 1])]
    with pytest.raises(muster.DeadlineExceeded, match="was not placed within"):
        second.wait(timeout=0.01)
    first.remove()
    assert second.wait().state == "placed"
    late = rm.placement_group([{"GPU": 4}], timeout=0.05, wait=False, name="late")
    with pytest.raises(muster.PlacementError, match="until its deadline") as e:
        late.wait()
    assert late.state == "failed" and "2-5 group-" in e.value.table
    for group in (second, third, late):
        group.remove()


def test_removed_while_somebody_waits(rm: muster.ResourceManager) -> None:
    first = rm.placement_group([{"GPU": 4}])
    second = rm.placement_group([{"GPU": 4}], timeout=DEADLINE_S, wait=False)
    said: list[str] = []

    def wait() -> None:
        try:
            second.wait()
        except muster.PlacementError as e:
            said.append(str(e))

    waiter = threading.Thread(target=wait)
    waiter.start()
    second.remove()
    waiter.join(DEADLINE_S)
    assert said == [f"group {second.name!r} was removed"]
    first.remove()


def test_a_placed_group_that_was_removed(rm: muster.ResourceManager) -> None:
    group = rm.placement_group([{"CPU": 1}], name="gone")
    assert group.wait() is group
    group.remove()
    with pytest.raises(muster.PlacementError, match="'gone' was removed"):
        group.wait()


def test_a_part_of_a_resource_is_refused() -> None:
    assert muster.Bundle.of({"license": 2.0})._message["resources"] == [
        {"name": "license", "amount": 2}
    ]
    with pytest.raises(ValueError, match=r"'license': a whole number is needed: 0\.5"):
        muster.Bundle.of({"license": 0.5})


def test_pools(rm: muster.ResourceManager) -> None:
    pool = muster.ResourcePool([2, 2])
    assert pool.world_size == 4
    assert sorted(pool.placement) == [
        ("n10", [0]),
        ("n10", [1]),
        ("n2", [0]),
        ("n2", [1]),
    ]
    with muster.Cluster("a", Echo, pool) as c:
        assert c.execute_all_sync("rank") == [0, 1, 2, 3]
    pool.remove()
    with pytest.raises(muster.PlacementError):
        muster.ResourcePool([2, 2, 2])


def test_groups_are_listed(rm: muster.ResourceManager) -> None:
    group = rm.placement_group([{"GPU": 1}] * 2, "SPREAD", name="shown")
    with muster.Cluster("a", Echo, group):
        name = api.session().head.session
        cli = [CLI, "list", "groups", "--session", name]
        text = subprocess.run(cli, capture_output=True, text=True, check=True).stdout
        told = subprocess.run([*cli, "--json"], capture_output=True, check=True).stdout
    group.remove()
    assert [line.split() for line in text.splitlines()] == [
        ["GROUP", "STATE", "STRATEGY", "BUNDLES", "NODES", "CLUSTERS"],
        ["shown", "placed", "SPREAD", "2", "n2,n10", "a"],
    ]
    assert json.loads(told) == [
        {
            "name": "shown",
            "state": "placed",
            "strategy": "SPREAD",
            "bundles": 2,
            "placement": [
                {"node": "n2", "devices": [0]},
                {"node": "n10", "devices": [0]},
            ],
            "driver": "0" * 16,
            "detached": False,
            "clusters": ["a"],
        }
    ]


def test_detached_needs_a_daemon(rm: muster.ResourceManager) -> None:
    with pytest.raises(muster.PlacementError, match="outlives this process"):
        rm.placement_group([{"CPU": 1}], detached=True)


def test_a_node_without_a_name(rm: muster.ResourceManager) -> None:
    with pytest.raises(muster.PlacementError, match="there is no node ''"):
        muster.ResourceManager(nodes=[""])
