"""16 workers of 4 roles, whose processes, agents and head are killed, stopped and run out of
memory at random: the job converges, and no shard that was committed is lost. Each role has a
rank that is killed at its memory limit first, so that this happens whatever the dice say.

MUSTER_CHAOS_SECONDS says for how long (10; `make test-chaos`: 60), MUSTER_CHAOS_SEED with which
dice.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from cli_rig import home  # noqa: F401
from helpers import describe, processes
from jobs_rig import Jobs, jobs, until  # noqa: F401

SECONDS = float(os.environ.get("MUSTER_CHAOS_SECONDS", "10"))
SEED = int(os.environ.get("MUSTER_CHAOS_SEED", "12"))
PAUSE_S = 0.25  # between two blows, on average
STOPPED_MAX_S = 2.0
CONVERGE_S = 150.0  # a back-off may have reached 60 s
SHARDS = int(max(1200, 150 * SECONDS))
BUDGET = (
    "{failed: unlimited, out_of_memory: unlimited, node_lost: unlimited,"
    " no_heartbeat: unlimited, start_failed: unlimited, hang: unlimited}"
)
ROLES = ["alone", "together", "hungry", "plain"]
EACH = f"world_size: 4, memory: 300MiB, budget: {BUDGET}"
JOB = f"""
name: chaos
nodes: [{{name: "n[0-1]", cpus: 32, memory: 64GiB}}]
roles:
  alone: {{worker_cls: chaos_workers.Taker, args: [alone], restart: rank, {EACH}}}
  together: {{worker_cls: chaos_workers.Taker, args: [together], restart: role, {EACH}}}
  hungry: {{worker_cls: chaos_workers.Taker, args: [hungry], restart: rank,
           memory_growth: 1.5, {EACH}}}
  plain: {{command: [{sys.executable}, chaos_workers.py], restart: rank, {EACH}}}
driver: {{command: [{sys.executable}, chaos_driver.py], budget: {BUDGET}}}
"""
HERE = Path(__file__).parent


class Chaos:
    """Blows at random. A process that is stopped goes on after a while, or is killed."""

    def __init__(self, jobs: Jobs) -> None:  # noqa: F811
        self.jobs = jobs
        self.dice = random.Random(SEED)
        self.stopped: list[tuple[float, int]] = []
        self.blows: Counter[str] = Counter()
        self.has_limits = has_memory_limits(jobs)

    def worker(self, role: str = "") -> int:
        """Of any role; 0: it is not there now."""
        name = f"{role or self.dice.choice(ROLES)}-{self.dice.randrange(4)}"
        return self.read(self.jobs.folder / "pids" / name)

    def read(self, path: Path) -> int:
        with contextlib.suppress(OSError, ValueError):
            pid = int(path.read_text().split()[0])
            return pid if pid in processes(self.jobs.mark) else 0
        return 0

    def agent(self) -> int:
        found = [
            pid
            for pid in processes(self.jobs.mark)
            if "--node-name" in describe(pid) and " agent" in describe(pid)
        ]
        return self.dice.choice(sorted(found)) if found else 0

    def driver(self) -> int:
        return self.read(self.jobs.folder / "pids" / "driver-0")

    def head(self) -> int:
        return self.read(self.jobs.home.path / "jobs" / "driver")

    def kill(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def stop(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            until_s = time.monotonic() + self.dice.uniform(0.1, STOPPED_MAX_S)
            self.stopped.append((until_s, pid))

    def eat(self, pid: int) -> None:
        """Without a limit it would take the machine's memory."""
        if self.has_limits:
            self.jobs.write("", f"eat-{pid}")

    def starved(self) -> Counter[str]:
        """How many of each role were killed at their limit."""
        return Counter(
            e["role"]
            for e in self.jobs.events("chaos")
            if e["cause"] == "out of memory" and " ended: " in e["text"]
        )

    def starve_each(self) -> None:
        """One rank of each role, and all of it is there again."""
        if not self.has_limits:
            return
        for role in ROLES:
            self.eat(until(lambda role=role: self.worker(role)))
        until(lambda: set(self.starved()) == set(ROLES))
        self.jobs.wait_running("chaos")

    def go_on(self, everything: bool = False) -> None:
        now = time.monotonic()
        for when, pid in list(self.stopped):
            if everything or when <= now:
                self.stopped.remove((when, pid))
                if not everything and self.dice.random() < 0.3:
                    self.kill(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def blow(self) -> None:
        what = self.dice.choices(
            ["worker", "stop", "memory", "driver", "agent", "stop agent", "head"]
            + ["stop head"],
            [40, 20, 10, 4, 6, 4, 5, 3],
        )[0]
        hit, target = {
            "worker": (self.kill, self.worker),
            "stop": (self.stop, self.worker),
            "memory": (self.eat, self.worker),
            "driver": (self.kill, self.driver),
            "agent": (self.kill, self.agent),
            "stop agent": (self.stop, self.agent),
            "head": (self.kill, self.head),
            "stop head": (self.stop, self.head),
        }[what]
        if pid := target():  # some wait for their next start
            self.blows[what] += 1
            hit(pid)

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            self.blow()
            next_s = now + self.dice.uniform(0.2, 1.8) * PAUSE_S
            while time.monotonic() < next_s:
                self.go_on()
                time.sleep(0.01)
        self.go_on(everything=True)


def has_memory_limits(jobs: Jobs) -> bool:  # noqa: F811
    checks = json.loads(jobs.run("doctor", "--json"))["checks"]
    return all(c["level"] == "ok" for c in checks if c["check"] == "memory-limits")


def notes(folder: Path) -> dict[str, Counter[int]]:
    """How often each shard was begun, worked on, committed."""
    found: dict[str, Counter[int]] = {"S": Counter(), "W": Counter(), "C": Counter()}
    for path in (folder / "work").iterdir():
        for line in path.read_text().splitlines():
            what, start = line.split()
            found[what][int(start)] += 1
    return found


def shared_memory() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if "muster" in name}


