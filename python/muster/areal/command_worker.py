"""A worker that is a command of its own beside another one, and speaks AReaL's HTTP."""

# `fork_workers(..., command="package.module")`: AReaL's proxy servers are such. They know
# nothing of Muster, so calls to them are AReaL's requests. A request that may have run is
# never sent again.

from __future__ import annotations

import asyncio
import http.client
import json
import time
from concurrent.futures import Future, ThreadPoolExecutor

from areal.infra.rpc.serialization import (  # type: ignore[import-not-found]
    deserialize_value,
    serialize_value,
)
from areal.infra.utils.launcher import get_env_vars  # type: ignore[import-not-found]

from muster.areal.shards import localize, use_store
from muster.errors import (
    ClusterError,
    DeadlineExceeded,
    MusterError,
    WorkerDied,
    WorkerUnreachable,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from typing import Any

READY_S = 60.0  # for a command to answer /health
_POLL_S = 0.05  # a port that nobody listens on yet gives no event
_ASK_S = 30.0
_END_S = 1.0  # for the end of a command to be known, after its connection
_LEAST_S = 0.1  # also of a deadline that is over a worker on this host is asked
_CALLS_MAX = 64  # under way in one process


class HttpError(ClusterError):
    """The command has answered with a status that is no success."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def ask(
    address: tuple[str, int], path: str, body: Any, timeout: float, token: str = ""
) -> Any:
    """The JSON that is answered to a POST, or to a GET where `body` is None."""
    connection = http.client.HTTPConnection(*address, timeout=timeout)
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        data = None if body is None else json.dumps(body)
        connection.request("GET" if body is None else "POST", path, data, headers)
        answer = connection.getresponse()
        content = answer.read()
    except TimeoutError:
        raise DeadlineExceeded(f"{path} has not answered within {timeout} s") from None
    except (OSError, http.client.HTTPException) as e:
        raise WorkerUnreachable(f"{address[0]}:{address[1]}{path}: {e}") from None
    finally:
        connection.close()
    try:
        said = json.loads(content)
    except ValueError:
        said = {"error": content.decode(errors="replace")}
    if answer.status != http.HTTPStatus.OK:
        raise HttpError(answer.status, str(said.get("error") or said))
    return said


class PendingRequest:
    """A request on a thread."""

    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    def wait(self, timeout: float | None) -> bool:
        try:
            self._future.exception(timeout)
        except TimeoutError:
            return self._future.done()
        return True

    def value(self) -> Any:
        return self._future.result()

    def cancel(self) -> bool:
        return self._future.cancel()

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self._future).__await__()


def _died(worker_id: str, code: int, lines: Sequence[str]) -> WorkerDied:
    how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
    error = WorkerDied("\n".join([f"{worker_id} {how}", *lines]))
    error.exit_code, error.signal = (None, -code) if code < 0 else (code, None)
    error.last_lines = tuple(lines)
    return error


def _left_s(deadline: float) -> float:
    return min(_ASK_S, max(_LEAST_S, deadline - time.monotonic()))


class CommandWorker:
    """One such process, the child of the worker at `parent`."""

    def __init__(
        self, info: Any, parent: tuple[str, int], token: str, words: Sequence[str]
    ) -> None:
        self.info = info
        self._address = (info.ip, int(info.worker_ports[0]))
        self._parent, self._token = parent, token
        self._end: WorkerDied | None = None
        self._threads = ThreadPoolExecutor(_CALLS_MAX, info.id)
        role, _, index = info.id.rpartition("/")
        self._who = {"role": role, "worker_index": int(index)}
        env = {"PYTHONPATH": get_env_vars()["PYTHONPATH"]}  # it looks where we do
        body = {**self._who, "raw_cmd": list(words), "env": env}
        ask(parent, "/fork", body, READY_S, token)

    def wait_ready(self, deadline: float) -> None:
        """DeadlineExceeded if it does not answer until then; WorkerDied."""
        while True:
            try:
                ask(self._address, "/health", None, _POLL_S * 40)
                return
            except (WorkerUnreachable, DeadlineExceeded, HttpError) as e:
                if time.monotonic() > deadline:
                    raise DeadlineExceeded(
                        f"{self.info.id} did not answer in time: {e}"
                    ) from None
            if (end := self._find_end(deadline)) is not None:
                raise end
            time.sleep(_POLL_S)

    def check(self, timeout: float) -> None:
        self._ask("/health", None, timeout)

    def _find_end(self, deadline: float) -> WorkerDied | None:
        """How it has ended, if the worker beside which it runs knows it."""
        try:
            health = ask(self._parent, "/health", None, _left_s(deadline))
            for one in health.get("ended_children", ()):
                if self._who.items() <= one.items():
                    answer = self._kill(_left_s(deadline))
                    lines = answer.get("last_lines", [])
                    self._end = _died(self.info.id, one["exit_code"], lines)
        except MusterError:
            pass  # it has ended too
        return self._end

    def _kill(self, timeout: float) -> Any:
        return ask(self._parent, "/kill_forked_worker", self._who, timeout, self._token)

    def _ask(self, path: str, body: Any, timeout: float) -> Any:
        deadline = time.monotonic() + timeout
        try:
            return ask(self._address, path, body, timeout)
        except WorkerUnreachable:
            until = min(time.monotonic() + _END_S, deadline)
            while time.monotonic() < until:
                if (end := self._find_end(deadline)) is not None:
                    raise end from None
                time.sleep(_POLL_S)
            raise

    def call(
        self, timeout: float, engine: str, method: str, *rest: Any, waits: bool = True
    ) -> PendingRequest:
        args, kwargs, rpc_meta = rest
        args, kwargs = localize((list(args), kwargs), use_store())
        body = {
            "method": method,
            "engine_name": engine,
            "args": serialize_value(args),
            "kwargs": serialize_value(kwargs),
            "rpc_meta": rpc_meta,
        }
        return self._start("/call", body, timeout)

    def create_engine(self, timeout: float, path: str, *rest: Any) -> PendingRequest:
        name, args, kwargs = rest
        body = {
            "engine": path,
            "engine_name": name,
            "init_args": serialize_value(list(args)),
            "init_kwargs": serialize_value(kwargs),
        }
        return self._start("/create_engine", body, timeout)

    def set_env(self, timeout: float, env: Mapping[str, str]) -> PendingRequest:
        return self._start("/set_env", {"env": dict(env)}, timeout)

    def _start(self, path: str, body: dict[str, Any], timeout: float) -> PendingRequest:
        def run() -> Any:
            said = self._ask(path, body, timeout)
            return deserialize_value(said.get("result"))

        return PendingRequest(self._threads.submit(run))

    def stop(self) -> None:
        """Ask the worker beside which it runs to end it. It may have ended, or both."""
        try:
            self._kill(_ASK_S)
        except (WorkerUnreachable, HttpError, DeadlineExceeded):
            pass
        self._threads.shutdown(wait=False, cancel_futures=True)
