"""The benchmark's baseline "verl sticky" decides as verl's load balancer does.

The simulation says where each request was sent and when it ended. verl's own balancer is
given the same requests in the same order: at each one it must allow what the baseline
chose. It draws lots among the least loaded, so the lot is the baseline's, if it is among
them.
"""

import importlib.util
import random
import subprocess
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "verl", reason="verl is not installed here: `make test-verl` has it"
)

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/release/bench/generate/bench-generate"


class Map(dict[str, str]):
    """For cachetools.LRUCache where that is not installed: nothing is evicted, as with
    fewer sessions than verl's cache keeps (10,000)."""

    def __init__(self, maxsize: int) -> None:
        super().__init__()
        self.maxsize = maxsize

    def __setitem__(self, key: str, value: str) -> None:
        super().__setitem__(key, value)
        assert len(self) <= self.maxsize


def load_router() -> Any:
    """verl's module alone: its package imports much that is not installed here."""
    if "cachetools" not in sys.modules and not importlib.util.find_spec("cachetools"):
        module = types.ModuleType("cachetools")
        module.__dict__["LRUCache"] = Map
        sys.modules.setdefault("cachetools", module)
    package = importlib.util.find_spec("verl")
    assert package is not None and package.origin is not None
    path = Path(package.origin).parent / "workers/rollout/router.py"
    spec = importlib.util.spec_from_file_location("verl_router", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def trace(case: str, policy: str) -> list[tuple[str, str, str]]:
    """("+" sent or "-" ended, session, replica), in order."""
    command = [PROGRAM, "-t", "-s", "1", "-c", case, "-p", policy]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in text.splitlines()]
    return [(what, session, replica) for what, session, replica in rows]


def disagreements(
    rows: list[tuple[str, str, str]], monkeypatch: pytest.MonkeyPatch
) -> int:
    replicas = sorted({replica for _, _, replica in rows})
    balancer = load_router().GlobalRequestLoadBalancer(dict.fromkeys(replicas))
    wanted = ""

    def lot(candidates: Sequence[Any]) -> Any:
        return wanted if wanted in candidates else candidates[0]

    monkeypatch.setattr(random, "choice", lot)
    wrong = 0
    for what, session, replica in rows:
        wanted = replica
        if what == "-":
            balancer.release_server(replica)
        else:
            wrong += balancer.acquire_server(session)[0] != replica
    return wrong


@pytest.mark.parametrize("case", ["S1", "S4", "turns"])
def test_verl_decides_the_same(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = trace(case, "verl sticky")
    assert sum(what == "+" for what, _, _ in rows) >= 640
    assert disagreements(rows, monkeypatch) == 0


def test_another_policy_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the comparison can fail."""
    assert disagreements(trace("turns", "round robin"), monkeypatch) > 100
