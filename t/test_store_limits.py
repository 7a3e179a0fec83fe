"""The store's limit, and drivers that end: sessions of their own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import muster
import numpy as np
import pytest
from conftest import _started
from helpers import MARK, new_mark, until

MIB = 1 << 20


class Worker:
    def total(self, x: Any) -> float:
        return float(np.sum(x))

    def make(self, mib: int) -> Any:
        return np.ones(mib * MIB, np.int8)

    def keep(self, x: Any) -> None:
        self.kept = x


@pytest.fixture
def small() -> Iterator[Any]:
    yield from _started(store_limit="16MiB")


@pytest.fixture
def none() -> Iterator[Any]:
    yield from _started(store_limit=0)


def test_a_full_store_names_its_holders(small: Any) -> None:
    with muster.Cluster("hoarder", Worker) as cluster:
        cluster.execute_rank_zero_sync("keep", np.ones(10 * MIB, np.int8))
        with pytest.raises(muster.StoreFull, match=r"hoarder/0 holds 10.0 MiB in 1"):
            muster.put(np.ones(8 * MIB, np.int8))
        with pytest.raises(MemoryError, match="store_limit"):
            cluster.execute_rank_zero_sync("total", np.ones(8 * MIB, np.int8))
        with pytest.raises(muster.MusterError, match="the store is full"):
            cluster.execute_rank_zero_sync("make", 8)
        ref = muster.put(np.ones(5 * MIB, np.int8))
        assert cluster.execute_rank_zero_sync("total", ref) == 5 * MIB
        cluster.execute_rank_zero_sync("keep", None)
        assert muster.put(np.ones(10 * MIB, np.int8)).nbytes == 10 * MIB


def test_a_limit_of_zero_is_none(none: Any) -> None:
    assert muster.store_stats()["limit"] == 0
    with pytest.raises(muster.StoreFull, match="store_limit is 0"):
        muster.put(1)
    with pytest.raises(muster.StoreFull, match="store_limit is 0"):
        muster.empty(10)
    with muster.Cluster("inline", Worker) as cluster:
        x = np.ones(4 * MIB, np.int8)
        assert cluster.execute_rank_zero_sync("total", x) == 4 * MIB
        got = cluster.execute_rank_zero_sync("make", 4)
        assert got.flags.writeable


def test_bad_limits() -> None:
    with pytest.raises(ValueError, match="store_limit"):
        muster.init(store_limit="lots")
    with pytest.raises(ValueError, match="store_limit"):
        muster.init(store_limit=-1)


DRIVER = """
import muster, numpy as np, sys, time
sys.path.insert(0, {here!r})
from test_store_limits import Worker
muster.init()
cluster = muster.Cluster("w", Worker, world_size=2)
ref = muster.put(np.ones(1 << 24))
cluster.execute_all_sync("keep", ref)
print(muster.api.session().head.session_dir, flush=True)
time.sleep(600)
"""


def _arenas(mark: str) -> list[str]:
    """Processes of that driver that have a store's memory open or mapped."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/maps") as maps:
                mapped = "memfd:muster-store" in maps.read()
            with open(f"/proc/{pid}/environ", "rb") as env:
                ours = mark.encode() in env.read()
        except OSError:
            continue
        if mapped and ours:
            found.append(pid)
    return found


def test_a_killed_driver_leaves_no_memory() -> None:
    code = DRIVER.format(here=os.path.dirname(__file__))
    mark = new_mark()
    driver = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        env={**os.environ, MARK: mark},
    )
    assert driver.stdout is not None
    folder = driver.stdout.readline().decode().strip()
    assert len(_arenas(mark)) >= 4  # agent, driver and two workers
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    driver.stdout.close()
    until(
        lambda: not _arenas(mark) and set(os.listdir(folder)) <= {"logs"},
        lambda: (_arenas(mark), os.listdir(folder)),
    )
