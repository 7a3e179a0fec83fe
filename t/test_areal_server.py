"""`python -m muster.areal.rpc_server`, without AReaL: a worker at a fixed address."""

import contextlib
import getpass
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import MARK, leftovers, new_mark, until, wait_gone
from http_rig import Client

PATIENCE_S = 30
ENGINE = {"engine": "areal_engines.Engine", "engine_name": "actor/3"}
ENGINES = """
import os, sys

class Engine:
    def __init__(self, path):
        self.path = path

    def write(self, text):
        print(text, flush=True)

    def env(self, *names):
        return [os.environ.get(name) for name in names]

    def pids(self):
        with open(f"/proc/{os.getppid()}/stat") as stat:  # the agent
            supervisor = int(stat.read().rpartition(")")[2].split()[1])
        with open(f"/proc/{supervisor}/stat") as stat:
            session = int(stat.read().rpartition(")")[2].split()[1])
        return [os.getpid(), os.getppid(), supervisor, session]

    def leave(self):
        os._exit(7)

    def destroy(self):
        with open(self.path, "w") as out:
            out.write("destroyed")
"""


class Server:
    """Started by hand."""

    def __init__(self, folder: Path, port: int, *more: str, **env: str) -> None:
        (folder / "areal_engines.py").write_text(ENGINES)
        self.folder = folder
        self.url = f"http://127.0.0.1:{port}"
        self.client = Client(self.url, None)
        self.mark = new_mark()
        self.begun = time.monotonic()
        command = [sys.executable, "-m", "muster.areal.rpc_server", "--role=actor"]
        command += ["--host=127.0.0.1", f"--port={port}", "--worker-index=3"]
        command += ["--experiment-name=e", "--trial-name=t", "--what-is-this"]
        command += [f"--nfs-record-root={folder}/names", f"--fileroot={folder}", *more]
        with open(folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=os.environ | {MARK: self.mark} | env,
                stdout=log,
                stderr=log,
            )

    def wait_ready(self) -> float:
        """Seconds since its start."""
        while True:
            with contextlib.suppress(ConnectionError):
                if self.client.get("/health")[0] == 200:
                    return time.monotonic() - self.begun
            assert self.process.poll() is None, self.log
            assert time.monotonic() - self.begun < PATIENCE_S
            time.sleep(0.01)  # as its users do it

    def make_engine(self) -> None:
        body = ENGINE | {"init_args": [str(self.folder / "end")]}
        assert self.client.post("/create_engine", body)[0] == 200

    def call(self, method: str, *args: Any) -> Any:
        body = {"method": method, "engine_name": "actor/3", "args": list(args)}
        status, answer = self.client.post("/call", body)
        assert status == 200, answer
        return answer["result"]

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    @property
    def record(self) -> Path:
        where = Path(getpass.getuser(), "e", "t", "workers", "actor", "3", "ENTRY")
        return self.folder / "names" / where

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        until(lambda: leftovers(self.mark) == [])


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    # what a launcher or a Muster worker leaves in the environment is not the server's
    env = {
        "RANK": "1",
        "WORLD_SIZE": "4",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "9",
    }
    env |= {"CUDA_VISIBLE_DEVICES": "5,7", "OMP_NUM_THREADS": "3"}
    one = Server(tmp_path, free_port(), **env)
    one.wait_ready()
    yield one
    one.end()


def test_it_serves(server: Server) -> None:
    assert server.client.get("/health")[1] == {
        "status": "healthy",
        "forked_children": 0,
        "engine_count": 0,
        "engines": [],
    }
    until(server.record.exists)
    assert server.record.read_text() == server.url.removeprefix("http://")
    server.make_engine()
    server.call("write", "it prints")
    until(lambda: "it prints" in server.log)
    assert server.call("env", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS") == ["5,7", "3"]
    assert server.client.get("/health")[1]["engines"] == ["actor/3"]


def test_sigterm(server: Server) -> None:
    server.make_engine()
    body = {
        "role": "kid",
        "worker_index": 0,
        "raw_cmd": ["sh", "-c", "echo hi; sleep 99"],
    }
    status, answer = server.client.post("/fork", body)
    assert status == 200
    logs = server.folder / "logs" / getpass.getuser() / "e" / "t"
    until(lambda: (logs / "kid.log").exists() and (logs / "merged.log").exists())
    assert (logs / "kid.log").read_text() == "hi\n"
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(PATIENCE_S) == 0
    assert (server.folder / "end").read_text() == "destroyed"
    assert wait_gone([answer["pid"]]) == []
    assert not server.record.exists()
    assert leftovers(server.mark) == []


def test_a_tree_of_processes_is_told_to_end(server: Server) -> None:
    """As AReaL's schedulers do it: SIGTERM to all that they find below the server."""
    server.make_engine()
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    assert children.read_text() == ""
    server.process.send_signal(signal.SIGTERM)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(PATIENCE_S) == 0
    assert (server.folder / "end").read_text() == "destroyed"


def test_killed(server: Server) -> None:
    server.make_engine()
    server.process.kill()
    server.process.wait()
    until(lambda: leftovers(server.mark) == [])
    assert (server.folder / "end").read_text() == "destroyed"
    assert "Traceback" not in server.log


def test_its_worker_ends(server: Server) -> None:
    server.make_engine()
    with pytest.raises((ConnectionError, OSError)):
        server.call("leave")
    assert server.process.wait(PATIENCE_S) == 7
    assert "code 7" in server.log
    assert leftovers(server.mark) == []


@pytest.mark.parametrize("who", ["worker", "agent", "supervisor", "session"])
def test_one_of_them_is_killed(server: Server, who: str) -> None:
    """All end, and the server says that it has failed."""
    server.make_engine()
    pids = server.call("pids")
    names = ("worker", "agent", "supervisor", "session")
    os.kill(pids[names.index(who)], signal.SIGKILL)
    code = server.process.wait(PATIENCE_S)
    assert code == 137 if who == "worker" else code != 0, server.log
    until(lambda: leftovers(server.mark) == [])
    assert len(server.log.splitlines()) > 1  # it says something


def test_a_port_that_is_taken(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "second"
    folder.mkdir()
    second = Server(folder, int(server.url.rpartition(":")[2]))
    assert second.process.wait(PATIENCE_S) == 1
    assert (
        "address already in use" in second.log.lower()
    )  # what LocalScheduler looks for
    second.end()


def test_a_second_of_the_same_name_fails(server: Server) -> None:
    """The record stays that of the one that serves."""
    before = server.record.read_text()
    second = Server(server.folder, int(server.url.rpartition(":")[2]))
    assert second.process.wait(PATIENCE_S) == 1
    second.end()
    assert server.record.read_text() == before


def test_any_port(tmp_path: Path) -> None:
    one = Server(tmp_path, 0, "--host=0.0.0.0")
    try:
        until(one.record.exists)
        host, _, port = one.record.read_text().rpartition(":")
        assert int(port) > 0
        with socket.create_connection((host.strip("[]"), int(port)), 20):
            pass
    finally:
        one.end()


def test_wrong_arguments() -> None:
    command = [sys.executable, "-m", "muster.areal.rpc_server", "--role=a"]
    names = ["--experiment-name=e", "--trial-name=t"]
    for options in ([], names):
        env = {k: v for k, v in os.environ.items() if k != "SLURM_PROCID"}
        done = subprocess.run([*command, *options], env=env, capture_output=True)
        assert done.returncode == 2
        assert b"required" in done.stderr or b"--worker-index" in done.stderr


def test_areal_is_not_needed() -> None:
    code = "import muster.areal, sys; assert 'areal' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
