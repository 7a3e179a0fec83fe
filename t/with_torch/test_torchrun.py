"""A driver under the real torchrun, whose store has the port that MASTER_PORT names."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import MARK, leftovers, new_mark, processes, wait_gone

pytest.importorskip(
    "torch", reason="torch is not installed here: `make test-verl` has it"
)
DEADLINE_S = 120.0
SCRIPT = """
import os, sys
import muster

class Ring:
    def __init__(self):
        import torch.distributed as dist
        dist.init_process_group("gloo")
    def sum(self):
        import torch
        import torch.distributed as dist
        x = torch.tensor(dist.get_rank() + 1.0)
        dist.all_reduce(x)
        return x.item()
    def env(self):
        return [k for k in os.environ if k.startswith(("TORCHELASTIC", "GROUP_"))]

def ring(devices):
    with muster.Cluster("ring", Ring, device_mapping=devices) as c:
        print("sums", *c.execute_all_sync("sum"), c.execute_rank_zero_sync("env"),
              flush=True)

if __name__ == "__main__":
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    muster.init(num_gpus=2, timeout=100)
    names = [n.name for n in muster.nodes()]
    print("attempt", attempt, "nodes", *names, flush=True)
    {body}
"""


class Torchrun:
    """One torchrun for each node, all on the loopback interface."""

    def __init__(self, folder: Path, body: str) -> None:
        self.mark = new_mark()
        self.script = folder / "train.py"
        self.script.write_text(SCRIPT.replace("{body}", body.replace("\n", "\n    ")))
        self.home = folder / "h"
        self.home.mkdir(mode=0o700)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.runs: list[subprocess.Popen[str]] = []

    def start(self, *options: str) -> subprocess.Popen[str]:
        env = dict(os.environ) | {MARK: self.mark, "MUSTER_HOME": str(self.home)}
        for name in ("MUSTER_ADDRESS", "MUSTER_SECRET_FILE", "MUSTER_SECRET"):
            env.pop(name, None)
        command = [sys.executable, "-m", "torch.distributed.run", *options]
        run = subprocess.Popen(
            [*command, str(self.script)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.runs.append(run)
        return run

    def static(self, nodes: int, *options: str) -> list[subprocess.Popen[str]]:
        where = ["--master-addr=127.0.0.1", f"--master-port={self.port}"]
        return [
            self.start(f"--nnodes={nodes}", f"--node-rank={i}", *where, *options)
            for i in reversed(range(nodes))
        ][::-1]

    def dynamic(self, nodes: int, *options: str) -> list[subprocess.Popen[str]]:
        where = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}"]
        where += ["--local-addr=127.0.0.1", "--rdzv-id=job", f"--nnodes={nodes}"]
        return [self.start(*where, *options) for _ in range(nodes)]

    def said(self, code: int = 0) -> str:
        """By all of them, when they have ended."""
        outs = [run.communicate(timeout=DEADLINE_S)[0] for run in self.runs]
        assert [run.returncode for run in self.runs] == [code] * len(outs), outs
        return "".join(outs)

    def close(self) -> None:
        for run in self.runs:
            if run.poll() is None:
                run.kill()
                run.communicate()
        wait_gone(processes(self.mark))
        assert leftovers(self.mark) == []


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="mtr-", dir="/tmp"))  # short, for sockets
    yield path
    shutil.rmtree(path)


@pytest.mark.parametrize(("nodes", "processes_each"), [(2, 1), (4, 1), (2, 2), (1, 4)])
def test_the_script_goes_on_at_rank_0(
    folder: Path, nodes: int, processes_each: int
) -> None:
    job = Torchrun(folder, f'ring("0-{2 * nodes - 1}")')
    try:
        if nodes == 1:
            job.start("--standalone", f"--nproc-per-node={processes_each}")
        else:
            job.static(nodes, f"--nproc-per-node={processes_each}")
        said = job.said()
    finally:
        job.close()
    assert said.count("attempt 0 nodes ") == 1, said
    if nodes > 1:
        names = " ".join(f"node{i}" for i in range(nodes))
        assert f"attempt 0 nodes {names}\n" in said, said
    total = float(sum(range(1, 2 * nodes + 1)))
    # workers make a process group of their own: nothing of torchrun's is in their way
    assert said.count("sums " + f"{total} " * 2 * nodes + "[]\n") == 1, said


def test_restarts_after_an_error_at_rank_0(folder: Path) -> None:
    """Every rank starts again; the store still has the address of the first head."""
    job = Torchrun(folder, 'if attempt == 0:\n    raise SystemExit(3)\nring("0-3")')
    try:
        job.static(2, "--max-restarts=1")
        said = job.said()
    finally:
        job.close()
    assert "attempt 0 nodes node0 node1" in said
    assert "attempt 1 nodes node0 node1" in said
    assert said.count("sums 10.0") == 1


def test_restarts_with_a_dynamic_rendezvous(folder: Path) -> None:
    job = Torchrun(folder, 'if attempt == 0:\n    raise SystemExit(3)\nring("0-3")')
    try:
        job.dynamic(2, "--max-restarts=3")
        said = job.said()
    finally:
        job.close()
    assert "attempt 0 nodes node0 node1" in said
    assert said.count("sums 10.0") == 1


def wait_for_line(run: subprocess.Popen[str], text: str) -> None:
    assert run.stdout is not None
    while text not in (line := run.stdout.readline()):
        assert line


WAITS = """
came = __import__("threading").Event()
muster.on_node(lambda n: came.set() if n.alive and n.name == "node1" else None)
print("waiting", flush=True)
assert came.wait(60)
ring("0-3")
"""


def test_a_killed_rank_joins_again(folder: Path) -> None:
    """With a static rendezvous torchrun starts that rank alone again."""
    job = Torchrun(folder, WAITS.strip())
    try:
        first, _ = job.static(2, "--max-restarts=1")
        wait_for_line(first, "waiting")
        os.kill(rank_of(job, "1"), signal.SIGKILL)
        said = job.said()
    finally:
        job.close()
    assert "node node1" in said and "has gone" in said
    assert said.count("sums 10.0") == 1


def rank_of(job: Torchrun, rank: str) -> int:
    for pid in processes(job.mark):
        env = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if f"RANK={rank}".encode() in env and str(job.script).encode() in words:
            return pid
    raise AssertionError(f"no rank {rank}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all(folder: Path, number: signal.Signals) -> None:
    job = Torchrun(
        folder, 'print("waiting", flush=True)\n__import__("time").sleep(600)'
    )
    try:
        first, _ = job.static(2)
        wait_for_line(first, "waiting")
        for run in job.runs:
            run.send_signal(number)
        for run in job.runs:
            run.communicate(timeout=DEADLINE_S)
    finally:
        job.close()
