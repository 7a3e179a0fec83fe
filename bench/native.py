"""What is measured by programs in C: they print numbers, and these are read here."""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from side import SideError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BUILD = ROOT / "build/release"
LIBRARIES = ["event_core", "protobuf-c", "crypto", "ssl", "jansson", "yaml", "hwloc"]
LIBRARIES += ["z", "m"]
TIMEOUT_S = 120
IDLE_S = 12


def run(command: Sequence[str | Path], **env: str) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=os.environ | env,
    )
    if done.returncode != 0:
        raise SideError(f"{command[0]}: {done.stderr or done.stdout}")
    return done.stdout + done.stderr


def built(target: str) -> Path:
    """A file of the build folder, as the sources are now."""
    run([ROOT / ".venv/bin/ninja", "-C", BUILD, target])
    return BUILD / target


class CallPrograms:
    """The programs of bench/c, built into `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        include, library = ROOT / "include", built("src/libmuster.so").parent
        source = HERE / "c"
        compiler = ["cc", "-O2", "-I", include]
        run(["cc", "-O2", "-o", folder / "ping", source / "ping.c"])
        self.worker = folder / "libworker.so"
        run([*compiler, "-shared", "-fPIC", "-o", self.worker, source / "worker.c"])
        run(
            [
                *compiler,
                *("-o", folder / "driver", source / "driver.c"),
                *("-L", library, f"-Wl,-rpath,{library}", "-lmuster"),
            ]
        )

    def ping(self, count: int) -> float:
        """Seconds of a bare ping-pong, at the median."""
        return p50_s(run([self.folder / "ping", str(count)]))

    def call(self, count: int) -> float:
        worker = f"{self.worker}:worker"
        return p50_s(run([self.folder / "driver", worker, str(count)]))


class SharedProgram:
    """bench/c/shared.c, built into `folder`."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "shared"
        source = HERE / "c/shared.c"
        run(["cc", "-O2", "-D_GNU_SOURCE", "-o", self.program, source])

    def measure(self, mib: int, ranks: int, count: int) -> dict[str, float]:
        """Seconds of a round, of one with a memcpy before it, and of the memcpy."""
        printed = run([self.program, *map(str, (mib, ranks, count))]).split()
        names = ("in_place", "copied", "memcpy")
        return {n: float(us) / 1e6 for n, us in zip(names, printed, strict=True)}


def inside(folder: Path, name: str) -> Path:
    """A program of bench/c that uses what is inside the library, built into `folder`."""
    program = folder / name
    if not program.exists():
        library = built("src/libmuster.a")
        options = ["-O2", "-D_GNU_SOURCE", "-I", ROOT / "src", "-I", BUILD / "src"]
        options += ["-I", BUILD, "-I", ROOT / "include"]
        sources = [HERE / f"c/{name}.c", library, BUILD / "proto/libmuster-proto.a"]
        sources += [f"-l{name}" for name in LIBRARIES]
        run(["cc", *options, "-o", program, *sources])
    return program


def planner(folder: Path, nodes: int) -> float:
    """Seconds of the pure planner for 1,000 bundles on so many nodes."""
    return float(run([inside(folder, "planner"), str(nodes)]))


def simulate(folder: Path, nodes: int) -> tuple[float, int]:
    """Seconds of a core for a gang of so many simulated nodes, and bytes for each."""
    seconds, size = run([inside(folder, "sim"), str(nodes)]).split()
    return float(seconds), int(size)


def jobs(folder: Path) -> dict[str, list[float]]:
    """What the job controller takes: see bench/c/jobs.c."""
    printed = run([inside(folder, "jobs")]).splitlines()
    names = ("events", "decision", "lost", "memory", "recovery")
    return {
        name: [float(word) for word in line.split()]
        for name, line in zip(names, printed, strict=True)
    }


def p50_s(printed: str) -> float:
    """Of "p50 p99" in microseconds."""
    return float(printed.split()[0]) / 1e6


def thousand_agents() -> dict[str, tuple[float, float]]:
    """MiB and percent of a core of a head with 1,000 agents, without and with TLS."""
    printed = run([built("t/test_head_many")], MUSTER_IDLE_S=str(IDLE_S))
    found = re.findall(
        r"(1,000 agents[^:]*): (\d+) KiB .*?([\d.]+) % of a core", printed
    )
    if len(found) != 2:
        raise SideError(f"test_head_many printed something else:\n{printed}")
    return {what: (int(kib) / 1024, float(percent)) for what, kib, percent in found}
