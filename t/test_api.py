"""The driver's API, for real: sessions, clusters, calls, futures, streams."""

import asyncio
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import muster
import numpy as np
import pytest
from helpers import DEADLINE_S, Bell, can_bind
from muster import api
from workers import AsyncEcho, Echo

Make = Callable[..., Any]
Bells = Callable[[], Bell]


# ---- clusters -------------------------------------------------------------------------


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
    assert "8" in str(caught.value) and session.head.node[0] in caught.value.table
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
    session.head.destroy_cluster("kept", True, 0, 0.0, DEADLINE_S)


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
    assert set(c.worker2nodes.values()) == {session.head.node[0]}
    assert c.name in repr(c) and "3 workers" in repr(c)


# ---- calls ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [None, True, 2**70, 1.5, "ä\ud800"[:1], b"x" * 100_000, [1, (2,)], {"a": {1}}, ...],
)
def test_values(cluster: Make, value: Any) -> None:
    assert cluster(Echo).execute_rank_zero_sync("echo", value) == value


def test_arrays(cluster: Make) -> None:
    c = cluster(Echo, 2)
    array = np.arange(3_000_000, dtype=np.float32).reshape(1000, -1)
    for again in c.execute_all_sync("echo", {"x": [array, array[:2]]}):
        assert np.array_equal(again["x"][0], array) and again["x"][1].shape == (2, 3000)
        assert not again["x"][0].flags.writeable  # shared with whoever else has it
        again["x"][0].copy()[0] = 1
    small = c.execute_rank_zero_sync("echo", np.ones(1000))
    small[0] = 2  # ours to change


def test_arguments(cluster: Make) -> None:
    c = cluster(Echo)
    call = c.execute_rank_zero_sync
    assert call("echo", 1, 2, method="m", self_="s") == (
        (1, 2),
        {"method": "m", "self_": "s"},
    )
    assert call("echo") == ((), {})


def test_no_such_method(cluster: Make) -> None:
    c = cluster(Echo)
    with pytest.raises(AttributeError, match="nothing") as caught:
        c.execute_rank_zero_sync("nothing")
    assert isinstance(caught.value, muster.ClusterError) and c.name in str(caught.value)
    with pytest.raises(muster.ClusterError, match="other"):
        c.options(engine="other").execute_rank_zero_sync("echo")


def test_all_and_one(cluster: Make) -> None:
    c = cluster(Echo, 3)
    assert c.execute_all_sync("rank") == [0, 1, 2]
    assert muster.get(c.execute_all_async("rank")) == [0, 1, 2]
    assert muster.get(c.execute_all("rank")) == [0, 1, 2]
    assert c.execute_rank_zero_sync("rank") == 0
    assert c.execute_rank_zero("rank").result() == 0
    assert c.execute_rank_sync(2, "rank") == 2
    assert c.execute_rank_async(-1, "rank").result() == 2
    assert c.execute_all_sync("on_main_thread") == [True] * 3


def test_lists_are_shared_out_as_in_roll(cluster: Make) -> None:
    c = cluster(Echo, 3)
    call = c.execute_all_sync
    assert call("echo", [1, 2, 3]) == [1, 2, 3]
    assert call("echo", [1, 2, 3], x=[4, 5, 6]) == [
        ((1,), {"x": 4}),
        ((2,), {"x": 5}),
        ((3,), {"x": 6}),
    ]
    assert call("echo", [1, 2]) == [[1, 2]] * 3
    assert call("echo", (1, 2, 3)) == [(1, 2, 3)] * 3
    assert call("echo", [1, 2, 3], 4) == [(([1, 2, 3], 4), {})] * 3
    assert call("echo", [1, 2, 3], x=4) == [(([1, 2, 3],), {"x": 4})] * 3
    assert c[:2].execute_all_sync("echo", [7, 8]) == [7, 8]
    assert c[0].execute_all_sync("echo", [7]) == [7]
    assert c[0].execute_all_sync("echo", [7], x=8) == [(([7],), {"x": 8})]


