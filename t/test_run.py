"""`muster run`: a job's machines are lent, its driver runs, and all is given back."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_rig import CLI, DEADLINE_S, Home, Lines
from helpers import MARK, below, leftovers, new_mark, processes, wait_gone

NODES = 'nodes: [{name: "n[0-1]", cpus: 4, gpus: 2}]\n'
DRIVER = """
import os, sys
import muster

class Echo:
    def where(self):
        return os.environ["CUDA_VISIBLE_DEVICES"]
    def pid(self):
        return os.getpid()

if __name__ == "__main__":
    muster.init()
    c = muster.Cluster(name="echo", worker_cls=Echo,
                       worker_config=muster.WorkerConfig(device_mapping="0-3"))
    print("@", os.environ["STEPS"], os.getcwd(), *c.execute_all_sync("where"), flush=True)
    print("pids", os.getpid(), *c.execute_all_sync("pid"), flush=True)
    for line in sys.stdin:
        print("alive" if muster.nodes() else "alone", flush=True)
    sys.exit(int(sys.argv[1]))
"""


class Job:
    """A file, and what `muster run` makes of it."""

    def __init__(self, home: Home, folder: Path) -> None:
        self.home = home
        self.folder = folder
        self.mark = new_mark()
        home.env[MARK] = self.mark
        for name in ("MUSTER_ADDRESS", "MUSTER_SECRET_FILE"):
            home.env.pop(name, None)

    def write(self, text: str) -> str:
        path = self.folder / "job.yaml"
        path.write_text(text)
        return str(path)

    def with_driver(self, code: int = 0) -> str:
        script = self.folder / "train.py"
        script.write_text(DRIVER)
        return self.write(
            f"name: first\n{NODES}roles: {{echo: {{device_mapping: '0-3'}}}}\n"
            f"driver: [{sys.executable}, {script}, {code}]\nenv: {{STEPS: '100'}}\n"
        )

    def with_shell(self, text: str) -> str:
        return self.write(f"{NODES}driver: [sh, -c, {json.dumps(text)}]\n")

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        return self.home.run("run", *args)

    def begin(self) -> Lines:
        """With the big driver; it has workers when this returns."""
        job = Lines([CLI, "run", self.with_driver()], self.home.env)
        job.until("pids")
        return job

    def left(self) -> list[str]:
        """Of processes, sockets and files; logs may stay, and locks of ended agents."""
        found = leftovers(self.mark, str(self.home.path))
        return [what for what in found if not what.endswith("/lock")]


@pytest.fixture
def job(home: Home, tmp_path: Path) -> Iterator[Job]:
    one = Job(home, tmp_path)
    yield one
    assert wait_gone(processes(one.mark)) == []


# ---- a driver and its machines ------------------------------------------------------


def test_driver_joins_described_nodes(job: Job) -> None:
    done = subprocess.run(
        [CLI, "run", "--on", "local", job.with_driver(7)],
        env=job.home.env,
        cwd=job.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 7, done
    first, second = done.stdout.splitlines()  # nothing but the driver's
    assert first == f"@ 100 {job.folder} 0 1 0 1"
    said = done.stderr
    assert "reserved 2 nodes for first\n" in said
    assert "  n0               4 CPUs, 2 devices\n  n1 " in said
    assert said.index("the driver starts") < said.index("exit code 7")
    assert said.rstrip().endswith("released")
    assert job.left() == []
    assert second.startswith("pids")


def test_logs_of_an_ended_job(job: Job) -> None:
    """Each node had a folder of its own; nobody but the files can tell any more."""
    path = job.with_driver()
    script = job.folder / "train.py"
    says = DRIVER.replace(
        "return os.getpid()", 'print("from", os.environ["RANK"]); return os.getpid()'
    )
    script.write_text(says)
    done = job.run(path)
    assert done.returncode == 0, done
    shown = job.home.run("logs").stdout.splitlines()
    assert sorted(shown) == [f"echo/{i}@n{i // 2}: from {i}" for i in range(4)]
    assert job.home.run("logs", "echo/3").stdout == "from 3\n"


def test_a_script_that_describes_its_machine_takes_what_was_lent(job: Job) -> None:
    """The same script runs alone, where it pretends to have devices."""
    path = job.with_driver()
    script = job.folder / "train.py"
    script.write_text(DRIVER.replace("init()", "init(num_gpus=8, num_cpus=16)"))
    done = job.run(path)
    assert done.returncode == 0, done
    assert "0 1 0 1" in done.stdout
    said = "muster: init(num_cpus=16, num_gpus=8): not used, because the head at "
    assert said in done.stderr
    assert "has 2 nodes with 4 GPUs for this job" in done.stderr


def test_what_it_says_as_json(job: Job) -> None:
    done = job.run(job.with_shell("echo out"), "--json")
    assert (done.returncode, done.stdout) == (0, "out\n")
    events = [json.loads(line) for line in done.stderr.splitlines()]
    names = [e["event"] for e in events]
    assert names == ["begun", "reserved", "driver_started", "driver_ended", "released"]
    assert [p["node"] for p in events[1]["pieces"]] == ["n0", "n1"]
    assert [p["devices"] for p in events[1]["pieces"]] == [[0, 1], [0, 1]]
    assert events[3]["exit_code"] == 0


@pytest.mark.parametrize(
    ("text", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 128 + 9)]
)
def test_exit_code_is_the_drivers(job: Job, text: str, code: int) -> None:
    assert job.run(job.with_shell(text)).returncode == code
    assert job.left() == []


def test_this_machine_without_nodes(job: Job) -> None:
    done = job.run(job.write("driver: [env]\n"))
    assert done.returncode == 0, done
    assert "reserved 1 node for job\n  localhost" in done.stderr
    told = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert told["MUSTER_ADDRESS"].startswith("127.0.0.1:")
    assert told["MUSTER_SECRET_FILE"].startswith(str(job.home.path))


def test_driver_that_cannot_be_executed(job: Job) -> None:
    done = job.run(job.write(NODES + "driver: [/nowhere/python]\n"))
    assert done.returncode == 127
    assert "cannot execute the driver '/nowhere/python': No such file" in done.stderr
    assert job.left() == []


def test_what_the_driver_left_behind_goes(job: Job) -> None:
    done = job.run(job.with_shell("setsid sleep 1000 & echo $!"))
    assert done.returncode == 0
    assert wait_gone([int(done.stdout)]) == []
    assert job.left() == []


# ---- other ways to end ----------------------------------------------------------------


def pids_of(job: Job, run: Lines) -> list[int]:
    found = processes(job.mark)
    assert run.process.pid in found
    # run, the driver and its holder, two agents, four workers, at least
    assert len(found) >= 9, found
    return found


def test_killed_driver(job: Job) -> None:
    path = job.with_driver()
    run = Lines([CLI, "run", path], job.home.env)
    driver = int(run.until("pids")[-1].split()[1])
    pids = pids_of(job, run)
    os.kill(driver, signal.SIGKILL)
    assert run.wait() == 128 + signal.SIGKILL
    assert wait_gone(pids) == []
    assert job.left() == []
    run.close()


def test_killed_run_leaves_nothing(job: Job) -> None:
    run = job.begin()
    pids = pids_of(job, run)
    os.kill(run.process.pid, signal.SIGKILL)
    run.close()
    assert wait_gone(pids) == []
    assert job.left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_all(job: Job, number: signal.Signals) -> None:
    run = job.begin()
    pids = pids_of(job, run)
    run.process.send_signal(number)
    assert run.wait() == 128 + signal.SIGTERM  # so the driver was ended
    assert wait_gone(pids) == []
    assert job.left() == []
    run.close()


def test_second_signal_is_force(job: Job) -> None:
    path = job.with_shell("trap '' TERM; echo deaf; while :; do sleep 1; done")
    run = Lines([CLI, "run", path], job.home.env)
    run.until("deaf")
    run.process.send_signal(signal.SIGTERM)
    run.process.send_signal(signal.SIGINT)
    assert run.wait() == 128 + signal.SIGKILL
    assert job.left() == []
    run.close()


def test_stop_session_ends_it(job: Job) -> None:
    run = job.begin()
    nodes = job.home.json("list", "nodes")
    assert sorted(n["name"] for n in nodes) == ["n0", "n1"]
    assert job.home.run("stop", "session", "--yes").returncode == 0
    assert run.wait() == 128 + signal.SIGTERM
    assert job.left() == []
    run.close()


def agent_of(job: Job, node: str) -> int:
    for pid in processes(job.mark):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if words[1:2] == [b"agent"] and node.encode() in words:
            return pid
    raise AssertionError(f"no agent of {node}")


def test_agent_that_dies_is_told(job: Job) -> None:
    run = subprocess.Popen(
        [CLI, "run", job.with_driver()],
        env=job.home.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stdin and run.stdout and run.stderr
    while not run.stdout.readline().startswith("pids"):
        pass
    agent = agent_of(job, "n1")
    orphans = below(agent)
    os.kill(agent, signal.SIGKILL)
    while "node n1 is ended (signaled)" not in (line := run.stderr.readline()):
        assert line
    assert "was killed by signal 9" in run.stderr.readline()
    run.stdin.write("\n")
    run.stdin.flush()
    assert run.stdout.readline() == "alive\n"  # what that means is the driver's affair
    run.communicate(timeout=DEADLINE_S)
    assert run.returncode == 0
    assert wait_gone(orphans) == []
    assert job.left() == []


def test_agent_that_cannot_start(job: Job) -> None:
    """Its folder is there, as something else: it says why in its log."""
    (job.home.path / "x").write_text("")
    home = job.home.path / "x"
    done = job.home.run("run", job.with_shell("exit 0"), MUSTER_HOME=str(home))
    assert done.returncode == 1
    assert str(home) in done.stderr
    assert job.left() == [f"file {home}"]


# ---- bad files ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nodes: [\n", "job.yaml:2:1: "),
        ("drivr: [a]", "job.yaml:1:1: a job has no key 'drivr'; is 'driver' meant?"),
        ("driver: python", "job.yaml:1:9: 'driver' must be a list of words"),
        (NODES + "driver: [a]\nenv: {A: [1]}", "job.yaml:3:10: the value of A must be"),
        (NODES, "has no 'driver'"),
        (
            NODES + "driver: [a]\nroles: {s: {command: [b]}}",
            "role 's' has a 'command': those are started by the controller of a job",
        ),
        (NODES + "driver: [a]\ntimeout: 604801", "'timeout' is 604801 s; up to 604800"),
        ("name: 'a/b'\ndriver: [a]", "job.yaml:1:7: "),
    ],
)
def test_bad_file(job: Job, text: str, why: str) -> None:
    done = job.run(job.write(text))
    assert (done.returncode, done.stdout) == (2, ""), done
    assert why in done.stderr
    assert job.left() == []


def test_no_file(job: Job) -> None:
    done = job.run(str(job.folder / "none.yaml"))
    assert done.returncode == 2
    assert "No such file" in done.stderr
    assert job.run().returncode == 2
    assert job.run("--on", "mars", "x").returncode == 2


def test_roles_that_do_not_fit(job: Job) -> None:
    done = job.run(
        job.write(NODES + "driver: [a]\nroles: {big: {device_mapping: '0-7'}}\n")
    )
    assert done.returncode == 6
    assert "big" in done.stderr and "n1" in done.stderr
    assert job.left() == []


# ---- the simulation -------------------------------------------------------------------


def test_sim_shows_the_history(job: Job) -> None:
    path = job.write('name: big\nnodes: [{name: "n[0-999]", cpus: 8, gpus: 8}]\n')
    done = job.run("--on", "sim", path, "--json")
    assert (done.returncode, done.stderr) == (0, ""), done
    events = [json.loads(line) for line in done.stdout.splitlines()]
    times = [e["at_ns"] for e in events if "at_ns" in e]
    assert times == sorted(times)
    running = [e["node"] for e in events if e.get("phase") == "running"]
    assert len(running) == len(set(running)) == 1000
    assert [e["event"] for e in events if e["event"] != "piece"] == [
        "reserved",
        "released",
    ]
    text = job.run("--on", "sim", path).stdout
    assert text == job.run("--on", "sim", path).stdout
    assert text.splitlines()[-1].endswith("the driver did not run")
    assert list(job.home.path.iterdir()) == []


def test_sim_needs_nodes(job: Job) -> None:
    done = job.run("--on", "sim", job.write("driver: [a]"))
    assert done.returncode == 2
    assert "has no 'nodes'" in done.stderr


# ---- machines by the driver, and time ---------------------------------------------------

RESERVES = """
import muster

