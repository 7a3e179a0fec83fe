"""A real Ray cluster on this machine, bridges to it, and what they leave behind.

RAY_PYTHON is the Python that Ray is installed in; without it there are no such tests.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from helpers import MARK, new_mark, processes, until, wait_gone

PYTHON = os.environ.get("RAY_PYTHON", "")
HERE = Path(__file__).parent
CLI = os.environ.get("MUSTER_CLI") or str(Path(sys.executable).parent / "muster")
BRIDGE = HERE.parent / "python/muster/ray_bridge.py"
SLOW_S = 90.0  # Ray starts a Python for every actor, on a machine that may be busy
# Ray's own limits are too short for a machine that does other things too.
PATIENCE = {
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "120",
    "RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT": "120",
}

# Says that it has joined, and ends as it is told; by SIGUSR1 with exit code 7.
FAKE_AGENT = """#!/bin/sh
words="$*"
while [ $# -gt 0 ]; do
    case $1 in
    --ready-fd) ready=$2 ;;
    --secret-file) secret=$2 ;;
    esac
    shift
done
[ -z "$FAKE_DIR" ] || { echo "$words"; cat "$secret"; } >"$FAKE_DIR/$$"
if [ -n "$FAKE_FAIL" ]; then echo "the head said no" >&2; exit 3; fi
trap 'exit 7' USR1
trap 'exit 0' TERM
if [ -z "$FAKE_LATE" ]; then printf 1 >"/proc/self/fd/$ready"; fi
while :; do sleep 1000 & wait $!; done
"""

# Two workers on two nodes, until it is told to end or is killed.
DRIVER = """
import sys
import muster
from workers import Echo
if __name__ == "__main__":
    muster.init(orchestrator="ray", address={url!r}, num_nodes=2, num_gpus=1)
    c = muster.Cluster("echo", Echo, device_mapping="0-1")
    print(*c.execute_all_sync("pid"), flush=True)
    sys.stdin.readline()
"""
# A whole driver: one cluster, one call.
SAY = """
import muster

class Say:
    def word(self):
        return "hello"

if __name__ == "__main__":
    muster.init()
    print("@", *muster.Cluster("say", Say).execute_all_sync("word"), flush=True)
"""
SAY_JOB = "nodes: [{name: n0, cpus: 1}]\ndriver: [python, train.py]\ntimeout: 90\n"


def words(pid: int) -> list[str]:
    """Its command line; of one that has ended nothing."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return []
    return text.split("\0")


