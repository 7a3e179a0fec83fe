"""The real torchrun, whose agents meet through a head of Muster."""

import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import muster
import pytest
from daemon_rig import Daemon, daemon  # noqa: F401  (fixture)
from helpers import below, until
from jobs_rig import Jobs, jobs  # noqa: F401  (fixture)

torch = pytest.importorskip(
    "torch", reason="torch is not installed here: `make test-verl` has it"
)
ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 120.0
pytestmark = pytest.mark.timeout(600)  # torch takes seconds to import, in ten processes
# Sums over all ranks until somebody says stop; a step is written to a file of this process.
SCRIPT = """
import os, sys, time
from datetime import timedelta
from pathlib import Path
import torch, torch.distributed as dist
folder = Path(sys.argv[1])
dist.init_process_group("gloo", timeout=timedelta(seconds=60))
me = f"{os.environ['RANK']}-{os.getpid()}"
agent = os.getppid()
stop = False
step = 0
while not stop:
    x = torch.tensor([1.0, float((folder / "stop").exists())])
    dist.all_reduce(x)
    stop = x[1].item() > 0
    step += 1
    text = f"{step} {int(x[0].item())} {os.environ['RANK']} {agent}"
    (folder / f"{me}.part").write_text(text)
    (folder / f"{me}.part").rename(folder / f"{me}.step")
    time.sleep(0.02)
dist.destroy_process_group()
"""


