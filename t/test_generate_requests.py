"""Requests of generation: cancelled, late, filtered, divided, remembered, explained."""

import json
import os
import select
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import muster
import pytest
from generate_workers import Engine, PlainEngine, answer
from muster.generate import (
    Group,
    GroupCancelled,
    GroupDeadline,
    GroupDropped,
    Scheduler,
)
from test_generate import WAIT_S, check, until

Make = Callable[..., Any]
ENDLESS = {"length": 10**6, "pace": 0.01}


def running(c: Any) -> list[str]:
    return [rid for one in c.execute_all_sync("seen") for rid in one["running"]]


def endless(sched: Scheduler, n: int = 2) -> Group:
    group = sched.submit([1], n=n, max_new_tokens=10**6, sampling=ENDLESS)
    until(lambda: sched.stats()["running"] >= n)
    return group


def test_cancel_one_a_group_and_all(cluster: Make) -> None:
    c = cluster(Engine, 2)
    with Scheduler(c) as sched:
        group = endless(sched, 3)
        until(lambda: sorted(running(c)) == sorted(group.rids))
        first, *rest = group.rids
        sched.cancel(first)
        until(lambda: sorted(running(c)) == sorted(rest))
        with pytest.raises(LookupError):
            sched.cancel(first[:16])  # exact ids only
        with pytest.raises(LookupError):
            sched.cancel("f" * 32)
        other = endless(sched, 1)
        sched.cancel(group)
        with pytest.raises(GroupCancelled) as caught:
            group.result(WAIT_S)
        assert caught.value.group is group and caught.value.reason == "cancelled"
        until(lambda: running(c) == other.rids)
        endless(sched, 2)
        sched.cancel()
        until(lambda: running(c) == [] and sched.stats()["live"] == 0)
        group.cancel()
        good = sched.submit([3], max_new_tokens=10)
        check(good.result(WAIT_S), 10, 1)  # and none of the cancelled is raised here
        assert list(sched) == []


def test_cancel_frees_a_worker_that_runs_one_at_a_time(cluster: Make) -> None:
    with Scheduler(cluster(PlainEngine), slots=1) as sched:
        group = endless(sched, 1)
        after = sched.submit([2], max_new_tokens=10)
        group.cancel()
        assert after.result(WAIT_S).samples[0].tokens == answer([2], 0, 10)


def test_deadline(cluster: Make) -> None:
    c = cluster(Engine, 2)
    with Scheduler(c) as sched:
        late = sched.submit(
            [1], n=2, max_new_tokens=10**6, sampling=ENDLESS, deadline=0.3
        )
        with pytest.raises(GroupDeadline) as caught:
            late.result(WAIT_S)
        assert isinstance(caught.value, TimeoutError)
        until(lambda: running(c) == [])
        sched.submit([1], max_new_tokens=10**6, sampling=ENDLESS, deadline=0.3)
        with pytest.raises(GroupDeadline):
            sched.get_batch(1, timeout=WAIT_S)
        endless(sched, 1)
        with pytest.raises(muster.DeadlineExceeded, match="2 of 2 replicas are up"):
            sched.get_batch(1, timeout=0.2)
    with Scheduler(c, failed="skip") as sched:
        sched.submit([1], max_new_tokens=10**6, sampling=ENDLESS, deadline=0.2)
        sched.submit([2], max_new_tokens=10, sampling={"length": 10, "pace": 0.1})
        assert sched.get_batch(1, timeout=WAIT_S)[0].prompt == [2]


def test_surplus(cluster: Make) -> None:
    c = cluster(Engine, 2)
    with Scheduler(c) as sched:
        group = sched.submit(
            [1],
            n=3,
            surplus=2,
            max_new_tokens=99,
            sampling={"length": 30, "pace": 0.01},
        )
        done = group.result(WAIT_S)
        assert len(done.samples) == 3
        for one in done.samples:
            assert one.tokens == answer([1], one.seq, 30)
        until(lambda: running(c) == [] and sched.stats()["live"] == 0)
        assert 0 <= sched.stats()["bias"] <= 1


