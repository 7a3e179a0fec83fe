"""Rendezvous through a head: worlds, ranks that stay, ends of members."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import muster
import pytest
from daemon_rig import Daemon, daemon  # noqa: F401  (fixture)
from helpers import Driver, until
from muster import kv

NEVER = {"last_call": 600.0}
WAIT_S = 60.0


class Member(muster.Rendezvous):
    """One whose join is waited for in a thread."""

    def begin(self, data: bytes = b"") -> None:
        self.got: Any = None
        self.thread = threading.Thread(target=self._join, args=(data,))
        self.thread.start()

    def _join(self, data: bytes) -> None:
        try:
            self.got = self.join(data)
        except muster.MusterError as e:
            self.got = e

    def end(self) -> Any:
        self.thread.join(WAIT_S)
        assert self.got is not None
        return self.got


def waiting(name: str, count: int) -> None:
    asked = {"name": name}
    until(lambda: muster.api.ask("rendezvous", asked)["waiting"] == count)


def members(name: str, count: int, *limits: int, **options: Any) -> list[Member]:
    """All of them have joined; the keys are k0, k1, ..."""
    all_of = [
        Member(name, *(limits or (count,)), key=f"k{i}", **(NEVER | options))
        for i in range(count)
    ]
    for i, member in enumerate(all_of):
        member.begin(f"d{i}".encode())
        if i + 1 < count:
            waiting(name, i + 1)  # so that they come in order
    return all_of


@pytest.fixture
def session() -> Iterator[None]:
    muster.init()
    yield
    muster.shutdown()


def test_a_world(session: None) -> None:
    worlds = [member.end() for member in members("w", 3)]
    assert [world.rank for world in worlds] == [0, 1, 2]
    assert worlds[0].members == [b"d0", b"d1", b"d2"]
    assert worlds[0].keys == ["k0", "k1", "k2"]
    assert {(world.round, world.size) for world in worlds} == {(1, 3)}


def test_a_barrier_of_a_world(session: None) -> None:
    """Nobody passes before all have come, time after time; what is behind them goes."""
    worlds = [member.end() for member in members("b", 3)]
    came: list[int] = []
    rounds = 20

    def meet(world: Any) -> None:
        for turn in range(rounds):
            came.append(turn)
            world.barrier(timeout=WAIT_S)
            assert came.count(turn) == 3

    threads = [threading.Thread(target=meet, args=(world,)) for world in worlds[1:]]
    for thread in threads:
        thread.start()
    meet(worlds[0])
    for thread in threads:
        thread.join(WAIT_S)
    assert len(came) == 3 * rounds
    assert len(kv.keys("rendezvous/b/1/barrier/")) <= 2 * 3
    with pytest.raises(muster.DeadlineExceeded, match="rank 1, 2 did not come within"):
        worlds[0].barrier("other", timeout=0.1)
    late = [threading.Thread(target=world.barrier, args=("other",)) for world in worlds]
    for thread in late:  # the one that gave up comes again
        thread.start()
    for thread in late:
        thread.join(WAIT_S)
        assert not thread.is_alive()


def test_a_barrier_whose_member_goes(session: None) -> None:
    three = members("g", 3)
    worlds = [member.end() for member in three]
    three[2].leave()
    with pytest.raises(muster.ClusterError, match="1 of its members has gone"):
        worlds[0].barrier(timeout=WAIT_S)


def test_never_below_min_and_whole_units(session: None) -> None:
    """min=3, unit=2 cannot be; with 2:4 in units of 2 the third waits for a fourth."""
    with pytest.raises(muster.MusterError, match="multiples of the unit"):
        muster.Rendezvous("u", 3, 5, unit=2).join()
    three = members("u", 3, 2, 4, unit=2, last_call=2)
    got = [member.end() for member in three[:2]]
    assert [world.rank for world in got] == [0, 1]
    assert not three[0].should_rejoin()
    fourth = Member("u", 2, 4, unit=2, last_call=2, key="k3")
    fourth.begin()
    assert three[0].should_rejoin(wait=WAIT_S)  # now it could be larger
    for member in three[:2]:
        member.begin()
    got = [member.end() for member in [*three, fourth]]
    assert [world.rank for world in got] == [0, 1, 2, 3]
    assert {world.size for world in got} == {4}


def test_too_few(session: None) -> None:
    (one,) = members("few", 1, 2, timeout=0.2)
    failed = one.end()
    assert isinstance(failed, muster.DeadlineExceeded)
    assert "'few': 1 of at least 2 members came within 0.2 s" in str(failed)
    assert one.status()["waiting"] == 0


def test_others_say_other_limits(session: None) -> None:
    (one,) = members("l", 1, 2)
    with pytest.raises(muster.MusterError, match="was begun with 2 to 2 members"):
        muster.Rendezvous("l", 3).join()
    one.leave()
    assert "has left" in str(one.end())


def test_a_replacement_keeps_the_rank(session: None) -> None:
    three = members("r", 3)
    assert [member.end().rank for member in three] == [0, 1, 2]
    three[1].leave()
    assert three[0].should_rejoin(wait=WAIT_S)
    assert three[0].status()["lost"] == 1
    three[0].begin()
    three[2].begin()
    new = Member("r", 3, key="new", **NEVER)
    new.begin()
    got = [three[0].end(), new.end(), three[2].end()]
    assert [world.rank for world in got] == [0, 1, 2]
    assert {world.round for world in got} == {2}


def test_closed(session: None) -> None:
    (one,) = members("c", 1, 2)
    one.close()
    assert isinstance(one.end(), muster.RendezvousClosed)
    with pytest.raises(muster.RendezvousClosed):
        one.join()
    with pytest.raises(muster.RendezvousClosed):
        one.should_rejoin()


def test_keys_of_a_round_go_with_the_next(session: None) -> None:
    (one,) = members("k", 1, 1)
    one.end()
    kv.put("rendezvous/k/1/x", b"1", owner="none")
    kv.put("rendezvous/k/2/x", b"1", owner="none")
    one.begin()
    assert one.end().round == 2
    assert kv.keys("rendezvous/k/") == ["rendezvous/k/2/x"]
    one.leave()
    assert kv.keys("rendezvous/k/") == []


class Trainer:
    def meet(self, name: str, size: int) -> tuple[int, int, int]:
        self.meeting = muster.Rendezvous(name, size, **NEVER)
        world = self.meeting.join()
        return world.round, world.rank, world.size

    def again(self) -> tuple[int, int, int]:
        assert self.meeting.should_rejoin(wait=WAIT_S)
        world = self.meeting.join()
        return world.round, world.rank, world.size

    def pid(self) -> int:
        return os.getpid()


def test_workers_of_a_cluster(session: None) -> None:
    """The key of a worker is its cluster and rank: a replacement gets its rank back."""
    cluster = muster.Cluster("t", Trainer, world_size=3)
    first = sorted(cluster.execute_all_sync("meet", "t", 3))
    assert first == [(1, 0, 3), (1, 1, 3), (1, 2, 3)]
    ranks = {i: r[1] for i, r in enumerate(cluster.execute_all_sync("meet", "t", 3))}
    os.kill(cluster.execute_rank_sync(1, "pid"), signal.SIGKILL)
    others = [cluster.execute_rank_async(rank, "again") for rank in (0, 2)]
    cluster.replace(1)
    assert cluster.execute_rank_sync(1, "meet", "t", 3) == (3, ranks[1], 3)
    assert muster.get(others) == [(3, ranks[0], 3), (3, ranks[2], 3)]


SCRIPT = """
import sys
import muster
muster.init(min_nodes=0)
meeting = muster.Rendezvous("m", 2, last_call=600, key=sys.argv[1])
while True:
    world = meeting.join()
    print("world", world.round, world.rank, world.size, flush=True)
    sys.stdin.readline()
    meeting.should_rejoin(wait=60)
"""


def test_drivers_of_a_daemon(daemon: Daemon, tmp_path: Path) -> None:  # noqa: F811
    """One is killed and comes back under its key; the head is killed and comes back."""
    where = {"MUSTER_ADDRESS": daemon.address, "MUSTER_SECRET_FILE": daemon.secret_file}

    def start(key: str) -> Driver:
        return Driver(SCRIPT.replace("sys.argv[1]", repr(key)), tmp_path, **where)

    a, b = start("a"), start("b")
    first = {a.line(60), b.line(60)}
    assert first == {"world 1 0 2", "world 1 1 2"}
    b.signal(signal.SIGKILL)
    a.send("again\n")
    c = start("b")
    assert {a.line(), c.line()} == {"world 2 0 2", "world 2 1 2"}
    daemon.head.kill()
    daemon.start()
    c.signal(signal.SIGKILL)  # the new head has not seen it join
    a.send("again\n")
    d = start("b")
    assert {a.line(), d.line()} == {"world 3 0 2", "world 3 1 2"}
    for driver in (a, b, c, d):
        driver.signal(signal.SIGKILL)
        driver.end()
