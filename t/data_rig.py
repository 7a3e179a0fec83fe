"""Stores on hosts of their own (hosts.py), and a worker on the first that is the driver."""

from __future__ import annotations

import os
from typing import Any

from helpers import until
from hosts import Host, Net

DEADLINE_S = 90.0
LONG = "MUSTER_TEST_DATA" in os.environ  # `make test-data`


class Nodes:
    """Hosts n0, n1, ...: a Holder on each, as cluster `c` of the boss on n0, and another
    one that has time to answer (`w`)."""

    def __init__(self, count: int, *head_options: str) -> None:
        self.net = Net()
        try:
            self.open(count, head_options)
        except BaseException:
            self.net.close()
            raise

    def open(self, count: int, head_options: tuple[str, ...]) -> None:
        self.hosts = [self.net.host(f"n{i}") for i in range(count)]
        self.head = self.net.host("head").head(*head_options)
        self.agents = [host.agent(self.head) for host in self.hosts]
        self.driver = self.net.host("driver").driver(self.head)
        self.driver.do("from data_workers import Boss")
        self.driver.do(f"b = {cluster('boss', 'Boss', [1])}")
        for name, device in (("c", 0), ("w", 2)):
            each = [4 * i + device for i in range(count)]
            self.do(f"{name} = {cluster(name, 'Holder', each)}")

    def begin(self, code: str) -> None:
        self.driver.begin(f"b.execute_rank_sync(0, 'do', {code!r})")

    def do(self, code: str) -> Any:
        self.begin(code)
        return self.driver.answer()

    def put(self, size: int, seed: int = 1) -> int:
        """`ref`, of n0; its checksum."""
        self.do(f"ref = c.execute_rank_sync(0, 'put', {size}, {seed})")
        return int(self.do("c.execute_rank_sync(0, 'made')"))

    def fetch(self, rank: int) -> None:
        """As future f<rank>."""
        self.do(f"f{rank} = c.execute_rank_async({rank}, 'read', [ref])")

    def fetched(self, rank: int) -> int:
        return int(self.do(f"f{rank}.result()")[0])

    def stats(self, rank: int) -> Any:
        return self.do(f"w.execute_rank_sync({rank}, 'stats')")

    def until_received(self, rank: int, at_least: int) -> int:
        def enough() -> int:
            got = int(self.stats(rank)["received"])
            return got if got >= at_least else 0

        return until(enough, within_s=DEADLINE_S)

    def until_suspect(self, host: Host) -> None:
        until(lambda: self.head.node(host.name)["suspect"], within_s=DEADLINE_S)

    def agent_pid(self, rank: int) -> int:
        return int(self.head.node(f"n{rank}")["agent_pid"])

    def close(self) -> None:
        self.net.close()


def cluster(name: str, worker: str, devices: list[int]) -> str:
    mapping = ",".join(map(str, devices))
    config = (
        f"muster.WorkerConfig(world_size={len(devices)}, num_gpus_per_worker=1, "
        f"device_mapping={mapping!r})"
    )
    return f"muster.Cluster({name!r}, {worker}, muster.ResourceManager(), {config})"