@pytest.fixture
def prepared(jobs: Jobs) -> Jobs:  # noqa: F811
    for name in ("chaos_workers.py", "chaos_driver.py"):
        shutil.copy(HERE / name, jobs.folder)
    for name in ("pids", "work"):
        (jobs.folder / name).mkdir()
    jobs.write(str(SHARDS), "size")
    return jobs


@pytest.mark.timeout(SECONDS + 4 * CONVERGE_S)
def test_a_job_converges_and_loses_no_shard(prepared: Jobs) -> None:
    rig = prepared
    before = shared_memory()
    print(f"seed {SEED}, {SECONDS:g} s")
    rig.submit(JOB)
    rig.wait_running("chaos")
    chaos = Chaos(rig)
    chaos.starve_each()
    chaos.run(SECONDS)
    print(dict(chaos.blows), dict(chaos.starved()))
    rig.write("", "calm")
    began = time.monotonic()
    try:
        rig.wait_running("chaos", CONVERGE_S)
    except AssertionError:
        print((rig.home.path / "jobs/logs/head.log").read_text()[-4000:])
        print(rig.texts("chaos")[-8000:], rig.run("get", "job/chaos"))
        raise
    print(f"converged after {time.monotonic() - began:.1f} s")
    rig.write("", "finish")
    rig.run("wait", "chaos", timeout_s=CONVERGE_S)
    print(f"ended after {time.monotonic() - began:.1f} s")
    assert rig.get("chaos")["stage"] == "succeeded"
    found = notes(rig.folder)
    assert set(found["W"]) == set(range(SHARDS))  # each was worked on
    assert max(found["C"].values()) == 1  # none that was committed was given away again
    seen = [int(line) for line in (rig.folder / "seen").read_text().split()]
    assert seen == sorted(seen)
    rig.run("delete", "chaos")
    rig.end()
    print(f"gone after {time.monotonic() - began:.1f} s")
    left = [str(p) for p in rig.home.path.rglob("*") if p.is_socket()]
    assert left == []
    assert shared_memory() <= before
