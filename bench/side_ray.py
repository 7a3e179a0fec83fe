"""Ray's half of each row. Runs in Ray's own virtual environment."""

import logging
import os
import platform
import signal
import time
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
# Without this, and on Linux too, Ray replaces 127.0.0.1 with the machine's own address
# and listens on all interfaces.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"

import numpy as np
import ray  # reads its environment when imported
from bench_worker import NumpyWorker, Worker
from death_watch import DeathWatch
from ray.cluster_utils import Cluster
from ray.util import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from serve import serve, time_each

LOOPBACK = "127.0.0.1"
SETTLE_S = 0.05
GIVE_BACK_S = 30
NODE_STORE_BYTES = 2 << 30  # of each of several nodes


class NodeWorker(Worker):
    def node(self) -> str:
        return str(ray.get_runtime_context().get_node_id())


class Ray:
    def __init__(self) -> None:
        self.actors: list[Any] = []
        self.cluster: Cluster | None = None
        self.watch: DeathWatch | None = None
        self.loops: dict[bool, Any] = {}
        self.remote_worker: Any = ray.remote(num_cpus=0)(NodeWorker)
        self.remote_numpy_worker: Any = ray.remote(num_cpus=0)(NumpyWorker)

    def version(self) -> dict[str, str]:
        return {"ray": ray.__version__, "python": platform.python_version()}

    def init(self, folder: str) -> float:
        start = time.perf_counter()
        ray.init(
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _node_ip_address=LOOPBACK,
            _temp_dir=folder,
        )
        seconds = time.perf_counter() - start
        address = ray.get_runtime_context().gcs_address
        assert address.startswith(LOOPBACK), f"Ray listens on {address}"
        return seconds

    def open(self, ranks: int) -> None:
        self.actors = [self.remote_worker.remote() for _ in range(ranks)]
        ray.get([actor.empty.remote() for actor in self.actors])

    def open_nodes(self, nodes: int, folder: str) -> None:
        """One actor on each of several nodes: the driver's, and others."""
        os.environ["RAY_TMPDIR"] = folder  # of all nodes
        self.cluster = Cluster()
        for i in range(nodes):
            self.cluster.add_node(
                node_ip_address=LOOPBACK,
                include_dashboard=False,
                num_cpus=1,
                object_store_memory=NODE_STORE_BYTES,
                resources={f"node{i}": 1},
            )
        ray.init(
            address=self.cluster.address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _node_ip_address=LOOPBACK,
        )
        self.actors = [
            self.remote_worker.options(resources={f"node{i}": 1}).remote()
            for i in range(nodes)
        ]
        ray.get([actor.empty.remote() for actor in self.actors])
        where = [actor.node.remote() for actor in self.actors]
        assert len(set(ray.get(where))) == nodes, "two actors share a node"

    def open_lent(self, nodes: int, gpus: int, folder: str) -> str:
        """A cluster that lends itself, with one actor; the address of its dashboard."""
        os.environ["RAY_TMPDIR"] = folder
        os.environ["RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT"] = "120"
        self.cluster = Cluster()
        self.cluster.add_node(
            node_ip_address=LOOPBACK,
            include_dashboard=True,
            dashboard_port=0,
            dashboard_agent_listen_port=0,
            num_cpus=0,
        )
        for _ in range(nodes):
            self.cluster.add_node(
                node_ip_address=LOOPBACK,
                dashboard_agent_listen_port=0,
                num_cpus=8,
                num_gpus=gpus,
            )
        ray.init(
            address=self.cluster.address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _node_ip_address=LOOPBACK,
        )
        self.open(1)
        return f"http://{self.cluster.webui_url}"

    def gang(self, nodes: int, gpus: int) -> float:
        """A placement group, and an actor on each of its nodes that answers. Returns when
        all of it has been given back."""
        free = ray.available_resources()["GPU"]
        start = time.perf_counter()
        group = placement_group([{"GPU": gpus}] * nodes, strategy="STRICT_SPREAD")
        assert group.wait(timeout_seconds=60)
        actors = [
            self.remote_worker.options(
                num_gpus=gpus,
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    group, placement_group_bundle_index=i
                ),
            ).remote()
            for i in range(nodes)
        ]
        ray.get([actor.empty.remote() for actor in actors])
        seconds = time.perf_counter() - start
        for actor in actors:
            ray.kill(actor)
        remove_placement_group(group)
        deadline = time.monotonic() + GIVE_BACK_S
        while ray.available_resources().get("GPU", 0) < free:
            assert time.monotonic() < deadline, "the devices are not free again"
            time.sleep(SETTLE_S)
        return seconds

    def latency(self, count: int, warm_up: int) -> list[float]:
        actor = self.actors[0]
        return time_each(lambda: ray.get(actor.empty.remote()), count, warm_up)

    def in_flight(self, count: int, window: int) -> float:
        empty = self.actors[0].empty
        start = time.perf_counter()
        for _ in range(count // window):
            ray.get([empty.remote() for _ in range(window)])
        return count / (time.perf_counter() - start)

    def fan_out(self, count: int, warm_up: int) -> list[float]:
        def call() -> None:
            ray.get([actor.empty.remote() for actor in self.actors])

        return time_each(call, count, warm_up)

    def broadcast(self, mib: int, count: int, in_place: bool) -> list[float]:
        data = np.ones(mib << 20, np.uint8)

        def call() -> None:
            ref = ray.put(data)
            ray.get([actor.read.remote(ref) for actor in self.actors])

        return time_each(call, count, 2)

    def start(self, ranks: int) -> float:
        start = time.perf_counter()
        self.actors = [self.remote_numpy_worker.remote() for _ in range(ranks)]
        have = ray.get([actor.has_numpy.remote() for actor in self.actors])
        seconds = time.perf_counter() - start
        assert have == [True] * ranks
        return seconds

    def groups(self, count: int, batch: int) -> float:
        """As Ray's own benchmark does it."""
        start = time.perf_counter()
        for _ in range(count // batch):
            groups = [placement_group([{"CPU": 0.001}]) for _ in range(batch)]
            for group in groups:
                assert group.wait(timeout_seconds=30)
            for group in groups:
                remove_placement_group(group)
        return (time.perf_counter() - start) / count

    def death(self) -> float:
        actor = self.remote_worker.remote()
        pid = ray.get(actor.pid.remote())
        pending = actor.hang.remote()
        time.sleep(SETTLE_S)
        start = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        try:
            ray.get(pending)
        except ray.exceptions.RayActorError:
            return time.perf_counter() - start
        raise AssertionError("the call of a killed actor has returned")

    def death_notice(self) -> float:
        """From the moment that the pidfd of a dead actor is readable."""
        self.watch = self.watch or DeathWatch()
        actor = self.remote_worker.remote()
        pid = ray.get(actor.pid.remote())
        pending = actor.hang.remote()
        self.watch.begin(pid)
        time.sleep(SETTLE_S)
        os.kill(pid, signal.SIGKILL)
        try:
            ray.get(pending)
        except ray.exceptions.RayActorError:
            failed_ns = time.monotonic_ns()
            return (failed_ns - self.watch.died_ns()) / 1e9
        raise AssertionError("the call of a killed actor has returned")

    def grpo(self, steps: int, requests: bool) -> list[float]:
        if requests not in self.loops:
            from grpo_hosts import OnRay
            from grpo_loop import Loop
            from grpo_requests import RequestsOnRay

            hosts = RequestsOnRay("engine") if requests else OnRay()
            self.loops[requests] = Loop(hosts)
        times: list[float] = self.loops[requests].run(steps)
        return times

    def close(self) -> None:
        ray.shutdown()
        if self.cluster:
            self.cluster.shutdown()


if __name__ == "__main__":
    serve(Ray())
