"""Hosts on one machine: network namespaces, joined by a switch in another one.

Each host has an address of each family, its own MUSTER_HOME, and processes that see no
other network. Cables can be cut (silently, as a broken switch does it), slowed and made
to lose packets; a host can be killed with all that runs in it. Needs root and iproute2.
Where the kernel has no netem a host made with `shaped=True` has a cable in user space.

Names carry the pid of the test: what a crashed one left behind is swept at the next
start.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_rig import CLI, Lines
from helpers import wait_gone

PREFIX = "mshost"
ROUNDS_MAX = 20
CABLE = Path(__file__).parent / "cable.py"
REPL = Path(__file__).parent / "hosts_driver.py"


def ip(*args: str) -> str:
    done = subprocess.run(["ip", *args], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"ip {' '.join(args)}: {done.stderr.strip()}")
    return done.stdout


def refused(*steps: str) -> str | None:
    """Why these commands of `ip` cannot be done in a namespace; None: they can."""
    name = f"{PREFIX}-{os.getpid()}-try"
    try:
        ip("netns", "add", name)
        try:
            for step in steps:
                ip("-n", name, *step.split())
        finally:
            ip("netns", "del", name)
    except OSError as error:
        return str(error)
    return None


BRIDGE = "link add br0 type bridge"


@functools.cache
def obstacle() -> str | None:
    """Why there can be no hosts here."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not shutil.which("ip") or not shutil.which("nsenter"):
        return "iproute2 and nsenter are missing"
    return refused(BRIDGE, "link add one type veth peer name two")


@functools.cache
def has_ipv6() -> bool:
    return refused(BRIDGE, "addr add fd77::1/64 dev br0 nodad") is None


needs_ipv6 = pytest.mark.skipif(
    obstacle() is None and not has_ipv6(), reason="there is no IPv6"
)


def kill_all(namespace: str) -> None:
    """SIGKILL for all in it, until nobody is left."""
    for _ in range(ROUNDS_MAX):  # what is killed may have started another
        pids = [int(p) for p in ip("netns", "pids", namespace).split()]
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_gone(pids)
    raise TimeoutError(f"somebody in {namespace} does not end: {pids}")


def remove(namespace: str) -> None:
    kill_all(namespace)
    ip("netns", "del", namespace)


def sweep() -> None:
    for name in ip("netns", "list").split():
        found = re.fullmatch(rf"{PREFIX}-(\d+)-\w+", name)
        if found and not Path(f"/proc/{found[1]}").exists():
            remove(name)