def test_filter_with_replacement(cluster: Make) -> None:
    prompts = iter(range(100, 200))

    def refill() -> dict[str, Any]:
        return {"prompt": [next(prompts)], "n": 2, "max_new_tokens": 10}

    def keep(group: Group) -> bool:
        assert len(group.samples) == 2
        return group.prompt[0] % 2 == 0

    with Scheduler(cluster(Engine, 2), filter=keep, refill=refill) as sched:
        groups = [sched.submit([i], n=2, max_new_tokens=10) for i in range(6)]
        found = sched.get_batch(6, timeout=WAIT_S)
        assert [g.prompt[0] % 2 for g in found] == [0] * 6
        with pytest.raises(GroupDropped, match="filtered"):
            groups[1].result(WAIT_S)
        assert sched.stats()["dropped"] >= 3

    def fail(group: Group) -> bool:
        raise RuntimeError("no verdict")

    with Scheduler(cluster(Engine), filter=fail) as sched:
        group = sched.submit([1], max_new_tokens=10)
        with pytest.raises(RuntimeError, match="no verdict"):
            sched.get_batch(1, timeout=WAIT_S)
        with pytest.raises(GroupDropped, match="filtered"):
            group.result(WAIT_S)


def test_chunks(cluster: Make) -> None:
    with Scheduler(cluster(Engine, 2), slots=2, chunk=7) as sched:
        group = sched.submit([1], n=3, max_new_tokens=40, sampling={"length": 25})
        check(group.result(WAIT_S), 25, 3)
        assert {one.attempt for one in group.samples} == {4}
        full = sched.submit([2], max_new_tokens=14, sampling={"length": 99})
        one = full.result(WAIT_S).samples[0]
        assert one.tokens == answer([2], 0, 14) and one.finish_reason == "length"


def test_a_session_goes_where_its_prefix_is(cluster: Make) -> None:
    with Scheduler(cluster(Engine, 4)) as sched:
        for key in range(4):
            talk = sched.session(key)
            context = [key]
            replicas = []
            for _ in range(3):
                turn = talk.submit(context, max_new_tokens=10).result(WAIT_S)
                replicas.append(turn.samples[0].replica)
                context += turn.samples[0].tokens
            assert len(set(replicas)) == 1 and talk.turns == 3
        assert context[1:11] == answer([3], 0, 10)


def test_sessions_end(cluster: Make) -> None:
    """By `finish`, by the end of a `with`, or when nobody has used them for a while."""
    with Scheduler(cluster(Engine, 2), session_ttl=0.3) as sched:
        open_ = {"length": 10**6, "pace": 0.01}
        with sched.session("kept") as kept, sched.session("left") as left:
            late = kept.submit([1], max_new_tokens=10**6, sampling=open_)
            left.submit([2], max_new_tokens=5).result(WAIT_S)
            assert left.replica is not None and sched.stats()["sessions"] == 2
            until(lambda: sched.stats()["sessions"] == 1)  # the other has a turn
            assert left.replica is None
            left.submit([2], max_new_tokens=5).result(WAIT_S)
            assert left.turns == 2 and left.replica is not None
        assert sched.stats()["sessions"] == 0
        with pytest.raises(ValueError, match="the session was finished"):
            left.submit([2], max_new_tokens=5)
        left.finish()
        late.cancel()
        with pytest.raises(GroupDropped, match="cancelled"):
            late.result(WAIT_S)
        other = sched.session()
        until(lambda: sched.stats()["sessions"] == 0)  # it never had a turn
        other.finish()


def test_a_prefix_of_earlier_weights_is_cold(cluster: Make) -> None:
    with Scheduler(cluster(Engine, 1)) as sched:
        talk = sched.session()

        def placed() -> str:
            group = talk.submit([1], max_new_tokens=10**6, sampling=ENDLESS)
            until(lambda: sched.stats()["running"] >= 1)
            text: str = sched.explain(group.rids[0])["text"]
            group.cancel()
            until(lambda: sched.stats()["live"] == 0)
            return text

        talk.submit([1], max_new_tokens=5).result(WAIT_S)
        assert "placed by warm prefix" in placed()
        with sched.weights(version=1):
            pass
        assert "placed by load" in placed()
        talk.submit([1], max_new_tokens=5).result(WAIT_S)
        assert "placed by warm prefix" in placed()


def test_earlier_turns_of_sessions_go_first(cluster: Make) -> None:
    c = cluster(Engine, 1)
    with Scheduler(c, slots=1) as sched:
        old, new = sched.session("old"), sched.session("new")
        old.submit([1], max_new_tokens=10).result(WAIT_S)
        sched.pause()
        second = old.submit([1, 2], max_new_tokens=10)
        first = new.submit([3], max_new_tokens=10)
        sched.resume()
        sched.get_batch(2, timeout=WAIT_S)
        log = [rid for rid, *_ in c.execute_all_sync("seen")[0]["log"]]
        assert log[1:] == [first.rids[0], second.rids[0]]


