"""`muster logs -f` through a daemon head: at once, in order, and idle when nothing is said."""

import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import muster
import pytest
from cli_rig import CLI, Lines
from daemon_rig import Daemon, daemon  # noqa: F401  (fixture)

LATENCY_S = 0.25
IDLE_S = 1.5

Follow = Callable[..., Lines]


class Teller:
    def say(self, text: str) -> str:
        print(text, flush=True)
        return text


@pytest.fixture
def joined(daemon: Daemon) -> Iterator[Daemon]:  # noqa: F811
    """Two nodes of two devices, and this process as a driver."""
    daemon.agent("n1")
    daemon.agent("n2")
    muster.init(
        address=daemon.address, secret_file=daemon.secret_file, log_to_driver=False
    )
    yield daemon
    muster.shutdown()


@pytest.fixture
def follow(joined: Daemon) -> Iterator[Follow]:
    started: list[Lines] = []

    def start(*args: str) -> Lines:
        started.append(Lines([CLI, "logs", "-f", *args], joined.env))
        return started[-1]

    yield start
    for one in started:
        one.close()


def two_nodes(name: str) -> Any:
    """A rank on each node."""
    return muster.Cluster(name, Teller, device_mapping="0,2")


def said(cluster: Any, rank: int, text: str) -> None:
    cluster.execute_rank_sync(rank, "say", text)


def switches(pid: int) -> int:
    """How often it has waited for something."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("voluntary_ctxt_switches"):
            return int(line.split()[1])
    raise AssertionError("the kernel does not count them")


@pytest.mark.parametrize("of", [[], ["teller"]], ids=["merged", "cluster"])
def test_lines_come_at_once_and_in_order(follow: Follow, of: list[str]) -> None:
    teller = two_nodes("teller")
    lines = follow(*of)
    said(teller, 0, "first")
    lines.until("first")
    label = "teller/{}" if of else "teller/{0}@n{1}"
    took = []
    for i in range(12):
        begun = time.monotonic()
        said(teller, i % 2, f"line {i}")
        want = label.format(i % 2, i % 2 + 1) + f": line {i}"
        assert lines.line() == want
        took.append(time.monotonic() - begun)
    assert statistics.median(took) < LATENCY_S, took


def test_what_was_said_before_comes_in_order(joined: Daemon, follow: Follow) -> None:
    teller = two_nodes("teller")
    heard = follow("teller")
    for i in range(8):
        said(teller, i % 2, f"line {i}")
        heard.until(f"line {i}")  # its agent has read it before the next is printed
    for of, label in ([], "teller/{0}@n{1}"), (["teller"], "teller/{0}"):
        lines = follow(*of)
        for i in range(8):
            assert lines.line() == label.format(i % 2, i % 2 + 1) + f": line {i}"
    lines = follow("teller", "-n1", "--grep", "line [0-3]")
    assert [lines.line(), lines.line()] == ["teller/0: line 2", "teller/1: line 3"]
    said(teller, 0, "line 1 again")
    assert lines.line() == "teller/0: line 1 again"


def test_nothing_is_asked_while_nothing_is_said(follow: Follow) -> None:
    teller = two_nodes("teller")
    lines = follow()
    said(teller, 0, "first")
    lines.until("first")
    before = switches(lines.process.pid)
    time.sleep(IDLE_S)  # the time that is measured
    assert switches(lines.process.pid) - before <= 2
    said(teller, 1, "last")
    assert lines.line() == "teller/1@n2: last"


def test_what_comes_later_is_followed(joined: Daemon, follow: Follow) -> None:
    lines = follow("later")
    merged = follow()
    first = two_nodes("first")
    said(first, 0, "here")
    merged.until("first/0@n1: here")
    later = two_nodes("later")
    said(later, 1, "hello")
    assert lines.line() == "later/1: hello"
    merged.until("later/1@n2: hello")
    joined.agent("n3")
    third = muster.Cluster("third", Teller, device_mapping="4")
    said(third, 0, "new node")
    merged.until("third/0@n3: new node")
    later.destroy()
    again = two_nodes("later")
    said(again, 0, "again")
    assert lines.line() == "later/0: again"


def test_it_ends_with_its_reader(follow: Follow) -> None:
    teller = two_nodes("teller")
    lines = follow("teller")
    said(teller, 0, "first")
    lines.until("first")
    lines.pipe(lines.process.stdout).close()
    assert lines.wait() == 0


def test_it_ends_with_the_head(joined: Daemon) -> None:
    teller = two_nodes("teller")
    with subprocess.Popen(
        [CLI, "logs", "-f", "teller"],
        env=joined.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        said(teller, 0, "first")
        assert process.stdout.readline() == "teller/0: first\n"
        joined.head.signal(signal.SIGKILL)
        joined.head.end()
        assert process.wait(30) == 4
        assert "does not answer" in process.stderr.read()
    joined.start()
    two_nodes("next").destroy()  # which waits for both nodes
