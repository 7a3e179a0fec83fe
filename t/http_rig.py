"""Workers for HTTP, and a client that sends what AReaL's clients send."""

import base64
import dataclasses
import enum
import http.client
import json
import os
import random
import sys
from concurrent.futures import Future
from typing import Any
from urllib.parse import urlsplit

import muster
import numpy as np


class Color(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Config:
    seed: int
    name: str = "x"
    inner: Any = None

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError("never made again from what was sent")


class Engine:
    def __init__(self, start: int = 0, config: Any = None) -> None:
        if start < 0:
            raise ValueError("cannot begin there")
        self.value = start
        self.config = config
        self.calls: list[str] = []

    def add(self, n: int, *, twice: bool = False) -> int:
        self.value += 2 * n if twice else n
        return self.value

    def echo(self, *args: Any, **kwargs: Any) -> Any:
        return [args, kwargs]

    def describe(self, value: Any) -> str:
        return f"{type(value).__name__} {value!r}"

    def env(self, name: str) -> str | None:
        return os.environ.get(name)

    def configured(self) -> Any:
        return muster.worker_config()

    def draw(self) -> list[float]:
        """Of each generator that is loaded."""
        numpy = sys.modules.get("numpy")
        return [random.random(), *([float(numpy.random.random())] if numpy else [])]

    def fail(self) -> None:
        raise AttributeError("inside of it")

    def later(self) -> Any:
        done: Future[str] = Future()
        done.set_result("later")
        return done

    def odd(self) -> Any:
        return {1, 2}

    def exit(self) -> None:
        sys.exit(4)

    def log(self, what: str) -> list[str]:
        self.calls.append(what)
        return self.calls

    def hold(self, begun: str, go: str) -> None:
        """Hold the interpreter's lock, as far as one can, until `go` is there."""
        self.calls.append("hold")
        with open(begun, "wb") as f:
            f.write(b"!")
        sys.setswitchinterval(1000)
        try:
            while not os.path.exists(go):
                pass
        finally:
            sys.setswitchinterval(0.005)


class Trainer(Engine):
    """It would have groups of torch, but torch is not here."""

    initialized = False
    context_and_model_parallel_group = None

    def current_data_parallel_head(self) -> int:
        return 0

    def initialize(self) -> None:
        self.initialized = True


class AsyncEngine:
    async def double(self, n: int) -> int:
        return 2 * n

    async def fail(self) -> None:
        raise KeyError("lost")


class Client:
    """Sends what AReaL's clients send."""

    def __init__(self, url: str, token: str | None = "") -> None:
        self.at = urlsplit(url)
        self.token = muster.http_token() if token == "" else token

    def connect(self) -> http.client.HTTPConnection:
        assert self.at.hostname
        return http.client.HTTPConnection(self.at.hostname, self.at.port, timeout=20)

    def send(self, conn: http.client.HTTPConnection, path: str, body: Any) -> None:
        headers = {"Content-Type": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        conn.request("POST", path, data, headers)

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        conn = self.connect()
        try:
            self.send(conn, path, body)
            answer = conn.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            conn.close()

    def get(self, path: str) -> tuple[int, Any]:
        conn = self.connect()
        try:
            conn.request("GET", path)
            answer = conn.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            conn.close()

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        body = {"method": method, "engine_name": "default", "args": list(args)}
        status, answer = self.post("/call", body | {"kwargs": kwargs, "rpc_meta": None})
        assert status == 200, answer
        assert answer["status"] == "success"
        return answer["result"]

    def fails(self, path: str, body: Any, status: int, part: str) -> Any:
        got, answer = self.post(path, body)
        assert (got, answer["status"]) == (status, "error"), answer
        assert part in answer["error"]
        return answer


class DataClient(Client):
    """As RTensor's HTTP does it."""

    def ask(self, method: str, path: str, data: bytes = b"") -> tuple[int, str, Any]:
        headers = (
            {} if method in ("PUT", "GET") else {"Content-Type": "application/json"}
        )
        headers["Authorization"] = f"Bearer {self.token}"
        conn = self.connect()
        try:
            conn.request(method, path, data or None, headers)
            answer = conn.getresponse()
            kind = answer.getheader("Content-Type", "")
            return answer.status, kind, json.loads(answer.read())
        finally:
            conn.close()

    def ids(self, method: str, path: str, *ids: str) -> tuple[int, str, Any]:
        return self.ask(method, path, json.dumps({"shard_ids": list(ids)}).encode())


def encoded(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    return {
        "type": "ndarray",
        "data": base64.b64encode(array.tobytes()).decode(),
        "shape": list(array.shape),
        "dtype": array.dtype.str,
    }


def put(client: DataClient, name: str, value: dict[str, Any]) -> None:
    status, _, answer = client.ask("PUT", f"/data/{name}", json.dumps(value).encode())
    assert (status, answer) == (200, {"status": "ok", "shard_id": name})
