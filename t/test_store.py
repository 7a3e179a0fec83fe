"""Objects in shared memory: written once, read in place, gone with their last holder."""

import gc
import os
import signal
import threading
import time
from typing import Any

import muster
import numpy as np
import pytest
from helpers import until
from muster._data.remote_array import private_copy

BIG = 1 << 20  # float64: 8 MiB


class Worker:
    def __init__(self) -> None:
        self.kept: list[Any] = []

    def total(self, x: Any) -> float:
        return float(np.sum(x))

    def look(self, x: Any) -> tuple[bool, bool, float]:
        return x.flags.writeable, x.flags.owndata, float(x[0])

    def make(self, count: int, value: float) -> Any:
        return np.full(count, value)

    def echo(self, x: Any) -> Any:
        return x

    def half(self, x: Any) -> Any:
        return x[: len(x) // 2]

    def keep(self, x: Any) -> None:
        self.kept.append(x)

    def drop(self) -> None:
        self.kept.clear()

    def first_of(self, things: Any) -> Any:
        return type(things[0]).__name__, float(things[0].get()[0])

    def put(self, count: int) -> Any:
        return muster.put(np.ones(count))

    def built(self, count: int) -> Any:
        x = muster.empty(count)
        x[:] = 5
        return x

    def scribble(self, x: Any) -> tuple[float, float]:
        """Writes into its own pages of what it was given."""
        mine = private_copy(x)
        mine[0] = -1.0
        return float(mine[0]), float(x[0])

    def echo_owned(self, x: Any, write: bool) -> Any:
        mine = private_copy(x)
        if write:
            mine[-1] = -1.0
        return mine

    def copied(self) -> int:
        return int(muster.store_stats()["copied"])

    def slow(self, x: Any, seconds: float) -> float:
        time.sleep(seconds)
        return float(x[0])

    def fail(self, x: Any) -> None:
        raise ValueError(f"with {len(x)}")

    def forked(self, x: Any) -> int:
        """A child looks at the same pages, and lets go of them."""
        pid = os.fork()
        if pid == 0:
            good = float(np.sum(x)) == float(len(x))
            del x
            gc.collect()
            os._exit(0 if good else 1)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def pid(self) -> int:
        return os.getpid()


class AsyncWorker:
    async def total(self, x: Any) -> float:
        return float(np.sum(x))

    async def make(self, count: int) -> Any:
        return np.ones(count)


@pytest.fixture(scope="module")
def actors(session: Any) -> Any:
    with muster.Cluster("stored", Worker, world_size=4) as cluster:
        yield cluster


def wait_for(what: str, count: int) -> dict[str, Any]:
    """Until the store says so: others tell it in their own time."""
    until(lambda: muster.store_stats()[what] == count, muster.store_stats)
    return muster.store_stats()


@pytest.fixture(autouse=True)
def _nothing_is_left(request: pytest.FixtureRequest) -> Any:
    yield
    if muster.is_initialized():
        gc.collect()
        assert wait_for("objects", 0)["used"] == 0


def test_a_broadcast_writes_the_payload_once(actors: Any) -> None:
    x = np.arange(BIG, dtype=np.float64)
    before = muster.store_stats()
    copied = actors.execute_all_sync("copied")
    assert actors.execute_all_sync("total", x) == [float(x.sum())] * 4
    after = muster.store_stats()
    assert after["allocated"] - before["allocated"] == x.nbytes
    assert after["copied"] - before["copied"] == x.nbytes
    assert actors.execute_all_sync("copied") == copied  # nor did the ranks copy any


def test_readers_get_read_only_views(actors: Any) -> None:
    x = np.full(BIG, 7.0)
    assert actors.execute_rank_zero_sync("look", x) == (False, False, 7.0)
    got = actors.execute_rank_zero_sync("make", BIG, 3.0)
    assert not got.flags.writeable
    with pytest.raises(ValueError):
        got[0] = 1


def test_small_ones_stay_in_the_message(actors: Any) -> None:
    before = muster.store_stats()["allocated"]
    got = actors.execute_rank_zero_sync("echo", np.ones(1000))
    assert got.flags.writeable
    assert muster.store_stats()["allocated"] == before


def test_what_was_received_is_sent_on_without_a_copy(actors: Any) -> None:
    x = actors.execute_rank_zero_sync("make", BIG, 2.0)
    before = muster.store_stats()
    copied = actors.execute_all_sync("copied")
    assert actors.execute_all_sync("total", x[100:]) == [2.0 * (BIG - 100)] * 4
    half = actors.execute_rank_sync(1, "half", x)
    assert half.shape == (BIG // 2,)
    after = muster.store_stats()
    assert after["allocated"] == before["allocated"]
    assert after["copied"] == before["copied"]
    assert actors.execute_all_sync("copied") == copied


def test_pages_of_ones_own(actors: Any) -> None:
    """What is written is copied, page by page; what is not goes on by its name."""
    x = np.arange(BIG, dtype=np.float64)
    ref = muster.put(x)
    assert actors.execute_all_sync("scribble", ref) == [(-1.0, 0.0)] * 4
    assert ref.get()[0] == 0.0
    before = actors.execute_all_sync("copied")
    same = actors.execute_rank_zero_sync("echo_owned", ref, False)
    assert np.array_equal(same, x)
    assert actors.execute_all_sync("copied") == before
    other = actors.execute_rank_zero_sync("echo_owned", ref, True)
    assert other[-1] == -1.0
    assert np.array_equal(other[:-1], x[:-1])
    assert ref.get()[-1] == x[-1]
    assert actors.execute_rank_zero_sync("copied") == before[0] + x.nbytes
    small = private_copy(
        np.frombuffer(b"12345678", np.int64)
    )  # not of the store: a copy
    small[0] = 1


def test_building_in_place(actors: Any) -> None:
    x = muster.empty((BIG // 4, 4), np.float64)
    x[:] = 1.5
    before = muster.store_stats()["copied"]
    assert actors.execute_all_sync("total", x) == [1.5 * BIG] * 4
    assert muster.store_stats()["copied"] == before
    built = actors.execute_rank_zero_sync("built", BIG)
    assert float(built[-1]) == 5.0
    assert muster.empty(0).shape == (0,)
    assert muster.empty((3, 0, 2), np.int8).shape == (3, 0, 2)
    with pytest.raises(ValueError, match="negative"):
        muster.empty((2, -1))
    with pytest.raises(TypeError, match="objects"):
        muster.empty(3, object)


def test_refs(actors: Any) -> None:
    x = np.full(BIG, 4.0)
    ref = muster.put({"x": x, "name": "batch"})
    x[0] = 9  # too late
    assert ref.nbytes >= x.nbytes
    value = muster.get(ref)
    assert value["name"] == "batch"
    assert float(value["x"][0]) == 4.0
    array = muster.put(np.full(BIG, 6.0))
    assert actors.execute_all_sync("total", array) == [6.0 * BIG] * 4
    assert actors.execute_rank_sync(2, "total", x=array) == 6.0 * BIG
    assert actors.execute_rank_zero_sync("first_of", [array]) == ("Ref", 6.0)
    back = actors.execute_rank_zero_sync("put", BIG)
    assert isinstance(back, muster.Ref)
    assert float(back.get()[7]) == 1.0
    both = muster.get([back, array])
    assert [float(v[0]) for v in both] == [1.0, 6.0]
    assert "bytes" in repr(back)


def test_who_holds_what_and_which_line_made_it(actors: Any) -> None:
    ref = muster.put(np.ones(BIG))
    actors.execute_rank_sync(1, "keep", [ref])
    (found,) = muster.stored_objects()
    assert found["nbytes"] == ref.nbytes
    assert found["site"].startswith("test_store.py:")
    assert not found["copy"] and found["here"]
    names = sorted(name for name, pid, count, seconds in found["holders"])
    assert names == [f"driver {os.getpid()}", "stored/1"]
    actors.execute_rank_sync(1, "drop")


def test_a_ref_of_something_small(session: Any) -> None:
    ref = muster.put([1, "two"])
    assert ref.get() == [1, "two"]


def test_a_pickled_ref_is_refused(session: Any) -> None:
    import pickle

    with pytest.raises(TypeError, match="Ref travels"):
        pickle.dumps(muster.put(np.ones(BIG)))


def test_a_future_is_resolved_in_the_callee(actors: Any) -> None:
    future = actors.execute_rank_async(1, "make", BIG, 8.0)
    copied = muster.store_stats()["copied"]
    assert actors.execute_rank_sync(2, "total", future) == 8.0 * BIG
    assert muster.store_stats()["copied"] == copied
    assert float(future.result()[0]) == 8.0
    small = actors.execute_rank_async(1, "make", 10, 8.0)
    assert actors.execute_rank_sync(2, "total", small) == 80.0
    failed = actors.execute_rank_async(1, "fail", np.ones(3))
    with pytest.raises(ValueError, match="with 3"):
        actors.execute_rank_sync(2, "total", failed)


def test_what_workers_keep_lives(actors: Any) -> None:
    actors.execute_rank_sync(3, "keep", np.ones(BIG))
    stats = muster.store_stats()
    assert stats["objects"] == 1
    assert stats["used"] == 8 * BIG
    actors.execute_rank_sync(3, "drop")


def test_answers_that_nobody_reads(actors: Any) -> None:
    futures = actors.execute_all_async("make", BIG, 1.0)
    muster.wait(futures, num_returns=4)
    del futures  # undecoded


def test_a_call_that_fails_holds_nothing(actors: Any) -> None:
    with pytest.raises(ValueError, match=f"with {BIG}"):
        actors.execute_rank_zero_sync("fail", np.ones(BIG))


def test_a_cancelled_call_lets_go(actors: Any) -> None:
    future = actors.execute_rank_async(0, "slow", np.ones(BIG), 0.3)
    late = actors.execute_rank_async(0, "slow", np.ones(BIG), 0.0)
    late.cancel()
    assert future.result() == 1.0


def test_bytes_and_lists(actors: Any) -> None:
    data = os.urandom(1 << 20)
    assert actors.execute_rank_zero_sync("echo", data) == data
    many = [np.full(20_000, i, np.int64) for i in range(40)]
    got = actors.execute_rank_zero_sync("echo", many)
    assert all(np.array_equal(a, b) for a, b in zip(many, got, strict=True))
    words = [str(i) for i in range(200_000)]  # a pickle that is big by itself
    assert actors.execute_rank_zero_sync("echo", words) == words


def test_threads_share_the_store(actors: Any) -> None:
    wrong: list[Any] = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(15):
            x = random.random(int(random.integers(1, 200_000)))
            got = actors.execute_rank_sync(seed % 4, "echo", x)
            if not np.array_equal(x, got):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_a_forked_child_reads_and_tells_nobody(actors: Any) -> None:
    assert actors.execute_rank_zero_sync("forked", np.ones(BIG)) == 0
    assert actors.execute_rank_zero_sync("total", np.ones(BIG)) == BIG


def test_async_workers(session: Any) -> None:
    with muster.Cluster("stored_async", AsyncWorker, world_size=2) as cluster:
        assert cluster.execute_all_sync("total", np.ones(BIG)) == [BIG] * 2
        assert float(cluster.execute_rank_zero_sync("make", BIG).sum()) == BIG


def test_a_killed_holder_holds_nothing(session: Any) -> None:
    with muster.Cluster("stored_dead", Worker, world_size=2) as cluster:
        cluster.execute_all_sync("keep", np.ones(BIG))
        own = cluster.execute_rank_sync(1, "put", BIG)
        assert muster.store_stats()["objects"] == 2
        for pid in cluster.execute_all_sync("pid"):
            os.kill(pid, signal.SIGKILL)
        wait_for("objects", 1)
        assert float(own.get()[0]) == 1.0  # its maker is dead; we hold it


def test_soak_with_kills(session: Any) -> None:
    """Random sizes, random holders, random deaths: in the end nothing is left."""
    random = np.random.default_rng(5)
    refs: list[Any] = []
    lost = 0
    for life in range(4):
        with muster.Cluster(f"soak{life}", Worker, world_size=3) as cluster:
            pids = cluster.execute_all_sync("pid")
            for step in range(40):
                x = np.full(int(random.integers(1, 400_000)), float(step))
                what = int(random.integers(0, 6))
                if what == 0:
                    cluster.execute_all_sync("keep", x)
                elif what == 1:
                    refs.append(muster.put(x))
                elif what == 2:
                    refs.append(cluster.execute_rank_sync(step % 3, "put", len(x)))
                elif what == 3 and refs:
                    del refs[int(random.integers(0, len(refs)))]
                elif what == 4:
                    cluster.execute_all_sync("drop")
                else:
                    got = cluster.execute_rank_sync(step % 3, "echo", x)
                    assert float(got[-1]) == step
                    del got
            pending = cluster.execute_all_async("slow", np.ones(BIG), 5.0)
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            for future in pending:
                with pytest.raises(muster.WorkerDied):
                    future.result()
                lost += 1
            del pending, future
    assert lost == 12
    assert all(float(ref.get()[0]) >= 0 for ref in refs)
    refs.clear()
    gc.collect()
    assert wait_for("objects", 0)["used"] == 0
