"""Objects between machines whose cables break: each node on a host of its own."""

import os
import signal
from collections.abc import Iterator

import pytest
from data_rig import LONG, Nodes, cluster
from helpers import until
from hosts import obstacle

pytestmark = pytest.mark.skipif(obstacle() is not None, reason=str(obstacle()))

MIB = 1 << 20
SIZE = 24 * MIB
SOME = 4 * MIB
RATE = "80mbit"  # 24 MiB take 2.5 s


long = pytest.mark.skipif(not LONG, reason="takes a minute: `make test-data`")


@pytest.fixture(params=["off", pytest.param("on", marks=long)])
def nodes(request: pytest.FixtureRequest) -> Iterator[Nodes]:
    nodes = Nodes(3, "--tls", request.param)
    try:
        yield nodes
    finally:
        nodes.close()


def test_a_cut_cable_that_heals(nodes: Nodes) -> None:
    """It goes on where it stopped: no byte comes twice."""
    want = nodes.put(SIZE)
    nodes.net.limit(nodes.hosts[1], RATE)
    nodes.fetch(1)
    assert nodes.until_received(1, SOME) < SIZE
    nodes.net.cut(nodes.hosts[1])
    nodes.until_suspect(nodes.hosts[1])
    nodes.net.heal(nodes.hosts[1])
    assert nodes.fetched(1) == want
    assert nodes.stats(1)["received"] == SIZE


def test_nothing_is_left_after_short_cuts(nodes: Nodes) -> None:
    """Holds, releases and answers that got lost with a link are made good when it is back."""
    nodes.do("fs = []; kept = []")
    for host in (1, 2, 1):
        other = 3 - host
        nodes.do("refs = [c.execute_rank_sync(0, 'put', 300000, k) for k in range(20)]")
        nodes.do(f"refs += [c.execute_rank_sync({other}, 'put', 300000, 1)]")
        nodes.do("fs += [c.execute_rank_async(r, 'read', refs) for r in (1, 2)]")
        nodes.net.cut(nodes.hosts[host])
        nodes.do(f"fs += [c.execute_rank_async({host}, 'put', 300000, 1)]")
        nodes.do("refs.clear()")
        nodes.until_suspect(nodes.hosts[host])
        nodes.net.heal(nodes.hosts[host])
        nodes.do("kept = [f.result() for f in fs]")
        nodes.do("fs.clear(); kept.clear(); f = None")
    objects = "[s['objects'] for s in w.execute_all_sync('stats')]"
    until(lambda: nodes.do(objects) == [0, 0, 0], lambda: nodes.do(objects))


def test_rows_over_a_cut_cable_that_heals(nodes: Nodes) -> None:
    """Half of a column, and no byte of it twice."""
    nodes.do(f"x = c.execute_rank_sync(0, 'column', 1024, {2 * SIZE // 1024})")
    want = nodes.do("c.execute_rank_sync(0, 'made')")
    nodes.net.limit(nodes.hosts[1], RATE)
    nodes.do("f = c.execute_rank_async(1, 'read_rows', x[:512])")
    assert nodes.until_received(1, SOME) < SIZE
    nodes.net.cut(nodes.hosts[1])
    nodes.until_suspect(nodes.hosts[1])
    nodes.net.heal(nodes.hosts[1])
    assert nodes.do("f.result()") == want
    assert nodes.stats(1)["received"] == SIZE


def test_an_async_engine_answers_while_its_argument_comes(nodes: Nodes) -> None:
    nodes.do(f"a = {cluster('a', 'AsyncHolder', [4 + 3])}")
    want = nodes.put(SIZE)
    nodes.net.limit(nodes.hosts[1], RATE)
    nodes.do("f = a.execute_rank_async(0, 'read', ref)")
    nodes.until_received(1, MIB)
    nodes.do("a.execute_rank_sync(0, 'empty')")
    assert nodes.stats(1)["received"] < SIZE
    assert nodes.do("f.result()") == want


def test_the_middle_of_the_chain_dies(nodes: Nodes) -> None:
    want = nodes.put(SIZE)
    nodes.net.limit(nodes.hosts[1], RATE)
    nodes.fetch(1)
    nodes.until_received(1, MIB)
    nodes.fetch(2)
    assert nodes.until_received(2, SOME) < SIZE
    assert nodes.stats(0)["sent"] <= nodes.stats(1)["received"] + 16 * MIB  # a chain
    nodes.hosts[1].kill()
    assert nodes.fetched(2) == want
    assert nodes.stats(2)["received"] == SIZE


@long
def test_the_middle_of_the_chain_stands_still(nodes: Nodes) -> None:
    want = nodes.put(SIZE)
    nodes.net.limit(nodes.hosts[1], RATE)
    nodes.fetch(1)
    nodes.until_received(1, MIB)
    nodes.fetch(2)
    nodes.until_received(2, SOME)
    pid = nodes.agent_pid(1)
    os.kill(pid, signal.SIGSTOP)
    try:
        assert nodes.fetched(2) == want
        assert nodes.stats(2)["received"] == SIZE
    finally:
        os.kill(pid, signal.SIGCONT)
    assert nodes.fetched(1) == want


@long
def test_the_source_dies(nodes: Nodes) -> None:
    """Its node is named."""
    nodes.do(f"ref = c.execute_rank_sync(1, 'put', {SIZE}, 1)")
    nodes.net.limit(nodes.hosts[2], RATE)
    nodes.fetch(2)
    nodes.until_received(2, MIB)
    os.kill(nodes.agent_pid(1), signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"ObjectLost.*node n1"):
        nodes.fetched(2)


@long
def test_a_cable_that_stays_cut(nodes: Nodes) -> None:
    nodes.do(f"ref = c.execute_rank_sync(1, 'put', {SIZE}, 1)")
    nodes.net.limit(nodes.hosts[0], RATE)
    nodes.fetch(0)
    nodes.until_received(0, MIB)
    nodes.net.cut(nodes.hosts[1])
    with pytest.raises(RuntimeError, match=r"ObjectLost.*node n1"):
        nodes.fetched(0)