def test_views(cluster: Make) -> None:
    c = cluster(Echo, 4)
    assert c[1].execute_all_sync("rank") == [1]
    assert c[1:3].execute_all_sync("rank") == [1, 2]
    assert c[[3, 0]].execute_all_sync("rank") == [3, 0]
    assert c[1:][-1].execute_rank_zero_sync("rank") == 3
    assert c[1:3].world_size == 2 and c[1:3].ranks == [1, 2]
    assert [v.execute_rank_zero_sync("rank") for v in c[::2]] == [0, 2]
    assert "[1,2]" in repr(c[1:3])
    for bad in (4, -5, [0, 4], slice(4, 9)):
        with pytest.raises(IndexError):
            c[bad]
    again = pickle.loads(pickle.dumps(c[[2]].options(timeout=9)))
    assert again.execute_rank_zero_sync("rank") == 2 and again._timeout == 9.0


def test_several_engines(cluster: Make) -> None:
    c = cluster(Echo, 2, args=("first",))
    other = c.create_engine("other", Echo, args=("second",))
    assert other.execute_all_sync("get", "made_with") == [(("second",), {})] * 2
    assert c.execute_all_sync("get", "made_with") == [(("first",), {})] * 2
    assert c.execute_all_sync("pid") == other.execute_all_sync("pid")
    assert c.health()["engines"] == ["default", "other"]
    with pytest.raises(ValueError, match="other"):
        c.create_engine("other", Echo)
    c.destroy_engine("other")
    with pytest.raises(muster.ClusterError, match="other"):
        other.execute_rank_zero_sync("pid")
    assert c.execute_rank_zero_sync("echo", 1) == 1


def test_sync_methods_run_in_order(cluster: Make) -> None:
    c = cluster(Echo)
    futures = [c.execute_rank_zero_async("note", i) for i in range(200)]
    muster.get(futures)
    assert c.execute_rank_zero_sync("get", "seen") == list(range(200))


def test_from_threads(cluster: Make) -> None:
    c = cluster(Echo, 2)
    wrong: list[Any] = []

    def work(me: int) -> None:
        for i in range(50):
            got = c.execute_all_sync("echo", (me, i))
            if got != [(me, i)] * 2:
                wrong.append(got)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(DEADLINE_S)
    assert wrong == [] and not any(t.is_alive() for t in threads)


def test_a_dropped_future_is_not_cancelled(cluster: Make) -> None:
    c = cluster(Echo)
    c.execute_rank_zero_async("note", 1)
    assert c.execute_rank_zero_sync("get", "seen") == [1]


def test_a_small_call_passes_a_big_one(cluster: Make) -> None:
    c = cluster(Echo, 2)
    big = c[0].execute_all_async("echo", b"x" * (64 << 20))
    assert c.health(0, timeout=5)["status"] == "ok"
    assert c[1].execute_rank_zero_sync("rank") == 1
    assert len(muster.get(big)[0]) == 64 << 20


# ---- deadlines and cancelling ---------------------------------------------------------


def test_deadline(cluster: Make, bell: Bells) -> None:
    c = cluster(Echo)
    begun, go_on = bell(), bell()
    start = time.monotonic()
    with pytest.raises(muster.DeadlineExceeded) as caught:
        c.options(timeout=0.3).execute_rank_zero_sync(
            "wait_for", begun.path, go_on.path
        )
    assert 0.25 < time.monotonic() - start < 5
    assert isinstance(caught.value, TimeoutError) and c.name in str(caught.value)
    late = c.options(timeout=0.2).execute_rank_zero_async("note", "late")
    with pytest.raises(muster.DeadlineExceeded):
        late.result()
    go_on.ring()
    assert c.execute_rank_zero_sync("get", "seen") == []  # a queued one never runs