muster.init()
print("@", *sorted(n.name for n in muster.nodes()), flush=True)
more = muster.reserve("rollout")  # of nothing in particular
print("@", *more.nodes, *sorted(n.name for n in muster.nodes()), flush=True)
try:
    muster.reserve("first")
except muster.PlacementError as e:
    print("@", e, flush=True)
"""


def test_driver_reserves_more(job: Job) -> None:
    """And does not give it back: that is done with its end."""
    (job.folder / "more.py").write_text(RESERVES)
    path = job.write(
        'name: first\nnodes: [{name: "n[0-1]", cpus: 4, gpus: 2}]\n'
        f"driver: [{sys.executable}, {job.folder}/more.py]\n"
    )
    done = job.run(path)
    assert done.returncode == 0, done
    first, second, third = done.stdout.splitlines()
    assert (first, second) == ("@ n0 n1", "@ n0.2 n0 n0.2 n1")
    assert "another driver" in third  # the job's own stays its own
    assert job.left() == []


@pytest.mark.parametrize("how", ["file", "option"])
def test_time_for_the_machines(job: Job, how: str) -> None:
    """Agents that never join: what starts them sleeps."""
    ip = job.folder / "ip"
    ip.write_text("#!/bin/sh\nexec sleep 600\n")
    ip.chmod(0o755)
    job.home.env["PATH"] = f"{job.folder}:{job.home.env['PATH']}"
    time = 1 if how == "file" else 300
    path = job.write(
        'nodes: [{name: "n[0-1]", netns: nowhere}]\n'
        f"driver: [echo, never]\ntimeout: {time}\n"
    )
    done = job.run(path, *(["--timeout", "1"] if how == "option" else []))
    assert (done.returncode, done.stdout) == (6, "")
    assert "not lent in time: its agents have not all joined" in done.stderr
    assert "dial the head at 127.0.0.1:" in done.stderr
    assert job.left() == []
