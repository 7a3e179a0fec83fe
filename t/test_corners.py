"""Corner cases: odd results, forks, async engines that leave, Ctrl-C, things done twice."""

import os
import pickle
import signal
import threading
from collections.abc import Callable
from typing import Any

import muster
import pytest
from corner_workers import Odd, OddAsync, SlowToRead
from helpers import DEADLINE_S, Bell
from workers import Echo

Make = Callable[..., Any]
Bells = Callable[[], Bell]


# ---- results --------------------------------------------------------------------------


def test_a_result_that_cannot_be_read_fails_the_same_way_again(cluster: Make) -> None:
    future = cluster(Odd).execute_rank_zero_async("unreadable")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="cannot be read"):
            future.result(DEADLINE_S)


def test_two_threads_read_one_result(cluster: Make) -> None:
    """Reading lets go of the GIL, and the second one comes meanwhile."""
    future = cluster(Odd).execute_rank_zero_async("slow_to_read")
    assert future._call.wait(DEADLINE_S)
    results: list[Any] = []

    def read() -> None:
        results.append(future.result(DEADLINE_S))

    threads = [threading.Thread(target=read) for _ in range(2)]
    threads[0].start()
    assert SlowToRead.begun.wait(DEADLINE_S)
    threads[1].start()
    SlowToRead.gate.set()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert len(results) == 2 and results[0] is results[1]


@pytest.mark.parametrize("text", ["with \0 in it", "with \udcff in it", "cut ä" * 99])
def test_odd_messages_of_exceptions(cluster: Make, text: str) -> None:
    with pytest.raises(ValueError, match=text[:4]) as caught:
        cluster(Odd).execute_rank_zero_sync("fail", text)
    assert isinstance(caught.value, muster.RemoteError)


def test_a_message_that_is_cut_within_a_character(cluster: Make) -> None:
    with pytest.raises(muster.MusterError, match="too big"):
        cluster(Odd).execute_rank_zero_sync("fail", "xä" * 10_000_000)


def test_an_exception_that_cannot_be_sent(cluster: Make) -> None:
    with pytest.raises(muster.RemoteError, match="still said"):
        cluster(Odd).execute_rank_zero_sync("fail_unsendable")


def test_arrays_are_aligned_behind_a_chain_of_callers(cluster: Make) -> None:
    numpy = pytest.importorskip("numpy")
    first, second = cluster(Odd), cluster(Odd)
    array = numpy.zeros(100_000)
    assert first.execute_rank_zero_sync("is_aligned", array)
    assert first.execute_rank_zero_sync("ask", second, "is_aligned", array)


def test_a_method_that_the_engine_replaces(cluster: Make) -> None:
    odd = cluster(Odd)
    assert odd.execute_rank_zero_sync("step") == "slow"
    odd.execute_rank_zero_sync("compile")
    assert odd.execute_rank_zero_sync("step") == "fast"


# ---- forks ----------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "code"), [("returns", "0"), ("raises", "1")])
def test_a_child_that_comes_back_answers_nobody(
    cluster: Make, how: str, code: str
) -> None:
    odd = cluster(Odd)
    assert odd.execute_rank_zero_sync("fork_and_return", how) == code
    assert odd.execute_rank_zero_sync("step") == "slow"


def test_a_child_of_an_async_worker_that_comes_back(cluster: Make) -> None:
    odd = cluster(OddAsync)
    assert odd.execute_rank_zero_sync("fork_and_return") == 0
    assert odd.execute_rank_zero_sync("get_log") == []


def test_children_keep_no_connection(cluster: Make) -> None:
    assert cluster(Odd).execute_rank_zero_sync("fork_sockets") == 0


@pytest.mark.parametrize("cls", [Odd, OddAsync])
def test_sigterm_of_a_child_is_its_own(cluster: Make, cls: type) -> None:
    """It does not end as a worker would, and the worker does not hear of it."""
    odd = cluster(cls)
    for _ in range(5):
        assert odd.execute_rank_zero_sync("terminate_a_child") == -signal.SIGTERM


# ---- async engines --------------------------------------------------------------------


def test_a_method_is_cancelled_once(cluster: Make, bell: Bells) -> None:
    odd, here = cluster(OddAsync), bell()
    future = odd.execute_rank_zero_async("clean_up", here.path)
    here.hear()
    future.cancel()
    here.hear()  # it cleans up
    odd.execute_rank_zero_sync("get_log")  # which wakes the engine
    odd.execute_rank_zero_sync("let_go_on")
    here.hear()
    assert odd.execute_rank_zero_sync("get_log") == ["cleaned"]


def test_an_async_worker_that_leaves(cluster: Make, bell: Bells) -> None:
    """All its calls say so, also if one of its threads never ends."""
    odd, here = cluster(OddAsync), bell()
    pending = [
        odd.execute_rank_zero_async(method, here.path)
        for method in ("hang", "block_a_thread")
    ]
    for _ in pending:
        here.hear()
    pending.append(odd.execute_rank_zero_async("leave", 3))
    for future in pending:
        with pytest.raises(muster.WorkerDied) as caught:
            future.result(DEADLINE_S)
        assert caught.value.exit_code == 3


