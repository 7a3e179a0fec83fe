"""Calls to workers: values, arguments, whom they reach, deadlines, cancelling."""

import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import muster
import numpy as np
import pytest
from helpers import DEADLINE_S, Bell
from workers import AsyncEcho, Echo

Make = Callable[..., Any]
Bells = Callable[[], Bell]


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


def test_a_list_goes_to_all_unless_it_is_marked(cluster: Make) -> None:
    c = cluster(Echo, 3)
    call, each = c.execute_all_sync, muster.each
    assert call("echo", [1, 2, 3]) == [[1, 2, 3]] * 3
    assert muster.get(c.execute_all("echo", [1, 2, 3])) == [[1, 2, 3]] * 3
    assert c[0].execute_all_sync("echo", [7]) == [[7]]
    assert call("echo", each([1, 2, 3])) == [1, 2, 3]
    assert muster.get(c.execute_all("echo", each((1, 2, 3)))) == [1, 2, 3]
    assert call("echo", each([1, 2, 3]), 0, x=each([4, 5, 6])) == [
        ((1, 0), {"x": 4}),
        ((2, 0), {"x": 5}),
        ((3, 0), {"x": 6}),
    ]
    assert c[:2].execute_all_sync("echo", each([7, 8])) == [7, 8]
    assert c[0].execute_all_sync("echo", each([7])) == [7]
    with pytest.raises(ValueError, match=r"muster\.each: 2 elements for 3 ranks"):
        call("echo", each([1, 2]))
    for wrong in (call, c.execute_rank_zero_sync):
        with pytest.raises(Exception, match=r"muster\.each\(x\) can be an argument of"):
            wrong("echo", [each([1, 2, 3])])


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
    assert "method wait_for gave no answer within 0.3 s (timeout)" in str(caught.value)
    late = c.options(timeout=0.2).execute_rank_zero_async("note", "late")
    with pytest.raises(muster.DeadlineExceeded):
        late.result()
    go_on.ring()
    assert c.execute_rank_zero_sync("get", "seen") == []  # a queued one never runs


def test_the_clusters_timeout(cluster: Make) -> None:
    c = cluster(Echo, timeout=0.2)
    within = r"hang .* within 0\.(2|1[5-9]\d*) s \(timeout\)"  # made a little later
    with pytest.raises(muster.DeadlineExceeded, match=within):
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
