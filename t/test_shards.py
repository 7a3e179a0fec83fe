"""Data shards through a head: taken, done, failed, requeued, restored."""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import muster
import pytest
from daemon_rig import Daemon, daemon  # noqa: F401  (fixture)
from helpers import Driver, until


@pytest.fixture
def session() -> Iterator[None]:
    muster.init()
    yield
    muster.shutdown()


def ranges(shards: muster.Shards) -> list[tuple[int, int, int]]:
    found = []
    for shard in shards:
        with shard:
            found.append((shard.epoch, shard.start, shard.end))
    return found


def test_all_of_it_in_order(session: None) -> None:
    shards = muster.Shards("a", 10, 4, epochs=2)
    parts = [(0, 4), (4, 8), (8, 10)]
    assert ranges(shards) == [(e, *part) for e in (0, 1) for part in parts]
    assert shards.take() is None
    assert shards.status()["state"] == "complete"


def test_shuffled_is_all_of_it_too(session: None) -> None:
    shards = muster.Shards("s", 1000, 10, epochs=2, shuffle=True, seed=7)
    found = ranges(shards)
    assert sorted(found) == [(e, i, i + 10) for e in (0, 1) for i in range(0, 1000, 10)]
    assert found != sorted(found)
    assert [p[1:] for p in found[:100]] != [p[1:] for p in found[100:]]


def test_one_that_fails_is_reported(session: None) -> None:
    """4 times, as in DLRover, which then called the data set completed."""
    shards = muster.Shards("f", 30, 10, max_failures=4)
    tried: Counter[int] = Counter()
    with pytest.raises(muster.ShardsFailed, match="records 10 to 20") as failed:
        for shard in shards:
            tried[shard.start] += 1
            try:
                with shard:
                    if shard.start == 10:
                        raise ValueError("a bad record")
            except ValueError:
                pass
    assert tried == {0: 1, 10: 4, 20: 1}
    assert failed.value.shards[0]["reason"] == "ValueError: a bad record"
    status = shards.status()
    assert (status["state"], status["done"], status["failed"]) == ("failed", 2, 1)
    shards.retry()
    assert ranges(shards) == [(0, 10, 20)]
    assert shards.status()["state"] == "complete"


def test_position(session: None) -> None:
    """What is done at the time of the checkpoint is done after it; what was out is not."""
    shards = muster.Shards("p", 50, 10)
    first, second, third = shards.take_many(3)
    assert second.done()
    position = shards.position()
    assert first.done()
    shards.restore(position)
    assert not third.done()  # a lease of before
    assert sorted(ranges(shards)) == [(0, i, i + 10) for i in (0, 20, 30, 40)]
    for bad in (b"x" * 100, position[:-1], position + b"\x01"):
        with pytest.raises(muster.MusterError):
            shards.restore(bad)
    other = muster.Shards("q", 60, 10)
    with pytest.raises(muster.MusterError, match="another data set"):
        other.restore(position)


def test_wrong_arguments(session: None) -> None:
    with pytest.raises(muster.MusterError, match="at least 1"):
        muster.Shards("w", 0, 1)
    shards = muster.Shards("w", 10, 1)
    with pytest.raises(ValueError, match="another data set"):
        muster.Shards("w", 11, 1)
    shards.remove()
    with pytest.raises(muster.MusterError, match="no shards called 'w'"):
        shards.take()
    muster.Shards("w", 11, 1)


class Reader:
    """Writes what it has done; stays in the shard that begins at `hold`."""

    def work(self, shards: muster.Shards, folder: str, hold: int) -> int:
        count = 0
        for shard in shards:
            with shard:
                if shard.start == hold and shard.attempt == 0:
                    Path(folder, f"pid-{os.getpid()}").touch()
                    time.sleep(600)
                Path(folder, f"{shard.start}-{os.getpid()}").touch()
                count += 1
        return count


def test_a_worker_killed_in_a_shard(session: None, tmp_path: Path) -> None:
    shards = muster.Shards("k", 100, 1)
    readers = muster.Cluster("r", Reader, world_size=3)
    calls = readers.execute_all_async("work", shards, str(tmp_path), 50)
    (held,) = until(lambda: list(tmp_path.glob("pid-*")))
    pid = int(held.name.removeprefix("pid-"))
    os.kill(pid, signal.SIGKILL)
    results: list[Any] = []
    for call in calls:
        try:
            results.append(call.result(60))
        except muster.WorkerDied:
            results.append(None)
    assert results.count(None) == 1
    done = sorted(int(p.name.split("-")[0]) for p in tmp_path.glob("[0-9]*"))
    assert done == list(range(100))  # none lost, none twice
    assert shards.status()["state"] == "complete"


SCRIPT = """
import os, sys, time
from pathlib import Path
import muster
muster.init(min_nodes=0)
shards = muster.Shards("d", 400, 1, max_deaths=100, detached=True)
print("ready", flush=True)
for shard in shards:
    with shard:
        time.sleep(0.002)
        Path(FOLDER, f"{shard.start}-{os.getpid()}").touch()
print("over", flush=True)
"""


