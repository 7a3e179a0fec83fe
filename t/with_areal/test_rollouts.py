"""Muster's StalenessManager beside AReaL's, and rollouts of real workers."""

import asyncio
import random
from typing import Any

import muster
import pytest
from areal.api import Job
from areal.api.cli_args import SchedulingSpec
from areal.infra import StalenessManager as AReaLs
from areal.infra.rpc.rtensor import RTensor
from muster.areal import MusterScheduler, Rollouts, StalenessManager

EVENTS = ("enqueued", "submitted", "accepted", "rejected")


class Version:
    def __init__(self) -> None:
        self.number = 0

    def get_version(self) -> int:
        return self.number


@pytest.mark.parametrize("seed", range(20))
def test_the_same_capacity_as_areals(seed: int) -> None:
    chance, version = random.Random(seed), Version()
    limits = (chance.randint(0, 9), chance.randint(0, 5), chance.randint(0, 3))
    both = [cls(version, *limits) for cls in (AReaLs, StalenessManager)]
    counts = dict.fromkeys(("waits", "runs"), 0)
    for _ in range(300):
        event = chance.choice((*EVENTS, "version"))
        if event == "version":
            version.number += 1
            continue
        if event == "submitted" and not counts["waits"]:
            continue
        if event in ("accepted", "rejected") and not counts["runs"]:
            continue
        counts["waits"] += (event == "enqueued") - (event == "submitted")
        counts["runs"] += (event == "submitted") - (event in ("accepted", "rejected"))
        for one in both:
            getattr(one, f"on_rollout_{event}")()
        theirs, ours = (vars(one.get_stats()) for one in both)
        assert {name: theirs[name] for name in ours} == ours
        assert both[0].get_capacity() == both[1].get_capacity()
        assert both[0].get_pending_limit() == both[1].get_pending_limit()
    for one in both:
        one.on_version_recovered(version.number)
    if not counts["runs"]:
        assert both[0].get_capacity() == both[1].get_capacity()


def test_a_hundred_thousand_histories() -> None:
    """Short ones, some of them after a recovery."""
    for seed in range(100_000):
        chance, version = random.Random(seed), Version()
        limits = (chance.randint(0, 9), chance.randint(0, 5), chance.randint(0, 3))
        both = [cls(version, *limits) for cls in (AReaLs, StalenessManager)]
        if chance.random() < 0.3:
            version.number = chance.randint(1, 20)
            for one in both:
                one.on_version_recovered(version.number)
        waits = runs = 0
        for _ in range(chance.randint(5, 30)):
            event = chance.choice((*EVENTS, "version"))
            if event == "version":
                version.number += 1
            elif (waits if event == "submitted" else runs or event == "enqueued") > 0:
                waits += (event == "enqueued") - (event == "submitted")
                runs += (event == "submitted") - (event in ("accepted", "rejected"))
                for one in both:
                    getattr(one, f"on_rollout_{event}")()
            theirs, ours = both
            assert theirs.get_capacity() == ours.get_capacity(), seed
            assert theirs.get_pending_limit() == ours.get_pending_limit(), seed


class Loader:
    batch_size = 4

    def __iter__(self) -> Any:
        yield from ([{"x": i}, {"x": i + 1}] for i in range(0, 10, 2))


@pytest.mark.filterwarnings("ignore:http_open")
def test_rollouts_of_engines(session: Any) -> None:
    scheduler = MusterScheduler()
    spec = SchedulingSpec(cpu=0, mem=0)
    scheduler.create_workers(Job(role="rollout", replicas=2, tasks=[spec]))
    for i in (0, 1):
        made = scheduler.create_engine(f"rollout/{i}", "areal_engines.AsyncEngine")
        asyncio.run(made)
    rollouts = Rollouts(
        scheduler, "rollout", "episode", StalenessManager(Version(), 8, 4, 1)
    )
    batch = rollouts.prepare_batch(Loader())
    assert len(batch) == 4
    assert all(isinstance(one["x"], RTensor) for one in batch)
    assert all(int(one["x"].to_local()[0]) % 3 for one in batch)  # others are rejected
    rollouts.destroy()
    scheduler.delete_workers()
    assert muster.is_initialized()
