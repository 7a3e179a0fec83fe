"""Rows about machines that are lent: how soon they are given back, and how many there
can be."""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lab import Lab
from machine import wait_for_quiet
from native import simulate
from process import descendants
from report import Line, Target, median, quantile
from side import SideError

WORKERS = 64
NODES = 8
SIM_NODES = 10_000
RAY_NODES, RAY_GPUS = 4, 8
END_S = 60  # a run that does not end has failed
RAY_BUSY_PERCENT, RAY_QUIET_S = 15, 10  # what several raylets use while nobody asks

DRIVER = f"""
import sys
import muster

class Worker:
    def hello(self):
        return 1

if __name__ == "__main__":
    muster.init()
    devices = muster.WorkerConfig(device_mapping="0-{WORKERS - 1}")
    many = muster.Cluster(name="many", worker_cls=Worker, worker_config=devices)
    print(sum(many.execute_all_sync("hello")), flush=True)
    sys.stdin.readline()
"""


def teardown_s(tool: Path, folder: Path) -> float:
    """Seconds from the word to a driver with 64 workers until nothing is left of it."""
    (folder / "driver.py").write_text(DRIVER)
    (folder / "job.yaml").write_text(
        f'nodes: [{{name: "n[0-{NODES - 1}]", cpus: 8, gpus: {WORKERS // NODES}}}]\n'
        f"driver: [{tool.parent / 'python'}, {folder / 'driver.py'}]\n"
    )
    with subprocess.Popen(
        [tool, "run", folder / "job.yaml"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"MUSTER_HOME": str(folder / "h")},
    ) as run:
        assert run.stdin and run.stdout and run.stderr
        if run.stdout.readline() != f"{WORKERS}\n":
            raise SideError(f"muster run: {run.stderr.read()}")
        started = descendants(run.pid)
        began = time.monotonic()
        run.communicate("\n", timeout=END_S)
        took = time.monotonic() - began
    left = [p.pid for p in started if p.is_alive()]
    if run.returncode != 0 or left or len(started) < WORKERS:
        raise SideError(f"muster run: exit code {run.returncode}, left {left}")
    return took


def teardown(lab: Lab) -> list[Line]:
    tool = lab.pythons["muster"].parent / "muster"
    found = []
    for _ in range(lab.size(5, 1)):
        with tempfile.TemporaryDirectory(prefix="mb", dir="/tmp") as folder:
            found.append(teardown_s(tool, Path(folder)))
    detail: dict[str, object] = {"slices": {"muster": found}}
    work = f"teardown of {WORKERS} local workers on {NODES} nodes"
    target = Target("at_most", 1, "s")
    return [Line(work, target, "idle", "none", median(found), None, detail)]


def simulation(lab: Lab) -> list[Line]:
    with tempfile.TemporaryDirectory(prefix="mb", dir="/tmp") as folder:
        found = [simulate(Path(folder), SIM_NODES) for _ in range(lab.size(5, 2))]
    work = f"sim: {SIM_NODES:,} nodes reserved, watched, released"
    times = [seconds for seconds, _ in found]
    kib = max(size for _, size in found) / 1024
    limits = [("CPU", median(times), "s"), ("memory of each", kib, "KiB")]
    return [
        Line(f"{work}, {of}", Target("at_most", 1, unit), "idle", "none", value, None)
        for of, value, unit in limits
    ]


def on_ray(lab: Lab) -> list[Line]:
    """Both on the same Ray cluster, in turn; neither is stopped for the other one: the
    workers of both are below Ray. So each begins when the processes of the other's turn
    have ended. PickledOnce without a clock: the package has to be on the nodes."""
    target = Target("at_most", 1, "s")
    beyond = f"{RAY_NODES * RAY_GPUS} ranks on Ray, beyond its own group and actors"
    call = Target("better", 60, "s")
    work = "empty call to a worker on Ray's node, p50"
    if not lab.has("ray"):
        return [
            Line(beyond, target, "idle", "ray", None, None),
            Line(work, call, "idle", "ray", None, None),
        ]
    gangs: dict[str, list[float]] = {"ray": [], "muster": []}
    calls: dict[str, list[float]] = {"ray": [], "muster": []}
    before: dict[str, list[float]] = {"ray": [], "muster": []}
    count = {"ray": lab.size(300, 100), "muster": lab.size(15_000, 2000)}
    with lab.side("ray", init=False) as ray, lab.side("muster", init=False) as own:
        gpus = RAY_GPUS + 1  # one for the worker that is called
        at = ray.ask("open_lent", nodes=RAY_NODES, gpus=gpus, folder=str(ray.folder))
        own.ask("open_lent", address=at)
        for turn in range(lab.size(5, 1) + 1):
            for side in (ray, own):
                busy = wait_for_quiet(RAY_BUSY_PERCENT, RAY_QUIET_S)
                took = float(side.ask("gang", nodes=RAY_NODES, gpus=RAY_GPUS))
                if turn > 0:
                    gangs[side.name].append(took)
                    before[side.name].append(round(busy, 1))
        for _ in range(lab.size(10, 2)):
            for side in (ray, own):
                times = side.ask("latency", count=count[side.name], warm_up=50)
                calls[side.name].append(quantile(times, 0.5))
    half = {name: median(found) or 0.0 for name, found in gangs.items()}
    ours, theirs = median(calls["muster"]), median(calls["ray"])
    more = half["muster"] - half["ray"]
    detail: dict[str, object] = {"slices": gangs, "busy_percent": before}
    return [
        Line(beyond, target, "idle", "ray", more, None, detail),
        Line(work, call, "idle", "ray", ours, theirs, {"slices": calls}),
    ]


LENT_ROWS: dict[str, Callable[[Lab], list[Line]]] = {
    "teardown": teardown,
    "sim": simulation,
    "on-ray": on_ray,
}
ALONE_LENT = ("teardown", "sim")  # without Ray
