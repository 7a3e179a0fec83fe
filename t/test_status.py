"""What `muster status`, `muster top`, /metrics and muster.status() say of workers."""

import asyncio
import contextlib
import fcntl
import http.client
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import muster
import pytest
from conftest import _started
from daemon_rig import Daemon, daemon  # noqa: F401  (fixture)
from helpers import Bell, until
from http_rig import Client

CLI = os.environ.get("MUSTER_CLI") or str(Path(sys.executable).parent / "muster")
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    yield from _started(num_gpus=4, http="127.0.0.1:0")


def hear(bell: str) -> None:
    """Until it rings once more."""
    fd = os.open(bell, os.O_RDONLY)
    os.read(fd, 1)
    os.close(fd)


@pytest.fixture
def bell(tmp_path: Path) -> Iterator[Bell]:
    one = Bell(tmp_path)
    yield one
    one.close()


class Plain:
    def __init__(self, bell: str = "") -> None:
        if bell:
            hear(bell)

    def nothing(self) -> None:
        pass

    def wait(self, bell: str) -> None:
        hear(bell)

    def fail(self) -> None:
        raise ValueError("no")

    def exit(self) -> None:
        os._exit(3)


class Coroutines:
    async def wait(self, bell: str) -> None:
        await asyncio.to_thread(hear, bell)


def worker(cluster: str, rank: int = 0) -> dict[str, Any]:
    for c in muster.status()["clusters"]:
        for w in c["workers"]:
            if c["name"] == cluster and w["rank"] == rank:
                found: dict[str, Any] = w
                return found
    raise LookupError(cluster)


def activity(cluster: str, rank: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = worker(cluster, rank)["activity"]
    return found


def is_doing(cluster: str, what: str, rank: int = 0) -> Callable[[], bool]:
    def look() -> bool:
        with contextlib.suppress(LookupError, TypeError):
            return bool(activity(cluster, rank)["doing"] == what)
        return False

    return look


def run(*args: str) -> str:
    done = subprocess.run(
        [CLI, *args, "--session", session_name()],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "TERM": "xterm"},
    )
    assert done.returncode == 0, done
    return done.stdout


def session_name() -> str:
    name: str = muster.status()["session"]
    return name


def test_idle_busy_and_queued(cluster: Callable[..., Any], bell: Bell) -> None:
    c = cluster(Plain, 2, name="plain")
    c.execute_all_sync("nothing")
    with pytest.raises(ValueError):
        c.execute_rank_zero_sync("fail")
    idle = activity("plain")
    assert idle["doing"] == "idle" and idle["method"] is None
    assert (idle["calls_failed"], idle["calls_queued"]) == (1, 0)
    assert {m["method"]: (m["calls"], m["failed"]) for m in idle["methods"]} == {
        "default.nothing": (1, 0),
        "default.fail": (1, 1),
    }
    assert all(sum(m["took"]) == m["calls"] for m in idle["methods"])
    assert idle["memory"] > 1 << 20
    futures = [c.execute_rank_zero_async("wait", bell.path) for _ in range(3)]
    until(lambda: activity("plain")["calls_queued"] == 2)
    busy = activity("plain")
    assert busy["doing"] == "busy" and busy["method"] == "default.wait"
    assert activity("plain")["for_s"] > busy["for_s"] > 0
    assert activity("plain", 1)["doing"] == "idle"
    text = run("get", "worker/plain/0")
    assert re.search(r"^doing +busy$", text, re.M)
    assert re.search(r"^default.fail +1 +1 ", text, re.M), text
    row = next(row for row in run("status").splitlines() if row.startswith("plain/0"))
    assert re.match(r"plain/0 +busy +\S+ +wait +2 +2 +1 ", row), row
    for _ in futures:
        bell.ring()
    muster.get(futures)


def test_constructing(cluster: Callable[..., Any], bell: Bell) -> None:
    making = threading.Thread(
        target=lambda: cluster(Plain, 2, name="slow", args=(bell.path,))
    )
    making.start()
    until(is_doing("slow", "constructing", 1))
    before = activity("slow", 1)["for_s"]
    assert 0 < before < activity("slow", 1)["for_s"]
    assert "constructing" in run("top", "--once")
    bell.ring()
    bell.ring()
    making.join()
    until(is_doing("slow", "idle", 1))


