"""The command line: against sessions made by hand, and against a real driver.

Nothing here sleeps: what must happen is waited for, with a deadline.
"""

import contextlib
import fcntl
import json
import os
import pty
import re
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

CLI = os.environ.get("MUSTER_CLI") or str(Path(sys.executable).parent / "muster")
DEADLINE_S = 30.0


class Home:
    """A folder of sessions of its own, and the CLI that looks there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.env = {**os.environ, "MUSTER_HOME": str(path), "TERM": "xterm"}
        self.env.pop("NO_COLOR", None)

    def run(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [CLI, *args],
            env={**self.env, **env},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )

    def json(self, *args: str, code: int = 0) -> Any:
        done = self.run(*args, "--json")
        assert done.returncode == code, done
        return json.loads(done.stdout)

    def start(self, *args: str) -> "Lines":
        return Lines([CLI, *args], self.env)


class Lines:
    """A process whose output is read line by line, never longer than the deadline."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.buffer = b""

    def line(self) -> str:
        """The next line; "" at the end."""
        out = self.pipe(self.process.stdout)
        deadline = time.monotonic() + DEADLINE_S
        with selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ)
            while b"\n" not in self.buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError(f"no line; so far {self.buffer!r}")
                more = os.read(out.fileno(), 65536)
                if not more:
                    break
                self.buffer += more
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line.decode()

    def until(self, text: str) -> list[str]:
        """All lines up to the first with this text."""
        lines: list[str] = []
        while not lines or text not in lines[-1]:
            line = self.line()
            assert line or self.process.poll() is None, f"ended after {lines}"
            lines.append(line)
        return lines

    def tell(self, text: str) -> None:
        stdin = self.pipe(self.process.stdin)
        stdin.write(text.encode() + b"\n")
        stdin.flush()

    def wait(self) -> int:
        return self.process.wait(DEADLINE_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE_S)
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                self.pipe(pipe).close()

    @staticmethod
    def pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        assert pipe is not None
        return pipe


@pytest.fixture
def home() -> Iterator[Home]:
    # short: sockets below it must fit into 108 bytes
    path = Path(tempfile.mkdtemp(prefix="mcli-", dir="/tmp"))
    yield Home(path)
    shutil.rmtree(path)


# ---- sessions made by hand ---------------------------------------------------------------


class FakeSession:
    """What a driver leaves on the disk; alive as long as the lock is held."""

    def __init__(self, home: Home, name: str, *, alive: bool) -> None:
        self.name = name
        self.dir = home.path / name
        self.logs = self.dir / "logs"
        self.logs.mkdir(parents=True, mode=0o700)
        self.lock: IO[str] | None = None
        if alive:
            self.lock = open(self.dir / "lock", "w")
            fcntl.flock(self.lock, fcntl.LOCK_EX)
            (self.dir / "secret").write_text("ab" * 32)
            (self.dir / "driver").write_text(str(os.getpid()))

    def end(self) -> None:
        assert self.lock is not None
        for name in ("secret", "driver", "lock"):
            (self.dir / name).unlink()
        self.lock.close()

    def log(self, name: str, text: str) -> None:
        with open(self.logs / name, "a") as f:
            f.write(text)


@pytest.fixture
def ended(home: Home) -> FakeSession:
    session = FakeSession(home, "20261115-120000-17", alive=False)
    session.log("actor-0.log", "a0 one\na0 two\n")
    session.log("actor-1.log", "a1 one\n")
    session.log("actor-10.log", "a10 one\n")
    session.log("actor-2-0.log", "of another cluster\n")
    session.log(
        "merged.log", "actor/0@n: a0 one\nactor/1@n: a1 one\nactor/0@n:   a0 two\n"
    )
    session.log("agent.log", "agent here\n")
    return session


def test_nothing_is_running(home: Home) -> None:
    for args in (["status"], ["stack", "--all"], ["logs"]):
        done = home.run(*args)
        assert done.returncode == 3
        assert done.stdout == ""
        assert "nothing is running on this machine" in done.stderr
        assert "muster.init()" in done.stderr
        assert done.stderr.count("\n") == 1
        assert home.json(*args, code=3)["error"]["exit_code"] == 3


