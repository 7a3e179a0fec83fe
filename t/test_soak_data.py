"""Objects of random sizes, on two nodes whose stores are far too small for them, among
workers that are killed at random: every byte is right, and in the end nothing is left and
nothing has grown. MUSTER_SOAK_STEPS says how many (40; `make soak-data`: 1000)."""

import gc
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import muster
import numpy as np
import pytest
from conftest import _started
from helpers import until
from test_objects import _served
from test_soak import _descriptors, _rss_mib

STEPS = int(os.environ.get("MUSTER_SOAK_STEPS", "40"))
MIB = 1 << 20
RANKS = 4
KEPT_MAX = 24
GROWTH_MIB = 24.0
DEADLINE_S = 60.0


class Worker:
    def __init__(self) -> None:
        self.kept: list[Any] = []

    def keep(self, x: Any) -> None:
        self.kept = [*self.kept[-2:], x]

    def drop(self) -> None:
        self.kept = []

    def make(self, size: int, value: int) -> Any:
        return muster.put(np.full(size, value, np.int8))

    def check(self, x: Any, value: int) -> bool:
        return bool(x[0] == value and x[-1] == value)

    def slow(self, x: Any) -> float:
        """Reads all of it, page by page, until somebody kills it."""
        while True:
            float(x[::4096].sum())


class Soak:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.refs: list[tuple[Any, int]] = []
        self.full = self.killed = self.made = self.spilled = 0

    def size(self) -> int:
        return self.dice.choice([1, 5000, 300_000, MIB, self.dice.randrange(6 * MIB)])

    def take(self, ref: Any, value: int) -> None:
        self.made += 1
        self.refs.append((ref, value))
        while len(self.refs) > KEPT_MAX:
            del self.refs[self.dice.randrange(len(self.refs))]

    def step(self, cluster: Any) -> None:
        what, value = self.dice.randrange(7), self.dice.randrange(100)
        rank = self.dice.randrange(RANKS)
        ref, expected = self.dice.choice(self.refs) if self.refs else (None, 0)
        if what == 0:
            self.take(muster.put(np.full(self.size(), value, np.int8)), value)
        elif what == 1:
            made = cluster.execute_rank_sync(rank, "make", self.size(), value)
            self.take(made, value)
        elif what == 2 and ref is not None:
            assert cluster.execute_all_sync("check", ref, expected) == [True] * RANKS
        elif what == 3 and ref is not None:
            got = ref.get()
            assert got[0] == got[-1] == expected
        elif what == 4:
            cluster.execute_rank_sync(rank, "keep", np.full(self.size(), 1, np.int8))
        elif what == 5 and ref is not None:
            cluster.execute_rank_sync(rank, "keep", ref)
        else:
            cluster.execute_all_sync("drop")

    def try_step(self, cluster: Any) -> None:
        self.spilled = max(self.spilled, muster.store_stats()["spilled"])
        try:
            self.step(cluster)
        except muster.StoreFull:
            self.full += 1  # all that is there is in use
            cluster.execute_all_sync("drop")

    def kill(self, cluster: Any) -> None:
        """While they read what they were given."""
        pids = cluster.pids
        pending = []
        if self.refs:
            pending = cluster.execute_all_async("slow", self.dice.choice(self.refs)[0])
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            self.killed += 1
        for future in pending:
            with pytest.raises(muster.MusterError):
                future.result()


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Path]:
    for _ in _started(
        num_nodes=2,
        num_gpus=RANKS,
        store_limit="14MiB",
        spill=tmp_path,
        http="127.0.0.1:0",
    ):
        yield tmp_path


def _empty() -> list[dict[str, Any]]:
    def empty_nodes() -> list[dict[str, Any]]:
        gc.collect()
        nodes: list[dict[str, Any]] = _served()["nodes"]
        return [] if any(s["objects"] or s["spilled"] for s in nodes) else nodes

    found: list[dict[str, Any]] = until(empty_nodes, _served, DEADLINE_S)
    return found


def _measure(agents: list[int]) -> dict[str, float]:
    pids = {"driver": os.getpid(), **{f"agent {i}": p for i, p in enumerate(agents)}}
    found: dict[str, float] = {}
    for name, pid in pids.items():
        found[f"{name} MiB"] = _rss_mib(pid) - _shared_mib(pid)
        found[f"{name} descriptors"] = _descriptors(pid)
    return found


def _shared_mib(pid: int) -> float:
    """Pages of the stores, which are theirs to keep until they were idle for long."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssShmem"):
            return int(line.split()[1]) / 1024
    return 0.0


def test_soak(stores: Path) -> None:
    soak = Soak(11)
    agents = [n.agent_pid for n in muster.nodes()]
    before: dict[str, float] = {}
    lives = max(STEPS // 20, 2)
    for life in range(lives):
        with muster.Cluster(f"soak{life}", Worker, world_size=RANKS) as cluster:
            for _ in range(STEPS // lives):
                soak.try_step(cluster)
            if life % 2 == 0:
                soak.kill(cluster)
        if life == lives // 3:
            before = _measure(agents)
    assert all(bool(ref.get()[-1] == value) for ref, value in soak.refs)
    assert soak.killed >= RANKS
    assert soak.spilled > 0 or STEPS < 200
    soak.refs.clear()
    nodes = _empty()
    assert [s["used"] for s in nodes] == [0, 0]
    assert os.listdir(stores) == []
    after = _measure(agents)
    for name, value in after.items():
        assert value - before[name] < GROWTH_MIB, (name, before, after)
    print(
        f"{STEPS} steps: {soak.made} made, {soak.killed} killed, {soak.full} full, "
        f"{soak.spilled / MIB:.0f} MiB on disk at most"
    )