class Process(Lines):
    """What it says on stderr is among its lines."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.buffer = b""


class Host:
    def __init__(self, net: Net, name: str, number: int) -> None:
        self.net = net
        self.name = name
        self.namespace = f"{PREFIX}-{os.getpid()}-{name}"
        self.port = f"p{number}"  # of the switch
        self.home = net.folder / name
        self.home.mkdir(mode=0o700)
        self.v4 = f"10.77.0.{number}"
        self.v6 = f"fd77::{number}"
        self.cable: subprocess.Popen[str] | None = None
        self.lines: list[Process] = []

    def wrap(self, *command: str) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self.namespace}", *command]

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "MUSTER_HOME": str(self.home)}

    def start(self, *command: str) -> Process:
        """A process whose lines can be waited for."""
        lines = Process(self.wrap(*command), self.env)
        self.lines.append(lines)
        return lines

    def run(self, *command: str) -> str:
        done = subprocess.run(
            self.wrap(*command),
            env=self.env,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    # ---- what a host does ---------------------------------------------------------

    def head(self, *options: str) -> Head:
        return Head(self, *options)

    def agent(self, head: Head, *options: str, v6: bool = False) -> Process:
        lines = self.start(
            *[CLI, "agent", "--head", head.v6 if v6 else head.v4],
            *["--secret-file", str(head.secret), "--node-name", self.name],
            *["--num-gpus", "4", *options],
        )
        lines.until("has joined")
        return lines

    def driver(self, head: Head) -> Driver:
        return Driver(self, head)

    def kill(self) -> None:
        """The machine is gone, without a word."""
        self.net.cut(self)
        kill_all(self.namespace)


class Head:
    def __init__(self, host: Host, *options: str) -> None:
        self.host = host
        self.options = options
        self.port = 7777
        self.v4 = f"{host.v4}:{self.port}"
        self.v6 = f"[{host.v6}]:{self.port}"
        self.secret = host.home / "head" / "secret"
        self.begin()

    def begin(self) -> None:
        self.lines = self.host.start(
            CLI, "head", "--listen", f"*:{self.port}", *self.options
        )
        self.lines.until("the secret is in")

    def status(self) -> Any:
        return json.loads(self.host.run(CLI, "status", "--session", "head", "--json"))

    def node(self, name: str) -> Any:
        return next((n for n in self.status()["nodes"] if n["name"] == name), None)


class Driver:
    """A Python program on a host that does what it is told, a line at a time."""

    def __init__(self, host: Host, head: Head) -> None:
        self.lines = host.start(
            sys.executable, "-u", str(REPL), head.v4, str(head.secret)
        )
        self.lines.until("@@ ready")

    def begin(self, code: str) -> None:
        self.lines.tell(json.dumps(code))

    def answer(self) -> Any:
        line = self.lines.until("@@ done")[-1]
        ok, value = json.loads(line.split("@@ done ", 1)[1])
        if not ok:
            raise RuntimeError(value)
        return value

    def do(self, code: str) -> Any:
        """The value of the expression (or of `result`, after statements)."""
        self.begin(code)
        return self.answer()


class Net:
    """A switch, and hosts that hang on it."""

    def __init__(self) -> None:
        sweep()
        # short: the path of a socket has 107 characters
        self.folder = Path(tempfile.mkdtemp(prefix="msh-", dir="/tmp"))
        self.switch = f"{PREFIX}-{os.getpid()}-switch"
        self.hosts: list[Host] = []
        ip("netns", "add", self.switch)
        for bridge in ("br0", "br1"):
            ip("-n", self.switch, "link", "add", bridge, "type", "bridge")
            ip("-n", self.switch, "link", "set", bridge, "up")

    def host(
        self, name: str, *, v4: bool = True, shaped: bool = False, second: bool = False
    ) -> Host:
        host = Host(self, name, len(self.hosts) + 1)
        ip("netns", "add", host.namespace)
        self.hosts.append(host)
        if shaped and not self.has_netem():
            self.attach_cable(host)
        else:
            self.attach(host, "eth0", host.port, "br0")
        v6 = host.v6 if has_ipv6() else None
        self.set_up(host, "eth0", host.v4 if v4 else None, v6)
        if second:
            self.attach(host, "eth1", f"{host.port}b", "br1")
            self.set_up(host, "eth1", host.v4.replace("10.77", "10.78"), None)
        return host

    def set_up(self, host: Host, device: str, v4: str | None, v6: str | None) -> None:
        n = host.namespace
        ip("-n", n, "link", "set", "lo", "up")
        ip("-n", n, "link", "set", device, "up")
        if v4:
            ip("-n", n, "addr", "add", f"{v4}/24", "dev", device)
        if v6:
            ip("-n", n, "addr", "add", f"{v6}/64", "dev", device, "nodad")

    def attach(self, host: Host, device: str, port: str, bridge: str) -> None:
        ip(
            *["-n", self.switch, "link", "add", port, "type", "veth"],
            *["peer", "name", device, "netns", host.namespace],
        )
        ip("-n", self.switch, "link", "set", port, "master", bridge)
        ip("-n", self.switch, "link", "set", port, "up")

    def attach_cable(self, host: Host) -> None:
        if not os.path.exists("/dev/net/tun"):
            pytest.skip("the kernel has neither netem nor TAP devices")
        host.cable = subprocess.Popen(
            [sys.executable, str(CABLE), host.namespace, self.switch, host.port],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert host.cable.stdout and host.cable.stdout.readline() == "ready\n"
        ip("-n", self.switch, "link", "set", host.port, "master", "br0")
        ip("-n", self.switch, "link", "set", host.port, "up")

    def has_netem(self) -> bool:
        return self.has_queue("netem", "delay", "1ms")

    @functools.cache  # noqa: B019
    def has_queue(self, *qdisc: str) -> bool:
        try:
            self.tc("br1", *qdisc)
        except (OSError, subprocess.CalledProcessError):
            return False
        return True

    def tc(self, device: str, *qdisc: str) -> None:
        subprocess.run(
            [
                "tc",
                "-n",
                self.switch,
                "qdisc",
                "replace",
                "dev",
                device,
                "root",
                *qdisc,
            ],
            check=True,
            capture_output=True,
        )

    # ---- bad luck -----------------------------------------------------------------

    def cut(self, host: Host) -> None:
        """Nothing passes any more, and nobody is told."""
        ip("-n", self.switch, "link", "set", host.port, "nomaster")

    def heal(self, host: Host) -> None:
        ip("-n", self.switch, "link", "set", host.port, "master", "br0")

    def unplug(self, host: Host) -> None:
        """The host sees that its cable has no carrier: it cannot even send."""
        ip("-n", self.switch, "link", "set", host.port, "down")

    def plug(self, host: Host) -> None:
        ip("-n", self.switch, "link", "set", host.port, "up")

    def spoil(self, host: Host, *, delay_ms: int = 0, loss: float = 0) -> None:
        """In both directions, of a host that is `shaped`. Loss is 0 to 1."""
        if host.cable:
            assert host.cable.stdin
            host.cable.stdin.write(f"{delay_ms} {loss}\n")
            host.cable.stdin.flush()
            return
        netem = ["netem", "delay", f"{delay_ms}ms", "loss", f"{loss * 100}%"]
        self.tc(host.port, *netem)
        subprocess.run(
            ["tc", "-n", host.namespace, "qdisc", "replace", "dev", "eth0", "root"]
            + netem,
            check=True,
        )

    def limit(self, host: Host, rate: str) -> None:
        """How much may come to this host, e.g. "10mbit"."""
        burst = "1mbit" if rate.endswith("gbit") else "64kbit"
        queue = ("tbf", "rate", rate, "burst", burst, "latency", "50ms")
        if not self.has_queue(*queue):
            pytest.skip("there is no tc, or the kernel has no tbf")
        self.tc(host.port, *queue)

    @contextlib.contextmanager
    def listen_in(self, host: Host) -> Iterator[Path]:
        """All that passes the cable of a host, in a file."""
        path = self.folder / f"{host.name}.frames"
        tap = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{self.switch}", sys.executable]
            + [str(CABLE), "--listen-in", host.port, str(path)],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert tap.stdout and tap.stdout.readline() == "ready\n"
            yield path
        finally:
            tap.terminate()
            tap.wait()

    def close(self) -> None:
        for host in self.hosts:
            with contextlib.suppress(OSError):
                kill_all(host.namespace)
            for lines in host.lines:
                lines.close()
            if host.cable:
                host.cable.kill()
                host.cable.wait()
            ip("netns", "del", host.namespace)
        remove(self.switch)
        shutil.rmtree(self.folder)


@pytest.fixture
def net() -> Iterator[Net]:
    net = Net()
    try:
        yield net
    finally:
        net.close()
