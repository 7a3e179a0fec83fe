"""HTTP/1.1 on asyncio streams, as much of it as inference servers need.

One connection for each request, closed at its end: a server that sees the connection
close aborts the request. Every wait has a deadline and every length a limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

HEAD_MAX = 64 << 10  # bytes of a status line with its headers
LINE_MAX = 64 << 20  # of an event: SGLang repeats all tokens in each of them
BODY_MAX = 64 << 20  # of an answer that is no stream
SHOWN_MAX = 500  # characters of a body in an error


class ServerError(RuntimeError):
    """The server answered, and not with what was asked for.

    status: of the answer; body: its beginning.
    """

    def __init__(self, text: str, status: int = 0, body: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.body = body

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.status, self.body)


class RequestRefused(ServerError):
    """The fault is the request's own: a scheduler asks no other replica, and its group has
    failed. Any engine may raise it."""


REFUSING = (400, 413, 422)  # statuses that say so


class ServerUnreachable(ConnectionError):
    """No connection, a connection that was cut, or silence for too long."""


def shown(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_MAX else line[:SHOWN_MAX] + "..."


class HttpClient:
    """Requests to one server.

    connect_s: for a connection. silence_s: for the head of an answer, and for each event.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        connect_s: float = 10,
        silence_s: float = 600,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url: must be http://HOST:PORT or https://...: {url!r}")
        self.url = url.rstrip("/")
        self.host = parts.hostname
        self.tls = parts.scheme == "https"
        self.port = parts.port or (443 if self.tls else 80)
        self.root = parts.path.rstrip("/")
        self.connect_s, self.silence_s = connect_s, silence_s
        name = f"[{self.host}]" if ":" in self.host else self.host
        self.headers = {"Host": f"{name}:{self.port}"} | dict(headers or {})
        for field, value in self.headers.items():
            if any(c in field + value for c in "\r\n"):
                raise ValueError(f"headers: a line end in {field!r}")

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        timeout: float | None = None,
    ) -> Any:
        """The answer's JSON, or its text; ServerError unless its status is 2xx."""
        seconds = self.silence_s if timeout is None else timeout
        try:
            async with asyncio.timeout(seconds):
                answer = await self.open(method, path, body)
                try:
                    data = await answer.body(BODY_MAX)
                finally:
                    answer.close()
        except TimeoutError:
            raise ServerUnreachable(
                f"{method} {self.url}{path}: no answer within {seconds:g} s"
            ) from None
        text = data.decode(errors="replace")
        if "json" not in answer.headers.get("content-type", ""):
            return text
        try:
            return json.loads(text)
        except ValueError:
            raise answer.error(f"not JSON: {shown(text)}", text) from None

    async def open(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Its head was read, and its status is 2xx. Close it."""
        what = f"{method} {self.url}{path}"
        reader, writer = await self._connect(what)
        answer = Answer(what, reader, writer, self.silence_s)
        try:
            writer.write(self._request(method, path, body, headers or {}))
            await answer.begin()
        except BaseException:
            answer.close()
            raise
        return answer

    def _request(
        self, method: str, path: str, body: Any, more: Mapping[str, str]
    ) -> bytes:
        lines = [f"{method} {self.root}{path} HTTP/1.1"]
        data = b""
        headers = self.headers | dict(more) | {"Connection": "close"}
        if method != "GET":
            data = json.dumps({} if body is None else body).encode()
            headers |= {"Content-Type": "application/json"}
            headers |= {"Content-Length": str(len(data))}
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + data

    async def _connect(
        self, what: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = ssl.create_default_context() if self.tls else None
        try:
            async with asyncio.timeout(self.connect_s):
                return await asyncio.open_connection(
                    self.host, self.port, ssl=context, limit=HEAD_MAX
                )
        except TimeoutError:
            raise ServerUnreachable(
                f"{what}: no connection within {self.connect_s:g} s"
            ) from None
        except OSError as error:
            raise ServerUnreachable(f"{what}: {error.strerror or error}") from error


class Answer:
    """The answer to one request, as it arrives."""

    def __init__(
        self,
        what: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        silence_s: float,
    ) -> None:
        self.what = what
        self.status = 0
        self.headers: dict[str, str] = {}
        self._reader, self._writer = reader, writer
        self._silence_s = silence_s

    def close(self) -> None:
        """At once: what was not read is dropped."""
        self._writer.transport.abort()

    def error(self, text: str, body: str = "") -> ServerError:
        cls = RequestRefused if self.status in REFUSING else ServerError
        return cls(f"{self.what}: {text}", self.status, body[:SHOWN_MAX])

    async def begin(self) -> None:
        """Read the head."""
        head = await self._wait(self._reader.readuntil(b"\r\n\r\n"), "an answer")
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ", 2)
        is_http = words[0].startswith("HTTP/1.") and len(words) > 1
        if not is_http or not words[1].isdecimal():
            raise self.error(f"not an answer in HTTP/1: {shown(first)}")
        self.status = int(words[1])
        for line in lines:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        if not 200 <= self.status < 300:
            raise await self._refused(words)

    async def _refused(self, words: list[str]) -> ServerError:
        text = ""
        with contextlib.suppress(ServerError, ServerUnreachable):
            text = (await self.body(HEAD_MAX)).decode(errors="replace")
        retry = self.headers.get("retry-after")
        wait = f"; Retry-After: {shown(retry)}" if retry else ""
        reason = " ".join(words[1:])
        return self.error(f"{reason}{wait}: {shown(text) or 'no body'}", text)

    async def body(self, most: int) -> bytes:
        """All of it; ServerError if it is longer than `most`."""
        found = bytearray()
        async for piece in self._pieces():
            found += piece
            if len(found) > most:
                raise self.error(f"an answer of more than {most} bytes")
        return bytes(found)

    async def events(self) -> AsyncIterator[str]:
        """The data of server-sent events, until the server ends the stream."""
        kind = self.headers.get("content-type", "nothing")
        if not kind.startswith("text/event-stream"):
            text = (await self.body(HEAD_MAX)).decode(errors="replace")
            raise self.error(
                f"a stream of events was asked for, and {kind} came: {shown(text)}",
                text,
            )
        lines = self._lines()
        while True:
            try:
                # with its comments: a server that sends nothing else is silent, too
                async with asyncio.timeout(self._silence_s):
                    data = await self._next_data(lines)
            except TimeoutError:
                raise self._silent("an event") from None
            if data is None:
                return
            yield data

    async def _next_data(self, lines: AsyncIterator[bytes]) -> str | None:
        async for line in lines:
            name, _, value = line.decode(errors="replace").partition(":")
            if name == "data":
                return value.removeprefix(" ")
            if name == "error":  # of older llama.cpp
                raise self.error(f"the server says: {shown(value)}", value)
            if name not in ("", "event", "id", "retry"):
                raise self.error(f"not an event: {shown(line.decode('latin-1'))}")
        return None

    async def _lines(self) -> AsyncIterator[bytes]:
        rest = b""
        async for piece in self._pieces():
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if line := line.rstrip(b"\r"):
                    yield line
            if len(rest) > LINE_MAX:
                raise self.error(f"an event of more than {LINE_MAX} bytes")
        if rest:
            raise self.cut()

    # -- bytes --------------------------------------------------------------------------

    async def _pieces(self) -> AsyncIterator[bytes]:
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            pieces = self._chunks()
        else:
            pieces = self._plain()
        async for piece in pieces:
            yield piece

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            line = await self._wait(self._reader.readuntil(b"\r\n"), "a chunk")
            try:
                size = int(line.split(b";")[0], 16)
            except ValueError:
                raise self.error(
                    f"not a chunk: {shown(line.decode('latin-1'))}"
                ) from None
            if not 0 <= size <= LINE_MAX:
                raise self.error(f"a chunk of {size} bytes")
            data = await self._wait(self._reader.readexactly(size + 2), "a chunk")
            if size == 0:
                return
            yield data[:-2]

    async def _plain(self) -> AsyncIterator[bytes]:
        """With a length, or until the connection ends."""
        length = self.headers.get("content-length")
        if length is not None and not length.isdecimal():
            raise self.error(f"Content-Length: {shown(length)}")
        left = int(length) if length is not None else None
        while left is None or left > 0:
            most = 1 << 16 if left is None else min(left, 1 << 16)
            piece = await self._wait(self._reader.read(most), "more")
            if not piece:
                if left is not None:
                    raise self.cut()
                return
            if left is not None:
                left -= len(piece)
            yield piece

    async def _wait(self, reading: Any, what: str) -> bytes:
        try:
            async with asyncio.timeout(self._silence_s):
                data: bytes = await reading
                return data
        except TimeoutError:
            raise self._silent(what) from None
        except asyncio.LimitOverrunError:
            raise self.error(f"a head of more than {HEAD_MAX} bytes") from None
        except (asyncio.IncompleteReadError, OSError):
            raise self.cut() from None

    def _silent(self, what: str) -> ServerUnreachable:
        return ServerUnreachable(
            f"{self.what}: {what} did not come within {self._silence_s:g} s"
        )

    def cut(self, why: str = "the server cut the connection") -> ServerUnreachable:
        return ServerUnreachable(f"{self.what}: {why}")
