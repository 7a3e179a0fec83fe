"""The benchmark's baseline "ROLL PromptAffinity" decides as ROLL's own router does.

ROLL is on no package index: ROLL_SOURCE is a checkout of github.com/alibaba/ROLL. Its router is
loaded alone, with nothing of what it imports, and is given all requests of a case at once, as
the benchmark gives them. Requests end as in the simulation: after each end it must have sent
the same ones to the same ranks as the baseline has.
"""

import asyncio
import importlib.abc
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

SOURCE = os.environ.get("ROLL_SOURCE", "")
if not SOURCE:
    pytest.skip("ROLL_SOURCE is not set", allow_module_level=True)

ROUTER = Path(SOURCE) / "roll/distributed/scheduler/router.py"
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/release/bench/generate/bench-generate"
SAMPLES = 8  # of a prompt
LIMIT = 128  # requests of a rank, ROLL's default
ROUNDS = 200  # of the event loop without a sending: then nothing more comes


class Empty(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """What the router imports of ROLL, Ray and httpx: modules that have every name."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name.split(".")[0] in ("roll", "ray", "httpx"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__dict__["__getattr__"] = lambda name: MagicMock()
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


@pytest.fixture(scope="module")
def router() -> Iterator[Any]:
    finder = Empty()
    before = set(sys.modules)
    sys.meta_path.insert(0, finder)
    spec = importlib.util.spec_from_file_location("roll_router", ROUTER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module.PromptAffinityRouter
    sys.meta_path.remove(finder)
    for name in set(sys.modules) - before:
        del sys.modules[name]


def trace(case: str, policy: str) -> list[tuple[str, int, int]]:
    """("+" sent or "-" ended, request, rank), in order."""
    command = [PROGRAM, "-t", "-s", "1", "-c", case, "-p", policy]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in text.splitlines()]
    return [(what, int(request), int(rank)) for what, request, rank in rows]


class Rank:
    """A worker that answers when it is told to."""

    def __init__(self, number: int, sent: list[tuple[int, int]]) -> None:
        self.number, self.sent = number, sent
        self.running: dict[int, asyncio.Future[None]] = {}
        self.generate_request = types.SimpleNamespace(remote=self.generate)

    def generate(self, payload: dict[str, Any]) -> asyncio.Future[None]:
        request = payload["rid"]
        self.sent.append((request, self.number))
        self.running[request] = asyncio.get_running_loop().create_future()
        return self.running[request]


async def settle(sent: list[tuple[int, int]]) -> None:
    quiet, seen = 0, len(sent)
    while quiet < ROUNDS:
        await asyncio.sleep(0)
        quiet = quiet + 1 if len(sent) == seen else 0
        seen = len(sent)


async def disagreements(router: Any, rows: list[tuple[str, int, int]]) -> int:
    sent: list[tuple[int, int]] = []
    ranks = [Rank(i, sent) for i in range(1 + max(rank for _, _, rank in rows))]
    options = types.SimpleNamespace(max_running_requests=LIMIT)
    made = router(
        router_manager=MagicMock(), workers=ranks, model_path="", router_args=options
    )
    await made.initialize()
    tasks = [
        asyncio.ensure_future(
            made.generate_request(
                {"rid": i, "sampling_params": {"n": 1}}, i, i // SAMPLES
            )
        )
        for i in sorted({request for _, request, _ in rows})
    ]
    wrong, wanted = 0, set[tuple[int, int]]()
    for what, request, rank in rows:
        if what == "+":
            wanted.add((request, rank))
            continue
        await settle(sent)
        wrong += len(wanted ^ set(sent))
        wanted.clear()
        sent.clear()
        if wrong:
            break
        ranks[rank].running.pop(request).set_result(None)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return wrong


@pytest.mark.parametrize("case", ["S1", "S3", "S4", "S5"])
def test_roll_decides_the_same(router: Any, case: str) -> None:
    rows = trace(case, "ROLL PromptAffinity")
    assert sum(what == "+" for what, _, _ in rows) >= 640
    assert asyncio.run(disagreements(router, rows)) == 0


def test_another_policy_does_not(router: Any) -> None:
    """So the comparison can fail."""
    assert asyncio.run(disagreements(router, trace("S1", "least loaded"))) > 0
