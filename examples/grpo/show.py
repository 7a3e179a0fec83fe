"""What the run looks like while it runs: a table, and a line that moves."""

import sys
import time
from collections.abc import Iterable

import muster

EVERY = 20  # steps between two lines where lines cannot be written over
CLEAR = "\r\x1b[K"  # the line that the cursor is on


def placement(clusters: Iterable[muster.Cluster]) -> None:
    """Where every rank is."""
    print(f"{'role':<12} {'rank':>4}  {'node':<8} {'devices':<8} {'pid':>7}")
    for cluster in clusters:
        for rank, worker in enumerate(cluster.workers):
            node = cluster.worker2nodes[worker]
            ids = [str(device["gpu_rank"]) for device in cluster.rank2devices[rank]]
            devices = ",".join(ids) or "-"
            pid = cluster.pids[rank]
            print(f"{cluster.name:<12} {rank:>4}  {node:<8} {devices:<8} {pid:>7}")


class Progress:
    """The rewards so far, on one line of the terminal; some lines where there is none."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.rewards: list[float] = []
        self.events: list[tuple[int, str]] = []  # step and what happened
        self.samples = 0
        self.is_terminal = sys.stdout.isatty()
        self.started = time.monotonic()

    def step(self, reward: float, samples: int) -> None:
        self.rewards.append(reward)
        self.samples += samples
        done = len(self.rewards)
        if self.is_terminal:
            print(f"{CLEAR}{self.line()}", end="", flush=True)
        elif done % EVERY == 0 or done in (1, self.steps):
            print(self.line(), flush=True)

    def line(self) -> str:
        done = len(self.rewards)
        seconds = time.monotonic() - self.started
        bar = "#" * (20 * done // self.steps)
        return (
            f"step {done:>3}/{self.steps} [{bar:<20}] reward {self.rewards[-1]:.3f}  "
            f"{self.samples / seconds:>6,.0f} samples/s  {seconds:>4.1f} s"
        )

    def note(self, text: str) -> None:
        """A line of its own."""
        print(f"{CLEAR if self.is_terminal else ''}  ! {text}", flush=True)

    def event(self, text: str) -> None:
        """The same, and it will be in the picture."""
        self.events.append((len(self.rewards), text))
        self.note(text)

    def end(self) -> None:
        if self.is_terminal:
            print()

    def mean(self, first: int | None, end: int | None) -> float:
        some = self.rewards[first:end]
        return sum(some) / len(some)
