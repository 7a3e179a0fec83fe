"""replace(rank): another process in the place of one that died, or lives."""

import os
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import muster
import pytest
from daemon_rig import Daemon, daemon  # noqa: F401  (a fixture)
from helpers import DEADLINE_S, Bell, wait_gone
from muster import Cluster, ClusterError, WorkerConfig, WorkerDied
from replace_workers import Counter, Picky

pytestmark = pytest.mark.usefixtures("session")


@pytest.fixture
def three(session: Any) -> Any:
    role = WorkerConfig(device_mapping="0-2", args=(2,), env={"MINE": "1"})
    with Cluster("actor", Counter, worker_config=role) as cluster:
        yield cluster


def kill(cluster: Any, rank: int) -> None:
    pid = cluster.pids[rank]
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerDied):
        while True:
            cluster.execute_rank_sync(rank, "count")
    assert wait_gone([pid]) == []


# ---- one -------------------------------------------------------------------------------


def test_a_dead_one_is_replaced_in_its_place(three: Any) -> None:
    before = three.execute_all_sync("place")
    pids = list(three.pids)
    kill(three, 1)
    view = three.replace(1)
    pid, incarnation, calls = view.execute_rank_zero_sync("count")
    assert pid == three.pids[1] != pids[1]
    assert (incarnation, calls) == (2, 2)  # a new object, of the same constructor
    assert three.execute_all_sync("place") == before
    assert [three.incarnation(rank) for rank in range(3)] == [1, 2, 1]
    assert (three.pids[0], three.pids[2]) == (pids[0], pids[2])


def test_a_living_one_is_ended_first(three: Any) -> None:
    pid = three.pids[0]
    port = three.execute_rank_zero_sync("place")["MASTER_PORT"]
    three.replace(0)
    assert wait_gone([pid]) == []
    assert three.execute_rank_zero_sync("count")[1:] == (2, 2)
    assert three.execute_rank_zero_sync("place")["MASTER_PORT"] == port


def test_what_is_open_at_the_old_one_fails(three: Any) -> None:
    three.execute_all_sync("sleep", 0)  # what was never sent would go to the new one
    open_calls = [three.execute_rank_async(0, "sleep", 60) for _ in range(5)]
    other = three.execute_rank_async(1, "sleep", 0.2)
    three.replace(0, grace=0)
    for call in open_calls:
        with pytest.raises(WorkerDied):
            call.result(5)
    assert other.result(5) == three.pids[1]
    assert three.execute_rank_zero_sync("count")[2] == 2


def test_views_made_before_call_the_new_one(three: Any) -> None:
    views = [three[0], three[0:2], three[[2, 0]], three.options(timeout=5), *three]
    kill(three, 0)
    three.replace(0)
    new = three.pids[0]
    assert views[0].execute_rank_zero_sync("sleep", 0) == new
    assert views[1].execute_all_sync("sleep", 0)[0] == new
    assert views[2].execute_rank_sync(1, "sleep", 0) == new
    assert views[3].execute_rank_zero_async("sleep", 0).result(5) == new
    assert views[4].execute_rank_zero_sync("sleep", 0) == new
    assert views[0].pids == [new]


def test_a_second_engine_and_variables_are_there_again(three: Any) -> None:
    three.set_env({"MINE": "2"})
    second = three.create_engine("second", Counter, args=(7,))
    three.create_engine("gone", Counter)
    three.destroy_engine("gone")
    three.replace(2, grace=0)
    assert second.execute_rank_sync(2, "count")[2] == 7
    assert three.execute_rank_sync(2, "place")["MINE"] == "2"
    with pytest.raises(ClusterError):
        three.options(engine="gone").execute_rank_sync(2, "count")


def test_a_rank_that_is_not_there(three: Any) -> None:
    with pytest.raises(IndexError):
        three.replace(3)


def test_a_destroyed_cluster_is_not_replaced(session: Any) -> None:
    cluster = Cluster("gone", Counter)
    cluster.destroy()
    with pytest.raises(ClusterError, match="destroyed"):
        cluster.replace(0)


def test_a_constructor_that_fails_leaves_it_dead(session: Any, tmp_path: Path) -> None:
    file = tmp_path / "no"
    with Cluster("picky", Picky, worker_config=WorkerConfig(args=(str(file),))) as c:
        file.touch()
        with pytest.raises(ValueError, match="not today"):
            c.replace(0, grace=0)
        with pytest.raises(WorkerDied):
            c.execute_rank_zero_sync("pid")
        file.unlink()
        c.replace(0)
        assert c.execute_rank_zero_sync("pid") == c.pids[0]


def test_only_one_at_a_time(three: Any, bell: Callable[[], Bell]) -> None:
    begun = bell()
    call = three.execute_rank_async(1, "sleep", 60, begun.path)
    begun.hear()  # one that was not sent yet would go to the new incarnation
    failed: list[BaseException] = []
    go = threading.Barrier(4)

    def one() -> None:
        go.wait()
        try:
            three.replace(1, grace=0.2)
        except ClusterError as e:
            failed.append(e)

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with pytest.raises(WorkerDied):
        call.result(30)
    assert len(failed) >= 1
    assert all("being changed" in str(e) for e in failed)
    assert three.execute_rank_sync(1, "count")[1] == 5 - len(failed)


