"""Clusters that change: restart, resize, creation that does not block or waits for room."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import muster
import pytest
from change_workers import Meets, Member, Refuses
from helpers import wait_gone
from muster import Cluster, ClusterError, PlacementError, WorkerDied

# ---- restart ---------------------------------------------------------------------------


def test_all_ranks_restart_together(cluster: Any, tmp_path: Path) -> None:
    """No constructor returns before those of all ranks have begun."""
    three = cluster(Meets, 3, args=(str(tmp_path), 3))
    old = three.pids
    for file in tmp_path.iterdir():
        file.unlink()
    three.restart(grace=0.2)
    assert len(list(tmp_path.iterdir())) == 3
    assert three.execute_all_sync("pid") == three.pids
    assert not set(old) & set(three.pids)
    assert [three.incarnation(rank) for rank in range(3)] == [2, 2, 2]
    assert wait_gone(old) == []


def test_some_ranks_restart(cluster: Any) -> None:
    three = cluster(Member, 3)
    before = three.pids
    master = three.execute_all_sync("master")
    three.restart([2, 0], grace=0.2)
    assert three.pids[1] == before[1]
    assert three.pids[0] != before[0] and three.pids[2] != before[2]
    assert [three.incarnation(rank) for rank in range(3)] == [2, 1, 2]
    assert three.execute_all_sync("master") == master  # the port is held all the time
    assert [world[0] for world in three.execute_all_sync("world")] == [0, 1, 2]


def test_what_is_open_fails_with_the_cause(cluster: Any) -> None:
    two = cluster(Member, 2)
    two.execute_all_sync("world")
    calls = two.execute_all_async("sleep", 60)
    two.restart(grace=0)
    for call in calls:
        with pytest.raises(WorkerDied, match="restart"):
            call.result(10)


def test_what_was_done_is_done_again(cluster: Any) -> None:
    two = cluster(Member, 2)
    two.set_env({"TOLD": "yes"})
    two.create_engine("second", Member)
    two.create_engine("third", Member)
    two.destroy_engine("third")
    two.restart(grace=0.2)
    assert two.execute_all_sync("variable", "TOLD") == ["yes", "yes"]
    second = two.options(engine="second")
    assert len(second.execute_all_sync("world")) == 2
    with pytest.raises(muster.MusterError, match="third"):
        two.options(engine="third").execute_all_sync("world")


def test_one_that_cannot_be_made_ends_all_of_them(cluster: Any, tmp_path: Path) -> None:
    three = cluster(Refuses, 3, args=(str(tmp_path),))
    kept = three.pids[0]
    (tmp_path / "2").touch()
    with pytest.raises(RuntimeError, match="rank 2 does not want to"):
        three.restart([1, 2], grace=0.2)
    assert three.execute_rank_sync(0, "pid") == kept
    for rank in (1, 2):
        with pytest.raises(WorkerDied):
            three.execute_rank_sync(rank, "pid")
    (tmp_path / "2").unlink()
    three.restart([1, 2], grace=0)
    assert three.execute_all_sync("pid") == three.pids


def test_constructors_have_a_deadline(session: Any, tmp_path: Path) -> None:
    """It waits for a file that nobody makes."""
    with pytest.raises(muster.DeadlineExceeded, match="start_timeout"):
        Cluster("late", Meets, args=(str(tmp_path), 2), start_timeout=0.5)
    (tmp_path / "another").touch()
    with Cluster("late", Meets, args=(str(tmp_path), 2)) as late:
        for file in tmp_path.iterdir():
            file.unlink()
        with pytest.raises(muster.DeadlineExceeded, match="start_timeout"):
            late.restart(grace=0, timeout=0.5)


def test_a_handle_in_a_worker_calls_the_new_ones(cluster: Any) -> None:
    two, other = cluster(Member, 2), cluster(Member, 1)
    other.execute_all_sync("keep", two)
    assert other.execute_rank_zero_sync("size_of_other") == (2, 2)
    two.restart(grace=0.1)
    assert other.execute_rank_zero_sync("size_of_other") == (2, 2)


def test_ranks_that_are_not_there(cluster: Any) -> None:
    two = cluster(Member, 2)
    with pytest.raises(IndexError):
        two.restart([2])
    two.restart([])
    assert two.incarnation(0) == 1


# ---- resize ----------------------------------------------------------------------------


def test_more_and_fewer_workers(cluster: Any) -> None:
    two = cluster(Member, 2)
    before = two.pids
    two.resize(4)
    assert two.world_size == 4 and two.pids[:2] == before
    assert [rank for rank, _, _ in two.execute_all_sync("world")] == [0, 1, 2, 3]
    assert two.double(list(range(8))) == [2 * i for i in range(8)]
    gone = two.pids[1:]
    two.resize(1)
    assert two.world_size == 1 and two.pids == before[:1]
    assert wait_gone(gone) == []
    assert two.double([1, 2]) == [2, 4]
    two.resize(1)  # nothing


def test_every_handle_sees_it_before_the_next_call(cluster: Any) -> None:
    two, other = cluster(Member, 2), cluster(Member, 1)
    handle = muster.get_cluster(two.name)
    other.execute_all_sync("keep", two)
    two.resize(3)
    assert handle.world_size == 3
    assert len(handle.execute_all_sync("world")) == 3
    assert other.execute_rank_zero_sync("size_of_other") == (3, 3)
    handle.resize(1)
    assert two.world_size == 1 and two.double([1, 2, 3]) == [2, 4, 6]
    assert other.execute_rank_zero_sync("size_of_other") == (1, 1)


def test_a_handle_elsewhere_follows_new_ranks_too(cluster: Any) -> None:
    two, other = cluster(Member, 2), cluster(Member, 1)
    other.execute_all_sync("keep", two)
    assert other.execute_rank_zero_sync("size_of_other") == (2, 2)
    two.restart(grace=0)
    two.resize(3)
    assert other.execute_rank_zero_sync("size_of_other") == (3, 3)


def test_new_ranks_that_cannot_be_made_change_nothing(
    cluster: Any, tmp_path: Path
) -> None:
    two = cluster(Refuses, 2, args=(str(tmp_path),))
    before = two.pids
    (tmp_path / "3").touch()
    with pytest.raises(RuntimeError, match="rank 3 does not want to"):
        two.resize(4)
    assert two.world_size == 2 and two.execute_all_sync("pid") == before
    assert muster.get_cluster(two.name).world_size == 2
    (tmp_path / "3").unlink()
    two.resize(4)
    assert len(two.execute_all_sync("pid")) == 4


def test_a_mesh_keeps_its_size(cluster: Any) -> None:
    two = cluster(Member, 2, mesh={"tp": 2})
    with pytest.raises(ClusterError, match="mesh"):
        two.resize(4)
    for size in (0, -1):
        with pytest.raises(ValueError, match="world_size"):
            two.resize(size)


def test_devices_come_back(cluster: Any) -> None:
    """A role with a mapping has at most as many workers as that makes."""
    four = cluster(Member, None, device_mapping="0-3")
    four.resize(2)
    other = cluster(Member, 1, num_cpus=0)
    assert other.world_size == 1
    four.resize(4)
    assert four.execute_all_sync("variable", "CUDA_VISIBLE_DEVICES") == [*"0123"]
    with pytest.raises((PlacementError, ClusterError), match="5 workers"):
        four.resize(5)
    assert four.world_size == 4


# ---- creation that does not block ------------------------------------------------------


def test_constructors_of_two_clusters_meet(session: Any, tmp_path: Path) -> None:
    fields = {"args": (str(tmp_path), 4), "world_size": 2, "blocking": False}
    first = Cluster("first", Meets, **fields)
    assert "being created" in repr(first)
    second = Cluster("second", Meets, **fields)
    try:
        assert first.wait() is first and first.world_size == 2
        assert second.execute_all_sync("pid") == second.pids  # waits by itself
    finally:
        first.destroy(grace=0.2)
        second.destroy(grace=0.2)


def test_its_failure_comes_with_the_first_use(session: Any, tmp_path: Path) -> None:
    (tmp_path / "1").touch()
    fields = {"args": (str(tmp_path),), "world_size": 2}
    bad = Cluster("bad", Refuses, blocking=False, **fields)
    with pytest.raises(RuntimeError, match="rank 1 does not want to"):
        bad.wait()
    with pytest.raises(ClusterError):
        bad.execute_all_sync("pid")
    bad.destroy()
    with pytest.raises(ClusterError, match="no cluster"):
        muster.get_cluster("bad")


def test_it_is_destroyed_before_it_is_there(session: Any, tmp_path: Path) -> None:
    """A constructor that would wait for ever."""
    begun = time.monotonic()
    never = Cluster("never", Meets, args=(str(tmp_path), 99), blocking=False)
    while not list(tmp_path.iterdir()):
        time.sleep(0.005)
    never.destroy()
    assert time.monotonic() - begun < 20
    with pytest.raises(ClusterError, match="no cluster"):
        muster.get_cluster("never")
    Cluster("never", Member).destroy(grace=0)  # the name is free


def test_wait_has_a_timeout(session: Any, tmp_path: Path) -> None:
    never = Cluster("never", Meets, args=(str(tmp_path), 99), blocking=False)
    with pytest.raises(muster.DeadlineExceeded, match="'never' is not there within"):
        never.wait(0.2)
    never.destroy(grace=0)


# ---- creation that waits for room ------------------------------------------------------


@pytest.fixture
def all_cpus(session: Any) -> int:
    return muster.nodes()[0].cpus


def test_it_waits_until_others_end(session: Any, all_cpus: int) -> None:
    first = Cluster("first", Member, num_cpus=all_cpus)
    with pytest.raises(PlacementError):
        Cluster("second", Member, num_cpus=all_cpus)
    second = Cluster("second", Member, num_cpus=all_cpus, wait=60, blocking=False)
    third = Cluster("third", Member, num_cpus=all_cpus, wait=60, blocking=False)
    first.destroy(grace=0.1)
    second.wait()
    assert not third._operation.done  # in order
    second.destroy(grace=0.1)
    assert third.wait().execute_all_sync("world")
    third.destroy(grace=0.1)


def test_what_can_never_be_had_does_not_wait(session: Any, all_cpus: int) -> None:
    begun = time.monotonic()
    with pytest.raises(PlacementError):
        Cluster("huge", Member, num_cpus=all_cpus + 1, wait=60)
    assert time.monotonic() - begun < 30


def test_the_time_to_wait_is_up(session: Any, all_cpus: int) -> None:
    with (
        Cluster("first", Member, num_cpus=all_cpus),
        pytest.raises(PlacementError, match="second"),
    ):
        Cluster("second", Member, num_cpus=all_cpus, wait=0.3)


def test_one_that_waits_is_given_up(session: Any, all_cpus: int) -> None:
    first = Cluster("first", Member, num_cpus=all_cpus)
    second = Cluster("second", Member, num_cpus=all_cpus, wait=60, blocking=False)
    second.destroy()
    first.destroy(grace=0.1)
    with Cluster("third", Member, num_cpus=all_cpus) as third:
        assert third.world_size == 1


# ---- at odd moments --------------------------------------------------------------------


def test_kills_while_it_restarts(cluster: Any) -> None:
    """Whatever is killed: an error or a whole cluster, and nothing is left."""
    two = cluster(Member, 2)
    for _ in range(5):
        victims = two.pids
        done = threading.Event()

        def shoot(victims: list[int] = victims, done: Any = done) -> None:
            for pid in victims:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            done.set()

        thread = threading.Thread(target=shoot)
        thread.start()
        two.restart(grace=0.1)
        thread.join()
        done.wait()
        assert len(two.execute_all_sync("world")) == 2
        assert wait_gone(victims) == []
