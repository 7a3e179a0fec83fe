"""Clusters over several machines: each on a host of its own (hosts.py)."""

from collections.abc import Iterator

import pytest
from hosts import Driver, Net, obstacle

pytestmark = pytest.mark.skipif(obstacle() is not None, reason=str(obstacle()))


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    """Of a head with two machines of four devices."""
    net = Net()
    try:
        head = net.host("head").head()
        for i in range(2):
            net.host(f"n{i}").agent(head, "--num-gpus", "4", "--label", f"rack=r{i}")
        driver = net.host("driver").driver(head)
        driver.do("from hosts_workers import Rank")
        driver.do("rm = muster.ResourceManager()")
        yield driver
    finally:
        net.close()


def devices(first: int, last: int, each: int = 1) -> str:
    return (
        f"muster.WorkerConfig(device_mapping='{first}-{last}', "
        f"num_gpus_per_worker={each})"
    )


def test_ranks_are_dense_in_the_order_of_the_nodes(driver: Driver) -> None:
    driver.do(f"c = muster.Cluster('order', Rank, rm, {devices(0, 7)})")
    futures = "f = c.execute_all('where')"
    driver.do(f"{futures}; muster.kv.put('test/ready', 'go')")
    told = driver.do("[x.result() for x in f]")
    assert [t[:2] for t in told] == [["go", str(i)] for i in range(8)]
    hosts = [t[2] for t in told]
    assert len(set(hosts[:4])) == len(set(hosts[4:])) == 1
    assert hosts[0] != hosts[4]
    assert driver.do("c.double(list(range(11)))") == [2 * i for i in range(11)]
    assert sorted(set(driver.do("c.meet('all here')"))) == sorted(set(hosts))
    driver.do("c.destroy()")


def test_groups_are_spread_and_given_back(driver: Driver) -> None:
    ask = "rm.placement_group([{'GPU': 3}] * 2, strategy='STRICT_SPREAD')"
    driver.do(f"g = {ask}")
    assert driver.do("sorted(node for node, _ in g.placement)") == ["n0", "n1"]
    driver.do("c = muster.Cluster('spread', Rank, g)")
    assert len(set(driver.do("c.meet('spread')"))) == 2
    with pytest.raises(RuntimeError, match="PlacementError"):
        driver.do(ask)
    driver.do("c.destroy(); g.remove()")
    driver.do("g = rm.placement_group([{'GPU': 1}], labels={'rack': 'r1'})")
    assert driver.do("[node for node, _ in g.placement]") == ["n1"]
    driver.do("g.remove()")


def test_a_wide_worker_has_helpers_on_the_other_machine(driver: Driver) -> None:
    driver.do(f"c = muster.Cluster('wide', Rank, rm, {devices(0, 7, 8)})")
    assert driver.do("c.world_size") == 1
    (helper,) = driver.do("c.execute_rank_zero_sync('devices_of_helpers')")
    host, number, rank = helper.split()
    assert (number, rank) == ("1", "0")
    assert host != driver.do("c.meet('alone')")[0]
    driver.do("c.destroy()")


def test_a_dead_rank_is_replaced_where_it_was(driver: Driver) -> None:
    driver.do(f"c = muster.Cluster('dead', Rank, rm, {devices(2, 5)})")
    before = driver.do("c.execute_all_sync('pid')")
    hosts = driver.do("c.meet('before')")
    with pytest.raises(RuntimeError, match="WorkerDied"):
        driver.do("c.execute_rank_sync(3, 'die')")
    driver.do("new = c.replace(3)")
    after = driver.do("c.execute_all_sync('pid')")
    assert after[:3] == before[:3]
    assert after[3] != before[3]
    assert driver.do("c.meet('after')") == hosts
    driver.do("c.destroy()")


def test_two_clusters_meet_at_a_port_of_the_first(driver: Driver) -> None:
    driver.do(f"a = muster.Cluster('src', Rank, rm, {devices(0, 0)})")
    driver.do(f"b = muster.Cluster('tgt', Rank, rm, {devices(4, 5)})")
    driver.do("g = muster.collective_group(a, b)")
    assert driver.do("g.world_size") == 3
    driver.do("a.execute_rank_zero_sync('listen', g.master_addr, g.master_port)")
    driver.do("f = a.execute_rank_zero('accept')")
    call = "b.execute_rank_sync(1, 'connect', g.master_addr, g.master_port)"
    assert driver.do(call) != driver.do("a.meet('src')")[0]
    assert driver.do("f.result().decode()") == "weights"
    driver.do("g.close(); a.destroy(); b.destroy()")


def test_a_worker_makes_a_cluster(driver: Driver) -> None:
    driver.do(f"c = muster.Cluster('outer', Rank, rm, {devices(7, 7)})")
    assert driver.do("c.execute_rank_zero_sync('make_cluster')") == [2, 4, 6]
    driver.do("c.destroy()")


def test_what_does_not_fit_says_so_at_once(driver: Driver) -> None:
    with pytest.raises(RuntimeError, match=r"PlacementError.*the ids are 0 to 7"):
        driver.do(f"muster.Cluster('no', Rank, rm, {devices(0, 8)})")
