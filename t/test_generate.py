"""The scheduler of generation on real workers."""

import asyncio
import importlib
import os
import pickle
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from generate_workers import Engine, PlainEngine, WholeEngine, answer
from muster import DeadlineExceeded
from muster.generate import Group, GroupDropped, Scheduler

Make = Callable[..., Any]
WAIT_S = 60.0


def check(group: Group, length: int, n: int) -> None:
    """All of its samples are what one engine alone would have made."""
    assert sorted(one.seq for one in group.samples) == list(range(n))
    for one in group.samples:
        assert one.tokens == answer(group.prompt, one.seq, length), one.rid
        assert one.logprobs == [-float(t) for t in one.tokens]
        assert len(one.versions) == length and one.finish_reason == "stop"


def until(what: Callable[[], Any]) -> Any:
    end = time.monotonic() + WAIT_S
    while not (found := what()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


def test_groups_of_samples(cluster: Make) -> None:
    with Scheduler(cluster(Engine, 3), slots=4) as sched:
        for i in range(20):
            sampling = {"length": 20 + i, "chunk": 3}
            sched.submit([i, 2, 3], n=4, key=i, max_new_tokens=99, sampling=sampling)
        groups = sched.get_batch(20, timeout=WAIT_S)
        assert sorted(group.key for group in groups) == list(range(20))
        for group in groups:
            check(group, 20 + group.key, 4)
        stats = sched.stats()
        assert stats["delivered"] == 20 and stats["sent"] == 80 and stats["live"] == 0
        batch = groups.to_batch()
        assert len(batch) == 80
        assert list(batch.read("tokens")[0]) == groups[0].samples[0].tokens
        cut = sched.submit([7], max_new_tokens=5, sampling={"length": 9}).result(WAIT_S)
        assert cut.samples[0].tokens == answer([7], 0, 5)
        assert cut.samples[0].finish_reason == "length"


@pytest.mark.parametrize("adapter", ["roll", "verl"])
def test_a_batch_of_an_adapter(cluster: Make, adapter: str) -> None:
    """A DataProto with the rows of the Batch, which goes through calls and comes back."""
    proto = importlib.import_module(f"muster.{adapter}").DataProto
    with Scheduler(cluster(Engine, 2)) as sched:
        for i in range(3):
            sampling = {"length": 5 + i}
            sched.submit([i, 1], n=2, key=f"p{i}", max_new_tokens=9, sampling=sampling)
        groups = sched.get_batch(3, timeout=WAIT_S)
    data, batch = groups.to_batch(proto), groups.to_batch()
    assert type(data) is proto and len(data) == len(batch) == 6
    for name in ("tokens", "versions", "logprobs", "prompt"):
        rows = [row.tolist() for row in data.non_tensor_batch[name]]
        assert rows == [row.tolist() for row in batch.read(name)]
    assert [int(n) for n in data.batch["seq"]] == list(batch.read("seq"))
    assert list(data.non_tensor_batch["key"]) == [g.key for g in groups for _ in "ab"]
    assert [len(part) for part in data.chunk(4)] == [2, 2, 1, 1]
    assert pickle.loads(pickle.dumps(data)) == data
    assert len(groups[0].to_batch(proto)) == 2
    assert len(type(groups)().to_batch(proto)) == 0


def test_engines_without_streams_or_async(cluster: Make) -> None:
    for engine in (PlainEngine, WholeEngine):
        with Scheduler(cluster(engine, 2), slots=1) as sched:
            groups = [
                sched.submit([i], n=3, max_new_tokens=20, sampling={"length": 12})
                for i in range(4)
            ]
            for group in groups:
                group.result(WAIT_S)
                assert [len(one.tokens) for one in group.samples] == [12] * 3
                assert group.samples[1].tokens == answer(group.prompt, 1, 12)


def test_asyncio(cluster: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(sched: Scheduler) -> None:
        groups = [sched.submit([i], n=2, max_new_tokens=20) for i in range(8)]
        first = await asyncio.wait_for(groups[5], WAIT_S)
        assert first is groups[5] and first.samples[0].tokens == answer([5], 0, 10)
        found = [group async for group in sched]
        assert {group.id for group in found} == {g.id for g in groups} - {first.id}
        for group in found:
            check(group, 10, 2)
        assert [group async for group in sched] == []
        slow = {"length": 50, "hold": 10}
        group = sched.submit([9], n=2, max_new_tokens=99, sampling=slow)
        with pytest.raises(DeadlineExceeded, match="2 of 2 replicas"):
            await sched.get_batch_async(1, timeout=0.05)
        async with sched.weights(version=1) as update:
            assert update.replicas == [0, 1] and sched.stats()["running"] == 0
        assert (await sched.get_batch_async(1, timeout=WAIT_S))[0] is group
        check(group, 50, 2)
        endless = {"length": 10**6, "pace": 0.01}
        late = sched.submit([9], max_new_tokens=10**6, sampling=endless, deadline=None)
        monkeypatch.setattr("muster.generate.scheduler.WAIT_S", 0.05)
        with pytest.raises(DeadlineExceeded, match=r"was not whole within 0.05 s"):
            await late
        with pytest.raises(DeadlineExceeded, match=r"no group finished within 0.05 s"):
            async for _ in sched:
                pass
        with pytest.raises(DeadlineExceeded, match=r"get version 2 within 0.05 s"):
            async with sched.weights(version=2, mode="wait", timeout=0.05):
                pass
        late.cancel()

    with Scheduler(cluster(Engine, 2)) as sched:
        asyncio.run(main(sched))


@pytest.mark.parametrize("how", ["killed", "aborted"])
@pytest.mark.parametrize("reason", ["stop", "length"])
def test_a_whole_answer_is_not_sent_again(cluster: Make, how: str, reason: str) -> None:
    """Its last token has come, and the end of its stream has not."""
    c = cluster(Engine, 2)
    pids = [one["pid"] for one in c.execute_all_sync("seen")]
    with Scheduler(c, slots=4) as sched:
        sampling = {"length": 9 if reason == "stop" else 99, "linger": True}
        most = 99 if reason == "stop" else 9
        groups = [
            sched.submit([i], n=2, max_new_tokens=most, sampling=sampling)
            for i in range(2)
        ]
        until(lambda: sum(one["tokens"] for one in sched.stats()["replicas"]) == 36)
        if how == "aborted":
            with sched.weights(version=1):
                pass
        else:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
        for group in groups:
            for one in group.result(WAIT_S).samples:
                assert one.tokens == answer(group.prompt, one.seq, 9)
                assert (one.attempt, one.finish_reason) == (1, reason)


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_lost_replica_resumes_elsewhere(cluster: Make, how: str) -> None:
    c = cluster(Engine, 3)
    pids = [one["pid"] for one in c.execute_all_sync("seen")]
    options = {"silence": 5.0, "probe": 5.0} if how == "stopped" else {}
    with Scheduler(c, slots=4, **options) as sched:
        sampling = {"length": 400, "pace": 0.02}
        groups = [
            sched.submit([i], n=3, max_new_tokens=999, sampling=sampling)
            for i in range(3)
        ]
        until(lambda: sched.stats()["replicas"][1]["tokens"] > 30)
        os.kill(pids[1], signal.SIGKILL if how == "killed" else signal.SIGSTOP)
        try:
            for group in groups:
                check(group.result(WAIT_S), 400, 3)
            stats = sched.stats()
            assert stats["resumed"] >= 1 and stats["delivered"] == 3
            assert stats["replicas"][1]["state"] == "down"
            moved = [one for g in groups for one in g.samples if one.attempt > 1]
            assert moved and all(one.replica != 1 for one in moved)
            # it went on behind what had come, and from nothing
            logs = [c.rank2worker[i].execute_all_sync("seen")[0]["log"] for i in (0, 2)]
            resumed = {
                rid: kept for log in logs for rid, again, kept, _ in log if again > 1
            }
            assert {one.rid for one in moved} == set(resumed)
            assert any(resumed.values())
        finally:
            if how == "stopped":
                os.kill(pids[1], signal.SIGCONT)
        if how == "killed":
            c.replace(1)
        until(lambda: sched.stats()["replicas"][1]["state"] == "up")
        again = [
            sched.submit([i], n=4, max_new_tokens=9, sampling={"length": 9})
            for i in range(6)
        ]
        for group in again:
            check(group.result(WAIT_S), 9, 4)
        assert {one.replica for group in again for one in group.samples} == {0, 1, 2}


def test_poison_fails_after_three_replicas(cluster: Make) -> None:
    with Scheduler(cluster(Engine, 4), slots=4) as sched:
        bad = sched.submit([1], n=2, max_new_tokens=9, sampling={"raise": "no way"})
        good = sched.submit([2], n=2, max_new_tokens=20, sampling={"length": 10})
        with pytest.raises(GroupDropped, match="no way") as caught:
            bad.result(WAIT_S)
        assert caught.value.reason == "poison"
        aborted = sched.submit([3], max_new_tokens=9, sampling={"abort": True})
        with pytest.raises(GroupDropped, match="aborted it, unasked"):
            aborted.result(WAIT_S)
        check(good.result(WAIT_S), 10, 2)
        sched.submit([1], max_new_tokens=9, sampling={"raise": "never"})
        with pytest.raises(GroupDropped, match="never"):
            sched.get_batch(1, timeout=WAIT_S)


def test_a_replica_of_several_ranks(cluster: Make) -> None:
    """Of a mesh with tp and pp: the first rank of each data-parallel group is asked."""
    c = cluster(Engine, 8, mesh={"tp": 2, "pp": 2})
    with Scheduler(c, slots=4) as sched:
        for key in range(8):
            sched.submit([key], n=2, key=key, max_new_tokens=20)
        for group in sched.get_batch(8, timeout=WAIT_S):
            check(group, 10, 2)
        assert len(sched.stats()["replicas"]) == 2
        asked = [bool(seen["log"]) for seen in c.execute_all_sync("seen")]
        assert [rank for rank in range(8) if asked[rank]] == [0, 2]
        assert list(sched.weights(version=1, rolling=True)) == [0, 2]
        sched.drain([7])  # the last stage of the second group
        assert [one["state"] for one in sched.stats()["replicas"]] == ["up"]
        check(sched.submit([9], max_new_tokens=20).result(WAIT_S), 10, 1)
        with pytest.raises(ValueError, match="at least one"):
            sched.drain([4, 5])
        sched.undrain([3])
        until(lambda: [r["state"] for r in sched.stats()["replicas"]] == ["up", "up"])