class Lines:
    """A process that is told and tells lines of JSON."""

    def __init__(self, command: list[str], env: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as err:
            self.process = subprocess.Popen(
                command,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
            )
        self._rest = b""

    def say(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def line(self, timeout: float = SLOW_S) -> dict[str, Any]:
        """The next one; {} is the end."""
        assert self.process.stdout is not None
        fd = self.process.stdout.fileno()
        deadline = time.monotonic() + timeout
        while b"\n" not in self._rest:
            left = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([fd], [], [], left)
            assert ready, f"nothing was said for {timeout} s; {self.tail()}"
            more = os.read(fd, 1 << 16)
            if not more:
                return {}
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return dict(json.loads(line))

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def close_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def end(self, timeout: float = SLOW_S) -> int:
        code = self.process.wait(timeout)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None and not stream.closed:
                stream.close()
        return code


class RayCluster:
    """Raylets of 8 CPUs and 4 devices that nobody has, and a head that lends nothing."""

    def __init__(
        self,
        nodes: int,
        python: str = PYTHON,
        dashboard: bool = False,
        config: dict[str, Any] | None = None,
        port: int = 0,
        **env: str,
    ) -> None:
        # short: the path of a socket has 107 characters
        self.folder = Path(tempfile.mkdtemp(prefix="mr-", dir="/tmp"))
        self.python, self.mark = python, new_mark()
        self.env = os.environ | {
            MARK: self.mark,
            "RAY_TMPDIR": str(self.folder),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # else 127.0.0.1 is replaced
        }
        self.env |= PATIENCE | env
        for name in ("MUSTER_ADDRESS", "MUSTER_SECRET_FILE", "RAY_ADDRESS"):
            self.env.pop(name, None)
        self.bridges: list[Bridge] = []
        self.fake = self.folder / "muster"
        self.fake.write_text(FAKE_AGENT)
        self.fake.chmod(0o700)
        try:
            self._start(nodes, dashboard, config or {}, port)
        except BaseException:
            self.stop()
            raise
        self.env["RAY_ADDRESS"] = self.where["gcs"]

    def _start(
        self, nodes: int, dashboard: bool, config: dict[str, Any], port: int
    ) -> None:
        command = [self.python, str(HERE / "ray_cluster.py")]
        self.machines = Lines(command, self.env, self.folder / "cluster.log")
        self.where = self.ask("start", dashboard=dashboard, config=config, port=port)
        self.add(*(f"n{i}" for i in range(nodes)))

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        self.machines.say({"do": do, **more})
        answer = self.machines.line(150)
        assert answer and "failed" not in answer, (
            f"{do}: {answer} {self.machines.tail()}"
        )
        return answer

    def add(self, *names: str, **env: str) -> None:
        """Every second one is in the rack `b`."""
        nodes: list[dict[str, Any]] = []
        for at, name in enumerate(names):
            rack = {"rack": "ab"[at % 2]}
            nodes.append(
                {"node_name": name, "num_cpus": 8, "num_gpus": 4, "labels": rack}
            )
        if nodes:
            self.ask("add", nodes=nodes, env=env)

    def bridge(self, *args: str, muster: str = "", **env: str) -> "Bridge":
        """With agents that are none, or those of this program."""
        muster = muster or str(self.fake)
        command = [self.python, str(BRIDGE), "--muster", muster, *args]
        self.bridges.append(Bridge(self, command, self.env | env, muster))
        return self.bridges[-1]

    def end_bridges(self) -> None:
        """What a test that failed has left."""
        for bridge in self.bridges:
            if bridge.process.poll() is None:
                bridge.process.kill()
            bridge.end()
        self.bridges.clear()

    def held(self) -> tuple[int, list[str]]:
        """Living keepers and placement groups, by Ray's own word."""
        said = self.ask("held")
        actors = [a for a in said["actors"] if "MusterBundle" in a["class"]]
        return len(actors), said["groups"]

    def records(self) -> list[str]:
        """Ids of the submitted jobs that Ray remembers, running or not. (Drivers that
        were not submitted stay in its list for ever.) It has a dashboard."""
        url = f"http://{self.where['url'].removeprefix('http://')}/api/jobs/"
        token = self.env.get("RAY_AUTH_TOKEN")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        asked = urllib.request.Request(url, headers=headers)
        try:
            with urllib.request.urlopen(asked, timeout=SLOW_S) as answer:
                known = [job["submission_id"] for job in json.load(answer)]
        except urllib.error.HTTPError as e:
            if e.code < 500:
                raise
            return [f"unknown: {e}"]  # one went while Ray looked: it says 500 then
        return [one for one in known if one]

    def assert_nothing_held(self, timeout: float = 30.0) -> None:
        """Ray may need a moment to clean up after a process that was killed."""
        until(lambda: self.held() == (0, []), self.held, timeout)
        left = [p for p in processes(self.mark) if "--node-name" in words(p)]
        assert wait_gone(left) == [], [words(p) for p in left]

    def _end(self) -> None:
        if not self.machines.process.stdin.closed:  # type: ignore[union-attr]
            self.machines.close_input()
        try:
            self.machines.end()
        except subprocess.TimeoutExpired:
            self.machines.process.kill()
            self.machines.end()
        left = wait_gone(processes(self.mark), 10.0)
        for pid in left:  # of Ray itself; ours are looked for before
            os.kill(pid, signal.SIGKILL)

    def kill(self) -> None:
        """As if its machines had lost their power, all at once."""
        left = processes(self.mark)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.machines.end()
        assert wait_gone(left) == []
        shutil.rmtree(self.folder, ignore_errors=True)

    def stop(self) -> None:
        """And nothing of it is left."""
        self._end()
        shutil.rmtree(self.folder, ignore_errors=True)


class Bridge(Lines):
    """What it says is kept: `pieces` is what is known, `events` all that was told."""

    def __init__(
        self, ray: RayCluster, command: list[str], env: dict[str, str], muster: str
    ) -> None:
        super().__init__(command, env, ray.folder / f"bridge-{new_mark()}.log")
        self.ray, self.muster = ray, muster
        self.last_id = 0
        self.events: list[dict[str, Any]] = []
        self.answers: dict[int, dict[str, Any]] = {}
        self.pieces: dict[tuple[str, int], dict[str, Any]] = {}
        self.hello = self.wait_event("hello")

    def take(self, timeout: float) -> dict[str, Any]:
        m = self.line(timeout)
        assert m, f"the bridge has ended; {self.tail()}"
        if "id" in m:
            assert m["id"] not in self.answers, "answered twice"
            self.answers[m["id"]] = m
            return m
        self.events.append(m)
        if m["event"] == "piece":
            self.pieces[m["key"], m["number"]] = m
        elif m["event"] == "gone":
            for key, number in list(self.pieces):
                if key == m["key"] and m.get("number", number) == number:
                    del self.pieces[key, number]
        return m

    def wait_event(self, event: str, timeout: float = SLOW_S, **like: Any) -> Any:
        """The next one with these values."""
        while True:
            m = self.take(timeout)
            if m.get("event") == event and like.items() <= m.items():
                return m

    def ask(self, verb: str, **more: Any) -> int:
        self.last_id += 1
        self.say({"id": self.last_id, "verb": verb, **more})
        return self.last_id

    def answer(self, number: int, timeout: float = SLOW_S) -> dict[str, Any]:
        while number not in self.answers:
            self.take(timeout)
        return self.answers[number]

    def do(self, verb: str, timeout: float = SLOW_S, **more: Any) -> dict[str, Any]:
        return self.answer(self.ask(verb, **more), timeout)

    def reserve(
        self, key: str, count: int, verb: str = "reserve", **more: Any
    ) -> dict[str, Any]:
        return self.do(verb, **self.request(key, count, **more))

    @staticmethod
    def request(key: str, count: int, **more: Any) -> dict[str, Any]:
        piece = {n: more.pop(n) for n in ("cpus", "gpus", "labels") if n in more}
        asked: dict[str, Any] = {"key": key, "pieces": [piece] * count}
        return asked | {"strategy": "PACK", "timeout_s": SLOW_S} | more

    def of(self, key: str) -> list[dict[str, Any]]:
        """Its pieces, in the order of their numbers."""
        return [p for (k, _), p in sorted(self.pieces.items()) if k == key]

    def agent_pid(self, node: str) -> int:
        """The process of the agent of that name."""
        for pid in processes(self.ray.mark):
            if {"--node-name", node, self.muster} <= set(words(pid)):
                return pid
        raise AssertionError(f"no agent is called {node}")

    def quit(self) -> None:
        """In order; all that it held is free then."""
        self.close_input()
        assert self.end() == 0, self.tail()
        self.ray.assert_nothing_held()
