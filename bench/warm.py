"""Muster's half of warm starts, in a driver or in a worker."""

import time

import muster
from bench_worker import NumpyWorker


def time_starts(ranks: int, count: int, warm_up: int) -> list[float]:
    """Seconds from `Cluster()` until all have answered, of each after the first few."""
    times = []
    config = muster.WorkerConfig(world_size=ranks)
    for _ in range(warm_up + count):
        start = time.perf_counter()
        cluster = muster.Cluster("warm", NumpyWorker, worker_config=config)
        have = cluster.execute_all_sync("has_numpy")
        times.append(time.perf_counter() - start)
        assert have == [True] * ranks
        cluster.destroy()
    return times[warm_up:]