def test_an_async_worker_that_leaves_while_a_call_returns(cluster: Make) -> None:
    """A call that is answered in the same turn of the loop does not disturb the end."""
    odd = cluster(OddAsync)
    left = odd.execute_rank_zero_async("leave_later", 3)
    returned = odd.execute_rank_zero_async("return_later")
    odd.execute_rank_zero_sync("let_go_on")
    assert returned.result(DEADLINE_S) == "returned"
    with pytest.raises(muster.WorkerDied) as caught:
        left.result(DEADLINE_S)
    assert caught.value.exit_code == 3 and "answered" not in str(caught.value)


def test_an_async_worker_that_is_destroyed(session: Any, bell: Bells) -> None:
    odd, here = muster.Cluster("ended", OddAsync, world_size=1), bell()
    future = odd.execute_rank_zero_async("hang", here.path)
    here.hear()
    odd.destroy()
    with pytest.raises(muster.WorkerDied):
        future.result(DEADLINE_S)


def test_streams_that_nobody_reads_hold_up_no_other(cluster: Make) -> None:
    odd = cluster(OddAsync)
    streams = [
        odd.execute_rank_zero_async("count", 2000).result(DEADLINE_S) for _ in range(40)
    ]
    assert list(streams[-1]) == list(range(2000))
    for stream in streams:
        stream.close()


def test_an_async_worker_that_waits_for_itself(cluster: Make) -> None:
    odd, other = cluster(OddAsync), cluster(Odd)
    with pytest.raises(muster.DeadlockError):
        odd.execute_rank_zero_sync("ask", odd, "get_log")
    with pytest.raises(muster.DeadlockError):
        odd.execute_rank_zero_sync("ask", other, "ask", odd, "get_log")


# ---- clusters -------------------------------------------------------------------------


def test_ctrl_c_while_a_cluster_starts_leaves_nothing(
    session: Any, cluster: Make, bell: Bells
) -> None:
    began, go_on = bell(), bell()
    env = {
        "PYTHON_REVIEW_BEGAN": began.path,
        "PYTHON_REVIEW_GO_ON": go_on.path,
    }

    def interrupt() -> None:
        began.hear()
        os.kill(os.getpid(), signal.SIGINT)
        go_on.ring()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        muster.Cluster("early", "corner_slow.Echo", world_size=1, env=env)
    thread.join(DEADLINE_S)
    again = cluster(Echo, name="early")
    assert again.execute_rank_zero_sync("echo", 1) == 1


def test_ctrl_c_gives_up_a_call_to_all(cluster: Make, bell: Bells) -> None:
    """Nobody can ask for it again: what has not begun never runs."""
    echo = cluster(Echo, 2)
    here, go_on = bell(), [bell(), bell()]
    before = [
        echo.execute_rank_async(i, "wait_for", here.path, go_on[i].path) for i in (0, 1)
    ]
    here.hear()
    here.hear()

    def interrupt() -> None:
        while not all(echo.health(i)["calls_queued"] for i in (0, 1)):
            pass
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        echo.execute_all_sync("note", 1)
    thread.join(DEADLINE_S)
    while any(echo.health(i)["calls_queued"] for i in (0, 1)):
        pass  # the word of it is on its way
    for one in go_on:
        one.ring()
    assert muster.get(before, DEADLINE_S) == ["went on"] * 2
    assert echo.execute_all_sync("get", "seen") == [[], []]


def test_destroying_twice_leaves_the_next_one_alone(
    session: Any, cluster: Make
) -> None:
    first = muster.Cluster("twice", Echo, world_size=1)
    first.destroy()
    second = cluster(Echo, name="twice", device_mapping="0")
    first.destroy()
    assert second.execute_rank_zero_sync("echo", 1) == 1


def test_clusters_made_at_once_take_nothing_twice(session: Any, cluster: Make) -> None:
    outcomes: list[str] = []
    all_cpus = muster.nodes()[0].cpus

    def make() -> None:
        try:
            cluster(Echo, num_cpus=all_cpus)
            outcomes.append("made")
        except muster.PlacementError:
            outcomes.append("refused")

    threads = [threading.Thread(target=make) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert sorted(outcomes) == ["made", "refused"]


def test_a_handle_where_there_is_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    from muster._cluster.member import Member
    from muster.cluster import Cluster

    monkeypatch.setattr(muster.api, "_session", None)
    told = {"uid": 1, "pid": 1, "address": "/nowhere", "log_path": "", "devices": []}
    member = Member("actor", 0, {**told, "node": "here"}, ["here"])
    handle = Cluster._handle("actor", [member], "default", None, {})
    again = pickle.loads(pickle.dumps(handle))
    for call in (again.execute_rank_zero_sync, again.execute_all_async):
        with pytest.raises(muster.NotInitialized, match="actor/0@here"):
            call("echo", 1)
