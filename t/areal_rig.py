"""AReaL's own RPC server beside a Muster worker, engines for both, and clients of both."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import requests
from areal.api import InferenceEngine, TrainEngine

PATIENCE = 120


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

    def destroy(self) -> None:
        pass


class Trainer(TrainEngine):
    """Not initialized, as before its process groups are there."""

    def echo(self, value: Any) -> Any:
        return value


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
    command += ["--worker-index=0", f"--nfs-record-root={folder}/names", *more]
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
