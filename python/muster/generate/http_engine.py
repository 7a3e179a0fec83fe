"""HttpEngine: an inference server behind HTTP as a replica of a scheduler."""

from __future__ import annotations

import asyncio
import contextlib
import os
import urllib.error
import urllib.request
import uuid
import zlib
from typing import TYPE_CHECKING, Any

from muster import _core
from muster.generate.http_client import HttpClient, ServerUnreachable
from muster.generate.http_servers import KINDS, find_server
from muster.generate.server_process import STOP_S, ServerProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from muster.generate.http_servers import Part, Server

LOCAL = "127.0.0.1"
REQUEST = (
    "rid",
    "attempt",
    "prompt",
    "tokens",
    "max_new_tokens",
    "sampling",
    "version",
)


class _Run:
    """A request that generates, or waits for `resume`."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.aborted: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()

    def abort(self) -> None:
        if not self.aborted.done():
            self.aborted.set_result(None)


class HttpEngine:
    """A worker class; each worker has one server.

    url: of a server that runs (a list: one for each rank). Or command: a program that is
    one, started as a child, with {port} and {model} in its words.
    kind: "openai", "sglang", "vllm" or "llama.cpp"; None: what the server says of itself.
    model: its name, or the path of its weights for {model}. version: of these weights.
    key: for `Authorization: Bearer`; $NAME is read from the worker's environment.
    start_timeout: until the server is ready; silence_timeout: without a token or answer.
    piece: tokens that are asked for at once of a server that cannot stream (llama.cpp).
    retract: requests that are kept over an update of the weights give their cache back, and it
    is computed anew with the new weights (SGLang); else the old cache stays.
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        command: Sequence[str] | None = None,
        kind: str | None = None,
        model: str | None = None,
        version: int = 0,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        log: str | None = None,
        start_timeout: float = 300.0,
        silence_timeout: float = 600.0,
        piece: int = 32,
        retract: bool = False,
    ) -> None:
        if (url is None) == (command is None):
            raise TypeError("HttpEngine: either url= or command=")
        if kind is not None and kind not in KINDS:
            raise ValueError(f"kind: one of {', '.join(KINDS)}, not {kind!r}")
        if piece < 1:
            raise ValueError(f"piece: must be positive: {piece}")
        self.version = version
        self._kind, self._model, self._piece = kind, model, piece
        self._start_timeout = start_timeout
        self._kept = "retract" if retract else "keep"
        self._process: ServerProcess | None = None
        if command is not None:
            self._process = ServerProcess(command, env or {}, _of_rank(log))
            url = f"http://{LOCAL}:{self._process.port}"
        assert url is not None
        self._client = HttpClient(
            url if isinstance(url, str) else _url_of_rank(url),
            dict(headers or {}) | _authorization(key),
            silence_s=silence_timeout,
        )
        self._server: Server | None = None
        self._running: dict[str, _Run] = {}
        self._resumed: asyncio.Future[None] | None = None  # None: it is not paused
        self._is_server_paused = False
        if self._process is not None:
            self._start(self._process, model)

    # -- generation ---------------------------------------------------------------------

    async def generate(
        self, request: Mapping[str, Any]
    ) -> AsyncIterator[dict[str, Any]]:
        """Chunks of tokens, log-probabilities and the version of the weights; the last
        one has the finish_reason: "stop", "length" or "abort"."""
        rid = _checked(request)
        if rid in self._running:
            raise ValueError(f"request {rid} is here already")
        run = self._running[rid] = _Run()
        parts = self._parts(request)
        try:
            while True:
                part = await _next(parts, run)
                if part is None:
                    yield {"tokens": [], "finish_reason": "abort"}
                    return
                chunk: dict[str, Any] = {
                    "tokens": part.tokens,
                    "logprobs": part.logprobs,
                    "version": self.version,
                }
                if part.finish is not None:
                    chunk["finish_reason"] = part.finish
                yield chunk
                if part.finish is not None:
                    return
        finally:
            del self._running[rid]
            run.ended.set_result(None)
            await parts.aclose()

    async def _parts(self, request: Mapping[str, Any]) -> Any:
        """Of one request: when it is not paused, from the tokens that there are."""
        while self._resumed is not None:
            await asyncio.shield(self._resumed)
        server = await self.server()
        prompt = request["prompt"]
        if isinstance(prompt, str):
            prompt = await server.tokenize(prompt)
        tokens = [*prompt, *(request.get("tokens") or ())]
        new, options = (
            int(request["max_new_tokens"]),
            dict(request.get("sampling") or {}),
        )
        if "seed" in options:
            made = len(request.get("tokens") or ())
            options["seed"] = _seed(options["seed"], request.get("seq", 0), made)
        name = uuid.uuid4().hex  # ours: SGLang aborts all whose names begin alike
        parts = server.parts(name, tokens, new, options)
        is_over = False
        try:
            async for part in parts:
                is_over = part.finish is not None
                yield part
        except ServerUnreachable:
            process = self._process
            if process is not None and await asyncio.to_thread(process.has_ended):
                await asyncio.sleep(STOP_S)  # this worker's end is the better reason
            raise
        finally:
            await parts.aclose()  # type: ignore[attr-defined]
            if not is_over:
                with contextlib.suppress(Exception):  # its connection is closed, too
                    await server.abort(name)

    async def abort(self, rid: str) -> bool:
        """Over when this returns: its stream ends with "abort". False: it is not here."""
        run = self._running.get(rid)
        if run is None:
            return False
        run.abort()
        await asyncio.shield(run.ended)
        return True

    async def pause(self, mode: str | None = None) -> None:
        """New requests wait for `resume`. Those that run are aborted ("abort"), end first
        ("wait"), or stand still in the server, with their cache ("keep") or without it
        ("retract"), where it can. None: nothing runs, or it is kept."""
        if mode not in (None, "abort", "wait", "keep", "retract"):
            raise ValueError(
                f'mode: "abort", "wait", "keep" or "retract", not {mode!r}'
            )
        server = await self.server()
        if mode is None and self._running:
            mode = self._kept
        is_kept = mode in ("keep", "retract")
        if is_kept and mode not in server.pause_modes:
            raise NotImplementedError(
                f"a server of kind {server.kind} cannot {mode} requests while it is "
                'paused; use mode="abort" or "wait"'
            )
        if self._resumed is None:
            self._resumed = asyncio.get_running_loop().create_future()
        running = list(self._running.values())
        if is_kept:
            await server.pause(str(mode))
            self._is_server_paused = True
            return
        for run in running:
            if mode == "abort":
                run.abort()
        if running:
            await asyncio.wait([run.ended for run in running])

    async def resume(self) -> None:
        """Requests that wait go on. Nothing if it is not paused."""
        if self._is_server_paused:
            await (await self.server()).resume()
            self._is_server_paused = False
        if self._resumed is not None:
            self._resumed.set_result(None)
            self._resumed = None

    # -- weights ------------------------------------------------------------------------

    async def update_weights(self, path: str, version: int) -> None:
        """The server takes the weights at `path`; a child that cannot is started anew."""
        server = await self.server()
        if server.has_update:
            await server.update_weights(path, version)
        elif self._process is None:
            raise NotImplementedError(
                f"a server of kind {server.kind} cannot change its weights while it "
                "runs, and this one was not started here"
            )
        elif self._running and self._resumed is None:
            raise RuntimeError("update_weights: requests run; pause the engine first")
        else:
            await asyncio.to_thread(self._restart, self._process, path)
        self.version = version

    def weight_version(self) -> int:
        return self.version

    def _restart(self, process: ServerProcess, path: str) -> None:
        process.stop()
        self._server = None  # the new one may go by another name
        self._start(process, path)

    # -- the server ---------------------------------------------------------------------

    async def alive(self) -> bool:
        """It answers; else why not is raised."""
        await (await self.server()).health()
        return True

    async def load(self) -> dict[str, int]:
        """Requests that run and wait in the server, as far as it tells."""
        return await (await self.server()).load()

    async def tokenize(self, text: str) -> list[int]:
        return await (await self.server()).tokenize(text)

    async def detokenize(self, tokens: list[int]) -> str:
        return await (await self.server()).detokenize(list(tokens))

    def address(self) -> str:
        return self._client.url

    async def server(self) -> Server:
        if self._server is None:
            found = await find_server(self._client, self._kind, self._model)
            found.piece = self._piece
            self._server = found
        return self._server

    def _start(self, process: ServerProcess, model: str | None) -> None:
        process.start(model)
        path = "/health" if self._kind != "openai" else "/v1/models"
        process.wait_ready(lambda: self._not_ready(path), self._start_timeout)

    def _not_ready(self, path: str) -> str | None:
        """Why not, or None. Not on the loop: a constructor has none."""
        request = urllib.request.Request(
            self._client.url + path, headers=self._client.headers
        )
        try:
            with _DIRECT.open(request, timeout=5) as answer:
                answer.read(1)
                return None
        except urllib.error.HTTPError as error:
            return f"GET {path}: {error.code} {error.reason}"
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            return f"GET {path}: {reason}"

    def close(self) -> None:
        if self._process is not None:
            self._process.stop()


