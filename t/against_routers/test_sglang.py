"""The benchmark's baseline "sglang cache_aware" allows what SGLang's own router does.

The simulation asks where each request goes and says what its rule allows. The router is asked
the same over HTTP, with servers behind it that answer when the simulated request ends, and its
choice goes back into the simulation: so both are in the same state at each decision.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import socket
from asyncio import StreamReader, StreamWriter
from pathlib import Path
from typing import Any

import pytest

PYTHON = os.environ.get("ROUTER_PYTHON", "")
if not PYTHON:
    pytest.skip(
        "ROUTER_PYTHON is not set: `make test-routers` does it", allow_module_level=True
    )

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/release/bench/generate/bench-generate"
WAIT_S = 120.0
OPTIONS = [
    *("--policy", "cache_aware", "--cache-threshold", "0.5"),
    *("--balance-abs-threshold", "32", "--balance-rel-threshold", "1.1"),
    *("--max-concurrent-requests", "-1", "--disable-retries", "--log-level", "error"),
    *("--disable-circuit-breaker", "--disable-health-check"),
]


async def read_message(reader: StreamReader) -> tuple[str, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    lines = head.split("\r\n")
    sizes = [x.split(":")[1] for x in lines if x.lower().startswith("content-length:")]
    return lines[0], await reader.readexactly(int(sizes[0]) if sizes else 0)


async def ask(port: int, what: str, body: Any = None) -> Any:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{what} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    try:
        return json.loads((await read_message(reader))[1])
    finally:
        writer.close()


class Servers:
    """What the router sends requests to: each is answered when it is told to."""

    def __init__(self) -> None:
        self.arrived: asyncio.Queue[tuple[int, asyncio.Event]] = asyncio.Queue()
        self.ports: list[int] = []
        self._open: list[asyncio.Server] = []

    async def add(self) -> None:
        number = len(self.ports)

        async def serve(reader: StreamReader, writer: StreamWriter) -> None:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    first, _ = await read_message(reader)
                    if first.startswith("POST /generate"):
                        end = asyncio.Event()
                        self.arrived.put_nowait((number, end))
                        await end.wait()
                    head = "HTTP/1.1 200 OK\r\nContent-Type: application/json"
                    writer.write(f"{head}\r\nContent-Length: 2\r\n\r\n{{}}".encode())
                    await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self._open.append(server)
        self.ports.append(server.sockets[0].getsockname()[1])

    def close(self) -> None:
        for server in self._open:
            server.close()


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Router:
    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.port = free_port()

    async def start(self) -> None:
        urls = [f"http://127.0.0.1:{port}" for port in self.servers.ports]
        nowhere = {"HF_ENDPOINT": "http://127.0.0.1:9"}  # it asks for tokenizers
        self.process = await asyncio.create_subprocess_exec(
            *(PYTHON, "-m", "sglang_router.launch_router", "--host", "127.0.0.1"),
            *("--port", str(self.port), "--prometheus-port", str(free_port())),
            *OPTIONS,
            *("--worker-urls", *urls),
            env=os.environ | nowhere,
            stdout=asyncio.subprocess.DEVNULL,
        )
        await self.until_loads([0] * len(urls))

    async def until_loads(self, wanted: list[int]) -> None:
        """It counts a request until its answer has left."""
        async with asyncio.timeout(WAIT_S):
            while True:
                with contextlib.suppress(OSError, ValueError, EOFError):
                    told = (await ask(self.port, "GET /workers"))["workers"]
                    loads = {int(w["url"].rsplit(":")[-1]): w["load"] for w in told}
                    if [loads.get(port) for port in self.servers.ports] == wanted:
                        return
                await asyncio.sleep(0.002)

    async def stop(self) -> None:
        self.process.terminate()
        await self.process.wait()


def text_of(prompt: int, turn: int) -> str:
    """Siblings have the same, a later turn of a session goes on behind the earlier one."""
    return hashlib.sha256(str(prompt).encode()).hexdigest() * 8 + " and then" * turn


async def compare(case: str, policy: str, replicas: int) -> tuple[int, int]:
    """Decisions, and those that the rule does not allow."""
    servers = Servers()
    for _ in range(replicas):
        await servers.add()
    router = Router(servers)
    await router.start()
    simulation = await asyncio.create_subprocess_exec(
        *(PROGRAM, "-l", "-s", "1", "-c", case, "-p", policy),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert simulation.stdin is not None and simulation.stdout is not None
    loads, turns = [0] * replicas, dict[int, int]()
    running: dict[int, tuple[asyncio.Event, asyncio.Task[Any]]] = {}
    decisions = wrong = 0
    try:
        async for line in simulation.stdout:
            what, *numbers = line.decode().split()
            if what == "?":
                request, prompt, *allowed = map(int, numbers)
                turn = turns.get(prompt, 0)
                if case == "turns":
                    request, turns[prompt] = prompt, turn + 1
                body = {"text": text_of(prompt, turn)}
                task = asyncio.create_task(ask(router.port, "POST /generate", body))
                chosen, end = await asyncio.wait_for(servers.arrived.get(), WAIT_S)
                running[request] = (end, task)
                loads[chosen] += 1
                decisions += 1
                wrong += chosen not in allowed
                simulation.stdin.write(f"{chosen}\n".encode())
            elif what == "-":
                end, task = running.pop(int(numbers[0]))
                end.set()
                await asyncio.wait_for(task, WAIT_S)
                loads[int(numbers[1])] -= 1
                await router.until_loads(loads)
    finally:
        simulation.stdin.close()
        if simulation.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                simulation.kill()
        await simulation.wait()
        await router.stop()
        servers.close()
    return decisions, wrong


@pytest.mark.parametrize(("case", "replicas"), [("S1", 4), ("turns", 8)])
def test_sglang_decides_the_same(case: str, replicas: int) -> None:
    decisions, wrong = asyncio.run(compare(case, "sglang cache_aware", replicas))
    assert decisions >= 640
    assert wrong == 0


def test_another_policy_does_not() -> None:
    """So the comparison can fail."""
    decisions, wrong = asyncio.run(compare("turns", "least loaded", 8))
    assert wrong > decisions // 20