def test_several_at_once(cluster: Callable[..., Any], bell: Bell) -> None:
    c = cluster(Coroutines, 1, name="async")
    futures = [c.execute_rank_zero_async("wait", bell.path) for _ in range(3)]
    until(lambda: activity("async")["calls_running"] == 3)
    assert activity("async")["method"] == "default.wait"
    assert re.search(r"async/0 +busy +\S+ +wait \(\+2\) ", run("status"))
    for _ in futures:
        bell.ring()
    muster.get(futures)
    assert activity("async")["doing"] == "idle"
    assert activity("async")["calls_done"] == 3


def test_dead_and_why(cluster: Callable[..., Any]) -> None:
    c = cluster(Plain, 1, name="dead")
    with pytest.raises(muster.WorkerDied):
        c.execute_rank_zero_sync("exit")
    found = worker("dead")
    assert found["state"] == "exited" and found["activity"] is None
    assert found["exit"]["code"] == 3
    assert re.search(r"dead/0 +exited .*exit code 3", run("status"))
    top = run("top", "--once").splitlines()
    assert re.match(r"dead/0 +exited +exit code 3", top[4]), top  # the first of all


def is_not_waited_for(cluster: str) -> None:
    began = time.monotonic()
    for _ in range(20):
        activity(cluster)
    assert time.monotonic() - began < 5  # 20 * MS_ACTIVITY_NS are 10