def test_it_is_destroyed_while_it_is_replaced(session: Any) -> None:
    cluster = Cluster("short", Counter, world_size=2)
    pids = list(cluster.pids)
    cluster.execute_rank_async(0, "sleep", 60)
    begun = threading.Event()
    failed: list[BaseException] = []

    def replace() -> None:
        begun.set()
        try:
            cluster.replace(0, grace=0.3)
        except Exception as e:
            failed.append(e)

    thread = threading.Thread(target=replace)
    thread.start()
    begun.wait()
    cluster.destroy(grace=0.3)
    thread.join()
    assert wait_gone(pids) == []
    with pytest.raises(ClusterError):
        muster.get_cluster("short")


# ---- handles ---------------------------------------------------------------------------


def test_a_handle_in_a_worker_finds_the_new_one(three: Any) -> None:
    three.execute_all_sync("keep", three)
    assert three.execute_rank_sync(1, "call_other", 0)[1] == 1
    for incarnation in (2, 3):
        kill(three, 0)
        with pytest.raises(WorkerDied):
            three.execute_rank_sync(1, "call_other", 0)
        three.replace(0)
        assert three.execute_rank_sync(1, "call_other", 0)[1] == incarnation
        # this one has not called it for some incarnations
        if incarnation == 3:
            assert three.execute_rank_sync(2, "call_other", 0)[1] == incarnation


def test_a_call_waits_while_its_worker_is_replaced(three: Any) -> None:
    """From a worker, whose handle finds it dead, until it has its engine."""
    three.execute_rank_sync(1, "keep", three)
    kill(three, 0)
    thread = threading.Thread(target=three.replace, args=(0,))
    thread.start()
    seen = None
    while seen is None:
        try:
            seen = three.execute_rank_sync(1, "call_other", 0)
        except WorkerDied:
            continue  # asked before the head knew of the new one
    assert seen[1:] == (2, 2)
    thread.join()


def test_another_handle_of_this_process(three: Any) -> None:
    handle = muster.get_cluster("actor")
    assert handle.execute_rank_zero_sync("count")[1] == 1
    three.replace(0, grace=0)
    assert handle.execute_rank_zero_sync("count")[1] == 2


def test_a_stale_object_leaves_the_next_one_alone(session: Any) -> None:
    """Its name is another's by now."""
    old = muster.Cluster("twin", Counter, args=(2,), world_size=1)
    muster.get_cluster("twin").destroy(grace=0)
    new = muster.Cluster("twin", Counter, args=(2,), world_size=1)
    old.destroy(grace=0)
    assert new.execute_rank_zero_sync("count")[1] == 1
    new.destroy(grace=0)


# ---- many ------------------------------------------------------------------------------


class Load:
    """Threads that call rank 1 without a break, and count what came of it."""

    def __init__(self, cluster: Any, threads: int) -> None:
        self.cluster = cluster
        self.seen: list[tuple[int, int, int]] = []
        self.deaths = 0
        self.wrong: list[BaseException] = []
        self.stopped = False
        self.changed = threading.Condition()
        self.threads = [threading.Thread(target=self._run) for _ in range(threads)]
        for thread in self.threads:
            thread.start()

    def _run(self) -> None:
        while not self.stopped and not self.wrong:
            try:
                came = self.cluster.execute_rank_sync(1, "count")
            except BaseException as e:
                came = e
            with self.changed:
                if isinstance(came, WorkerDied):
                    self.deaths += 1
                elif isinstance(came, BaseException):
                    self.wrong.append(came)
                else:
                    self.seen.append(came)
                self.changed.notify_all()

    def wait(self, calls: int = 0, deaths: int = 0) -> None:
        """Until it has met so many more of them."""
        calls, deaths = len(self.seen) + calls, self.deaths + deaths
        with self.changed:
            assert self.changed.wait_for(
                lambda: self.wrong
                or (len(self.seen) >= calls and self.deaths >= deaths),
                DEADLINE_S,
            )

    def stop(self) -> None:
        self.stopped = True
        for thread in self.threads:
            thread.join()


def test_killed_at_random_moments_under_load(three: Any) -> None:
    """Results are of the incarnation that was called, counted once each."""
    rng = random.Random(7)
    load = Load(three, threads=3)
    for _ in range(8):
        load.wait(calls=rng.randrange(100))
        os.kill(three.pids[1], signal.SIGKILL)
        if rng.random() < 0.5:
            load.wait(deaths=rng.randrange(1, 20))
        three.replace(1, grace=0)
    load.stop()
    assert load.wrong == []
    seen = load.seen
    assert len(set(seen)) == len(seen)  # nothing ran twice
    pids = {incarnation: pid for pid, incarnation, _ in seen}
    assert all(pids[incarnation] == pid for pid, incarnation, _ in seen)
    assert three.execute_rank_sync(1, "count")[1] == 9


def test_replaced_in_a_loop(three: Any) -> None:
    for i in range(20):
        three.replace(i % 3, grace=0)
        assert len(three.execute_all_sync("count")) == 3
    assert sum(three.incarnation(rank) for rank in range(3)) == 23


def test_a_forked_cluster(three: Any) -> None:
    with three.fork_cluster("beside", Counter, args=(3,)) as child:
        three.replace(1, grace=0)  # ends the child beside it too
        with pytest.raises(WorkerDied):
            while True:
                child.execute_rank_sync(1, "count")
        child.replace(1)
        assert child.execute_rank_sync(1, "count")[1:] == (2, 3)
        assert child.execute_rank_sync(1, "place") == three.execute_rank_sync(
            1, "place"
        ) | {"MASTER_PORT": child.execute_rank_sync(0, "place")["MASTER_PORT"]}
