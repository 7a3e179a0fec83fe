"""Classes that stop at a breakpoint()."""

import asyncio
import os
import sys
import time
from typing import Any


class Stepper:
    def __init__(self, stop: bool = False) -> None:
        self.total = 0
        if stop:
            breakpoint()
        self.made = True

    def step(self, x: int) -> int:
        y = x + 1
        breakpoint()
        self.total += y
        return self.total

    def twice(self) -> str:
        breakpoint(header="first")  # type: ignore[call-arg]
        middle = "between"
        breakpoint()
        return middle

    def loop(self) -> int:
        breakpoint()
        self.turns = 0
        while self.turns < 1_000_000:
            self.turns += 1
            if self.turns == 10:
                print("it turns", flush=True)
            time.sleep(0.001)
        return self.turns

    def pid(self) -> int:
        return os.getpid()

    def plain(self, value: Any) -> Any:
        return value

    def set_env(self, value: str) -> None:
        os.environ["PYTHONBREAKPOINT"] = value

    def own_hook(self) -> str:
        before, sys.breakpointhook = sys.breakpointhook, lambda: "mine"
        try:
            return str(breakpoint())  # type: ignore[func-returns-value]
        finally:
            sys.breakpointhook = before


class Async:
    async def step(self, x: int) -> int:
        await asyncio.sleep(0)
        breakpoint()
        return x + 1
