"""The driver of test_jobs_chaos.py: waits until all shards are done and the test says so."""

import os
import time
from pathlib import Path

import muster
from chaos_workers import queue, write_pid
from muster.errors import MusterError


def is_over() -> bool:
    try:
        done = queue().status()["done"]
        with Path("seen").open("a") as f:
            f.write(f"{done}\n")
        muster.get_cluster("alone").execute_all_sync("pid")
        return Path("finish").exists() and queue().status()["state"] == "complete"
    except (MusterError, TimeoutError, OSError) as e:
        print(f"{type(e).__name__}: {e}", flush=True)
        return False


muster.init()
write_pid("driver", 0)
print("attempt", os.environ["MUSTER_ATTEMPT"], flush=True)
while not is_over():
    time.sleep(0.1)