def test_unknown_words(home: Home) -> None:
    done = home.run("statsu")
    assert done.returncode == 2
    assert "did you mean `muster status`?" in done.stderr
    done = home.run("logs", "--folow")
    assert done.returncode == 2
    assert "did you mean --follow?" in done.stderr
    done = home.run("frobnicate")
    assert done.returncode == 2
    assert "muster help" in done.stderr
    assert home.run().returncode == 2
    assert "--lines" in home.json("logs", "-n", "x", code=2)["error"]["message"]
    assert home.run("stack").returncode == 2
    assert home.run("stack", "a", "--all").returncode == 2
    assert home.run("status", "actor").returncode == 2
    assert home.run("agent").returncode == 2


def test_help_is_complete(home: Home) -> None:
    commands = re.findall(r"^  (\w+)  ", home.run("help").stdout, re.M)
    assert {"status", "logs", "stack", "doctor", "version"} <= set(commands)
    assert "agent" not in commands
    for command in commands:
        done = home.run(command, "--help")
        assert done.returncode == 0
        assert f"usage: muster {command}" in done.stdout
        assert "exit codes:" in done.stdout
        assert home.run("help", command).stdout == done.stdout


def test_version(home: Home) -> None:
    said = home.json("version")
    assert re.fullmatch(r"\d+\.\d+\.\d+", said["version"])
    assert home.run("version").stdout.startswith(f"muster {said['version']} ")
    assert home.run("--version").stdout == home.run("version").stdout


def test_full_stdout_is_a_failure(home: Home) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([CLI, "version"], env=home.env, stdout=full)
    assert done.returncode == 1


def test_logs_of_an_ended_session(home: Home, ended: FakeSession) -> None:
    assert home.run("logs").stdout == (ended.logs / "merged.log").read_text()
    assert home.run("logs", "actor/0").stdout == "a0 one\na0 two\n"
    assert home.run("logs", "actor/0@n").stdout == "a0 one\na0 two\n"
    assert home.run("logs", "actor/0", "-n1").stdout == "a0 two\n"
    assert home.run("logs", "actor/0", "-n", "0").stdout == ""
    assert home.run("logs", "actor").stdout.splitlines() == [
        "actor/0: a0 one",
        "actor/0: a0 two",
        "actor/1: a1 one",
        "actor/10: a10 one",
    ]
    assert home.run("logs", "actor-2").stdout == "actor-2/0: of another cluster\n"
    assert home.run("logs", "--agent").stdout == "agent here\n"
    # following what has ended prints it and ends
    assert home.run("logs", "-f", "-n1", "actor/0").stdout == "a0 two\n"


def test_logs_as_json(home: Home, ended: FakeSession) -> None:
    def lines(*args: str) -> list[Any]:
        done = home.run("logs", "--json", *args)
        assert done.returncode == 0
        return [json.loads(line) for line in done.stdout.splitlines()]

    merged = {"cluster": "actor", "rank": 0, "node": "n", "line": "  a0 two"}
    assert lines()[-1] == merged
    assert lines("actor/1") == [{"cluster": "actor", "rank": 1, "line": "a1 one"}]
    with open(ended.logs / "actor-1.log", "ab") as f:
        f.write(b"\xff\x00\n unfinished")
    assert [line["line"] for line in lines("actor/1")][1:] == [
        "\ufffd\0",
        " unfinished",
    ]


def test_logs_that_are_not_there(home: Home, ended: FakeSession) -> None:
    for args in (["critic"], ["actor/3"]):
        done = home.run("logs", *args)
        assert done.returncode == 5
        assert args[0] in done.stderr
    for args in (["../actor/0"], ["actor/"], ["actor/x"], [".."], ["a/b/0"], [""]):
        assert home.run("logs", *args).returncode == 2
    assert home.run("logs", "--session", "../x").returncode == 3
    done = home.run("logs", "--session", ended.name[:-1] + "8")
    assert done.returncode == 3
    assert ended.name in done.stderr
    done = home.run("status", "--session", ended.name)
    assert done.returncode == 3
    assert "has ended" in done.stderr


def test_logs_choose_the_newest(home: Home, ended: FakeSession) -> None:
    newer = FakeSession(home, "20261115-130000-18", alive=False)
    newer.log("merged.log", "newer\n")
    assert home.run("logs").stdout == "newer\n"
    assert "a0 one" in home.run("logs", "--session", ended.name).stdout
    older = FakeSession(home, "20261115-110000-16", alive=True)
    older.log("merged.log", "alive\n")
    assert home.run("logs").stdout == "alive\n"


