"""The same script on every node, as torchrun and ROLL start it, on one machine: rank 0
hosts the head, the others lend their node and end with the job."""

import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import muster
import pytest
from cli_rig import CLI
from daemon_rig import Daemon, daemon  # noqa: F401  (fixture)
from helpers import DEADLINE_S, MARK, leftovers, new_mark, processes, wait_gone
from muster._session import launch as _launch
from muster.errors import DeadlineExceeded, MusterError

SCRIPT = """
import os, sys
import muster

muster.init(num_gpus=2, **eval(os.environ.get("OPTIONS", "{}")))
from workers import Echo
print("ready", *[n.name for n in muster.nodes()], flush=True)
cluster = None
for line in sys.stdin:
    verb, _, rest = line.strip().partition(" ")
    if verb == "start":
        cluster = muster.Cluster("c", Echo, device_mapping=rest)
        print("started", *cluster.execute_all_sync("rank"), flush=True)
    elif verb == "env":
        found = [e[rest] for e in cluster.execute_all_sync("env", rest)]
        print("env", *found, flush=True)
    elif verb in ("leave", "fail"):
        sys.exit(3 if verb == "fail" else 0)
    elif verb == "raise":
        try:
            cluster.execute_all_sync("no_such_method")
        finally:
            muster.shutdown()
    elif verb == "tell":
        muster.on_node(lambda n: print("told", n.name, n.alive, flush=True))
        print("telling", flush=True)
muster.shutdown()
print("over", flush=True)
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Rank:
    """One node's script; what it says on stderr is among its lines."""

    def __init__(self, job: "Job", rank: int, **env: str) -> None:
        names = ("MUSTER_ADDRESS", "MUSTER_SECRET_FILE", "MUSTER_SECRET")
        self.env = {k: v for k, v in os.environ.items() if k not in names} | job.env
        self.env |= {"RANK": str(rank), **env}
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", SCRIPT],
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.said = ""
        self.read_to = 0

    def tell(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n".encode())
        self.process.stdin.flush()

    def until(self, part: str) -> str:
        """The next line with this in it."""
        assert self.process.stdout is not None
        out = self.process.stdout.fileno()
        while True:
            while "\n" in self.said[self.read_to :]:
                line = self.said[self.read_to :].partition("\n")[0]
                self.read_to += len(line) + 1
                if part in line:
                    return line
            ready, _, _ = select.select([out], [], [], DEADLINE_S)
            assert ready, f"no {part!r}; {self.said}"
            more = os.read(out, 65536)
            assert more, f"ended without {part!r}; {self.said}"
            self.said += more.decode()

    def end(self) -> int:
        out, _ = self.process.communicate(timeout=DEADLINE_S)
        self.said += out.decode()
        return self.process.returncode


class Job:
    """Several ranks at one port of the loopback."""

    def __init__(self, size: int, folder: Path, **env: str) -> None:
        self.mark = new_mark()
        paths = [str(Path(__file__).parent), *filter(None, sys.path)]
        self.env = {
            MARK: self.mark,
            "PYTHONPATH": os.pathsep.join(paths),
            "MUSTER_HOME": str(folder),
            "WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            **env,
        }
        self.ranks: list[Rank] = []

    def start(self, rank: int, **env: str) -> Rank:
        self.ranks.append(Rank(self, rank, **env))
        return self.ranks[-1]

    def close(self) -> None:
        for rank in self.ranks:
            if rank.process.poll() is None:
                rank.process.kill()
            rank.process.communicate(timeout=DEADLINE_S)
        wait_gone(processes(self.mark))
        assert leftovers(self.mark) == []


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="minit-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def job(folder: Path) -> Iterator[Job]:
    one = Job(2, folder)
    yield one
    one.close()


def test_rank_0_hosts_and_the_others_lend(job: Job) -> None:
    other = job.start(1)  # whoever is first waits
    first = job.start(0)
    assert first.until("ready") == "ready node0 node1"
    first.tell("start 0-3")
    assert first.until("started") == "started 0 1 2 3"
    first.tell("env NODE_RANK")
    assert first.until("env") == "env 0 0 1 1"
    assert first.end() == 0
    assert other.end() == 0
    assert "over" in first.said
    assert "ready" not in other.said  # its script never went on


def test_the_missing_rank_is_named(folder: Path) -> None:
    job = Job(3, folder)
    try:
        late = job.start(1)
        late.until("has not joined the head")  # and dials again, every second
        first = job.start(0, OPTIONS="{'timeout': 3}")
        began = time.monotonic()
        assert first.end() == 1
        assert time.monotonic() - began < DEADLINE_S
        assert "DeadlineExceeded" in first.said
        assert "2 of 3 nodes" in first.said and "missing: rank 2." in first.said
        assert late.end() == 1  # so has the job
    finally:
        job.close()


def test_a_rank_without_a_head_ends_in_time(job: Job) -> None:
    alone = job.start(1, OPTIONS="{'timeout': 1}")
    assert alone.end() == 1
    assert "was not joined in time" in alone.said
    assert "rank 1" in alone.said


def test_nodes_that_come_late_and_go_are_told(folder: Path) -> None:
    job = Job(2, folder, OPTIONS="{'min_nodes': 1}")
    try:
        first = job.start(0)
        assert first.until("ready") == "ready node0"
        first.tell("tell")
        first.until("telling")
        other = job.start(1, WORKER_ID="late:one")
        assert first.until("told") == "told late-one True"
        more = job.start(7, WORLD_SIZE="8")  # more than were expected
        assert first.until("told") == "told node7 True"
        first.tell("start 0-5")
        first.until("started")
        other.process.kill()  # and its agent with it
        assert "node late-one" in first.until("has gone")
        assert first.until("told") == "told late-one False"
        assert first.end() == 0
        assert more.end() == 0
    finally:
        job.close()


def test_the_others_end_at_once_when_rank_0_dies(job: Job) -> None:
    other = job.start(1)
    first = job.start(0)
    first.until("ready")
    first.tell("start 0-3")
    first.until("started")
    first.process.kill()
    began = time.monotonic()
    assert other.end() == 1
    assert time.monotonic() - began < 10
    assert "ends with exit code 1" in other.said


@pytest.mark.parametrize(("how", "code"), [("fail", 3), ("raise", 1)])
def test_the_others_fail_if_the_script_does(job: Job, how: str, code: int) -> None:
    """So that who has started them all can start them all again."""
    other = job.start(1)
    first = job.start(0)
    first.until("ready")
    first.tell("start 0-3")
    first.until("started")
    first.tell(how)
    assert first.end() == code
    assert other.end() == 1
    assert "ends: the driver has failed" in other.said


def test_a_script_need_not_call_shutdown(job: Job) -> None:
    other = job.start(1)
    first = job.start(0)
    first.until("ready")
    first.tell("start 0-3")
    first.until("started")
    first.tell("leave")
    assert (first.end(), other.end()) == (0, 0)
    assert "ends: the head said so" in other.said


def test_ctrl_c_on_a_lent_node(job: Job) -> None:
    other = job.start(1)
    first = job.start(0)
    first.until("ready")
    other.until("has joined")
    other.process.send_signal(signal.SIGINT)
    other.end()
    assert "KeyboardInterrupt" in other.said
    first.until("has gone")


def test_two_jobs_on_one_host_do_not_touch_each_other(folder: Path) -> None:
    jobs = [Job(2, folder), Job(2, folder)]
    try:
        firsts = [job.start(0) for job in jobs]
        others = [job.start(1) for job in jobs]
        for first in firsts:
            assert first.until("ready") == "ready node0 node1"
            first.tell("start 0-3")
            first.until("started")
        before = processes(jobs[1].mark)
        assert firsts[0].end() == 0
        assert others[0].end() == 0
        assert leftovers(jobs[0].mark) == []
        assert set(before) <= set(processes(jobs[1].mark))
        firsts[1].tell("env RANK")
        assert firsts[1].until("env") == "env 0 1 2 3"
        assert firsts[1].end() == 0
        assert others[1].end() == 0
    finally:
        for job in jobs:
            job.close()


def test_the_secret_by_value_goes_no_further(folder: Path) -> None:
    secret = secrets.token_hex(32)
    job = Job(2, folder, MUSTER_SECRET=secret)
    try:
        job.start(1, MUSTER_SECRET=secret)
        first = job.start(0, MUSTER_SECRET=secret)
        first.until("ready")
        first.tell("start 0-3")
        first.until("started")
        first.tell("env MUSTER_SECRET")
        assert first.until("env") == "env None None None None"
        assert first.end() == 0
        assert not (folder / "secret").exists()
    finally:
        job.close()


def test_another_secret_is_refused(job: Job, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.touch(mode=0o600)
    wrong.write_text(secrets.token_hex(32))
    first = job.start(0, OPTIONS="{'min_nodes': 1}")
    first.until("ready")
    other = job.start(1, MUSTER_SECRET_FILE=str(wrong))
    assert other.end() == 1
    assert "secret" in other.said
    at = f"127.0.0.1:{job.env['MASTER_PORT']}"
    asked = subprocess.run(
        [CLI, "status", "--head", at, "--secret-file", str(wrong)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert asked.returncode != 0 and "node0" not in asked.stdout
    assert first.end() == 0


def test_a_second_driver_is_told_where_to_go(job: Job, folder: Path) -> None:
    first = job.start(0, OPTIONS="{'min_nodes': 1}")
    first.until("ready")
    with pytest.raises(MusterError, match="part of another driver"):
        muster.init(
            f"127.0.0.1:{job.env['MASTER_PORT']}", secret_file=str(folder / "secret")
        )
    assert first.end() == 0


# ---- what the environment says ------------------------------------------------------------

FOUR = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29500",
}


@pytest.mark.parametrize("missing", list(FOUR))
def test_all_four_or_none(missing: str) -> None:
    assert _launch.find({k: v for k, v in FOUR.items() if k != missing}) is None


def test_who_we_are() -> None:
    found = _launch.find(FOUR)
    assert found is not None
    assert (found.rank, found.world_size, found.name) == (1, 2, "node1")
    assert found.address == "10.0.0.1:29500"
    assert _launch.find(FOUR | {"WORLD_SIZE": "1", "RANK": "0"}) is None
    assert _launch.find(FOUR | {"MUSTER_WORKER_UID": "17"}) is None
    six = _launch.find(FOUR | {"MASTER_ADDR": "fd00::1"})
    assert six is not None and six.address == "[fd00::1]:29500"


@pytest.mark.parametrize(
    ("change", "say"),
    [
        ({"RANK": "2"}, "not below WORLD_SIZE=2"),
        ({"RANK": "one"}, "no number"),
        ({"MASTER_PORT": "0"}, "no port"),
        ({"LOCAL_WORLD_SIZE": "8"}, "one process on each node"),
    ],
)
def test_what_cannot_be(change: dict[str, str], say: str) -> None:
    with pytest.raises(MusterError, match=say):
        _launch.find(FOUR | change)


def test_who_torchrun_says_we_are() -> None:
    told = FOUR | {
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
    }
    found = _launch.find(told)
    assert found is not None
    assert (found.rank, found.world_size, found.name) == (1, 2, "node1")
    assert (found.local_rank, found.store) == (1, True)
    assert _launch.listen_at(found._replace(host="127.0.0.1")) == "127.0.0.1:0"
    one = told | {"GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "WORLD_SIZE": "4"}
    beside = _launch.find(one | {"RANK": "1"})
    assert beside is not None and beside.local_rank == 1
    assert _launch.find(one | {"RANK": "0", "LOCAL_RANK": "0"}) is None


def test_no_secret_says_how_to_make_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MUSTER_SECRET", "MUSTER_SECRET_FILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(MusterError, match="token_hex"):
        _launch.find_secret(None, "10.0.0.1")


# ---- a daemon's nodes ----------------------------------------------------------------------


def test_min_nodes_of_a_daemon(daemon: Daemon) -> None:  # noqa: F811
    daemon.agent("n1")
    where = {"address": daemon.address, "secret_file": daemon.secret_file}
    with pytest.raises(DeadlineExceeded, match=r"1 of 2 nodes .*n1 \(127.0.0.1\)"):
        muster.init(**where, min_nodes=2, timeout=1)
    assert not muster.is_initialized()
    late = daemon.begin_agent("n2")
    muster.init(**where, min_nodes=2)
    try:
        assert [n.name for n in muster.nodes()] == ["n1", "n2"]
    finally:
        muster.shutdown()
    daemon.agents["n2"] = late
