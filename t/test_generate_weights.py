"""New weights while requests run: at a barrier or rolling; aborted, waited for, or kept."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import muster
import pytest
from generate_workers import (
    Engine,
    PausableEngine,
    SilentEngine,
    SilentPausableEngine,
    answer,
)
from muster.generate import Group, GroupDropped, Scheduler
from muster.generate.weights import Update
from test_generate import WAIT_S, check, until

Make = Callable[..., Any]
SLOW = {"length": 60, "pace": 0.01, "versions": True}


def tokens(sched: Scheduler) -> int:
    return sum(one["tokens"] for one in sched.stats()["replicas"])


def begun(sched: Scheduler, count: int = 3, **sampling: Any) -> list[Group]:
    before = tokens(sched)
    groups = [
        sched.submit(
            [i],
            n=2,
            max_new_tokens=sampling.get("length", 99),
            sampling={**SLOW, **sampling},
        )
        for i in range(count)
    ]
    until(lambda: tokens(sched) > before + 20)
    return groups


def held(sched: Scheduler, c: Any, running: int = 6, **how: Any) -> list[Group]:
    """Three groups; so many of their requests run, and wait after 15 tokens."""
    groups = begun(sched, how.pop("count", 3), hold=15, **how)
    wait_held(groups, c, running)
    return groups


def wait_held(groups: list[Group], c: Any, running: int) -> None:
    rids = {rid for group in groups for rid in group.rids}

    def waiting() -> int:
        seen = c.execute_all_sync("seen")
        return len(rids & {rid for one in seen for rid in one["held"]})

    until(lambda: waiting() == running)


def released_in(update: Update, c: Any) -> Update:
    """What is held goes on when the update has begun."""
    begin = update._begin

    def both() -> None:
        begin()
        c.execute_all_sync("release")

    update._begin = both  # type: ignore[method-assign]
    return update


def check_versions(groups: list[Group], last: int) -> None:
    """Tokens have the version that the engine itself had, and versions do not fall."""
    found = set()
    for group in groups:
        check(group.result(WAIT_S), 60, 2)
        for one in group.samples:
            assert all(a <= b for a, b in pairwise(one.versions))
            found.update(one.versions)
    assert found == {0, last}


@pytest.mark.parametrize("engine", [Engine, PausableEngine])
@pytest.mark.parametrize("mode", ["abort", "keep"])
def test_barrier(cluster: Make, mode: str, engine: type) -> None:
    c = cluster(engine, 2)
    with Scheduler(c, slots=8) as sched:
        groups = held(sched, c)
        with sched.weights(version=7, mode=mode) as update:
            assert update.replicas == [0, 1] and sched.version == 0
            running = c.execute_all_sync("set_weights", 7)
            assert (sum(running) > 0) == (mode == "keep")
        assert sched.version == 7
        check_versions(groups, 7)
        attempts = {one.attempt for group in groups for one in group.samples}
        assert attempts == ({2} if mode == "abort" else {1})


def test_wait_lets_requests_end(cluster: Make) -> None:
    c = cluster(Engine, 2)
    with Scheduler(c, slots=2) as sched:
        groups = held(sched, c, running=4)
        with released_in(sched.weights(version=1, mode="wait"), c):
            assert c.execute_all_sync("set_weights", 1) == [0, 0]
            queued = sched.stats()["queued"]
        assert queued == 2  # what had no place has none before the update has ended
        wait_held(groups, c, 6)
        c.execute_all_sync("release")
        check_versions(groups, 1)
        assert all(len(set(one.versions)) == 1 for g in groups for one in g.samples)
        endless = held(sched, c, running=2, count=1, length=99)[0]
        with sched.weights(version=2, mode="wait", drain=0.1):
            assert c.execute_all_sync("set_weights", 2) == [0, 0]
        endless.result(WAIT_S)
        assert {1, 2} <= {v for one in endless.samples for v in one.versions}


def test_rolling(cluster: Make) -> None:
    c = cluster(Engine, 3)
    with Scheduler(c, slots=8) as sched:
        groups = held(sched, c)
        seen = []
        for rank in sched.weights(version=3, rolling=True):
            assert c[rank : rank + 1].execute_all_sync("set_weights", 3) == [0]
            seen.append(rank)
        assert seen == [0, 1, 2] and sched.version == 3
        check_versions(groups, 3)
        with pytest.raises(TypeError), sched.weights(version=4, rolling=True):
            pass


def made_with(c: Any) -> dict[tuple[str, int], int]:
    """The version of each token by its request and place. What an attempt made and could
    not send was made again by a later one."""
    made = [one for of_rank in c.execute_all_sync("get_made") for one in of_rank]
    made.sort(key=lambda one: one[2])
    return {(rid, place): version for rid, place, _, version in made}


@pytest.mark.parametrize("rolling", [True, False])
@pytest.mark.parametrize(
    ("engine", "mode"),
    [
        (SilentEngine, "abort"),
        (SilentEngine, "wait"),
        (SilentPausableEngine, "abort"),
        (SilentPausableEngine, "keep"),
        (SilentEngine, "keep"),
    ],
)
def test_versions_of_engines_that_say_none(
    cluster: Make, engine: type, mode: str, rolling: bool
) -> None:
    """Weights change twice in the midst of answers, and each token has the version of those
    that made it. Of an engine that cannot pause and goes on meanwhile only itself knows:
    then none is said to be newer than it is."""
    c = cluster(engine, 3)
    with Scheduler(c, slots=8) as sched:
        groups = held(sched, c, 8, count=4)
        for version in (1, 2):
            update = sched.weights(version=version, rolling=rolling, mode=mode)
            if mode == "wait":
                released_in(update, c)
            if rolling:
                for rank in update:
                    c[rank : rank + 1].execute_all_sync("set_weights", version)
            else:
                with update:
                    c.execute_all_sync("set_weights", version)
            groups += held(sched, c, 4, count=2)
        c.execute_all_sync("release")
        samples = [one for group in groups for one in group.result(WAIT_S).samples]
        for group in groups:
            check(group, 60, 2)
    made = made_with(c)
    is_known = mode != "keep" or engine is SilentPausableEngine
    for one in samples:
        truth = [made[one.rid, place] for place in range(60)]
        if is_known:
            assert one.versions == truth
        else:
            assert all(v <= t for v, t in zip(one.versions, truth, strict=True))
    mixed = [one for one in samples if len(set(one.versions)) > 1]
    assert bool(mixed) == (mode != "wait")
    assert {v for one in samples for v in one.versions} == {0, 1, 2}


def test_who_waits_for_weights_is_told(cluster: Make) -> None:
    """A driver that waits for groups learns what its only replica waits for."""
    c = cluster(Engine, 1)
    with Scheduler(c) as sched:
        with sched.weights(version=1):
            c.execute_all_sync("set_weights", 1)
        c.replace(0)
        group = sched.submit([1], n=2, max_new_tokens=10)
        until(lambda: sched.stats()["replicas"][0]["state"] == "waits for weights")
        what = r"rank 0 has not got the weights: .* call restored\(0\)"
        with pytest.raises(muster.DeadlineExceeded, match=what):
            sched.get_batch(1, timeout=0.1)
        c.execute_all_sync("set_weights", 1)
        sched.restored(0)
        check(group.result(WAIT_S), 10, 2)


def test_what_is_asked_at_the_wrong_time(cluster: Make) -> None:
    c = cluster(Engine, 1)
    with Scheduler(c) as sched:
        with pytest.raises(ValueError, match="resume: it is not paused"):
            sched.resume()
        with sched.weights(version=1):
            c.replace(0)
            until(lambda: sched.stats()["replicas"][0]["state"] == "waits for weights")
            with pytest.raises(ValueError, match="an update is under way"):
                sched.restored(0)
            what = "weights: another update is under way"
            with pytest.raises(muster.MusterError, match=what), sched.weights(2):
                pass


def test_an_update_that_fails(cluster: Make) -> None:
    c = cluster(PausableEngine, 2)
    with Scheduler(c, slots=8) as sched:
        groups = begun(sched, length=30)
        with pytest.raises(RuntimeError, match="lost"), sched.weights(version=1):
            raise RuntimeError("the weights are lost")
        assert sched.version == 0
        for group in groups:
            check(group.result(WAIT_S), 30, 2)
        for rank in sched.weights(version=2, rolling=True):
            assert rank == 0
            break
        assert sched.version == 0
        with sched.weights(version=2):
            with pytest.raises(muster.MusterError), sched.weights(version=3):
                pass
            c.execute_all_sync("set_weights", 2)
        assert sched.version == 2
        with pytest.raises(ValueError, match="not after 2"), sched.weights(version=2):
            pass
        after = sched.submit([9], max_new_tokens=9, sampling={"versions": True})
        assert set(after.result(WAIT_S).samples[0].versions) == {2}


def test_a_new_worker_waits_for_the_next_weights(cluster: Make) -> None:
    c = cluster(Engine, 2)
    with Scheduler(c) as sched:
        with sched.weights(version=1):
            c.execute_all_sync("set_weights", 1)
        groups = begun(sched)
        c.replace(1)
        until(lambda: sched.stats()["replicas"][1]["state"] == "waits for weights")
        for group in groups:
            assert {
                v for one in group.result(WAIT_S).samples for v in one.versions
            } == {1}
        with sched.weights(version=2) as update:
            assert update.replicas == [0, 1]
            c.execute_all_sync("set_weights", 2)
        assert [one["state"] for one in sched.stats()["replicas"]] == ["up", "up"]
        c.replace(0)
        c.execute_rank_zero_sync("set_weights", 2)
        sched.restored(0)
        assert [one["state"] for one in sched.stats()["replicas"]] == ["up", "up"]
        check_two = sched.submit([1], n=8, max_new_tokens=9).result(WAIT_S)
        assert {one.replica for one in check_two.samples} == {0, 1}
        assert {v for one in check_two.samples for v in one.versions} == {2}


def test_a_replica_that_was_not_there_waits_for_weights(cluster: Make) -> None:
    c = cluster(Engine, 2)
    with Scheduler(c) as sched:

        def states() -> list[str]:
            return [one["state"] for one in sched.stats()["replicas"]]

        sched.drain([1])
        with sched.weights(version=1):
            c.execute_rank_zero_sync("set_weights", 1)
        sched.undrain([1])  # it has missed them
        sched.resize(3)  # and this one is new
        assert states() == ["up", "waits for weights", "waits for weights"]
        for rank in (1, 2):
            c[rank].execute_all_sync("set_weights", 1)
            sched.restored(rank)
        sched.drain([2])
        sched.undrain([2])  # it still has them
        assert states() == ["up"] * 3
        group = sched.submit([1], n=9, max_new_tokens=9).result(WAIT_S)
        assert {one.replica for one in group.samples} == {0, 1, 2}
        assert {v for one in group.samples for v in one.versions} == {1}


def test_an_engine_that_fell_back_gets_no_more_requests(cluster: Make) -> None:
    """Rank 1 was not updated, and says so of its tokens: they have the versions that it said,
    its requests go on elsewhere, and it waits for weights."""
    c = cluster(Engine, 2)
    with Scheduler(c, slots=8) as sched:
        with sched.weights(version=3):
            c[0].execute_all_sync("set_weights", 3)
        said = {"length": 40, "pace": 0.01, "versions": True}
        group = sched.submit([1], n=8, max_new_tokens=99, sampling=said).result(WAIT_S)
        check(group, 40, 8)
        assert {one.replica for one in group.samples} == {0}
        moved = [one for one in group.samples if one.attempt > 1]
        for one in group.samples:
            kept = one.versions.count(0)
            assert one.versions == [0] * kept + [3] * (40 - kept)
            assert kept == 0 or one in moved
        assert any(0 in one.versions for one in moved)
        behind = sched.stats()["replicas"][1]
        assert (behind["state"], behind["version"]) == ("waits for weights", 0)
        assert "version 0, not 3" in behind["failure"]
        c[1].execute_all_sync("set_weights", 3)
        sched.restored(1)
        again = sched.submit([2], n=8, max_new_tokens=9, sampling={"versions": True})
        assert {one.replica for one in again.result(WAIT_S).samples} == {0, 1}
        assert {v for one in again.samples for v in one.versions} == {3}
        with sched.weights(version=4) as update:  # they were not given them
            assert update.replicas == [0, 1]
        late = sched.submit([3], n=2, max_new_tokens=9, sampling=said)
        with pytest.raises(muster.DeadlineExceeded, match=r"version 3, not 4; rank 0"):
            sched.get_batch(1, timeout=2)
        with sched.weights(version=5) as update:
            assert update.replicas == [0, 1]
            c.execute_all_sync("set_weights", 5)
        late.result(WAIT_S)
        assert {v for one in late.samples for v in one.versions} <= {3, 5}


def test_a_replica_that_came_back_often_is_used_again(cluster: Make) -> None:
    c = cluster(Engine, 2)
    with Scheduler(c) as sched:
        for _ in range(3):
            c.replace(1)
            until(lambda: sched.stats()["replicas"][1]["state"] == "up")
        sched.drain([1])
        sched.undrain([1])
        group = sched.submit([1], n=8, max_new_tokens=9).result(WAIT_S)
        assert {one.replica for one in group.samples} == {0, 1}


def test_a_replica_that_dies_in_the_update(cluster: Make) -> None:
    c = cluster(Engine, 2)
    with Scheduler(c) as sched:
        groups = held(sched, c)
        with sched.weights(version=1):
            c.replace(1)
            c.execute_rank_zero_sync("set_weights", 1)
        assert sched.version == 1
        check_versions(groups, 1)
        until(lambda: sched.stats()["replicas"][1]["state"] == "waits for weights")


def test_pause_and_resume(cluster: Make) -> None:
    c = cluster(PausableEngine, 2)
    with Scheduler(c, slots=4) as sched:
        groups = begun(sched, length=10**6)
        for mode in ("abort", "keep"):
            sched.pause(mode)
            until_now = tokens(sched)
            running = [one["running"] for one in c.execute_all_sync("seen")]
            assert any(running) == (mode == "keep")
            sched.submit([9], max_new_tokens=9)
            assert sched.stats()["queued"] + sched.stats()["held"] > 0
            assert tokens(sched) <= until_now + 6
            sched.resume()
            until(lambda now=until_now: tokens(sched) > now + 20)
        for group in groups:
            group.cancel()


def test_a_restored_job_begins_no_more_than_before(cluster: Make) -> None:
    c = cluster(Engine, 2)
    c.execute_all_sync("set_weights", 100)
    with Scheduler(c, max_staleness=1, batch=2, version=100) as sched:
        groups = [sched.submit([i], key=i, max_new_tokens=9) for i in range(8)]
        until(lambda: sched.stats()["ready"] == 4)
        assert sched.stats()["held"] == 4
        assert sched.get_batch(2, timeout=WAIT_S).to_batch()["versions"][0][0] == 100
        assert not any(g.error for g in groups)


def test_staleness(cluster: Make) -> None:
    c = cluster(Engine, 2)
    with Scheduler(c, max_staleness=1, batch=2) as sched:
        groups = [sched.submit([i], key=i, max_new_tokens=9) for i in range(8)]
        until(lambda: sched.stats()["ready"] == 4)
        assert sched.stats()["held"] == 4  # two of this version, two of the next
        for version in (1, 2):
            with sched.weights(version=version):
                c.execute_all_sync("set_weights", version)
        # the oldest are two versions behind: they are not handed out
        assert {g.error.reason for g in groups[:4] if g.done() and g.error} == {"stale"}
        fresh = sched.get_batch(4, timeout=WAIT_S)
        assert {group.key for group in fresh} == {4, 5, 6, 7}
        with pytest.raises(GroupDropped, match="stale"):
            groups[0].result()
        assert answer([4], 0, 9) in [group.samples[0].tokens for group in fresh]
