"""Muster's half of each row. Runs in the tree's own virtual environment."""

import os
import platform
import signal
import tempfile
import time
from typing import Any
from urllib.parse import urlsplit

import muster
import numpy as np
from bench_worker import Maker, NumpyWorker, Worker
from death_watch import DeathWatch
from grpo_loop import Loop  # finds the example before workers are to
from health import Busy, rate
from muster import _core, api
from muster.view import ENGINE
from serve import serve, time_each
from warm import time_starts

SETTLE_S = 0.05


class Muster:
    def __init__(self) -> None:
        self.opened = 0
        self.over_tcp: _core.Peer | None = None
        self.running = False
        self.watch: DeathWatch | None = None
        self.loops: dict[bool, Any] = {}

    def version(self) -> dict[str, str]:
        return {
            "muster": muster.__version__,
            "python": platform.python_version(),
        }

    def init(self, tls: str = "auto") -> float:
        start = time.perf_counter()
        muster.init(tls=tls)
        seconds = time.perf_counter() - start
        self.running = True
        return seconds

    def open(self, ranks: int) -> None:
        self.cluster = self.new_cluster(Worker, ranks)
        self.cluster.execute_all_sync("empty")

    def new_cluster(self, worker_cls: type, ranks: int) -> muster.Cluster:
        self.opened += 1
        return muster.Cluster(
            name=f"bench{self.opened}",
            worker_cls=worker_cls,
            worker_config=muster.WorkerConfig(world_size=ranks),
        )

    def latency(self, count: int, warm_up: int) -> list[float]:
        cluster = self.cluster
        return time_each(
            lambda: cluster.execute_rank_zero_sync("empty"), count, warm_up
        )

    def tls_latency(self, count: int, warm_up: int) -> list[float]:
        """Straight to the worker's TCP port, although its unix socket is at hand."""
        if self.over_tcp is None:
            known = self.cluster._peers[0]
            head = api.session().head
            self.over_tcp = head.peer(self.cluster.address(0), known.uid, "over TCP")
        call = self.over_tcp.call_sync
        return time_each(lambda: call(ENGINE, "empty", (), None, None), count, warm_up)

    def health(self, seconds: float) -> float:
        """Requests a second on one connection while the engine holds the GIL."""
        cluster = self.new_cluster(Busy, 1)
        url = urlsplit(cluster.http_urls[0])
        assert url.hostname and url.port
        with tempfile.TemporaryDirectory() as folder:
            fifo = os.path.join(folder, "begun")
            os.mkfifo(fifo)
            spinning = cluster.execute_rank_zero("spin", fifo, seconds + 1)
            with open(fifo, "rb") as begun:
                begun.read()  # it holds the GIL from here on
            answered = rate((url.hostname, url.port), 1, seconds)
            assert not spinning.done(), "the engine was not busy all the time"
            spinning.result()
        cluster.destroy()
        return answered

    def in_flight(self, count: int, window: int) -> float:
        submit = self.cluster.execute_rank_zero_async
        start = time.perf_counter()
        for _ in range(count // window):
            muster.get([submit("empty") for _ in range(window)])
        return count / (time.perf_counter() - start)

    def fan_out(self, count: int, warm_up: int) -> list[float]:
        cluster = self.cluster
        return time_each(lambda: cluster.execute_all_sync("empty"), count, warm_up)

    def broadcast(self, mib: int, count: int, in_place: bool) -> list[float]:
        """An array to all ranks, every page read; built in the store, or copied there."""
        if in_place:
            data = muster.empty(mib << 20, np.uint8)
            data[:] = 1
        else:
            data = np.ones(mib << 20, np.uint8)
        cluster = self.cluster
        return time_each(lambda: cluster.execute_all_sync("read", data), count, 2)

    def count_broadcast(self, mib: int) -> int:
        """Bytes that all processes together copy for one broadcast."""
        data = np.ones(mib << 20, np.uint8)

        def copied() -> int:
            ranks = self.cluster.execute_all_sync("copied")
            return int(muster.store_stats()["copied"]) + sum(ranks)

        before = copied()
        self.cluster.execute_all_sync("read", data)
        return copied() - before

    def open_nodes(self, nodes: int, tls: str) -> None:
        """One rank on each of several nodes."""
        muster.init(num_nodes=nodes, tls=tls)
        self.running = True
        self.open(nodes)

    def open_lent(self, address: str) -> None:
        """On a Ray cluster, with one worker."""
        muster.init(orchestrator="ray", address=address, num_nodes=0)
        self.running = True
        own = muster.reserve("one", num_gpus=1)
        self.cluster = muster.Cluster(
            "one", Worker, own.resource_manager(), device_mapping="0"
        )
        self.cluster.execute_all_sync("empty")

    def gang(self, nodes: int, gpus: int) -> float:
        """From the reservation to the answers of a rank on each device."""
        start = time.perf_counter()
        gang = muster.reserve("gang", nodes, num_gpus=gpus)
        mapping = f"0-{nodes * gpus - 1}"
        ranks = muster.Cluster(
            "gang", Worker, gang.resource_manager(), device_mapping=mapping
        )
        ranks.execute_all_sync("empty")
        seconds = time.perf_counter() - start
        ranks.destroy()
        gang.release()
        return seconds

    def start(self, ranks: int) -> float:
        start = time.perf_counter()
        self.cluster = self.new_cluster(NumpyWorker, ranks)
        have = self.cluster.execute_all_sync("has_numpy")
        seconds = time.perf_counter() - start
        assert have == [True] * ranks
        return seconds

    def warm_start(self, ranks: int, count: int, warm_up: int) -> list[float]:
        return time_starts(ranks, count, warm_up)

    def warm_start_nested(self, ranks: int, count: int, warm_up: int) -> list[float]:
        maker = self.new_cluster(Maker, 1)
        times = maker.execute_rank_zero_sync("warm_start", ranks, count, warm_up)
        maker.destroy()
        return list(times)

    def groups(self, count: int, batch: int) -> float:
        """One-bundle placement groups, created and removed: seconds for each."""
        resources = muster.ResourceManager()
        start = time.perf_counter()
        for _ in range(count // batch):
            groups = [resources.placement_group([{"CPU": 0.001}]) for _ in range(batch)]
            for group in groups:
                group.wait()
            for group in groups:
                group.remove()
        return (time.perf_counter() - start) / count

    def death(self) -> float:
        cluster = self.new_cluster(Worker, 1)
        pid = cluster.execute_rank_zero_sync("pid")
        pending = cluster.execute_rank_zero_async("hang")
        time.sleep(SETTLE_S)
        start = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        try:
            muster.get([pending])
        except muster.WorkerDied:
            return time.perf_counter() - start
        raise AssertionError("the call of a killed worker has returned")

    def death_notice(self) -> float:
        """From the moment that the pidfd of a dead worker is readable."""
        self.watch = self.watch or DeathWatch()
        cluster = self.new_cluster(Worker, 1)
        pid = cluster.execute_rank_zero_sync("pid")
        pending = cluster.execute_rank_zero_async("hang")
        self.watch.begin(pid)
        time.sleep(SETTLE_S)
        os.kill(pid, signal.SIGKILL)
        try:
            muster.get([pending])
        except muster.WorkerDied:
            failed_ns = time.monotonic_ns()
            return (failed_ns - self.watch.died_ns()) / 1e9
        raise AssertionError("the call of a killed worker has returned")

    def grpo(self, steps: int, requests: bool) -> list[float]:
        if requests not in self.loops:
            from grpo_muster import OnMuster, Scheduled

            self.loops[requests] = Loop(Scheduled() if requests else OnMuster())
        times: list[float] = self.loops[requests].run(steps)
        return times

    def close(self) -> None:
        if self.running:
            muster.shutdown()


if __name__ == "__main__":
    serve(Muster())
