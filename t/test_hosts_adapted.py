"""What is built on clusters, over several machines: each on a host of its own (hosts.py)."""

from collections.abc import Iterator

import pytest
from hosts import Driver, Net, obstacle

pytestmark = pytest.mark.skipif(obstacle() is not None, reason=str(obstacle()))


class Site:
    """A head with two machines of two devices, and drivers on machines of their own."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.head = net.host("head").head()
        for i in range(2):
            net.host(f"n{i}").agent(self.head, "--num-gpus", "2")

    def driver(self, name: str) -> Driver:
        made = self.net.host(name).driver(self.head)
        made.do("from hosts_adapted import *")
        return made


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    net = Net()
    try:
        yield Site(net)
    finally:
        net.close()


@pytest.fixture(scope="module")
def driver(site: Site) -> Driver:
    return site.driver("driver")


def check_two_hosts(hosts: list[str]) -> None:
    """Two ranks on each, one after the other."""
    first, second, third, fourth = hosts
    assert first == second and third == fourth and first != third


def test_a_cluster_of_roll(driver: Driver) -> None:
    driver.do("rm = roll.ResourceManager(num_gpus_per_node=2, num_nodes=2)")
    driver.do("config = roll.WorkerConfig(device_mapping='list(range(0, 4))')")
    driver.do("c = roll.Cluster('actor', Actor, rm, config)")
    told = driver.do("c.where()")
    check_two_hosts([host for _, host, _ in told])
    places = [{"rank": 0, "node_rank": r // 2, "gpu_rank": r % 2} for r in range(4)]
    assert [(rank, devices) for rank, _, devices in told] == [
        (r, [place]) for r, place in enumerate(places)
    ]
    nodes = driver.do("[c.worker2nodes[w] for w in c.workers]")
    assert nodes == driver.do("c.execute_all_sync('get_node_ip')")
    check_two_hosts(nodes)
    driver.do("new = c.replace(3, grace=0)")
    assert driver.do("c.where()") == told
    assert driver.do("c.worker2rank[c.workers[3]]") == 3
    driver.do("c.destroy()")


def test_a_group_of_verl(driver: Driver) -> None:
    driver.do("pool = verl.RayResourcePool([2, 2])")
    driver.do("g = verl.RayWorkerGroup(pool, verl.RayClassWithInitArgs(Critic))")
    told = driver.do("g.where()")
    check_two_hosts([host for _, host, _ in told])
    assert [(r, d) for r, _, d in told] == [(0, "0"), (1, "1"), (2, "0"), (3, "1")]
    order = driver.do("[node for node, _ in pool.place('STRICT_PACK').placement]")
    assert order == ["n0", "n0", "n1", "n1"]
    assert driver.do("g.add([10, 20, 30, 40])") == [10, 21, 32, 43]
    driver.do("g.destroy(); pool.remove()")


def test_a_detached_cluster_is_found(site: Site, driver: Driver) -> None:
    maker = site.driver("maker")
    maker.do("rm = muster.ResourceManager()")
    maker.do("config = muster.WorkerConfig(device_mapping='0-3')")
    maker.do("c = muster.Cluster('kept', Meshed, rm, config, detached=True)")
    pids = maker.do("c.pids")
    maker.do("c = None; muster.shutdown()")
    driver.do("found = muster.get_cluster('kept')")
    assert driver.do("found.pids") == pids
    assert driver.do("found.label([5, 6])") == [[1, 5], [3, 6]]
    driver.do("new = found.replace(2, grace=0)")
    assert driver.do("found.label([5, 6])") == [[1, 5], [3, 6]]
    driver.do("found.destroy()")
    with pytest.raises(RuntimeError, match="there is no cluster 'kept'"):
        driver.do("muster.get_cluster('kept')")


@pytest.fixture
def meshed(driver: Driver) -> Iterator[None]:
    """A cluster `m` with two ranks on each host."""
    driver.do("config = muster.WorkerConfig(device_mapping='0-3')")
    driver.do("m = muster.Cluster('m', Meshed, muster.ResourceManager(), config)")
    yield
    driver.do("m.destroy()")


@pytest.mark.usefixtures("meshed")
def test_a_mesh_over_two_hosts(driver: Driver) -> None:
    told = driver.do("m.label([1, 2, 3])")
    assert told == [[1, 1], [1, 2], [3, 3]]
    assert driver.do("m[2:4].label([1, 2])") == [[3, 1], [3, 2]]


@pytest.mark.usefixtures("meshed")
def test_forked_workers_are_beside_theirs(driver: Driver) -> None:
    driver.do("f = m.fork_cluster('f', Beside)")
    hosts = driver.do("f.execute_all_sync('where')")
    check_two_hosts(hosts)
    driver.do("m.execute_all_sync('say', 'x')")
    assert [driver.do(f"muster.kv.get('said/x/{r}')") for r in range(4)] == hosts
    driver.do("f.destroy()")


@pytest.mark.usefixtures("meshed")
def test_a_driver_watches_what_workers_put(driver: Driver) -> None:
    driver.do("w = muster.kv.watch('said/watched/', existing=False)")
    driver.do("m.execute_all_sync('say', 'watched')")
    driver.do("events = [w.next(timeout=30) for _ in range(4)]")
    told = driver.do("[[e.kind, e.key, e.value] for e in events]")
    assert sorted(told)[0][:2] == ["put", "said/watched/0"]
    check_two_hosts([value for _, _, value in sorted(told)])
    driver.do("w.close()")