class Agents:
    """torchrun's, as if each was on a node of its own."""

    def __init__(self, daemon: Daemon, folder: Path) -> None:  # noqa: F811
        self.daemon = daemon
        self.folder = folder
        self.script = folder / "train.py"
        self.script.write_text(SCRIPT)
        self.steps = folder / "steps"
        self.steps.mkdir()
        self.runs: list[subprocess.Popen[bytes]] = []
        # what pip would have installed beside the package
        info = folder / "site/muster_rl-0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: muster-rl\nVersion: 0\n"
        )
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        points = project["entry-points"]["torchrun.handlers"].items()
        (info / "entry_points.txt").write_text(
            "[torchrun.handlers]\n" + "".join(f"{k} = {v}\n" for k, v in points)
        )

    def start(self, module: str, nodes: str, *options: str) -> subprocess.Popen[bytes]:
        path = f"{os.environ.get('PYTHONPATH', '')}:{self.folder / 'site'}"
        env = self.daemon.env | {"PYTHONPATH": path}
        env |= {"MUSTER_SECRET_FILE": self.daemon.secret_file}
        command = [sys.executable, "-m", module, f"--nnodes={nodes}", "--rdzv-id=job"]
        command += [f"--rdzv-endpoint={self.daemon.address}", "--local-addr=127.0.0.1"]
        if module == "torch.distributed.run":
            command += ["--rdzv-backend=muster"]
        with open(self.folder / f"{len(self.runs)}.log", "w") as log:
            run = subprocess.Popen(
                [*command, *options, str(self.script), str(self.steps)],
                env=env,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.runs.append(run)
        return run

    def said(self) -> str:
        return "".join(
            (self.folder / f"{i}.log").read_text() for i in range(len(self.runs))
        )

    def kill(self, agent: int) -> None:
        """With its workers."""
        for pid in [*below(agent), agent]:
            os.kill(pid, signal.SIGKILL)
        next(run for run in self.runs if run.pid == agent).wait()
        for path in self.steps.glob("*.step"):  # what is written from now on is new
            path.unlink()

    def wait(self, size: int) -> dict[int, int]:
        """Until a world of this size is at work."""
        found: dict[int, int] = until(lambda: self.at_work(size), self.said, DEADLINE_S)
        return found

    def at_work(self, size: int) -> dict[int, int]:
        """The agent of each rank of a world of this size."""
        found: dict[int, int] = {}
        for path in self.steps.glob("*.step"):
            pid = int(path.stem.partition("-")[2])
            step, world, rank, agent = map(int, path.read_text().split())
            if step > 1 and world == size and Path(f"/proc/{pid}").exists():
                found[rank] = agent
        return found if len(found) == size else {}

    def finish(self) -> None:
        (self.steps / "stop").touch()
        codes = [run.wait(DEADLINE_S) for run in self.runs]
        assert set(codes) <= {0, -signal.SIGKILL}, self.said()

    def close(self) -> None:
        for run in self.runs:
            if run.poll() is None:
                for pid in [*below(run.pid), run.pid]:
                    os.kill(pid, signal.SIGKILL)
                run.wait()


@pytest.fixture
def agents(daemon: Daemon, tmp_path: Path) -> Iterator[Agents]:  # noqa: F811
    one = Agents(daemon, tmp_path)
    yield one
    one.close()


def test_one_of_four_is_killed_and_replaced(agents: Agents) -> None:
    """Agent and worker with SIGKILL: the others meet again, and the new one gets the rank."""
    for i in range(4):
        # both ways to the backend, in one world
        module = "muster.torchrun" if i % 2 else "torch.distributed.run"
        agents.start(module, "4", "--rdzv-conf=last_call_timeout=1")
    before = agents.wait(4)
    victim = before[2]
    agents.kill(victim)
    new = agents.start("torch.distributed.run", "4", "--rdzv-conf=last_call_timeout=1")
    after = agents.wait(4)
    assert after == before | {2: new.pid}
    agents.finish()


def test_a_world_shrinks_and_grows(agents: Agents) -> None:
    for _ in range(3):
        agents.start("muster.torchrun", "2:4", "--rdzv-conf=last_call_timeout=1")
    before = agents.wait(3)
    victim = before[1]
    agents.kill(victim)
    two = agents.wait(2)
    assert set(two.values()) == set(before.values()) - {victim}
    agents.start("muster.torchrun", "2:4", "--rdzv-conf=last_call_timeout=1")
    three = agents.wait(3)
    assert {rank: three[rank] for rank in two} == two  # ranks are kept
    agents.finish()


def test_too_few_come(agents: Agents) -> None:
    run = agents.start("muster.torchrun", "2", "--rdzv-conf=join_timeout=1")
    assert run.wait(DEADLINE_S) == 1
    said = agents.said()
    assert "RendezvousTimeoutError" in said
    assert "1 of at least 2 members came within 1.0 s" in said


# ---- in a submitted job ----------------------------------------------------------------

JOB = """
name: torches
nodes: [{{name: n0, cpus: 8}}]
roles:
  train:
    command: [{command}, train.py, {steps}]
    world_size: "2:4:2"
    restart: {restart}
    start_timeout: 120
driver: [sleep, "600"]
"""


@pytest.mark.parametrize(
    ("module", "restart"),
    [("torch.distributed.run", "role"), ("muster.torchrun", "rank")],
)
def test_a_role_of_a_job(
    jobs: Jobs,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
    daemon: Daemon,  # noqa: F811
    module: str,
    restart: str,
) -> None:
    """No option of torchrun is given: the ranks of the role meet through its head. One is
    killed: the role starts anew, or that rank alone, and the next world has the same ranks."""
    agents = Agents(daemon, tmp_path_factory.mktemp("a"))  # its folders and its eyes
    jobs.home.env["PYTHONPATH"] = (
        f"{os.environ.get('PYTHONPATH', '')}:{agents.folder / 'site'}"
    )
    (jobs.folder / "train.py").write_text(SCRIPT)
    command = f"{sys.executable}, -m, {module}"
    name = jobs.submit(JOB.format(command=command, steps=agents.steps, restart=restart))

    def said() -> str:
        return jobs.texts(name) + jobs.run("logs", "--job", name)

    before: dict[int, int] = until(lambda: agents.at_work(4), said, DEADLINE_S)
    os.kill(before[2], signal.SIGKILL)  # torchrun's agent; its worker goes with it
    for path in agents.steps.glob("*.step"):
        path.unlink()

    def anew() -> dict[int, int]:
        found = agents.at_work(4)
        return found if found.get(2) not in (None, before[2]) else {}

    after: dict[int, int] = until(anew, said, DEADLINE_S)
    kept = {rank for rank in before if before[rank] == after[rank]}
    assert kept == (set() if restart == "role" else {0, 1, 3}), said()
    (agents.steps / "stop").touch()
    until(
        lambda: jobs.get(name)["roles"][0]["running"] == 0,
        said,
        DEADLINE_S,
    )
    assert "error" not in {e["level"] for e in jobs.events(name)}, said()
    jobs.run("stop", "job", name)


# ---- the store ------------------------------------------------------------------------


@pytest.fixture
def store() -> Iterator[Callable[[str], Any]]:
    from muster.torchrun import Store

    muster.init()
    yield lambda prefix: Store(prefix, timedelta(seconds=DEADLINE_S))
    muster.shutdown()


def test_the_store_is_torchs(store: Callable[[str], Any]) -> None:
    """The same calls give the same answers as with torch's own in-memory store."""
    import torch.distributed as dist

    def use(s: Any) -> list[object]:
        said: list[object] = []
        s.set("a", "1")
        said.append(s.get("a"))
        said += [s.add("n", 3), s.add("n", -5), s.get("n")]
        said += [s.compare_set("c", "", "x"), s.compare_set("c", "y", "z")]
        said += [s.compare_set("c", "x", "z"), s.get("c")]
        said += [s.compare_set("none", "p", "q"), s.check(["none"])]
        said += [s.check(["a", "c"]), s.check(["a", "b"]), s.num_keys()]
        said += [s.delete_key("a"), s.delete_key("a"), s.num_keys()]
        s.multi_set(["m1", "m2"], ["p", "q"])
        s.append("m1", "more")
        said.append(s.multi_get(["m1", "m2"]))
        s.wait(["m1", "m2"], timedelta(seconds=1))
        try:
            s.wait(["m1", "nobody"], timedelta(milliseconds=10))
        except dist.DistStoreError:
            said.append("late")
        return said

    assert use(store("a")) == use(dist.HashStore())
    # through a prefix, from C++
    assert use(dist.PrefixStore("p", store("b"))) == use(
        dist.PrefixStore("p", dist.HashStore())
    )
    with pytest.raises(muster.MusterError, match="no whole number"):
        store("c").set("text", "x")
        store("c").add("text", 1)
