"""Clusters, for real: what they are made of, where they run, how they end."""

import os
import pickle
import signal
import sys
from collections.abc import Callable
from typing import Any

import muster
import pytest
from helpers import DEADLINE_S, can_bind
from muster import api
from workers import Echo

Make = Callable[..., Any]


def test_a_forked_child_leaves_the_session_alone(session: Any, cluster: Make) -> None:
    echo = cluster(Echo)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            assert not muster.is_initialized()
            muster.shutdown()
            api._at_exit()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert muster.is_initialized() and session.head.alive
    assert echo.execute_rank_zero_sync("echo", 1) == 1


def test_a_constructor_raises_a_timeout_of_its_own(cluster: Make) -> None:
    class Late:
        def __init__(self) -> None:
            raise TimeoutError("no peer within 3 s")

    with pytest.raises(TimeoutError, match="no peer within 3 s"):
        cluster(Late)


def test_a_forked_child_cannot_call(cluster: Make) -> None:
    """Its parent's connections are not its own."""
    echo = cluster(Echo)
    assert echo.execute_rank_zero_sync("echo", 1) == 1
    pid = os.fork()
    if pid == 0:
        code = 1
        signal.alarm(int(DEADLINE_S))
        try:
            echo.execute_rank_zero_sync("echo", "of the child")
        except muster.MusterError:
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert echo.execute_rank_zero_sync("echo", "of the parent") == "of the parent"
    assert code == 0


