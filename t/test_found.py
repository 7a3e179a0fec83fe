"""muster.get_cluster of what another driver made: methods, mesh, codec, and replacing."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import muster
import pytest
from daemon_rig import Daemon, daemon  # noqa: F401  (fixture)
from helpers import until
from replace_workers import Counter, Told
from test_c import ROOT, build
from test_daemon import join, joined, other_driver  # noqa: F401  (fixture)

MADE = """
from dispatch_workers import Trainer
from replace_workers import Counter

muster.Cluster("kept", Trainer, device_mapping="0-3", mesh={"tp": 2}, timeout=44,
               detached=True)
counters = muster.Cluster("counters", Counter, args=(5,), detached=True)
counters.create_engine("second", Counter, args=(9,))
"""


@pytest.fixture
def made(joined: Daemon, tmp_path: Path) -> Iterator[Daemon]:  # noqa: F811
    """Two detached clusters whose maker has ended."""
    two = other_driver(joined, tmp_path, MADE)
    assert two.line() == "ready"
    two.signal(signal.SIGKILL)
    two.end()
    yield joined
    for name in ("kept", "counters"):
        muster.get_cluster(name).destroy()


def check(kept: Any) -> None:
    assert kept.mesh == {"tp": 2, "cp": 1, "dp": 2, "pp": 1, "ep": 1}
    assert kept.compute([1, 2]) == [(0, 1), (2, 2)]
    assert kept._timeout == 44


def test_it_knows_what_its_maker_said(made: Daemon) -> None:
    check(muster.get_cluster("kept"))


def test_a_head_that_was_started_again_knows_it_too(made: Daemon) -> None:
    made.head.kill()
    made.start()
    check(muster.get_cluster("kept"))


def test_workers_are_replaced_by_another_driver(made: Daemon) -> None:
    counters = muster.get_cluster("counters")
    assert counters.execute_rank_zero_sync("count")[1:] == (1, 5)
    counters.replace(0, grace=0)
    assert counters.execute_rank_zero_sync("count")[1:] == (2, 5)
    second = counters.options(engine="second")
    assert second.execute_rank_zero_sync("count")[2] == 9
    again = muster.get_cluster("counters")
    assert again.execute_rank_zero_sync("count")[1:] == (2, 10)
    made.head.kill()  # who has reported workers of two drivers
    made.start()
    assert muster.get_cluster("counters").pids == counters.pids


BIG = """
import numpy as np
from change_workers import Weighs
array = np.ones(1 << 20)
big = muster.Cluster("big", Weighs, detached=True,
                     args=(array, [muster.put(2 * array)][0]))
print("ready", flush=True)
"""


def test_what_constructors_were_given_outlives_its_maker(
    joined: Daemon,  # noqa: F811
    tmp_path: Path,
) -> None:
    two = other_driver(joined, tmp_path, BIG)
    assert two.line() == "ready"
    two.signal(signal.SIGKILL)
    two.end()
    big = muster.get_cluster("big")
    sums = big.execute_rank_zero_sync("total")
    assert sums == (float(1 << 20), float(2 << 20))
    big.replace(0, grace=0)
    assert big.execute_rank_zero_sync("total") == sums
    big.destroy()
    until(lambda: not muster.stored_objects(), muster.stored_objects)


def test_of_a_worker_in_c(session: Any, tmp_path: Path) -> None:
    build(ROOT / "examples/c/reward.c", tmp_path / "libreward.so")
    role = {"kwargs": {"scale": 2}}
    with muster.Cluster("reward", f"{tmp_path}/libreward.so:reward", **role):
        handle = muster.get_cluster("reward")
        texts = ["good", "bad"]
        scores = handle.execute_rank_zero_sync("score", texts)  # as plain data
        handle.replace(0, grace=0)
        assert handle.incarnation(0) == 2
        assert handle.execute_rank_zero_sync("score", texts) == scores


def test_any_configuration(session: Any) -> None:
    class Local:
        value = 6

    with muster.Cluster("told", Told) as told:
        told.configure({"f": lambda x: 2 * x, "local": Local()})
        told.configure({"f": lambda x: 3 * x, "local": Local()})
        assert told.execute_all_sync("apply", 5) == [21]
        handle = muster.get_cluster("told")
        handle.replace(0, grace=0)
        assert handle.execute_all_sync("apply", 5) == [21]


def test_what_is_done_with_options_is_done_again(session: Any) -> None:
    with muster.Cluster("counter", Counter) as counter:
        counter.options(timeout=30).create_engine("second", Counter, args=(9,))
        counter.replace(0, grace=0)
        second = counter.options(engine="second")
        assert second.execute_rank_zero_sync("count")[1:] == (2, 9)


def test_a_cluster_object_does_not_end_its_successor(session: Any) -> None:
    old = muster.Cluster("same", Counter)
    stale = muster.get_cluster("same")
    follower = muster.get_cluster("same")
    follower.replace(0, grace=0)
    stale.destroy(grace=0)  # it has an earlier incarnation of rank 0
    with pytest.raises(muster.ClusterError, match="there is no cluster"):
        muster.get_cluster("same")
    with muster.Cluster("same", Counter) as new:
        old.destroy(grace=0)
        follower.destroy(grace=0)
        assert new.execute_rank_zero_sync("count")[1:] == (1, 1)