def test_follow_to_the_end(home: Home) -> None:
    session = FakeSession(home, "20261115-120000-17", alive=True)
    session.log("actor-0.log", "old\nlast\n")
    follow = home.start("logs", "-f", "-n1", "actor")
    try:
        assert follow.line() == "actor/0: last"
        session.log("actor-0.log", "new\n")
        assert follow.line() == "actor/0: new"
        session.log("actor-1.log", "another rank\n")
        assert follow.line() == "actor/1: another rank"
        session.log("critic-0.log", "not asked for\n")
        session.log("actor-0.log", "before the rename\n")
        (session.logs / "actor-0.log").rename(session.logs / "actor-0.log.1")
        session.log("actor-0.log", "behind it\n")
        assert follow.line() == "actor/0: before the rename"
        assert follow.line() == "actor/0: behind it"
        session.log("actor-1.log", "no newline")
        session.end()
        assert follow.line() == "actor/1: no newline"
        assert follow.line() == ""
        assert follow.wait() == 0
    finally:
        follow.close()


def test_follow_before_there_is_anything(home: Home) -> None:
    session = FakeSession(home, "20261115-120000-17", alive=True)
    assert home.run("logs").returncode == 5
    follow = home.start("logs", "-f")
    try:
        session.log("merged.log", "a/0@n: first\n")
        assert follow.line() == "a/0@n: first"
        session.end()
        assert follow.wait() == 0
    finally:
        follow.close()


def test_head_that_does_not_answer(home: Home) -> None:
    session = FakeSession(home, "20261115-120000-17", alive=True)
    done = home.run("status")
    assert done.returncode == 4
    assert session.name in done.stderr
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(session.dir / "head.sock"))
        deaf.listen()
        start = time.monotonic()
        assert home.run("status", "--timeout", "1").returncode == 4
        assert home.json("stack", "--all", "-t1", code=4)["error"]["exit_code"] == 4
        assert time.monotonic() - start < DEADLINE_S / 2
    session.end()


def test_peer_that_knows_nothing(home: Home) -> None:
    """A stranger on the socket: the secret is not proven, nothing is believed."""
    session = FakeSession(home, "20261115-120000-17", alive=True)
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(str(session.dir / "head.sock"))
        stranger.listen()
        status = home.start("status")
        try:
            peer, _ = stranger.accept()
            with peer:
                peer.settimeout(DEADLINE_S)
                assert peer.recv(4)
                peer.sendall(b"MSTR\x01\0\0\0" + bytes(32 + 8 + 32))
                assert status.wait() == 4
        finally:
            status.close()
    session.end()


def test_folder_of_others_is_refused(home: Home) -> None:
    home.path.chmod(0o777)
    for args in (["status"], ["logs"]):
        done = home.run(*args)
        assert done.returncode == 1
        assert str(home.path) in done.stderr
    checks = {c["check"]: c for c in home.json("doctor", code=1)["checks"]}
    assert checks["root"]["level"] == "fail"
    assert checks["root"]["advice"]
    home.path.chmod(0o700)


def fake_python(home: Home, script: str) -> str:
    python = home.path / "python3"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o700)
    return str(python)


def test_doctor_without_the_package(home: Home) -> None:
    python = fake_python(home, "echo No module named muster >&2; exit 1")
    said = home.json("doctor", "--python", python, code=1)
    check = next(c for c in said["checks"] if c["check"] == "python")
    assert check["level"] == "fail"
    assert "No module named muster" in check["text"]
    assert "pip install" in check["advice"]
    os.unlink(python)
    assert home.run("doctor", "--python", python).returncode == 1


def test_doctor_with_another_version(home: Home) -> None:
    python = fake_python(home, "echo 3.11.0; echo /python; echo 0.0.1")
    checks = {c["check"]: c for c in home.json("doctor", "--python", python)["checks"]}
    assert checks["python"]["level"] == "warn"
    assert "0.0.1" in checks["python"]["text"]


def test_doctor_finds_what_was_left(home: Home) -> None:
    session = FakeSession(home, "20261115-120000-17", alive=True)
    assert session.lock is not None
    session.lock.close()  # as after a SIGKILL of everybody
    version = home.json("version")["version"]
    python = fake_python(home, f"echo 3.11.0; echo /python; echo {version}")
    checks = {c["check"]: c for c in home.json("doctor", "--python", python)["checks"]}
    assert checks["python"]["level"] == "ok"
    assert checks["sessions"]["level"] == "warn"
    assert "1 left behind" in checks["sessions"]["text"]


