"""Engines of the scheduler's tests: they see what has arrived, and misbehave on demand."""

import asyncio
import os
import signal
import sys
import time
from concurrent.futures import Future
from typing import Any

import torch


class Engine:
    def __init__(self, config: Any = None, *, wait: float = 0, fails: bool = False):
        self.config = config
        self.runs: list[str] = []
        if fails:
            raise RuntimeError("no model there")
        time.sleep(wait)

    def echo(self, value: Any) -> Any:
        return value

    def kinds(self, values: dict[str, Any]) -> dict[str, str]:
        return {k: f"{type(v).__name__} {v.dtype}" for k, v in values.items()}

    def run(self, name: str, seconds: float = 0) -> list[str]:
        time.sleep(seconds)
        self.runs.append(name)
        return self.runs

    def inner(self) -> None:
        return self.runs.nothing_like_that  # type: ignore[attr-defined]

    def fail(self) -> None:
        raise KeyError("on purpose")

    def environ(self, *names: str) -> list[str | None]:
        return [os.environ.get(name) for name in names]

    def platform(self) -> str:
        return repr(sys.modules["areal.infra.platforms"].current_platform)

    def tell_name(self, name: str, value: str) -> None:
        sys.modules["areal.utils.name_resolve"].add(name, value)

    def find_name(self, name: str) -> Any:
        return sys.modules["areal.utils.name_resolve"].get(name)

    def later(self) -> Future[int]:
        made: Future[int] = Future()
        made.set_result(5)
        return made

    def random(self) -> list[float]:
        return [float(x) for x in torch.rand(3)]

    def threads(self) -> int:
        return torch.get_num_threads()

    def say(self, text: str) -> None:
        print(text, flush=True)

    def die(self, code: int) -> None:
        print("these are my last words", flush=True)
        os._exit(code)

    def kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def rows(self, count: int, numbers: int = 1000) -> list[dict[str, Any]]:
        ids = torch.arange(3).reshape(1, 3)
        hidden = torch.ones(1, numbers, dtype=torch.bfloat16)
        return [{"input_ids": ids + i, "hidden": hidden * i} for i in range(count)]

    def padded(self) -> dict[str, Any]:
        mask = torch.tensor([[True] * 3 + [False] * 2])
        return {"input_ids": torch.arange(5).reshape(1, 5), "attention_mask": mask}

    def total(self, rows: list[dict[str, Any]]) -> list[float]:
        names = ("input_ids", "hidden")
        return [float(sum(row[name].float().sum() for name in names)) for row in rows]

    def add_one(self, row: dict[str, Any]) -> float:
        row["hidden"] += 1  # what came is this engine's own
        return float(row["hidden"].float().sum())


class AsyncEngine(Engine):
    async def agenerate(self, seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    async def episode(self, data: dict[str, int]) -> dict[str, Any] | None:
        await asyncio.sleep(0.01)
        return {"x": torch.full((1000,), data["x"])} if data["x"] % 3 else None