def test_environment(cluster: Make) -> None:
    c = cluster(Echo, name="actor", device_mapping="0-3", num_gpus_per_worker=2)
    names = (
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "MUSTER_LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
    )
    names += ("NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "CLUSTER_NAME", "WORKER_NAME")
    names += ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
    first, second = c.execute_all_sync("env", *names)
    assert second == first | {
        "RANK": "1",
        "MUSTER_LOCAL_RANK": "1",
        "WORKER_NAME": "actor-1-G23",
        "CUDA_VISIBLE_DEVICES": "2,3",
    }
    assert first["WORKER_NAME"] == "actor-0-G01" and first["LOCAL_RANK"] == "0"
    assert first["WORLD_SIZE"] == first["LOCAL_WORLD_SIZE"] == "2"
    assert first["OMP_NUM_THREADS"] == os.environ.get("OMP_NUM_THREADS", "1")
    assert c.rank2devices[1] == [
        {"node_rank": 0, "gpu_rank": 2},
        {"node_rank": 0, "gpu_rank": 3},
    ]


def test_the_masters_port_is_held_until_the_end(cluster: Make) -> None:
    c = cluster(Echo)
    env = c.execute_rank_zero_sync("env", "MASTER_ADDR", "MASTER_PORT")
    host, port = env["MASTER_ADDR"], int(env["MASTER_PORT"])
    assert not can_bind(host, port)
    c.destroy()
    assert can_bind(host, port)


def test_collectives_know_the_interface(cluster: Make) -> None:
    gloo, nccl = "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"
    there = cluster(Echo).execute_rank_zero_sync("env", gloo, nccl)
    assert there == {gloo: "lo", nccl: "=lo"}
    there = cluster(Echo, env={gloo: "ib0"}).execute_rank_zero_sync("env", gloo, nccl)
    assert there == {gloo: "ib0", nccl: "=lo"}


def test_the_roles_environment(cluster: Make, tmp_path: Any) -> None:
    env = {"MINE": "ä=1", "OMP_NUM_THREADS": 3, "CUDA_VISIBLE_DEVICES": ""}
    c = cluster(Echo, env=env, working_dir=tmp_path)
    there = c.execute_rank_zero_sync("env", *env)
    assert there == {k: str(v) for k, v in env.items()}
    cwd = c.execute_rank_zero_sync("env", "PWD")
    assert isinstance(cwd, dict)
    assert cluster(Echo).execute_rank_zero_sync("env", "MINE") == {"MINE": None}
    with pytest.raises(ValueError, match="env: CUDA_VISIBLE_DEVICES follows"):
        cluster(Echo, device_mapping="0", env={"CUDA_VISIBLE_DEVICES": "7"})


def test_placement_that_does_not_fit(session: Any) -> None:
    with pytest.raises(muster.PlacementError) as caught:
        muster.Cluster("wide", Echo, device_mapping="0-7")
    assert "8" in str(caught.value) and muster.nodes()[0].name in caught.value.table
    with pytest.raises(muster.PlacementError, match="devices"):
        muster.ResourceManager(num_gpus_per_node=8)
    with pytest.raises(muster.PlacementError):
        muster.ResourceManager(num_gpus_per_node=2, num_nodes=2)
    with pytest.raises(muster.PlacementError, match="it fits with 1 GPU per worker"):
        muster.Cluster("odd", Echo, device_mapping="0-2", num_gpus_per_worker=2)
    with pytest.raises(ValueError, match="mesh"):
        muster.Cluster("odd", Echo, world_size=3, mesh={"tp": 2})
    with pytest.raises(TypeError, match="worker_cls"):
        muster.Cluster("odd", 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="worker_cls"):
        muster.Cluster("odd", "Echo")


def test_resource_manager(session: Any, cluster: Make) -> None:
    rm = muster.ResourceManager(num_gpus_per_node=2, num_nodes=1)
    assert (rm.num_gpus, rm.num_nodes) == (2, 1)
    assert muster.ResourceManager().num_gpus == 4
    c = cluster(Echo, resource_manager=rm, device_mapping=[1, 0])
    assert [d[0]["gpu_rank"] for d in c.rank2devices.values()] == [1, 0]


@pytest.mark.parametrize("name", ["", "a/b", "-x", "x" * 65, "a b"])
def test_bad_names(session: Any, name: str) -> None:
    with pytest.raises((muster.MusterError, ValueError), match=r"cluster|name"):
        muster.Cluster(name, Echo)


def test_name_taken(cluster: Make) -> None:
    c = cluster(Echo)
    with pytest.raises(muster.ClusterError, match="already"):
        muster.Cluster(c.name, Echo)
    assert c.execute_rank_zero_sync("echo", 1) == 1
    env = c.execute_rank_zero_sync("env", "MASTER_ADDR", "MASTER_PORT")
    assert not can_bind(env["MASTER_ADDR"], int(env["MASTER_PORT"]))


def test_by_import_path(cluster: Make) -> None:
    for path in ("workers.Echo", "workers:Echo"):
        c = cluster(path, 2, args=(1,), kwargs={"b": [2]})
        assert c.execute_all_sync("get", "made_with") == [((1,), {"b": [2]})] * 2


def test_a_class_of_this_function(cluster: Make) -> None:
    secret = 42

    class Local:
        def get(self) -> int:
            return secret

    assert cluster(Local).execute_rank_zero_sync("get") == 42


def test_a_class_of_a_module_that_workers_cannot_import(cluster: Make) -> None:
    import types

    module = types.ModuleType("made_up")
    source = "K = 7\nclass Odd:\n    def get(self):\n        return K\n"
    exec(source, module.__dict__)
    sys.modules["made_up"] = module
    try:
        assert cluster(module.Odd).execute_rank_zero_sync("get") == 7
    finally:
        del sys.modules["made_up"]


def test_started_by_exec(cluster: Make) -> None:
    c = cluster(Echo, 2, start="exec")
    assert c.execute_all_sync("rank") == [0, 1]
    assert c.execute_all_sync("on_main_thread") == [True, True]


def test_preloaded(cluster: Make) -> None:
    c = cluster(Echo, preload=["colorsys"])
    assert c.execute_rank_zero_sync("modules", "colorsys", "workers") == [True, True]


def test_destroy(session: Any) -> None:
    with muster.Cluster("brief", Echo, world_size=2) as c:
        pids = c.execute_all_sync("pid")
        assert pids == c.pids
        first = c[0]
        with pytest.raises(muster.ClusterError, match="handle"):
            pickle.loads(pickle.dumps(c)).destroy()
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert "destroyed" in repr(c)
    c.destroy()
    for call in (c.execute_all_sync, c.execute_rank_zero_sync, c.execute_all_async):
        with pytest.raises(muster.ClusterError, match="destroyed"):
            call("pid")
    with pytest.raises(muster.WorkerDied, match="request"):
        first.execute_rank_zero_sync("pid")
    with muster.Cluster("brief", Echo) as again:
        assert again.execute_rank_zero_sync("rank") == 0


def test_dropping_the_object_ends_nothing(session: Any) -> None:
    c = muster.Cluster("kept", Echo)
    handle = pickle.loads(pickle.dumps(c))
    del c
    assert handle.execute_rank_zero_sync("echo", 1) == 1
    session.destroy_cluster("kept", True, 0, 0.0)


def test_looking_at_workers(cluster: Make, session: Any) -> None:
    c = cluster(Echo, 3)
    health = c.health(2)
    assert health["status"] == "ok" and health["rank"] == 2
    assert health["engines"] == ["default"] and health["pid"] == c.pids[2]
    python, native = c.stack(1)
    assert "thread" in python and native
    assert c.address(0).startswith("127.0.0.1:") and os.path.exists(c.log_path(0))
    assert c.world_size == len(c) == 3 and c.ranks == [0, 1, 2]
    assert c.rank2worker[1].execute_rank_zero_sync("rank") == 1
    assert [w.execute_rank_zero_sync("rank") for w in c.workers] == [0, 1, 2]
    assert set(c.worker2nodes.values()) == {muster.nodes()[0].name}
    assert c.name in repr(c) and "3 workers" in repr(c)
