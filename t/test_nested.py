"""Clusters that workers make, and how they end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dispatch_workers as dw
import muster
import pytest
from daemon_rig import Daemon, daemon  # noqa: F401  (fixture)
from helpers import Driver, wait_gone


@pytest.mark.parametrize("cls", [dw.Nests, dw.AsyncNests])
def test_a_worker_makes_a_cluster(cluster: Callable[..., Any], cls: type) -> None:
    outer = cluster(cls, 2)
    inner, got = outer.execute_rank_zero_sync("nest", "inner", 2)
    assert got == [(0, 1), (0, 2), (1, 3)]
    assert inner.who() == [0, 1]  # from here too
    assert muster.get_cluster("inner").who() == [0, 1]
    with pytest.raises(muster.ClusterError, match="there is a cluster 'inner' already"):
        outer.execute_rank_sync(1, "nest", "inner", 2)
    outer.execute_rank_zero_sync("drop")
    assert wait_gone(inner.pids) == []
    with pytest.raises(muster.ClusterError, match="no cluster 'inner'"):
        muster.get_cluster("inner")


def test_what_a_worker_made_ends_with_it(cluster: Callable[..., Any]) -> None:
    outer = cluster(dw.Nests, 2)
    inner, _ = outer.execute_rank_zero_sync("nest", "inner", 2)
    with pytest.raises(muster.WorkerDied):
        outer.execute_rank_zero_sync("die")
    assert wait_gone(inner.pids) == []
    with pytest.raises((muster.WorkerDied, muster.WorkerUnreachable)):
        inner.options(timeout=20).who()
    inner, deeper, _ = outer.execute_rank_sync(1, "nest_deeper", "inner")
    outer.destroy()
    assert wait_gone([*inner.pids, *deeper.pids]) == []


NESTED = """
import dispatch_workers as dw, muster
muster.init()
outer = muster.Cluster("outer", dw.Nests, world_size=1)
inner, _ = outer.execute_rank_zero_sync("nest", "inner", 2)
print(*inner.pids)
import os
os.kill(os.getpid(), 9)
"""


def test_nothing_is_left_of_a_driver_that_is_killed(tmp_path: Path) -> None:
    one = Driver(NESTED, tmp_path)
    pids = [int(pid) for pid in one.line().split()]
    one.end()
    assert wait_gone(pids) == []
    assert one.left() == []


NESTED_AT_A_DAEMON = """
import dispatch_workers as dw, muster
muster.init()
outer = muster.Cluster("outer", dw.Nests, device_mapping="0-3")
inner, got = outer.execute_rank_sync(3, "nest", "inner", 2)
assert got == [(0, 1), (0, 2), (1, 3)], got
assert inner.who() == muster.get_cluster("inner").who() == [0, 1]
print(*inner.pids, flush=True)
outer[3].execute_rank_zero_async("die").exception()
assert outer[:3].execute_all_sync("who") == [0, 1, 2]
input()
muster.shutdown()
"""


def test_at_a_head_that_was_joined(daemon: Daemon, tmp_path: Path) -> None:  # noqa: F811
    daemon.agent("n1")
    daemon.agent("n2")
    where = {"MUSTER_ADDRESS": daemon.address, "MUSTER_SECRET_FILE": daemon.secret_file}
    one = Driver(NESTED_AT_A_DAEMON, tmp_path, **where)
    pids = [int(pid) for pid in one.line().split()]
    assert wait_gone(pids) == []  # with the worker that made it
    one.send("")
    assert one.end()[0] == 0