def test_the_clusters_timeout(cluster: Make) -> None:
    c = cluster(Echo, timeout=0.2)
    with pytest.raises(muster.DeadlineExceeded):
        c.execute_all_sync("hang")
    with pytest.raises(ValueError, match="timeout"):
        c.options(timeout=-1)


def test_a_local_timeout_leaves_the_call_alone(cluster: Make, bell: Bells) -> None:
    c = cluster(Echo)
    begun, go_on = bell(), bell()
    future = c.execute_rank_zero_async("wait_for", begun.path, go_on.path)
    begun.hear()
    for ask in (future.result, future.exception):
        with pytest.raises(muster.DeadlineExceeded, match="goes on"):
            ask(timeout=0.05)
    with pytest.raises(muster.DeadlineExceeded):
        muster.get([future], timeout=0.05)
    assert not future.done() and "pending" in repr(future)
    go_on.ring()
    assert future.result(DEADLINE_S) == "went on"
    assert future.exception() is None and not future.cancelled() and future.done()


def test_cancel(cluster: Make, bell: Bells) -> None:
    c = cluster(Echo)
    begun, go_on = bell(), bell()
    running = c.execute_rank_zero_async("wait_for", begun.path, go_on.path)
    queued = c.execute_rank_zero_async("note", 1)
    begun.hear()
    assert queued.cancel() and running.cancel()
    for future in (queued, running):
        with pytest.raises(muster.Cancelled):
            future.result(DEADLINE_S)
        assert future.cancelled() and not future.cancel()
    go_on.ring()
    assert c.execute_rank_zero_sync("get", "seen") == []


def test_a_cancelled_call_never_runs(cluster: Make, bell: Bells) -> None:
    """Also if the one before it ends right after the cancel."""
    c = cluster(Echo)
    for i in range(20):
        begun, go_on = bell(), bell()
        running = c.execute_rank_zero_async("wait_for", begun.path, go_on.path)
        queued = c.execute_rank_zero_async("note", i)
        begun.hear()
        queued.cancel()
        go_on.ring()
        assert running.result(DEADLINE_S) == "went on"
    assert c.execute_rank_zero_sync("get", "seen") == []


# ---- futures --------------------------------------------------------------------------


def test_wait(cluster: Make, bell: Bells) -> None:
    c = cluster(Echo, 3)
    begun, go_on = bell(), bell()
    slow = c[0].execute_rank_zero_async("wait_for", begun.path, go_on.path)
    quick = [c[i].execute_rank_zero_async("rank") for i in (1, 2)]
    done, pending = muster.wait([slow, *quick], num_returns=2)
    assert done == quick and pending == [slow]
    for _ in range(20):
        assert muster.wait([slow], timeout=0.001) == ([], [slow])
    go_on.ring()
    assert muster.wait([slow], timeout=DEADLINE_S) == ([slow], [])
    assert muster.wait([slow, *quick])[0] == [slow]
    for bad in (0, 2):
        with pytest.raises(ValueError, match="num_returns"):
            muster.wait([slow], num_returns=bad)
    with pytest.raises(ValueError, match="twice"):
        muster.wait([slow, slow])
    with pytest.raises(TypeError):
        muster.get([3])  # type: ignore[list-item]
    assert muster.get([]) == []


def test_waiting_again_and_again_takes_no_descriptors(cluster: Make) -> None:
    c = cluster(Echo, 2)
    pending = c.execute_all_async("hang")
    muster.wait(pending, timeout=0)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(100):
        muster.wait(pending, timeout=0)
        with pytest.raises(muster.DeadlineExceeded):
            muster.get(pending, timeout=0)
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_the_first_failure_is_raised_at_once(cluster: Make) -> None:
    c = cluster(Echo, 3)
    hanging = c[:2].execute_all_async("hang")
    failing = c[2].execute_rank_zero_async("fail", ValueError("me"))
    with pytest.raises(ValueError, match="me"):
        muster.get([*hanging, failing], timeout=DEADLINE_S)


