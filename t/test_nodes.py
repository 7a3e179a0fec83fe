"""Several described nodes on this machine."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import muster
import pytest
from helpers import (
    DEADLINE_S,
    MARK,
    Bell,
    Driver,
    below,
    describe,
    leftovers,
    new_mark,
    processes,
    until,
    wait_gone,
)
from muster import api
from workers import Echo

Bells = Callable[[], Bell]


@pytest.fixture
def nodes() -> Iterator[Any]:
    """Starts a session that must leave nothing behind."""
    mark = os.environ[MARK] = new_mark()
    folders = []

    def start(**options: Any) -> api.Session:
        muster.init(**options)
        folders.append(api.session().head.session_dir)
        return api.session()

    yield start
    muster.shutdown()
    del os.environ[MARK]
    assert [thing for folder in folders for thing in leftovers(mark, folder)] == []


def agent_of(name: str) -> int:
    pid = next(node.agent_pid for node in muster.nodes() if node.name == name)
    assert "muster agent" in describe(pid)
    return pid


def test_four_nodes_of_eight_devices(nodes: Any) -> None:
    nodes(num_nodes=4, num_gpus=8, num_cpus=16)
    assert [(n.name, n.cpus, n.gpus) for n in muster.nodes()] == [
        (f"n{i}", 16, 8) for i in range(4)
    ]
    rm = muster.ResourceManager(num_gpus_per_node=8, num_nodes=4)
    config = muster.WorkerConfig(device_mapping="0-31", num_gpus_per_worker=4)
    c = muster.Cluster("a", Echo, rm, config)
    names = ("RANK", "NODE_RANK", "LOCAL_WORLD_SIZE", "CUDA_VISIBLE_DEVICES")
    assert [tuple(e.values()) for e in c.execute_all_sync("env", *names)] == [
        (str(r), str(r // 2), "2", "0,1,2,3" if r % 2 == 0 else "4,5,6,7")
        for r in range(8)
    ]
    cpus = muster.Cluster("reward", Echo, rm, world_size=8, num_cpus=4)
    assert [e["NODE_RANK"] for e in cpus.execute_all_sync("env", "NODE_RANK")] == [
        str(r % 4) for r in range(8)
    ]


class Actor:
    """As in the description of ROLL's Cluster."""

    def initialize(self, config: dict[str, int]) -> None:
        self.scale = config["scale"]

    def train_step(self, batch: list[int]) -> tuple[int, int]:
        return int(os.environ["RANK"]), sum(batch) * self.scale


def test_the_example_of_the_cluster_class(nodes: Any) -> None:
    nodes(num_nodes=4, num_gpus=8)
    resource_manager = muster.ResourceManager(num_gpus_per_node=8, num_nodes=4)
    actor_train = muster.Cluster(
        name="actor_train",
        worker_cls=Actor,
        resource_manager=resource_manager,
        worker_config=muster.WorkerConfig(
            device_mapping="list(range(0,32))", num_gpus_per_worker=1
        ),
    )
    actor_infer = muster.Cluster(
        name="actor_infer",
        worker_cls="workers.Echo",
        resource_manager=resource_manager,
        worker_config=muster.WorkerConfig(
            device_mapping=list(range(32)), num_gpus_per_worker=8
        ),
    )
    actor_train.execute_all_sync("initialize", {"scale": 2})
    results = actor_train.execute_all_sync("train_step", [1, 2, 3])
    assert results == [(rank, 12) for rank in range(32)]
    assert actor_infer.execute_all_sync("rank") == [0, 1, 2, 3]


def test_every_node_prints_and_holds_ports(
    nodes: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    nodes(num_nodes=3, num_gpus=1)
    c = muster.Cluster("a", Echo, device_mapping="0-2")
    words = ["red", "green", "blue"]  # lines that differ in numbers alone are folded
    for rank, word in enumerate(words):
        c.execute_rank_sync(rank, "print", word)
    logs = [c.log_path(rank) for rank in range(3)]
    merged = Path(logs[0]).parent / "merged.log"
    ports = {port for rank in range(3) for port in c.alloc_ports(2, rank)[1]}
    assert len(ports) == 6
    muster.shutdown()
    out = capfd.readouterr().out
    for rank, word in enumerate(words):
        assert f"(a/{rank}@n{rank}) {word}\n" in out
        assert f"a/{rank}@n{rank}: {word}\n" in merged.read_text()
        assert f"{word}\n" in Path(logs[rank]).read_text()


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM])
def test_an_agent_dies_and_the_others_go_on(
    nodes: Any, bell: Bells, sig: signal.Signals
) -> None:
    session = nodes(num_nodes=4, num_gpus=2)
    c = muster.Cluster("a", Echo, device_mapping="0-7")
    begun = bell()
    pending = c.execute_rank_async(5, "hang", begun.path)
    begun.hear()
    agent = agent_of("n2")
    orphans = below(agent)
    os.kill(agent, sig)
    with pytest.raises(muster.WorkerDied, match=r"the agent on node n2 ") as died:
        pending.result(DEADLINE_S)
    assert died.value.rank == 5
    assert set(c.pids[4:6]) <= set(orphans) and wait_gone(orphans) == []
    rest = [0, 1, 2, 3, 6, 7]
    assert c[rest].execute_all_sync("rank") == rest
    gone = {n.name: n for n in muster.nodes()}
    assert [gone[f"n{i}"].alive for i in range(4)] == [True, True, False, True]
    assert "the agent on node n2" in gone["n2"].detail
    rm = muster.ResourceManager()
    assert [node[0] for node in rm.nodes] == ["n0", "n1", "n3"]
    again = muster.Cluster("b", Echo, rm, world_size=3)
    assert again.execute_all_sync("rank") == [0, 1, 2]
    c.destroy()
    assert os.path.isdir(os.path.join(session.head.session_dir, "w"))