# a proxy of the environment does not reach this node's ports
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


async def _next(parts: Any, run: _Run) -> Part | None:
    """The next part; None: it was aborted."""
    if run.aborted.done():
        return None
    coming = asyncio.ensure_future(anext(parts))
    try:
        await asyncio.wait({coming, run.aborted}, return_when=asyncio.FIRST_COMPLETED)
        if coming.done():
            part: Part = coming.result()
            return part
        return None
    finally:
        if not coming.done():
            coming.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await coming


def _checked(request: Mapping[str, Any]) -> str:
    prompt, rid = request["prompt"], request["rid"]
    if not isinstance(rid, str) or not rid:
        raise TypeError(f"request: rid must be a text: {rid!r}")
    if not isinstance(prompt, str) and not all(type(one) is int for one in prompt):
        raise TypeError("request: prompt must be a text or a list of token ids")
    if int(request["max_new_tokens"]) < 1:
        raise ValueError("request: max_new_tokens must be positive")
    return rid


def _seed(seed: int, seq: int, made: int) -> int:
    """The samples of a group differ all the same; and behind tokens of an earlier attempt
    are other numbers than it drew. 31 bits, as every server takes them."""
    if made == 0:
        return seed + seq
    return zlib.crc32(f"{seed} {seq} {made}".encode()) >> 1


def _rank() -> int:
    host = _core.in_worker()
    return 0 if host is None else host.rank


def _url_of_rank(urls: Sequence[str]) -> str:
    rank = _rank()
    if rank >= len(urls):
        raise ValueError(f"url: {len(urls)} of them, and none for rank {rank}")
    return urls[rank]


def _of_rank(log: str | None) -> str | None:
    return log and log.replace("{rank}", str(_rank()))


def _authorization(key: str | None) -> dict[str, str]:
    if key is None:
        return {}
    if key.startswith("$"):
        name, key = key[1:], os.environ.get(key[1:])
        if not key:
            raise ValueError(f"key: the environment has no {name}")
    return {"Authorization": f"Bearer {key}"}