def test_stopped(cluster: Callable[..., Any]) -> None:
    """A worker that stands still is waited for once at most, and said so."""
    c = cluster(Plain, 2, name="stopped")
    until(is_doing("stopped", "idle"))
    pid = worker("stopped")["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        until(is_doing("stopped", "stopped"))
        first = activity("stopped")["for_s"]
        is_not_waited_for("stopped")
        assert activity("stopped")["for_s"] > first
        assert activity("stopped")["calls_done"] is None  # and not 0
        assert activity("stopped", 1)["doing"] == "idle"
        assert re.search(r"stopped/0 +stopped .*a signal or a debugger", run("status"))
    finally:
        os.kill(pid, signal.SIGCONT)
    until(is_doing("stopped", "idle"))
    done = activity("stopped")["calls_done"]
    c.execute_all_sync("nothing")
    assert activity("stopped")["calls_done"] == done + 1


def test_beside_and_native(cluster: Callable[..., Any], tmp_path: Path) -> None:
    """Roles that are forked beside others, and workers without Python."""
    c = cluster(Plain, None, name="parent", device_mapping="0-1")
    child = c.fork_cluster("child", Plain)
    try:
        child.execute_all_sync("nothing")
        assert activity("child", 1)["calls_done"] == 1
    finally:
        child.destroy()
    library = tmp_path / "libreward.so"
    command = ["cc", "-shared", "-fPIC", f"-I{ROOT}/include", "-o", str(library)]
    subprocess.run([*command, str(ROOT / "examples/c/reward.c")], check=True)
    cluster(f"{library}:reward", 1, name="native")
    until(is_doing("native", "idle"))
    assert activity("native")["memory"] > 1 << 20


def test_calls_by_http(cluster: Callable[..., Any], bell: Bell) -> None:
    c = cluster(Plain, 1, name="served")
    client = Client(c.http_urls[0])
    client.call("nothing")
    status, _ = client.post("/call", {"method": "fail", "engine_name": "default"})
    assert status == 500
    (found,) = activity("served")["methods"]
    assert (found["method"], found["calls"], found["failed"]) == ("/call", 2, 1)
    slow = threading.Thread(target=client.call, args=("wait", bell.path))
    slow.start()
    until(lambda: activity("served")["method"] == "/call")
    bell.ring()
    slow.join()


def test_a_command_that_is_no_worker(cluster: Callable[..., Any]) -> None:
    """Nothing is known of it but that it runs; and it is not waited for."""
    c = cluster(Plain, 1, name="host")
    with c.fork_workers("command", command=["sleep", "60"]):
        assert activity("command")["doing"] == "unknown"
        is_not_waited_for("command")
        assert activity("command")["memory"] > 0
        assert re.search(r"command/0 +running ", run("status"))


def test_room_that_is_waited_for(session: Any) -> None:
    config = muster.WorkerConfig(world_size=4, num_gpus_per_worker=1)
    holder = muster.Cluster("holder", Plain, worker_config=config)
    waiting = muster.Cluster(
        "waiter", Plain, worker_config=config, wait=60, blocking=False
    )
    until(lambda: "waiter waits for room: " in run("status"))
    assert "waiting for room: waiter" in run("top", "--once")
    holder.destroy()
    waiting.wait()
    assert "waits for room" not in run("status")
    waiting.destroy()


def scrape() -> dict[str, float]:
    at = muster.http_address()
    assert at is not None
    conn = http.client.HTTPConnection(at, timeout=20)
    token = {"Authorization": f"Bearer {muster.http_token()}"}
    conn.request("GET", "/metrics", headers=token)
    text = conn.getresponse().read().decode()
    conn.close()
    lines = [line.rpartition(" ") for line in text.splitlines() if line[0] != "#"]
    assert len({name for name, _, _ in lines}) == len(lines), "a series comes twice"
    return {name: float(value) for name, _, value in lines}


def test_metrics(cluster: Callable[..., Any], bell: Bell) -> None:
    c = cluster(Plain, 2, name="metered")
    for _ in range(5):
        c.execute_all_sync("nothing")
    with pytest.raises(ValueError):
        c.execute_rank_zero_sync("fail")
    future = c.execute_rank_zero_async("wait", bell.path)
    queued = c.execute_rank_zero_async("nothing")
    until(lambda: activity("metered")["calls_queued"] == 1)
    held = muster.put(b"x" * (4 << 20))
    found = scrape()
    of = 'cluster="metered",rank="0"'
    method = of + ',method="default.nothing"'
    assert found[f"muster_call_seconds_count{{{method}}}"] == 5
    buckets = [
        value
        for name, value in found.items()
        if name.startswith(f"muster_call_seconds_bucket{{{method}")
    ]
    assert buckets == sorted(buckets) and buckets[-1] == 5 and len(buckets) == 12
    assert found[f"muster_call_seconds_sum{{{method}}}"] > 0
    assert found[f'muster_calls_failed_total{{{of},method="default.fail"}}'] == 1
    assert found[f"muster_worker_queue_length{{{of}}}"] == 1
    assert found[f"muster_worker_busy{{{of}}}"] == 1
    assert found[f"muster_worker_busy_seconds{{{of}}}"] > 0
    assert found[f"muster_worker_silent{{{of}}}"] == 0
    assert found[f"muster_worker_memory_bytes{{{of}}}"] > 1 << 20
    node = f'node="{muster.nodes()[0].name}"'
    assert found[f"muster_store_used_bytes{{{node}}}"] >= 4 << 20
    assert found[f"muster_store_objects{{{node}}}"] >= 1
    assert found[f"muster_store_spilled_bytes{{{node}}}"] == 0
    del held
    bell.ring()
    muster.get([future, queued])


def test_two_who_look_at_once(cluster: Callable[..., Any]) -> None:
    cluster(Plain, 3, name="seen")
    until(is_doing("seen", "idle", 2))
    threads = [threading.Thread(target=lambda: activity("seen", 2)) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert is_doing("seen", "idle", 2)()


def test_nodes_of_a_daemon(daemon: Daemon) -> None:  # noqa: F811
    """Also where one of two agents is stopped: the others' workers are there soon."""
    daemon.agent("a")
    daemon.agent("b")
    script = (
        "import muster, sys\n"
        "class Plain:\n"
        "    def nothing(self): pass\n"
        f"muster.init({daemon.address!r}, secret_file={daemon.secret_file!r})\n"
        "c = muster.Cluster('far', Plain, device_mapping='0-3')\n"
        "c.execute_all_sync('nothing')\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    agent = 0
    try:
        assert driver.stdout is not None and driver.stdout.readline() == b"ready\n"
        done = daemon.run("status")
        assert len(re.findall(r"far/\d +idle +\S+ +0 +1 ", done.stdout)) == 4, done
        nodes = json.loads(daemon.run("list", "nodes", "--json").stdout)
        agent = next(n["agent_pid"] for n in nodes if n["name"] == "b")
        os.kill(agent, signal.SIGSTOP)
        began = time.monotonic()
        done = daemon.run("status")
        assert time.monotonic() - began < 10
        rows = re.findall(r"far/\d +(\S+)", done.stdout)
        assert rows == ["idle", "idle", "running", "running"], done.stdout
        assert re.search(r"^b +(suspect|.* it does not answer$)", done.stdout, re.M)
    finally:
        if agent:
            os.kill(agent, signal.SIGCONT)
        driver.communicate(b"\n")


class Terminal:
    """`muster top` on a terminal of its own."""

    def __init__(self, lines: int, columns: int, *args: str) -> None:
        self.ours, theirs = pty.openpty()
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, size)
        self.before = termios.tcgetattr(self.ours)
        self.process = subprocess.Popen(
            [CLI, "top", *args, "--session", session_name()],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm", "NO_COLOR": "1"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0) and None,
        )
        os.close(theirs)
        self.text = ""

    def read(self, part: str) -> str:
        """What came until a whole frame with this text is there."""
        deadline = time.monotonic() + 30
        self.text = ""
        while "\x1b[J" not in self.text.partition(part)[2]:
            assert select.select([self.ours], [], [], deadline - time.monotonic())[0]
            self.text += os.read(self.ours, 65536).decode()
        return self.text

    def end(self) -> str:
        text = b""
        self.process.wait(30)
        with contextlib.suppress(OSError):
            while select.select([self.ours], [], [], 0)[0]:
                text += os.read(self.ours, 65536)
        return text.decode()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)


@pytest.mark.parametrize("how", ["q", "\x03", "SIGTERM"])
def test_top_on_a_terminal(cluster: Callable[..., Any], how: str) -> None:
    """It is drawn again and again, obeys keys, and leaves the terminal as it was."""
    cluster(Plain, 12, name="many")
    until(is_doing("many", "idle", 11))
    t = Terminal(10, 72)
    try:
        first = t.read("many/0")
        assert "\x1b[?25l" in first and "12 workers" in first
        assert "[t trouble]" in first
        assert "CPU%" in t.read("CPU%")  # the second frame has rates
        os.write(t.ours, b"n")
        t.read("[n name]")
        os.write(t.ours, b"\x1b[B\x1b[B")
        frame = t.read("many/6").rpartition("\x1b[H")[2]
        assert "many/1 " not in frame
        lines = [re.sub("\x1b\\[.*?[A-Za-z]", "", x) for x in frame.split("\n")]
        assert len(lines) <= 10 and all(len(x.rstrip("\r")) <= 72 for x in lines), lines
        if how == "SIGTERM":
            t.process.send_signal(signal.SIGTERM)
        else:
            os.write(t.ours, how.encode())
        assert "\x1b[?25h" in t.end()
        assert t.process.returncode == (-signal.SIGTERM if how == "SIGTERM" else 0)
        assert termios.tcgetattr(t.ours) == t.before
    finally:
        t.close()


def test_top_without_a_terminal(cluster: Callable[..., Any]) -> None:
    cluster(Plain, 1, name="one")
    until(is_doing("one", "idle"))
    text = run("top", "one/0")
    assert "\x1b" not in text and re.search(r"^one/0 +idle", text, re.M)
    command = [CLI, "top", "two", "--session", session_name()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (5, "")
    assert "there is no worker 'two'" in done.stderr
    done = subprocess.run(
        [CLI, "top", "--session", "x"], capture_output=True, timeout=60
    )
    assert done.returncode == 3
