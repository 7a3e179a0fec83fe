"""The rows of the table: how each is measured and what it has to reach."""

import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from areal_rows import AREAL_ROWS
from batch_rows import BATCH_ROWS
from data_rows import DATA_ROWS, DATA_VERL_ROWS
from job_rows import JOB_ROWS
from lab import Lab, init_side, take_turns
from lent_rows import ALONE_LENT, LENT_ROWS
from loop_rows import LOOP_ROWS
from machine import cores_awake
from native import CallPrograms, thousand_agents
from native import planner as plan_s
from process import command, cpu_s, descendants, pss_mib
from report import Line, Target, median, quantile
from side import Side, SideError
from verl_rows import VERL_ROWS
from warm_rows import WARM_ROWS

CORES: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "idle": contextlib.nullcontext,
    "awake": cores_awake,
}
IN_FLIGHT_WINDOW = 1000
FAN_OUT_RANKS = 32
IDLE_SETTLE_S = 10  # Ray's processes still start things long after init


def measure_latency(
    lab: Lab, peer: str, cores: str, share: float, rounds: int
) -> tuple[dict[str, float | None], dict[str, object]]:
    """A quantile of the empty call: the median of its slices, for each side."""
    # slices of about the same time: cores and caches need a moment
    count = {"ray": lab.size(300, 100)}
    others = lab.size(15_000, 2000)

    def measure(side: Side) -> list[float]:
        return list(side.ask("latency", count=count.get(side.name, others), warm_up=50))

    with lab.sides([peer, "muster"], ranks=1) as sides, CORES[cores]():
        slices = take_turns(sides, rounds, measure)
    values: dict[str, float | None] = {"muster": None, peer: None}
    detail: dict[str, object] = {}
    for name, samples in slices.items():
        values[name] = median([quantile(part, share) for part in samples])
        pooled = [sample for part in samples for sample in part]
        detail[name] = {
            "calls": len(pooled),
            "p50": quantile(pooled, 0.5),
            "p99": quantile(pooled, 0.99),
            "p999": quantile(pooled, 0.999),
            "slices": [quantile(part, share) for part in samples],
        }
    return values, detail


def latency_line(
    lab: Lab, work: str, peer: str, cores: str, share: float, target: Target
) -> Line:
    rounds = lab.size(20, 4)
    values, detail = measure_latency(lab, peer, cores, share, rounds)
    return Line(work, target, cores, peer, values["muster"], values[peer], detail)


def call(lab: Lab) -> list[Line]:
    target = Target("better", 60, "s")
    return [latency_line(lab, "empty call, p50", "ray", "idle", 0.5, target)]


def call_awake(lab: Lab) -> list[Line]:
    target = Target("at_most_peer", 2, "s")
    return [latency_line(lab, "empty call, p50", "bare", "awake", 0.5, target)]


def call_p99(lab: Lab) -> list[Line]:
    target = Target("at_most_peer", 3, "s")
    return [
        latency_line(lab, "empty call, p99", "bare", cores, 0.99, target)
        for cores in CORES
    ]


def in_flight(lab: Lab) -> list[Line]:
    windows = {"muster": lab.size(20, 5), "ray": lab.size(3, 1)}

    def measure(side: Side) -> float:
        count = windows[side.name] * IN_FLIGHT_WINDOW
        return float(side.ask("in_flight", count=count, window=IN_FLIGHT_WINDOW))

    with lab.sides(["ray", "muster"], ranks=1) as sides:
        for side in sides:
            measure(side)  # warm up
        slices = take_turns(sides, lab.size(7, 2), measure)
    target = Target("better", 25, "calls/s")
    return [ray_line("small calls in flight", target, slices)]


def fan_out(lab: Lab) -> list[Line]:
    count = {"muster": lab.size(100, 20), "ray": lab.size(10, 5)}

    def measure(side: Side) -> float | None:
        return median(side.ask("fan_out", count=count[side.name], warm_up=2))

    with lab.sides(["ray", "muster"], ranks=FAN_OUT_RANKS) as sides:
        slices = take_turns(sides, lab.size(7, 2), measure)
    work = f"call to {FAN_OUT_RANKS} ranks, all answers in"
    return [ray_line(work, Target("better", 25, "s"), slices)]


def broadcast_nodes(lab: Lab) -> list[Line]:
    """To four nodes of this machine, over loopback; Ray's speak without TLS."""
    nodes, mib, count = 4, lab.size(256, 64), lab.size(5, 2)
    lines = []

    def measure(side: Side) -> float:
        times = side.ask("broadcast", mib=mib, count=count, in_place=False)
        return quantile(times, 0.5)

    for tls, target in (
        ("off", Target("better", 2, "s")),
        ("on", Target("at_most_peer", 1, "s")),
    ):
        with contextlib.ExitStack() as stack:
            sides = [
                stack.enter_context(lab.side(name, init=False))
                for name in ("ray", "muster")
                if lab.has(name)
            ]
            for side in sides:
                own = (
                    {"folder": str(side.folder)} if side.name == "ray" else {"tls": tls}
                )
                side.ask("open_nodes", nodes=nodes, **own)
            slices = take_turns(sides, lab.size(4, 2), measure)
        work = f"{mib} MiB to {nodes} nodes on loopback, TLS {tls}"
        lines.append(ray_line(work, target, slices))
    return lines


