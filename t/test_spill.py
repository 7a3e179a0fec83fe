"""Objects that go to a disk when memory is short, as drivers and workers see it."""

import contextlib
import glob
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import muster
import numpy as np
import pytest
from conftest import _started
from helpers import until

MIB = 1 << 20


class Worker:
    def total(self, x: Any) -> float:
        return float(np.sum(x))

    def keep(self, x: Any) -> None:
        self.kept = x

    def first(self, refs: list[Any]) -> list[float]:
        return [float(ref.get()[0]) for ref in refs]

    def make(self, mib: int, value: int) -> Any:
        return muster.put(_filled(mib, value))


def _filled(mib: int, value: int) -> Any:
    return np.full(mib * MIB, value, np.int8)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    for _ in _started(store_limit="16MiB", spill=tmp_path):
        yield tmp_path


def test_refs_of_more_than_fits(small: Path) -> None:
    refs = [muster.put(_filled(4, i)) for i in range(12)]
    stats = muster.store_stats()
    assert stats["spill"] == str(small)
    assert stats["spilled"] >= 32 * MIB
    assert stats["used"] <= 16 * MIB
    assert (
        sum(o["nbytes"] for o in muster.stored_objects() if o["spilled"])
        == (stats["spilled"])
    )
    for i, ref in enumerate(refs):
        assert int(ref.get()[-1]) == i
    with muster.Cluster("reader", Worker, world_size=2) as cluster:
        for i in (0, 5, 11):
            assert cluster.execute_all_sync("total", refs[i]) == [4 * MIB * i] * 2
        assert cluster.execute_rank_zero_sync("first", refs) == list(range(12))
        made = cluster.execute_all_sync("make", 6, 3)
        more = [muster.put(_filled(4, 7)) for _ in range(3)]
        assert [int(ref.get()[0]) for ref in made] == [3, 3]
        assert len(more) == 3
    assert os.listdir(small) == []  # files without names
    del refs, made, more, ref
    _wait_empty()


def test_what_points_into_it_stays(small: Path) -> None:
    refs = [muster.put(_filled(4, i)) for i in range(3)]
    views = [ref.get() for ref in refs]
    with pytest.raises(muster.StoreFull, match="all of it is in use") as error:
        muster.put(_filled(8, 9))
    assert f"driver {os.getpid()} holds 12.0 MiB in 3" in str(error.value)
    assert [int(view[0]) for view in views] == [0, 1, 2]
    del views
    assert int(muster.put(_filled(8, 9)).get()[0]) == 9
    assert muster.store_stats()["spilled"] > 0
    assert [int(ref.get()[1]) for ref in refs] == [0, 1, 2]


def test_a_folder_that_goes(small: Path) -> None:
    refs = [muster.put(_filled(4, i)) for i in range(6)]
    small.rmdir()  # files that are open are there until they are closed
    with pytest.raises(muster.StoreFull, match="cannot spill to"):
        refs.append(muster.put(_filled(8, 9)))
    small.mkdir()
    refs.append(muster.put(_filled(8, 6)))
    assert [int(ref.get()[0]) for ref in refs] == list(range(7))


def test_off() -> None:
    for _ in _started(store_limit="16MiB", spill=False):
        assert muster.store_stats()["spill"] == ""
        kept = [muster.put(_filled(4, i)) for i in range(3)]
        with pytest.raises(muster.StoreFull, match="drop refs"):
            muster.put(_filled(8, 9))
        del kept


def test_in_the_folder_of_the_session(tmp_path: Path) -> None:
    for _ in _started(store_limit="16MiB", spill_limit="10MiB"):
        stats = muster.store_stats()
        assert stats["spill"] == muster.api.session().head.session_dir
        assert stats["spill_limit"] == 10 * MIB
        kept = [muster.put(_filled(4, i)) for i in range(6)]
        with pytest.raises(muster.StoreFull, match="the spill limit is reached"):
            muster.put(_filled(4, 9))
        assert [int(ref.get()[0]) for ref in kept[-2:]] == [4, 5]


def test_bad_options(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="spill_limit"):
        muster.init(spill_limit="much")
    with pytest.raises(ValueError, match="spill=False"):
        muster.init(spill_limit=0)
    with pytest.raises(ValueError, match="spill: must be"):
        muster.init(spill="")
    with pytest.raises(ValueError, match="muster agent --store-limit"):
        muster.init("127.0.0.1:1", secret_file=str(tmp_path / "s"), store_limit=0)


def test_calls_go_on_while_it_writes(small: Path) -> None:
    """A small call takes no longer because the node's disk is busy."""
    with muster.Cluster("busy", Worker, world_size=2) as cluster:
        refs: list[Any] = []
        slowest = 0.0
        for i in range(20):
            refs.append(cluster.execute_rank_zero_async("make", 6, i))
            begun = time.monotonic()
            assert cluster.execute_rank_async(1, "total", [i]).result() == i
            slowest = max(slowest, time.monotonic() - begun)
        assert [int(r.result().get()[0]) for r in refs] == list(range(20))
        assert slowest < 5


KILLED = """
import muster, numpy as np, os, signal
muster.init(store_limit="16MiB", spill={spill!r})
agent = muster.nodes()[0].agent_pid
kept = [muster.put(np.full(4 << 20, i, np.int8)) for i in range(40)]
os.kill(agent, signal.SIGKILL)
try:
    while True:
        kept.append(muster.put(np.full(4 << 20, 1, np.int8)))
except muster.MusterError as e:
    print("told:", e, flush=True)
"""


def test_an_agent_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    code = KILLED.format(spill=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert "told:" in done.stdout, done.stdout + done.stderr
    assert os.listdir(tmp_path) == []
    # what nobody has open any more is no more: these files have no names
    until(lambda: not _open_below(tmp_path), lambda: _open_below(tmp_path))


def _open_below(folder: Path) -> list[str]:
    found = []
    for link in glob.iglob("/proc/[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if (to := os.readlink(link)).startswith(f"{folder}/"):
                found.append(f"{link}: {to}")
    return found


def _wait_empty() -> None:
    def is_empty() -> bool:
        stats = muster.store_stats()
        return not stats["objects"] and not stats["spilled"]

    until(is_empty, lambda: (muster.store_stats(), muster.stored_objects()))