def test_history_is_kept(cluster: Make, tmp_path: Path) -> None:
    path = tmp_path / "lengths"
    c = cluster(Engine, 1)
    for _ in range(2):
        with Scheduler(c, history=path) as sched:
            for key in range(5):
                sampling = {"length": 100 * (key + 1), "chunk": 50}
                sched.submit([1], n=4, key=key, max_new_tokens=10**4, sampling=sampling)
            sched.get_batch(5, timeout=WAIT_S)
        assert path.exists() and list(tmp_path.iterdir()) == [path]
    with Scheduler(c, history=path) as sched:
        sched.pause()
        long = sched.submit([1], key=4, max_new_tokens=10**4)
        first = sched.submit([1], key=0, max_new_tokens=10**4)
        assert until(lambda: sched.explain(first.rids[0]))["history"] > 1
        new = sched.submit([1], key="never seen", max_new_tokens=10**4)
        told, nothing = (
            until(lambda g=g: sched.explain(g.rids[0])) for g in (long, new)
        )
        assert told["history"] > 1 and nothing["history"] == 0
        assert 400 < told["expected"] < 600
    path.write_bytes(b"not lengths")
    with pytest.raises(muster.MusterError, match="lengths"):
        Scheduler(c, history=path)


def test_history_of_a_job(
    cluster: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a job that has a folder for its checkpoints, by the name of the role; a folder that
    is not there yet is made."""
    folder = tmp_path / "checkpoint"
    monkeypatch.setenv("MUSTER_CHECKPOINT", str(folder))
    c = cluster(Engine, 1)
    for worth in (0, 1):
        with Scheduler(c) as sched:
            group = sched.submit([1], n=2, key=7, max_new_tokens=20)
            known = sched.explain(group.rids[0])["history"]
            assert known == 0 if worth == 0 else known >= 1
            group.result(WAIT_S)
        assert [path.name for path in folder.iterdir()] == [f"lengths-{c.name}"]
    (folder / f"lengths-{c.name}").unlink()
    with Scheduler(c, history="") as sched:
        sched.submit([1], max_new_tokens=20).result(WAIT_S)
    assert list(folder.iterdir()) == []


def test_a_slow_disk_delays_no_token(cluster: Make, tmp_path: Path) -> None:
    """The history is written by a thread that nobody waits for until the end. The disk is a
    pipe that nobody reads."""
    path = tmp_path / "lengths"
    pipes = [Path(f"{path}.{os.getpid()}{end}") for end in ("", *map(_nth, range(500)))]
    for pipe in pipes:
        os.mkfifo(pipe)
    with Scheduler(cluster(Engine, 1), history=path) as sched:
        for key in range(5):  # the first is written with the tick of the second
            group = sched.submit([key], key=key, max_new_tokens=9)
            assert len(group.result(WAIT_S).samples) == 1
        ends = [os.open(pipe, os.O_RDONLY | os.O_NONBLOCK) for pipe in pipes]
        found, _, _ = select.select(ends, [], [], WAIT_S)
        assert len(found) == 1  # it has waited for us all the time
        while os.read(found[0], 1 << 16):
            pass
        for end, pipe in zip(ends, pipes, strict=True):
            os.close(end)
            pipe.unlink(missing_ok=True)
    assert [one.name for one in tmp_path.iterdir()] == ["lengths"]  # and at the end


def _nth(number: int) -> str:
    return f".{number}"


def test_refused_is_not_tried_elsewhere(cluster: Make) -> None:
    with Scheduler(cluster(Engine, 3)) as sched:
        sampling = {"refuse": "no such adapter"}
        group = sched.submit([1], n=2, max_new_tokens=9, sampling=sampling)
        with pytest.raises(GroupDropped, match=r"refused.*no such adapter") as e:
            sched.get_batch(1, timeout=WAIT_S)
        assert e.value.group is group and sched.stats()["sent"] == 2
        group = sched.submit([1], max_new_tokens=9, sampling={"raise": "today not"})
        with pytest.raises(GroupDropped, match=r"poison.*today not"):
            group.result(WAIT_S)
        assert sched.stats()["sent"] == 5


def test_a_cancelled_sample_goes_on_in_another_group(cluster: Make) -> None:
    """Behind its tokens, with their versions: it counts as resumed and is learnt whole."""
    with Scheduler(cluster(Engine, 1), version=3) as sched:
        sampling = {"length": 60, "pace": 0.01}
        group = sched.submit([7], max_new_tokens=99, sampling=sampling)
        until(lambda: sched.stats()["replicas"][0]["tokens"] > 3)
        sched.cancel(group)
        with pytest.raises(GroupCancelled):
            group.result(WAIT_S)
        [part] = group.samples
        had = len(part.tokens)
        assert 3 < had < 60
        with sched.weights(version=4):
            pass
        again = sched.submit([7], max_new_tokens=99, sampling=sampling, resume=part)
        [whole] = again.result(WAIT_S).samples
        assert whole.tokens == answer([7], 0, 60)
        assert whole.versions == [3] * had + [4] * (60 - had)
        assert whole.logprobs == [-float(t) for t in whole.tokens]
        assert sched.stats()["resumed"] == 1
        with pytest.raises(ValueError, match="one sample"):
            sched.submit([7], n=2, max_new_tokens=99, resume=part)
        with pytest.raises(ValueError, match="whole at max_new_tokens"):
            sched.submit([7], max_new_tokens=had, resume=part)
        part.versions.pop()
        with pytest.raises(ValueError, match="a version for each token"):
            sched.submit([7], max_new_tokens=99, resume=part)


def test_samples_of_a_prompt_that_are_groups_of_their_own(cluster: Make) -> None:
    """One of them is the probe: what is known goes before its siblings."""
    c = cluster(Engine, 1)
    with Scheduler(c, slots=1, policy="longest") as sched:
        sampling = {"length": 90}
        sched.submit([1], n=2, key=1, max_new_tokens=99, sampling=sampling)
        sched.get_batch(1, timeout=WAIT_S)
        sched.pause()
        own = [sched.submit([2], key=2, max_new_tokens=9) for _ in range(3)]
        known = sched.submit([1], key=1, max_new_tokens=99, sampling=sampling)
        rids = [one.rids[0] for one in (own[0], known, *own[1:])]
        sched.resume()
        sched.get_batch(4, timeout=WAIT_S)
        [seen] = c.execute_all_sync("seen")
        assert [rid for rid, *_ in seen["log"]][-4:] == rids


def test_explain_stats_and_timeline(cluster: Make) -> None:
    with Scheduler(cluster(Engine, 1), slots=1, policy="fifo") as sched:
        group = endless(sched, 1)
        waits = sched.submit([2], key="k", max_new_tokens=10)
        until(lambda: sched.stats()["queued"] == 1)
        assert sched.explain(group.rids[0])["state"] == "running"
        told = sched.explain(waits.rids[0])
        assert told["state"] == "queued" and "queue" in told["text"]
        group.cancel()
        waits.result(WAIT_S)
        with pytest.raises(LookupError):
            sched.explain(waits.samples[0].rid)
        events = sched.timeline()
        assert json.loads(json.dumps(events)) == events
        spans = [one for one in events if one["ph"] == "X"]
        assert {one["args"]["end"] for one in spans} == {"aborted", "finished"}
        assert all(one["tid"] == 1 and one["dur"] >= 0 for one in spans)
        names = [one["name"] for one in events if one["ph"] == "i"]
        assert "submit" in names and "replica_up" in names and "ready" in names


def test_resize_keeps_work(cluster: Make) -> None:
    c = cluster(Engine, 3)
    with Scheduler(c, slots=4) as sched:
        sampling = {"length": 50, "hold": 10}
        groups = [
            sched.submit([i], n=3, max_new_tokens=99, sampling=sampling)
            for i in range(3)
        ]
        until(lambda: all(one["tokens"] == 30 for one in sched.stats()["replicas"]))
        sched.resize(1)
        assert len(c) == 1 and len(sched.stats()["replicas"]) == 1
        sched.resize(2)
        c.execute_all_sync("release")
        for group in groups:
            check(group.result(WAIT_S), 50, 3)
        moved = [one for group in groups for one in group.samples if one.attempt > 1]
        assert moved
        c.resize(1)  # also when the scheduler is not asked to
        c.resize(3)
        big = sched.submit([9], n=9, max_new_tokens=10).result(WAIT_S)
        assert {one.replica for one in big.samples} == {0, 1, 2}


def test_two_schedulers_on_one_cluster(cluster: Make) -> None:
    c = cluster(Engine, 2)
    with Scheduler(c, slots=2) as one, Scheduler(c, slots=2) as two:
        both = [
            [
                s.submit([i], n=2, max_new_tokens=30, sampling={"length": 20})
                for i in range(9)
            ]
            for s in (one, two)
        ]
        one_rids = {rid for group in both[0] for rid in group.rids}
        assert not one_rids & {rid for group in both[1] for rid in group.rids}
        endless(one, 1)
        for groups in both:
            for group in groups:
                check(group.result(WAIT_S), 20, 2)
        one.close()
        until(lambda: running(c) == [])
        check(two.submit([5], max_new_tokens=10).result(WAIT_S), 10, 1)


def test_a_request_that_waits_in_its_engine_does_not_hang(cluster: Make) -> None:
    with Scheduler(cluster(Engine, 2), silence=6, probe=5) as sched:
        group = sched.submit([1], max_new_tokens=10, sampling={"waits": 9})
        check(group.result(WAIT_S), 10, 1)
        assert group.samples[0].attempt == 1


def test_a_request_that_hangs_goes_elsewhere(cluster: Make) -> None:
    with Scheduler(cluster(Engine, 2), silence=2) as sched:
        sampling = {"length": 10, "hang": 1}
        group = sched.submit([1], n=2, max_new_tokens=20, sampling=sampling)
        check(group.result(WAIT_S), 10, 2)
        assert all(one.attempt >= 2 for one in group.samples)


def test_a_request_that_kills_its_workers(cluster: Make) -> None:
    c = cluster(Engine, 4)
    with Scheduler(c) as sched:
        good = [
            sched.submit(
                [i], n=2, max_new_tokens=99, sampling={"length": 60, "hold": 10}
            )
            for i in range(3)
        ]
        until(lambda: sum(one["tokens"] for one in sched.stats()["replicas"]) == 60)
        bad = sched.submit([1], max_new_tokens=9, sampling={"die": 0})
        with pytest.raises(GroupDropped, match="signal 9") as caught:
            bad.result(WAIT_S)
        assert caught.value.reason == "poison"
        states = [one["state"] for one in sched.stats()["replicas"]]
        assert sorted(states) == ["down"] * 3 + ["up"]
        c[states.index("up")].execute_all_sync("release")
        for group in good:
            check(group.result(WAIT_S), 60, 2)


def test_close_ends_what_waits(cluster: Make) -> None:
    c = cluster(Engine, 1)
    sched = Scheduler(c)
    group = endless(sched)
    found: list[BaseException] = []

    def wait() -> None:
        try:
            group.result()
        except BaseException as e:
            found.append(e)

    waiter = threading.Thread(target=wait)
    waiter.start()
    time.sleep(0.05)
    sched.close()
    sched.close()
    waiter.join(WAIT_S)
    assert isinstance(found[0], muster.MusterError) and "closed" in str(found[0])
    until(lambda: running(c) == [])
    with pytest.raises(muster.MusterError, match="closed"):
        sched.submit([1], max_new_tokens=9)


def test_misuse(cluster: Make) -> None:
    c = cluster(Engine, 1)
    wrong: list[dict[str, Any]] = [
        {"slots": 0},
        {"policy": "best"},
        {"failed": "later"},
        {"poison": 16},
    ]
    for options in wrong:
        with pytest.raises((ValueError, muster.MusterError)):
            Scheduler(c, **options)
    with Scheduler(c) as sched:
        with pytest.raises(ValueError, match="max_new_tokens"):
            sched.submit([1], max_new_tokens=0)
        for groups in (0, 2**32 + 1):
            with pytest.raises(ValueError, match="groups: from 1"):
                sched.get_batch(groups, timeout=0.1)
        with pytest.raises(ValueError, match="samples"):
            sched.submit([1], n=0, max_new_tokens=1)
        with pytest.raises(muster.SerializationError):
            sched.submit(object(), max_new_tokens=1)
        with pytest.raises(ValueError, match="mode"):
            sched.weights(1, mode="soon")
        with pytest.raises(ValueError):
            sched.resume()


def test_spans_may_be_infinite(cluster: Make) -> None:
    never = float("inf")
    options = {"silence": never, "probe": never, "rebalance": never}
    with Scheduler(cluster(Engine, 1), **options) as sched:
        group = sched.submit([1], n=4, max_new_tokens=99)
        check(group.result(WAIT_S), 10, 4)
        assert {one.attempt for one in group.samples} == {1}
