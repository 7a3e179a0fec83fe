"""The key-value store, barriers, and the rendezvous of two clusters."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import muster
import pytest
from helpers import DEADLINE_S, can_bind
from meet_workers import Meeter
from muster import kv

HISTORY_MAX = 4096  # MS_KV_HISTORY_MAX


@pytest.fixture(autouse=True)
def _empty(request: Any) -> Iterator[None]:
    yield
    if "session" in request.fixturenames:
        for key in kv.keys():
            kv.delete(key)


def test_put_and_get(session: Any) -> None:
    assert kv.get("a") is None
    assert kv.get("a", "other") == "other"
    kv.put("a", {"x": [1, 2.5, None]})
    assert kv.get("a") == {"x": [1, 2.5, None]}
    kv.put("a", b"bytes \0 as they are")
    assert kv.get("a") == b"bytes \0 as they are"
    kv.put("b/1", 1)
    kv.put("b/0", 0)
    assert kv.keys() == ["a", "b/0", "b/1"]
    assert kv.keys("b/") == ["b/0", "b/1"]
    assert kv.delete("a") is True
    assert kv.delete("a") is False
    assert kv.get("a") is None


def test_get_waits(session: Any) -> None:
    began = time.monotonic()
    with pytest.raises(muster.DeadlineExceeded, match="'late' was not put"):
        kv.get("late", timeout=0.1)
    assert kv.get("late", 5, timeout=0.1) == 5
    assert time.monotonic() - began < DEADLINE_S
    found: list[Any] = []
    waiter = threading.Thread(
        target=lambda: found.append(kv.get("late", timeout=DEADLINE_S))
    )
    waiter.start()
    kv.put("other", 1)
    kv.put("late", "here")
    waiter.join(DEADLINE_S)
    assert found == ["here"]


def test_limits_are_told(session: Any) -> None:
    with pytest.raises(muster.MusterError, match="512 characters"):
        kv.put("k" * 513, 1)
    with pytest.raises(muster.MusterError, match="empty"):
        kv.put("", 1)
    with pytest.raises(muster.MusterError, match="4194304"):
        kv.put("k", b"x" * (4 << 20) + b"x")
    kv.put("k", b"x" * (4 << 20))
    assert len(kv.get("k")) == 4 << 20
    with pytest.raises(muster.SerializationError):
        kv.put("k", threading.Lock())
    with pytest.raises(ValueError, match="owner"):
        kv.put("k", 1, owner="me")  # type: ignore[arg-type]
    with pytest.raises(muster.MusterError, match="not a worker"):
        kv.put("k", 1, owner="worker")


def test_more_than_one_answer_can_hold(session: Any) -> None:
    for i in range(3):
        kv.put(f"big/{i}", b"x" * (4 << 20))
    assert len(kv.keys("big/")) == 3
    with pytest.raises(muster.MusterError, match="longer prefix"):
        next(kv.watch("big/"))
    assert next(kv.watch("big/1")).key == "big/1"


# ---- from workers -------------------------------------------------------------------------


def test_workers_see_what_drivers_put(cluster: Callable[..., Any]) -> None:
    c = cluster(Meeter, world_size=4)
    kv.put("from/driver", 7)
    assert c.execute_all_sync("get", "from/driver") == [7] * 4
    c.execute_rank_sync(2, "put", "from/worker", {"rank": 2})
    assert kv.get("from/worker") == {"rank": 2}
    assert c.execute_all_sync("keys", "from/") == [["from/driver", "from/worker"]] * 4
    waiting = c.execute_rank_async(3, "get", "later", DEADLINE_S)
    kv.put("later", "now")
    assert waiting.result(timeout=DEADLINE_S) == "now"
    assert c.execute_rank_sync(1, "delete", "later") is True


def test_exactly_one_is_first(cluster: Callable[..., Any]) -> None:
    c = cluster(Meeter, world_size=4)
    for i in range(20):
        won = c.execute_all_sync("put_if_absent", f"leader/{i}")
        assert sum(won) == 1
        assert kv.get(f"leader/{i}") == won.index(True)


def test_entries_go_with_the_worker(cluster: Callable[..., Any]) -> None:
    c = cluster(Meeter, world_size=2)
    c.execute_rank_sync(0, "put", "mine/0", 0, owner="worker")
    c.execute_rank_sync(1, "put", "mine/1", 1, owner="worker")
    c.execute_rank_sync(1, "put", "mine/kept", 1)
    watch = kv.watch("mine/", existing=False)
    os.kill(c.pids[1], signal.SIGKILL)
    event = watch.next(timeout=DEADLINE_S)
    assert event is not None
    assert (event.kind, event.key, event.value) == ("delete", "mine/1", None)
    assert kv.keys("mine/") == ["mine/0", "mine/kept"]


def test_a_forked_child_does_not_use_its_parents_way(
    cluster: Callable[..., Any],
) -> None:
    c = cluster(Meeter, world_size=1)
    kv.put("k", 1)
    code, value = c.execute_rank_zero_sync("fork_and_get", "k")
    assert code == 3
    assert value == 1


# ---- watching -----------------------------------------------------------------------------


def told(watch: kv.Watch, count: int) -> list[tuple[str, str, Any]]:
    events = [watch.next(timeout=DEADLINE_S) for _ in range(count)]
    return [(e.kind, e.key, e.value) for e in events if e is not None]


def test_watch(session: Any) -> None:
    kv.put("w/a", 1)
    kv.put("elsewhere", 1)
    watch = kv.watch("w/")
    assert told(watch, 1) == [("put", "w/a", 1)]
    assert watch.next(timeout=0.05) is None
    kv.put("w/b", 2)
    kv.put("w/a", 3)
    kv.put("elsewhere", 2)
    kv.delete("w/b")
    assert told(watch, 3) == [
        ("put", "w/b", 2),
        ("put", "w/a", 3),
        ("delete", "w/b", None),
    ]
    late = kv.watch("w/", existing=False)
    kv.put("w/c", 4)
    assert told(late, 1) == [("put", "w/c", 4)]
    late.close()
    assert list(late) == []


def test_watch_without_waiting(session: Any) -> None:
    events = kv.watch("w/", existing=False)
    assert events.next(timeout=0) is None
    kv.put("w/a", 1)
    event = events.next(timeout=0)
    assert event is not None and (event.key, event.value) == ("w/a", 1)
    assert events.next(timeout=0) is None


class Unreadable:
    def __reduce__(self) -> Any:
        return int, ("not a number",)


def test_watch_goes_on_after_what_it_cannot_read(session: Any) -> None:
    events = kv.watch("w/", existing=False)
    kv.put("w/a", Unreadable())
    kv.put("w/b", 2)
    with pytest.raises(ValueError, match="not a number"):
        events.next(timeout=DEADLINE_S)
    event = events.next(timeout=DEADLINE_S)
    assert event is not None and (event.key, event.value) == ("w/b", 2)


def test_who_missed_too_much_is_told_the_difference(session: Any) -> None:
    kv.put("w/gone", 1)
    kv.put("w/same", 1)
    kv.put("w/other", 1)
    watch = kv.watch("w/")
    told(watch, 3)
    kv.delete("w/gone")
    kv.put("w/other", 2)
    for i in range(HISTORY_MAX):
        kv.put("noise", i)
    assert told(watch, 2) == [("delete", "w/gone", None), ("put", "w/other", 2)]
    assert watch.next(timeout=0.05) is None
    kv.put("w/same", 2)
    assert told(watch, 1) == [("put", "w/same", 2)]


# ---- barriers -----------------------------------------------------------------------------


def test_nobody_passes_before_all_have_come(cluster: Callable[..., Any]) -> None:
    c = cluster(Meeter, world_size=4)
    assert c.execute_all_sync("barriers", "b", 10) == [list(range(10))] * 4


def test_the_missing_are_named(cluster: Callable[..., Any]) -> None:
    c = cluster(Meeter, world_size=4)
    some = [c.execute_rank_async(rank, "barrier", "x", 0.5) for rank in (0, 2)]
    for one in some:
        with pytest.raises(muster.DeadlineExceeded, match=r"not come in time: 1, .*3"):
            one.result(timeout=DEADLINE_S)
    assert c.execute_all_sync("barrier", "x", DEADLINE_S) == [0, 1, 2, 3]


def test_a_dead_rank_fails_the_barrier_at_once(cluster: Callable[..., Any]) -> None:
    c = cluster(Meeter, world_size=3)
    waiting = [c.execute_rank_async(rank, "barrier", "x", 600) for rank in (0, 1)]
    kv.put("sync", 1)
    assert c.execute_rank_sync(2, "get", "sync") == 1  # it has joined, too
    os.kill(c.pids[2], signal.SIGKILL)
    began = time.monotonic()
    for one in waiting:
        with pytest.raises(
            muster.ClusterError, match=r"rank 2 \(pid \d+ on node .*died"
        ):
            one.result(timeout=DEADLINE_S)
    assert time.monotonic() - began < 10
    with pytest.raises(muster.ClusterError, match="rank 2"):
        c.execute_rank_sync(0, "barrier", "y", 600)
    c.replace(2)
    assert c.execute_all_sync("barrier", "x", DEADLINE_S) == [0, 1, 2]


def test_barriers_are_for_their_own_workers(cluster: Callable[..., Any]) -> None:
    one, two = cluster(Meeter, world_size=2), cluster(Meeter, world_size=1)
    one.execute_all_sync("barrier_of", one, DEADLINE_S)
    with pytest.raises(muster.ClusterError, match="not of"):
        two.execute_all_sync("barrier_of", one, DEADLINE_S)
    with pytest.raises(muster.ClusterError, match="for workers"):
        muster.barrier("x")


# ---- two clusters -------------------------------------------------------------------------


def test_two_clusters_meet(cluster: Callable[..., Any]) -> None:
    src, tgt = cluster(Meeter, world_size=2), cluster(Meeter, world_size=3)
    with muster.collective_group(src, tgt, name="weights") as group:
        assert (group.src_ranks, group.tgt_ranks) == ([0, 1], [2, 3, 4])
        assert group.world_size == 5
        assert group.env(4) == {
            "MASTER_ADDR": group.master_addr,
            "MASTER_PORT": str(group.master_port),
            "WORLD_SIZE": "5",
            "RANK": "4",
            "GROUP_NAME": "weights",
        }
        with pytest.raises(IndexError):
            group.env(5)
        assert not can_bind(group.master_addr, group.master_port)  # others cannot
        src.execute_rank_sync(0, "listen", group)
        assert tgt.execute_all_sync("dial", muster.each(group.tgt_envs)) == [
            "2",
            "3",
            "4",
        ]
    part = muster.collective_group(src[1:], tgt[[0, 2]])
    assert part.world_size == 3
    port = part.master_port
    part.close()
    part.close()
    assert can_bind(part.master_addr, port)
    with pytest.raises(muster.ClusterError, match="both sides"):
        muster.collective_group(src, src[0:1])