def test_head_and_takers_are_killed(daemon: Daemon, tmp_path: Path) -> None:  # noqa: F811
    """Whatever dies, in the end all shards are done, and nothing that was done is lost."""
    where = {"MUSTER_ADDRESS": daemon.address, "MUSTER_SECRET_FILE": daemon.secret_file}
    script = SCRIPT.replace("FOLDER", repr(str(tmp_path)))
    takers = [Driver(script, tmp_path, **where) for _ in range(3)]

    def done() -> set[int]:
        return {int(p.name.split("-")[0]) for p in tmp_path.glob("[0-9]*-*")}

    for taker in takers:
        assert taker.line(60) == "ready"
    until(lambda: len(done()) > 50)
    daemon.head.kill()
    daemon.start()
    until(lambda: len(done()) > 150)
    takers[0].signal(signal.SIGKILL)
    daemon.head.kill()
    takers[1].signal(signal.SIGKILL)
    daemon.start()
    assert takers[2].line(120) == "over"
    for taker in takers:
        taker.end()
    assert done() == set(range(400))
    # only what was out when something died may have been done twice
    assert len(list(tmp_path.glob("[0-9]*-*"))) < 420
    muster.init(daemon.address, secret_file=daemon.secret_file, min_nodes=0)
    shards = muster.Shards("d", 400, 1, max_deaths=100, detached=True)
    assert shards.status()["state"] == "complete"
    assert shards.status()["done"] == 400
    muster.shutdown()


def test_killed_heads_have_nothing_done_twice(
    daemon: Daemon,  # noqa: F811
    tmp_path: Path,
) -> None:
    """What a taker that lives asked for is given once, whichever step its head died in."""
    where = {"MUSTER_ADDRESS": daemon.address, "MUSTER_SECRET_FILE": daemon.secret_file}
    script = SCRIPT.replace("FOLDER", repr(str(tmp_path)))
    takers = [Driver(script, tmp_path, **where) for _ in range(3)]

    def given() -> list[int]:
        return [int(p.name.split("-")[0]) for p in tmp_path.glob("[0-9]*-*")]

    for taker in takers:
        assert taker.line(60) == "ready"
    for part in range(1, 9):
        until(lambda part=part: len(given()) > 40 * part)
        daemon.head.kill()
        daemon.start()
    for taker in takers:
        assert taker.line(120) == "over"
        taker.end()
    assert sorted(given()) == list(range(400))


def test_saved_and_restored_together(session: None, tmp_path: Path) -> None:
    """All queues go back to one moment; a queue that came later to its beginning."""
    with pytest.raises(ValueError, match="give a folder"):
        muster.save_shards()
    assert not muster.restore_shards(tmp_path)  # nothing was saved
    a, b = muster.Shards("a", 4, 1), muster.Shards("b", 3, 1)
    (one := a.take()) and one.done()
    out = a.take()
    assert muster.save_shards(tmp_path) == 2
    c = muster.Shards("c", 2, 1)
    for queue in (a, b, c):
        (shard := queue.take()) and shard.done()
    assert muster.restore_shards(tmp_path)
    assert [q.status()["done"] for q in (a, b, c)] == [1, 0, 0]
    assert out and not out.done()  # the lease of before is void
    assert [start for _, start, _ in ranges(a)] == [1, 2, 3]
    b.remove()
    assert muster.restore_shards(tmp_path)  # it is made again
    assert len(ranges(b)) == 3


def test_a_bad_checkpoint_changes_nothing(session: None, tmp_path: Path) -> None:
    a = muster.Shards("a", 4, 1)
    muster.save_shards(tmp_path)
    (one := a.take()) and one.done()
    good = (tmp_path / "muster.shards").read_bytes()
    for bad in (b"x" * 40, good[:-3], good + b"\x08\x63", b""):
        (tmp_path / "muster.shards").write_bytes(bad)
        with pytest.raises(muster.MusterError):
            muster.restore_shards(tmp_path)
    a.remove()
    a = muster.Shards("a", 5, 1)  # another data set
    (one := a.take()) and one.done()
    (tmp_path / "muster.shards").write_bytes(good)
    with pytest.raises(muster.MusterError, match="another data set"):
        muster.restore_shards(tmp_path)
    assert a.status()["done"] == 1
    with pytest.raises(FileNotFoundError):
        muster.save_shards(tmp_path / "nowhere")


def test_what_comes_behind_an_interrupted_take_is_given_back(session: None) -> None:
    class Interrupted(BaseException):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    shards = muster.Shards("i", 10, 10)
    only = shards.take()
    assert only is not None
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(Interrupted):
            shards.take()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    only.give_back()
    again = shards.take(timeout=20)
    assert again is not None and again.start == 0