def test_all_agents_die(nodes: Any) -> None:
    nodes(num_nodes=2, num_gpus=1)
    c = muster.Cluster("a", Echo, device_mapping="0-1")
    for agent in [agent_of("n0"), agent_of("n1")]:
        os.kill(agent, signal.SIGKILL)
    for rank in range(2):
        with pytest.raises(muster.WorkerDied):
            c.execute_rank_sync(rank, "hang")
    assert wait_gone(processes(os.environ[MARK])) == []
    until(lambda: not any(node.alive for node in muster.nodes()))
    nodes(num_nodes=2, num_gpus=1)  # as if there had been nothing
    again = muster.Cluster("b", Echo, device_mapping="0-1")
    assert again.execute_all_sync("rank") == [0, 1]


DRIVER = """
import os, signal, sys
import muster
from muster import api
from workers import Echo
muster.init(num_nodes=3, num_gpus=1)
c = muster.Cluster("a", Echo, device_mapping="0-2")
print(api.session().head.session_dir, flush=True)
sys.stdin.readline()
{end}
"""


@pytest.mark.parametrize(
    "end",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os._exit(3)",
        "raise KeyError",
        "muster.shutdown()",
        "for n in muster.nodes(): os.kill(n.agent_pid, signal.SIGTERM)\n"
        "os.kill(os.getpid(), signal.SIGTERM)",
    ],
)
def test_nothing_is_left(tmp_path: Path, end: str) -> None:
    driver = Driver(DRIVER.format(end=end), tmp_path)
    folder = driver.line()
    everybody = processes(driver.mark)
    driver.send("go")
    assert wait_gone(everybody) == []
    assert leftovers(driver.mark, folder) == []


UNEQUAL = """
nodes:
  - {name: big, cpus: 64, memory: 512GiB, gpus: 4, gpu_memory: 80GiB,
     gpus_per_domain: 2, labels: {rack: r1}}
  - {name: "small[1-2]", cpus: 8, devices: [{kind: npu, count: 2, memory: 32GiB}],
     resources: {license: 3}, labels: {rack: r2}}
  - {name: cpu, cpus: 128}
"""


def test_unequal_nodes_from_a_file(nodes: Any, tmp_path: Path) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text(UNEQUAL)
    nodes(nodes=str(file))
    found = {node.name: node for node in muster.nodes()}
    assert list(found) == ["big", "cpu", "small1", "small2"]
    big, small = found["big"], found["small2"]
    assert (big.cpus, big.memory, big.gpus) == (64, 512 << 30, 4)
    assert [d.domain for d in big.devices] == [0, 0, 1, 1]
    assert {d.memory for d in big.devices} == {80 << 30}
    assert big.labels == {"rack": "r1"}
    assert small.resources == {"license": 3}
    assert [(d.kind, d.id, d.variable) for d in small.devices] == [
        ("npu", "0", "ASCEND_RT_VISIBLE_DEVICES"),
        ("npu", "1", "ASCEND_RT_VISIBLE_DEVICES"),
    ]
    assert found["cpu"].devices == []
    rm = muster.ResourceManager(num_gpus_per_node=2, num_nodes=3)
    pinned = muster.Cluster("small", Echo, rm, device_mapping="3")
    names = ("ASCEND_RT_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    assert pinned.execute_rank_zero_sync("env", *names) == {
        "ASCEND_RT_VISIBLE_DEVICES": "1",
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("nodes: [{name: a, cpu: 3}]", r"x\.yaml:1:19: a node has no key 'cpu'"),
        ("roles: {a: {world_size: 3}}", r"x\.yaml: it describes no nodes"),
        ("nodes: [{name: a}, {name: a}]", r"x\.yaml:1:8: two nodes are called 'a'"),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=error):
        muster.init(nodes=str(file))
    with pytest.raises(FileNotFoundError, match=r"nowhere\.yaml"):
        muster.init(nodes=str(tmp_path / "nowhere.yaml"))
    with pytest.raises(ValueError, match="leave num_nodes"):
        muster.init(nodes=str(file), num_nodes=2)
    assert not muster.is_initialized()


def test_how_many(nodes: Any) -> None:
    with pytest.raises(muster.MusterError, match="at most 256"):
        muster.init(num_nodes=100000)
    with pytest.raises(ValueError, match="num_nodes: "):
        muster.init(num_nodes=0)
    assert not muster.is_initialized()
