"""Workers are killed at random under load; afterwards nothing has grown and nothing is
left. MUSTER_SOAK_SECONDS says for how long (60)."""

import gc
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import muster
import pytest
from muster import api

SECONDS = float(os.environ.get("MUSTER_SOAK_SECONDS", "60"))
RANKS = 4
CALLERS = 3
GROWTH_MIB = 24.0  # of the driver or the agent; a lost call or reply is a few KiB
WARM_ROUNDS = 15  # arenas, caches and tables have their size after these


class Target:
    def echo(self, value: Any) -> Any:
        return value

    def items(self, count: int) -> Any:
        yield from range(count)

    def linger(self) -> None:
        subprocess.Popen(["sleep", "1000"], start_new_session=True)


def _rss_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no VmRSS of {pid}")


def _descriptors(pid: int) -> int:
    gc.collect()  # a failure and the call that it came from refer to each other
    return len(os.listdir(f"/proc/{pid}/fd"))


def _agent_pid(session_dir: str) -> int:
    out = subprocess.run(
        [api.find_executable(), "status", "--json"],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    status = json.loads(out)
    sessions = status.get("sessions", [status])
    return int(sessions[0]["nodes"][0]["agent_pid"])


def _call_until_dead(cluster: muster.Cluster, seed: int, seen: list[int]) -> None:
    dice = random.Random(seed)
    try:
        while True:
            view = cluster[dice.randrange(RANKS)]
            kind = dice.randrange(4)
            if kind == 0:
                size = dice.choice([1, 1000, 300_000])
                assert len(view.execute_rank_zero_sync("echo", b"x" * size)) == size
            elif kind == 1:
                futures = [view.execute_rank_zero_async("echo", i) for i in range(50)]
                assert muster.get(futures) == list(range(50))
            elif kind == 2:
                assert list(view.execute_rank_zero_sync("items", 10)) == list(range(10))
            else:
                view.execute_rank_zero_async("echo", 1).cancel()
            seen[0] += 1
    except muster.MusterError:
        pass  # the worker died, or the cluster was destroyed: what this is about


def _round(number: int, dice: random.Random, seen: list[int]) -> None:
    with muster.Cluster(f"soak{number}", Target, world_size=RANKS) as cluster:
        cluster.execute_all_sync("linger")
        threads = [
            threading.Thread(
                target=_call_until_dead, args=(cluster, dice.random(), seen)
            )
            for _ in range(CALLERS)
        ]
        for t in threads:
            t.start()
        victims = dice.sample(cluster.pids, dice.randint(1, RANKS))
        for pid in victims:
            threads[0].join(dice.random() * 0.1)
            os.kill(pid, signal.SIGKILL)
        if len(victims) < RANKS:
            cluster.destroy(grace=0)
        for t in threads:
            t.join(30)
            assert not t.is_alive(), "a call outlived its worker"


@pytest.mark.timeout(SECONDS * 2 + 120)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_kill_under_load_leaves_nothing(own_session: Any) -> None:
    dice = random.Random(4711)
    seen = [0]
    driver, agent = os.getpid(), _agent_pid(own_session.head.session_dir)
    end = time.monotonic() + SECONDS
    rounds = 0
    before: list[tuple[float, int]] = []
    while time.monotonic() < end or rounds <= WARM_ROUNDS:
        _round(rounds, dice, seen)
        rounds += 1
        if rounds == WARM_ROUNDS:
            before = [(_rss_mib(p), _descriptors(p)) for p in (driver, agent)]
    after = [(_rss_mib(p), _descriptors(p)) for p in (driver, agent)]
    print(f"{rounds} rounds, {seen[0]} calls, before {before}, after {after}")
    assert seen[0] > rounds
    for (rss0, fds0), (rss1, fds1) in zip(before, after, strict=True):
        assert rss1 - rss0 < GROWTH_MIB
        assert abs(fds1 - fds0) <= 4
