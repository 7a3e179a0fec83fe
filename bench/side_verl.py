"""verl's half of the rows against it: WorkerGroup on Ray, in verl's own environment."""

import logging
import os
import platform
import time
from typing import Any

os.environ["BENCH_VERL_API"] = "verl"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # else 127.0.0.1 is replaced

import ray  # reads its environment when imported
import verl.single_controller.ray as verl_ray
from serve import serve
from side_ray import LOOPBACK
from verl_side import VerlSide
from verl_worker import Empty

CPUS = 64  # described: a process of a pool asks for at least one


class Verl(VerlSide):
    def __init__(self) -> None:
        super().__init__(verl_ray, ray.remote(Empty))

    def version(self) -> dict[str, str]:
        import verl

        versions = {"verl": verl.__version__, "ray": ray.__version__}
        return {**versions, "python": platform.python_version()}

    def init(self, folder: str) -> float:
        start = time.perf_counter()
        ray.init(
            num_cpus=CPUS,
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

    def end_group(self, group: Any) -> None:
        for worker in group.workers:
            ray.kill(worker)
        for placed in group.resource_pool.pgs:
            ray.util.remove_placement_group(placed)

    def close(self) -> None:
        ray.shutdown()


if __name__ == "__main__":
    serve(Verl())