def start(lab: Lab) -> list[Line]:
    ranks = lab.size(100, 20)
    rounds = {"ray": 1, "muster": lab.size(5, 2)}
    slices: dict[str, list[float]] = {}
    for name in rounds:
        for _ in range(rounds[name] if lab.has(name) else 0):
            with lab.side(name) as side:
                slices.setdefault(name, []).append(side.ask("start", ranks=ranks))
    work = f"start of {ranks} workers with numpy, all answered"
    return [ray_line(work, Target("better", 100, "s"), slices)]


def init(lab: Lab) -> list[Line]:
    rounds = {"ray": 1, "muster": lab.size(11, 3)}
    slices: dict[str, list[float]] = {}
    for name in rounds:
        for _ in range(rounds[name] if lab.has(name) else 0):
            with lab.side(name, init=False) as side:
                slices.setdefault(name, []).append(init_side(side))
    return [ray_line("init until ready", Target("at_most", 0.05, "s"), slices)]


def death(lab: Lab) -> list[Line]:
    with lab.sides(["ray", "muster"]) as sides:
        slices = take_turns(sides, lab.size(15, 3), lambda side: side.ask("death"))
    work = "SIGKILL of a worker until its call failed"
    return [ray_line(work, Target("better", 10, "s"), slices)]


def groups(lab: Lab) -> list[Line]:
    """A hundred at a time, as Ray's own benchmark does it."""
    count = {"muster": lab.size(10_000, 2000), "ray": lab.size(300, 100)}

    def measure(side: Side) -> float:
        return float(side.ask("groups", count=count[side.name], batch=100))

    with lab.sides(["ray", "muster"]) as sides:
        slices = take_turns(sides, lab.size(5, 2), measure)
    work = "one-bundle placement group, created and removed"
    return [ray_line(work, Target("better", 50, "s"), slices)]


def planner(lab: Lab) -> list[Line]:
    """The pure planner, in C."""
    lines = []
    with tempfile.TemporaryDirectory(prefix="mb", dir="/tmp") as folder:
        for nodes, limit_s in ((10_000, 0.01), (100_000, 0.1)):
            work = f"1,000 bundles of 8 devices on {nodes:,} nodes"
            found = [plan_s(Path(folder), nodes) for _ in range(lab.size(5, 2))]
            detail: dict[str, object] = {"slices": {"muster": found}}
            target = Target("at_most", limit_s, "s")
            lines.append(
                Line(work, target, "idle", "none", median(found), None, detail)
            )
    return lines


def ray_line(work: str, target: Target, slices: dict[str, list[float]]) -> Line:
    """Medians of what was measured on idle cores, beside Ray."""
    return Line(
        work,
        target,
        "idle",
        "ray",
        median(slices.get("muster")),
        median(slices.get("ray")),
        {"slices": slices},
    )


@dataclasses.dataclass
class IdleCost:
    """What a runtime costs while nobody uses it, the driver's interpreter aside."""

    memory_mib: float
    cpu_percent: float
    processes: dict[str, float]


def idle(lab: Lab) -> list[Line]:
    seconds = lab.size(10, 3)
    runtimes: dict[str, Callable[[Side], list[int]]] = {
        "ray": ray_runtime,
        "muster": partial(muster_runtime, lab),
    }
    costs = {
        name: idle_cost(lab, name, find_runtime, seconds)
        for name, find_runtime in runtimes.items()
        if lab.has(name)
    }
    muster, ray = costs.get("muster"), costs.get("ray")
    detail = {name: dataclasses.asdict(cost) for name, cost in costs.items()}
    return [
        Line(
            "idle head + agent, memory",
            Target("at_most", 15, "MiB"),
            "idle",
            "ray",
            muster.memory_mib if muster else None,
            ray.memory_mib if ray else None,
            {**detail},
        ),
        Line(
            f"idle head + agent, CPU over {seconds} s",
            Target("at_most", 0.2, "% of a core"),
            "idle",
            "ray",
            muster.cpu_percent if muster else None,
            ray.cpu_percent if ray else None,
        ),
    ]


def idle_cost(
    lab: Lab, name: str, find_runtime: Callable[[Side], list[int]], seconds: int
) -> IdleCost:
    with lab.side(name, init=False) as driver:
        # A second interpreter stands in for the runtime's own while the driver is
        # weighed alone: else what both share would count as saved by init.
        with lab.side(name, init=False):
            alone_mib = pss_mib(driver.pid)
        init_side(driver)
        time.sleep(IDLE_SETTLE_S)
        runtime = find_runtime(driver)
        everyone = [driver.pid, *runtime]
        before = {pid: cpu_s(pid) for pid in everyone}
        began = time.monotonic()
        time.sleep(seconds)
        used_s = sum(cpu_s(pid) - before[pid] for pid in everyone)
        elapsed_s = time.monotonic() - began
        processes = {"added to the driver": pss_mib(driver.pid) - alone_mib}
        for pid in runtime:
            processes[f"{pid} {command(pid)[:60]}"] = pss_mib(pid)
    return IdleCost(sum(processes.values()), 100 * used_s / elapsed_s, processes)


