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


class CallPrograms:
    """The programs of bench/c, built into `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        include, library = ROOT / "include", BUILD / "src"
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


def planner(folder: Path, nodes: int) -> float:
    """Seconds of the pure planner for 1,000 bundles on so many nodes."""
    program = folder / "planner"
    if not program.exists():
        library = BUILD / "src/libmuster.a"
        source = HERE / "c/planner.c"
        run(
            [
                "cc",
                "-O2",
                "-D_GNU_SOURCE",
                "-I",
                ROOT / "src",
                "-o",
                program,
                source,
                library,
            ]
        )
    return float(run([program, str(nodes)]))


def p50_s(printed: str) -> float:
    """Of "p50 p99" in microseconds."""
    return float(printed.split()[0]) / 1e6


def thousand_agents() -> dict[str, tuple[float, float]]:
    """MiB and percent of a core of a head with 1,000 agents, without and with TLS."""
    printed = run([BUILD / "t/test_head_many"], MUSTER_IDLE_S=str(IDLE_S))
    found = re.findall(
        r"(1,000 agents[^:]*): (\d+) KiB .*?([\d.]+) % of a core", printed
    )
    if len(found) != 2:
        raise SideError(f"test_head_many printed something else:\n{printed}")
    return {what: (int(kib) / 1024, float(percent)) for what, kib, percent in found}