def on_terminal(home: Home, *args: str, **env: str) -> str:
    """What it prints where stdout is a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([CLI, *args], env={**home.env, **env}, stdout=theirs)
    os.close(theirs)
    text = b""
    with contextlib.suppress(OSError):  # EIO: the last one has closed it
        while more := os.read(ours, 65536):
            text += more
    os.close(ours)
    process.wait(DEADLINE_S)
    return text.decode()


def test_colours_only_on_a_terminal(home: Home, ended: FakeSession) -> None:
    assert "\033[" not in home.run("logs").stdout
    assert "\033[" in on_terminal(home, "logs")
    assert "\033[" not in on_terminal(home, "logs", NO_COLOR="1")
    assert "\033[" not in on_terminal(home, "logs", TERM="dumb")
    assert "\033[" not in on_terminal(home, "logs", "--json")


# ---- a real driver ---------------------------------------------------------------------

DRIVER = """
import os, sys, threading
import muster

class Talker:
    def say(self, text):
        print(text, flush=True)
        return text
    def hang_about(self):
        print("hanging", flush=True)
        threading.Event().wait()
    def leave(self):
        os._exit(3)

def answer(*words):
    print("@@", *words, flush=True)

if __name__ == "__main__":
    muster.init(num_gpus=2, log_to_driver=False)
    talker = muster.Cluster(name="talker", worker_cls=Talker,
                            worker_config=muster.WorkerConfig(world_size=2))
    fixed = muster.Cluster(name="fixed", worker_cls=Talker,
                           worker_config=muster.WorkerConfig(device_mapping="0-1"))
    fixed.execute_all_sync("say", "hello")
    futures = []
    answer("ready")
    for line in sys.stdin:
        verb, _, rest = line.strip().partition(" ")
        if verb == "say":
            talker.execute_all_sync("say", rest)
        elif verb == "hang":
            futures = talker.execute_all_async("hang_about")
        elif verb == "leave":
            futures = fixed.execute_all_async("leave")
        elif verb == "await":
            try:
                futures[int(rest)].result(timeout=30)
            except muster.WorkerDied:
                pass
        answer("did", verb)
    muster.shutdown()