def ray_runtime(driver: Side) -> list[int]:
    """All that ray.init started, but for the idle workers."""
    return [
        process.pid
        for process in descendants(driver.pid)
        if not command(process.pid).startswith("ray::IDLE")
    ]


def muster_runtime(lab: Lab, driver: Side) -> list[int]:
    """The agent of this driver; others may have theirs on this machine."""
    agents = lab.agent_pids()
    below = {process.pid for process in descendants(driver.pid)}
    ours = agents & below or agents
    if len(ours) != 1:
        raise SideError(f"cannot tell the agent of driver {driver.pid} among {agents}")
    return list(ours)


def tls_call(lab: Lab) -> list[Line]:
    """An empty call over TLS on loopback TCP; workers on this host use unix sockets."""
    count = {"ray": lab.size(300, 100), "muster": lab.size(10_000, 2000)}
    ops = {"ray": "latency", "muster": "tls_latency"}

    def measure(side: Side) -> float:
        times = side.ask(ops[side.name], count=count[side.name], warm_up=50)
        return quantile(times, 0.5)

    with contextlib.ExitStack() as stack:
        sides = []
        if lab.has("ray"):
            sides += stack.enter_context(lab.sides(["ray"], ranks=1))
        if lab.has("muster"):
            side = stack.enter_context(lab.side("muster", init=False))
            side.ask("init", tls="on")
            side.ask("open", ranks=1)
            sides.append(side)
        slices = take_turns(sides, lab.size(15, 3), measure)
    work = "empty call over TLS on loopback TCP, p50"
    return [ray_line(work, Target("better", 30, "s"), slices)]


def c_call(lab: Lab) -> list[Line]:
    """From a driver in C to a worker in C, beside a bare ping-pong in C."""
    count, rounds = lab.size(20_000, 2000), lab.size(9, 2)
    slices: dict[str, list[float]] = {"bare": [], "muster": []}
    with tempfile.TemporaryDirectory(prefix="mb", dir="/tmp") as folder:
        programs = CallPrograms(Path(folder))
        with cores_awake():
            for _ in range(rounds):
                slices["bare"].append(programs.ping(count))
                slices["muster"].append(programs.call(count))
    return [
        Line(
            "empty call, C to C, p50",
            Target("at_most_peer", 1.5, "s"),
            "awake",
            "bare C",
            median(slices["muster"]),
            median(slices["bare"]),
            {"slices": slices},
        )
    ]


def health(lab: Lab) -> list[Line]:
    """GET /health on one connection that is kept, while the engine holds the GIL."""
    with lab.side("muster") as side:
        rates = [side.ask("health", seconds=lab.size(2, 1)) for _ in range(3)]
    return [
        Line(
            "GET /health on one worker, engine busy",
            Target("at_least", 10_000, "requests/s"),
            "idle",
            "none",
            median(rates),
            None,
            {"slices": {"muster": rates}},
        )
    ]


def agents(lab: Lab) -> list[Line]:
    lines = []
    for what, (mib, percent) in thousand_agents().items():
        limits = [("memory", mib, 64, "MiB"), ("CPU", percent, 1, "% of a core")]
        for of, value, limit, unit in limits:
            target = Target("at_most", limit, unit)
            work = f"idle head with {what}, {of}"
            lines.append(Line(work, target, "idle", "none", value, None))
    return lines


NEED_VERL = {**VERL_ROWS, **DATA_VERL_ROWS}
ROWS: dict[str, Callable[[Lab], list[Line]]] = {
    "call": call,
    "call-awake": call_awake,
    "call-p99": call_p99,
    "in-flight": in_flight,
    "fan-out": fan_out,
    "broadcast-nodes": broadcast_nodes,
    "start": start,
    "init": init,
    "death": death,
    "groups": groups,
    "planner": planner,
    "idle": idle,
    "tls-call": tls_call,
    "c-call": c_call,
    "health": health,
    "agents": agents,
    **WARM_ROWS,
    **LOOP_ROWS,
    **LENT_ROWS,
    **JOB_ROWS,
    **BATCH_ROWS,
    **DATA_ROWS,
    **NEED_VERL,
    **AREAL_ROWS,
}
ALONE = (
    "call-awake",
    "call-p99",
    "c-call",
    "health",
    "agents",
    *WARM_ROWS,
    "planner",
    *ALONE_LENT,
    *JOB_ROWS,
    *BATCH_ROWS,
    *NEED_VERL,
    *AREAL_ROWS,
)
RAY_ROWS = [name for name in ROWS if name not in ALONE]
