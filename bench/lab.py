"""Which contestants there are, and how they take turns."""

import contextlib
import dataclasses
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from side import Side, SideError, run_side

SETTLE_S = 0.3  # a side that was stopped catches up


@dataclasses.dataclass
class Lab:
    pythons: dict[str, Path]  # of the contestants that take part, by name
    quick: bool
    versions: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def has(self, name: str) -> bool:
        return name in self.pythons

    @contextlib.contextmanager
    def side(self, name: str, init: bool = True) -> Iterator[Side]:
        """A fresh process of one contestant, its runtime started if it has one."""
        with run_side(name, self.pythons[name]) as side:
            self.versions[name] = side.ask("version")
            if init:
                init_side(side)
            yield side

    @contextlib.contextmanager
    def sides(self, names: Sequence[str], ranks: int = 0) -> Iterator[list[Side]]:
        """Those of the named that take part, each with `ranks` workers."""
        with contextlib.ExitStack() as stack:
            sides = [
                stack.enter_context(self.side(name, init=name != "bare"))
                for name in names
                if self.has(name)
            ]
            for side in sides:
                if ranks and side.name != "bare":
                    side.ask("open", ranks=ranks)
            yield sides

    def agent_pids(self) -> set[int]:
        """Of all agents on this machine, as the command line tells them."""
        tool = self.pythons["muster"].parent / "muster"
        done = subprocess.run(
            [tool, "status", "--json"], capture_output=True, text=True, timeout=30
        )
        if done.returncode != 0:
            raise SideError(f"muster status --json: {done.stderr or done.stdout}")
        return {int(node["agent_pid"]) for node in json.loads(done.stdout)["nodes"]}


def init_side(side: Side) -> float:
    """Start its runtime; seconds until it was ready."""
    on_ray = side.name in ("ray", "verl")
    arguments = {"folder": str(side.folder)} if on_ray else {}
    return float(side.ask("init", **arguments))


class Turn(Protocol):
    """A side, or what stands in for one."""

    name: str

    def stopped(self) -> contextlib.AbstractContextManager[None]: ...


AnyTurn = TypeVar("AnyTurn", bound=Turn)


def take_turns(
    sides: Sequence[AnyTurn], rounds: int, measure: Callable[[AnyTurn], Any]
) -> dict[str, list[Any]]:
    """One slice of each side in turn, `rounds` times: they share whatever noise.

    The others are stopped meanwhile, so that each has the machine for itself.
    """
    slices: dict[str, list[Any]] = {side.name: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            with contextlib.ExitStack() as stack:
                for other in sides:
                    if other is not side:
                        stack.enter_context(other.stopped())
                time.sleep(SETTLE_S)
                slices[side.name].append(measure(side))
    return slices