def test_callbacks(cluster: Make) -> None:
    c = cluster(Echo)
    heard: list[Any] = []
    enough = threading.Event()

    def on_done(future: muster.Future) -> None:
        heard.append((future.exception(), threading.current_thread().name))
        if len(heard) == 3:
            enough.set()

    c.execute_rank_zero_async("echo", 1).add_done_callback(on_done)
    c.execute_rank_zero_async("fail", KeyError("k")).add_done_callback(on_done)
    done = c.execute_rank_zero_async("echo", 1)
    done.result()
    done.add_done_callback(on_done)
    assert enough.wait(DEADLINE_S)
    assert sorted(type(e).__name__ for e, _ in heard) == [
        "NoneType",
        "NoneType",
        "RemoteError[KeyError]",
    ]
    assert {name for _, name in heard} == {"muster-callbacks"}


def test_a_callback_that_raises(cluster: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    c = cluster(Echo)
    seen: list[Any] = []
    said = threading.Event()
    monkeypatch.setattr(
        threading, "excepthook", lambda args: (seen.append(args.exc_type), said.set())
    )
    c.execute_rank_zero_async("echo", 1).add_done_callback(lambda f: 1 / 0)
    assert said.wait(DEADLINE_S) and seen == [ZeroDivisionError]
    after = threading.Event()
    c.execute_rank_zero_async("echo", 1).add_done_callback(lambda f: after.set())
    assert after.wait(DEADLINE_S)


# ---- asyncio --------------------------------------------------------------------------


def test_await(cluster: Make) -> None:
    c = cluster(Echo, 2)

    async def main() -> None:
        assert await c.execute_rank_zero_async("echo", 5) == 5
        futures = [c[i % 2].execute_rank_zero_async("echo", i) for i in range(100)]
        assert await asyncio.gather(*futures) == list(range(100))
        assert await futures[3] == 3
        with pytest.raises(ValueError, match="boo"):
            await c.execute_rank_zero_async("fail", ValueError("boo"))

    for _ in range(2):  # a loop each
        asyncio.run(main())


def test_the_loop_runs_while_we_wait(cluster: Make, bell: Bells) -> None:
    c = cluster(Echo)
    begun, go_on = bell(), bell()

    async def main() -> None:
        future = c.execute_rank_zero_async("wait_for", begun.path, go_on.path)
        task = asyncio.ensure_future(future)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not task.done()
        go_on.ring()
        assert await asyncio.wait_for(task, DEADLINE_S) == "went on"

    asyncio.run(main())


def test_cancelling_a_task_cancels_its_call(cluster: Make) -> None:
    c = cluster(Echo)

    async def main() -> muster.Future:
        future = c.execute_rank_zero_async("hang")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(future, 0.1)
        return future

    future = asyncio.run(main())
    assert future.exception(DEADLINE_S).__class__ is muster.Cancelled


def test_loops_in_several_threads(cluster: Make) -> None:
    c = cluster(Echo)
    results: list[Any] = []

    def work(me: int) -> None:
        async def main() -> None:
            for i in range(20):
                results.append(await c.execute_rank_zero_async("echo", (me, i)))

        asyncio.run(main())

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(DEADLINE_S)
    assert sorted(results) == [(n, i) for n in range(4) for i in range(20)]


def test_async_class(cluster: Make, bell: Bells) -> None:
    c = cluster(AsyncEcho)
    assert c.execute_rank_zero_sync("echo", 1) == 1
    assert c.execute_rank_zero_sync("plain", 2) == 2
    meeting = [c.execute_rank_zero_async("meet", 50) for _ in range(50)]
    assert muster.get(meeting, timeout=DEADLINE_S) == [50] * 50
    with pytest.raises(KeyError, match="async"):
        c.execute_rank_zero_sync("fail")
    assert list(c.execute_rank_zero_sync("count", 500)) == list(range(500))
    begun = bell()
    hanging = c.execute_rank_zero_async("hang", begun.path)
    begun.hear()
    hanging.cancel()
    with pytest.raises(muster.Cancelled):
        hanging.result(DEADLINE_S)
    end = time.monotonic() + DEADLINE_S
    while c.execute_rank_zero_sync("cancellations") != 1:
        assert time.monotonic() < end


def test_max_concurrency(cluster: Make) -> None:
    c = cluster(AsyncEcho, max_concurrency=3)
    muster.get([c.execute_rank_zero_async("busy") for _ in range(30)])
    assert c.execute_rank_zero_sync("peak") <= 3
    free = cluster(AsyncEcho)
    muster.get([free.execute_rank_zero_async("busy") for _ in range(30)])
    assert free.execute_rank_zero_sync("peak") > 3


# ---- streams --------------------------------------------------------------------------


def test_stream(cluster: Make) -> None:
    c = cluster(Echo, 2)
    stream = c.execute_rank_zero_sync("count", 2000)
    assert isinstance(stream, muster.Stream)
    assert list(stream) == list(range(2000)) and list(stream) == []
    assert list(c.execute_rank_zero_sync("count", 0)) == []
    both = c.execute_all_sync("count", 3)
    assert [list(s) for s in both] == [[0, 1, 2]] * 2
    future = c.execute_rank_zero_async("count", 3)
    assert future.result() is future.result() and future.exception() is None
    assert list(future.result()) == [0, 1, 2]


def test_stream_that_raises(cluster: Make) -> None:
    stream = cluster(Echo).execute_rank_zero_sync("count_then_raise", 3)
    assert [next(stream) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="no more"):
        next(stream)
    assert list(stream) == []


def test_stream_in_asyncio(cluster: Make) -> None:
    c = cluster(Echo)

    async def main() -> list[int]:
        stream = await c.execute_rank_zero_async("count", 1000)
        got = [item async for item in stream]
        bad = await c.execute_rank_zero_async("count_then_raise", 1)
        with pytest.raises(ValueError, match="no more"):
            async for _ in bad:
                pass
        return got

    assert asyncio.run(main()) == list(range(1000))


@pytest.mark.parametrize("how", ["close", "with", "drop", "aclose"])
def test_leaving_a_stream_closes_the_generator(
    cluster: Make, bell: Bells, how: str
) -> None:
    c = cluster(Echo)
    closed = bell()
    stream = c.execute_rank_zero_sync("endless", closed.path)
    assert next(stream) == 0
    if how == "close":
        stream.close()
        stream.close()
    elif how == "with":
        with stream:
            pass
    elif how == "aclose":
        asyncio.run(stream.aclose())
    else:
        del stream
    closed.hear()
    assert c.execute_rank_zero_sync("echo", 1) == 1


# ---- workers that call ----------------------------------------------------------------


def test_a_worker_calls_another_cluster(cluster: Make) -> None:
    a, b = cluster(Echo), cluster(Echo, 2)
    for how in ("call", "call_async"):
        assert a.execute_rank_zero_sync(how, b, "rank") == 0
        assert a.execute_rank_zero_sync(how, b[1], "rank") == 1
    assert a.execute_rank_zero_sync("call_all", b, "rank") == [0, 1]
    with pytest.raises(KeyError) as caught:
        a.execute_rank_zero_sync("call", b, "fail_deep", 2)
    assert "fail_deep" in str(caught.value)
    c = cluster(AsyncEcho)
    assert c.execute_rank_zero_sync("call", b, "echo", 3) == 3
    again = a.execute_rank_zero_sync("echo", b)
    assert again.execute_all_sync("rank") == [0, 1]


def test_init_in_a_worker(cluster: Make) -> None:
    with pytest.raises(muster.MusterError, match="worker"):
        cluster(Echo).execute_rank_zero_sync("init")