"""


class Driver(Lines):
    def __init__(self, home: Home) -> None:
        self.home = home
        script = home.path / "driver.py"
        script.write_text(DRIVER)
        super().__init__([sys.executable, str(script)], home.env)

    def do(self, text: str) -> None:
        self.tell(text)
        self.until(f"@@ did {text.split()[0]}")

    def finish(self) -> int:
        self.pipe(self.process.stdin).close()
        return self.wait()

    def close(self) -> None:
        """Kill it, and wait until its agent has ended, too, and tidied up."""
        with contextlib.ExitStack() as held:
            locks = [
                held.enter_context(open(lock))
                for lock in self.home.path.glob(f"*-{self.process.pid}*/lock")
            ]
            super().close()
            for lock in locks:
                fcntl.flock(lock, fcntl.LOCK_SH)  # given when the last holder has gone


@pytest.fixture
def driver(home: Home) -> Iterator[Driver]:
    pytest.importorskip("muster")
    d = Driver(home)
    try:
        d.until("@@ ready")
        yield d
    finally:
        d.close()


def workers(home: Home, cluster: str) -> list[Any]:
    status = home.json("status")
    return next(c["workers"] for c in status["clusters"] if c["name"] == cluster)


def test_status_of_a_driver(home: Home, driver: Driver) -> None:
    status = home.json("status")
    assert status["driver_pid"] == driver.process.pid
    assert status["other_sessions"] == []
    assert status["uptime_ns"] > 0
    (node,) = status["nodes"]
    assert node["alive"] and node["gpus"] == 2 and node["cpus"] > 0
    os.kill(node["agent_pid"], 0)
    for cluster, devices in (("talker", [[], []]), ("fixed", [[0], [1]])):
        found = workers(home, cluster)
        assert [w["rank"] for w in found] == [0, 1]
        assert [w["devices"] for w in found] == devices
        assert {w["state"] for w in found} == {"running"}
        assert {w["exit"] for w in found} == {None}
        for w in found:
            os.kill(w["pid"], 0)
            assert Path(w["address"]).is_socket()

    text = home.run("status").stdout
    assert f"session {status['session']}" in text
    for w in workers(home, "fixed"):
        line = next(x for x in text.splitlines() if x.startswith(f"fixed/{w['rank']} "))
        assert line.split()[1:5] == [
            "running",
            str(w["pid"]),
            w["node"],
            str(w["rank"]),
        ]


def test_status_of_workers_that_ended(home: Home, driver: Driver) -> None:
    driver.do("leave")
    driver.do("await 0")
    left = workers(home, "fixed")[0]
    assert left["state"] == "exited"
    assert left["exit"]["code"] == 3 and not left["exit"]["signaled"]
    assert "exit code 3" in home.run("status").stdout
    done = home.run("stack", "fixed/0")
    assert done.returncode == 4
    assert "exit code 3" in done.stderr and "muster logs fixed/0" in done.stderr

    driver.do("hang")
    os.kill(workers(home, "talker")[1]["pid"], signal.SIGKILL)
    driver.do("await 1")
    stays, killed = workers(home, "talker")
    assert (stays["state"], killed["state"]) == ("running", "exited")
    assert killed["exit"]["code"] == signal.SIGKILL and killed["exit"]["signaled"]
    assert "killed by SIGKILL" in home.run("status").stdout
    assert len(home.json("stack", "talker")["workers"]) == 1  # the one that runs


def test_logs_of_a_driver(home: Home, driver: Driver) -> None:
    follow = home.start("logs", "-f", "talker")
    try:
        driver.do("say it is said")
        assert {follow.line(), follow.line()} == {
            "talker/0: it is said",
            "talker/1: it is said",
        }
        assert home.run("logs", "talker/1").stdout == "it is said\n"
        merged = home.run("logs", "-n", "1").stdout
        assert re.fullmatch(r"talker/[01]@\S+: it is said\n", merged)
        session = home.json("status")["session"]
        assert driver.finish() == 0
        assert follow.line() == ""
        assert follow.wait() == 0
    finally:
        follow.close()
    # it has ended: no status, but logs
    assert home.run("status").returncode == 3
    assert home.run("logs", "talker/1").stdout == "it is said\n"
    assert home.run("logs", "--session", session, "fixed/0").stdout == "hello\n"


def test_following_a_driver_that_is_killed(home: Home, driver: Driver) -> None:
    follow = home.start("logs", "-f")
    try:
        driver.do("say before the end")
        follow.until("before the end")
        driver.process.kill()
        assert follow.wait() == 0
    finally:
        follow.close()
    assert home.run("status").returncode == 3
    assert "before the end" in home.run("logs").stdout


def test_stack_of_a_stuck_worker(home: Home, driver: Driver) -> None:
    follow = home.start("logs", "-f", "talker/0")
    try:
        driver.tell("hang")
        follow.until("hanging")
    finally:
        follow.close()
    said = home.json("stack", "talker/0")
    (worker,) = said["workers"]
    assert worker["cluster"] == "talker" and worker["rank"] == 0
    assert "hang_about" in worker["python"]
    assert worker["native"]
    assert worker["error"] is None

    text = home.run("stack", "talker/0").stdout
    assert re.match(r"talker/0@\S+  pid \d+\nPython\n", text)
    assert "hang_about" in text and "\nC\n" in text

    everybody = home.json("stack", "--all")["workers"]
    assert len(everybody) == 4
    assert len(home.json("stack", "talker")["workers"]) == 2
    assert home.run("stack", "critic").returncode == 5
    assert home.run("stack", "talker/7").returncode == 5


def test_two_drivers(home: Home, driver: Driver) -> None:
    other = Driver(home)
    try:
        other.until("@@ ready")
        status = home.json("status")
        assert status["driver_pid"] == other.process.pid
        (first,) = status["other_sessions"]
        assert first in home.run("status").stdout
        again = home.json("status", "--session", first)
        assert again["driver_pid"] == driver.process.pid
        assert other.finish() == 0
        assert home.json("status")["session"] == first
    finally:
        other.close()


def test_doctor_here(home: Home) -> None:
    pytest.importorskip("muster")
    said = home.json("doctor", "--python", sys.executable)
    assert said["fail"] == 0
    levels = {c["check"]: c["level"] for c in said["checks"]}
    assert levels["python"] == "ok"
    assert {"root", "sessions", "shm", "descriptors", "memory-limits"} <= set(levels)
    text = home.run("doctor", "--python", sys.executable).stdout
    for name, level in levels.items():
        assert re.search(rf"^{level} +{name} ", text, re.M)
