"""AReaL's own RPC server beside a Muster worker, engines for both, and clients of both."""

import contextlib
import dataclasses
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import requests
import torch
from areal.api import InferenceEngine, TrainEngine
from areal.infra.rpc.rtensor import clear_fetch_buffer
from areal.utils import seeding

PATIENCE = 120


@dataclasses.dataclass
class Config:
    seed: int = 1


@dataclasses.dataclass
class Pair:
    first: Config
    rest: list[Config]


class Engine(InferenceEngine):
    """Of a class that the server takes; calls see what has arrived."""

    def __init__(self, start: int = 0) -> None:
        if start < 0:
            raise ValueError("cannot begin there")
        self.value = start

    def add(self, n: int, *, twice: bool = False) -> int:
        self.value += 2 * n if twice else n
        return self.value

    def echo(self, value: Any) -> Any:
        return value

    def describe(self, value: Any) -> str:
        return f"{type(value).__name__} {value!r}"

    def fail(self) -> None:
        raise RuntimeError("on purpose")

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def later(self) -> Any:
        done: Future[str] = Future()
        done.set_result("later")
        return done

    def tokenize(self, tokenizer: Any, text: str) -> list[int]:
        return list(tokenizer.encode(text))

    def draw(self) -> list[Any]:
        numbers = [random.random(), float(np.random.random()), torch.rand(1).item()]
        return [*numbers, seeding.get_seed()]

    def total(self, value: Any) -> float:
        """Of all tensors in it."""
        if isinstance(value, torch.Tensor):
            return float(value.double().sum())
        parts = value.values() if isinstance(value, dict) else value
        return sum(map(self.total, parts))

    def make(self, count: int) -> torch.Tensor:
        return torch.ones(count)

    def forget(self, shard_ids: list[str]) -> int:
        return clear_fetch_buffer(shard_ids)

    def remember(self, path: str) -> None:
        """Its end is written there."""
        self.path = path

    def spoil(self, tensor: torch.Tensor) -> float:
        return float(tensor.fill_(-1).min())

    def destroy(self) -> None:
        if hasattr(self, "path"):
            Path(self.path).write_text("destroyed")


class Trainer(TrainEngine):
    """One rank of many, without their process groups."""

    is_ready = is_head = False

    @property
    def initialized(self) -> bool:
        return self.is_ready

    def is_data_parallel_head(self) -> bool:
        return self.is_head

    def initialize(self, is_head: bool) -> None:
        self.is_ready, self.is_head = True, is_head

    def echo(self, value: Any) -> Any:
        return value

    def destroy(self) -> None:
        pass


for _class in (Engine, Trainer):
    _class.__abstractmethods__ = frozenset()  # what is not called need not be there


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def wait_healthy(url: str, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with contextlib.suppress(requests.ConnectionError):
            if requests.get(f"{url}/health", timeout=5).status_code == 200:
                return
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        time.sleep(0.1)  # it tells nobody when it is ready
    raise TimeoutError(url)


@contextlib.contextmanager
def rpc_server(
    folder: Path, module: str = "areal.infra.rpc.rpc_server", *more: str
) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """Its URL and its process, started by hand and ready."""
    port = free_port()
    command = [sys.executable, "-m", module, "--host", "127.0.0.1", f"--port={port}"]
    command += ["--experiment-name=e", "--trial-name=t", "--role=actor"]
    command += ["--worker-index=0", f"--nfs-record-root={folder}/names"]
    command += [f"--fileroot={folder}", *more]
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    with open(folder / "server.log", "ab") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_healthy(url, process)
        yield url, process
    finally:
        process.terminate()
        process.wait(30)
