"""Calls that came by HTTP: JSON in, JSON out, as AReaL's clients speak it."""

# The worker's C host reads the request, checks who sent it and puts it into the
# engine's queue; here it is decoded, run and encoded, on the engine's thread.

from __future__ import annotations

import functools
import inspect
import json
import os
import traceback
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeAlias

from muster import _core
from muster._worker import broadcast, rtensor
from muster._worker.json_types import Refused, decode, encode
from muster._worker.main import find_class

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from muster._worker.main import Worker

_Arguments: TypeAlias = tuple[list[Any], dict[str, Any]]


# ---- requests ---------------------------------------------------------------------------


def _answer(status: int, body: dict[str, Any]) -> bytes:
    return f"{status:03d}{json.dumps(body)}".encode()


def _success(**more: Any) -> bytes:
    return _answer(200, {"status": "success"} | more)


def _failure(status: int, text: str, error: BaseException | None = None) -> bytes:
    body = {"status": "error", "error": text}
    if error is not None:
        cls = type(error)
        body["type"] = f"{cls.__module__}.{cls.__qualname__}"
        body["traceback"] = "".join(
            traceback.format_exception(cls, error, error.__traceback__)
        )
    return _answer(status, body)


def _field(body: dict[str, Any], name: str, kind: type, default: Any = None) -> Any:
    value = body.get(name, default)
    if not isinstance(value, kind) or value == "":
        raise Refused(400, f"'{name}' must be {_KINDS[kind]}")
    return value


_KINDS: dict[type, str] = {
    str: "a string, and not empty",
    dict: "an object",
    list: "a list",
}


def _configure(worker: Worker, body: dict[str, Any]) -> bytes:
    for name in ("config", "rank"):
        if body.get(name) is None:
            raise Refused(400, f"'{name}' is missing")
    config = decode(body["config"])
    role = body.get("role") or worker.host.cluster
    worker.configure(config, _seed_of(config), f"{role}{body['rank']}")
    return _success(message="configured", result=None)


def _seed_of(config: Any) -> int:
    fields = config if isinstance(config, dict) else getattr(config, "__dict__", None)
    if fields is None:
        raise Refused(400, f"'config' is no object: {type(config).__name__}")
    seed = fields.get("seed")
    return seed if isinstance(seed, int) else 0


def _is_for_env(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _set_env(worker: Worker, body: dict[str, Any]) -> bytes:
    env = _field(body, "env", dict)
    for name, value in env.items():
        if not name or "=" in name or not _is_for_env(f"{name}{value}"):
            raise Refused(400, f"'env': {name!r} cannot be set")
    worker.set_env({name: str(value) for name, value in env.items()})
    return _success()


def _create_engine(worker: Worker, body: dict[str, Any]) -> bytes:
    path = _field(body, "engine", str)
    name = _field(body, "engine_name", str)
    try:
        _core.check_engine_name(name)
    except ValueError as e:
        raise Refused(400, str(e)) from None
    if name in worker.engines:
        raise Refused(400, f"there is an engine '{name}' in this worker already")
    args = _field(body, "init_args", list, [])
    kwargs = _field(body, "init_kwargs", dict, {})
    try:
        cls = find_class(path)
    except Exception as e:
        # these first words tell AReaL's clients what went wrong
        return _failure(400, f"Failed to import engine '{path}': {e}", e)
    if not callable(cls):
        raise Refused(400, f"'{path}' is no class")
    rtensor.prepare(worker, cls)
    args, kwargs = decode(args), decode(kwargs)
    try:
        worker.create_engine(name, cls, args, kwargs)
    except Exception as e:
        return _failure(500, f"the engine '{name}' cannot be made: {e}", e)
    return _success(message=f"made '{name}'", engine_name=name, result=None)


def _find_method(worker: Worker, body: dict[str, Any]) -> tuple[Any, Any]:
    """The engine, and its method."""
    method = _field(body, "method", str)
    name = _field(body, "engine_name", str)
    meta = body.get("rpc_meta")
    if meta is not None and not isinstance(meta, dict):
        raise Refused(400, "'rpc_meta' must be an object or null")
    if not isinstance((meta or {}).get("broadcast", False), bool):
        raise Refused(400, "'rpc_meta.broadcast' must be true or false")
    if name not in worker.engines:
        there = ", ".join(worker.engines) or "none"
        raise Refused(404, f"no engine '{name}' in this worker (there: {there})")
    engine = worker.engines[name]
    found = getattr(engine, method, None)
    if not callable(found):
        raise Refused(400, f"'{type(engine).__name__}' has no method '{method}'")
    return engine, found


def _own_arguments(worker: Worker, body: dict[str, Any]) -> _Arguments:
    args = _field(body, "args", list, [])
    kwargs = _field(body, "kwargs", dict, {})
    try:
        args, kwargs = rtensor.localize(worker, (decode(args), decode(kwargs)))
    except Refused:
        raise
    except Exception as e:
        text = f"the arguments of '{body['method']}' cannot be had: {e}"
        raise Refused(500, text) from e
    return args, kwargs


def _arguments(
    worker: Worker, engine: Any, body: dict[str, Any]
) -> tuple[_Arguments, bool]:
    """Its own, or those of the head of its model-parallel group; is its result wanted?"""
    default = broadcast.by_default(engine)
    if not (body.get("rpc_meta") or {}).get("broadcast", default):
        return _own_arguments(worker, body), True
    try:
        target = broadcast.target_of(engine, body["method"])
    except broadcast.CannotBroadcast as e:
        raise Refused(501, f"'rpc_meta': arguments cannot be broadcast: {e}") from None
    try:
        found = broadcast.broadcast(target, lambda: _own_arguments(worker, body))
    except broadcast.CannotBroadcast as e:
        raise Refused(400, f"arguments were not broadcast: {e}") from None
    return found, target.is_source


def _result(worker: Worker, engine: Any, value: Any) -> bytes:
    try:
        return _success(result=encode(rtensor.remotize(worker, engine, value)))
    except Exception as e:
        return _failure(500, f"the result cannot be sent as JSON: {e}", e)


def _raised(body: dict[str, Any], error: Exception) -> bytes:
    return _failure(500, f"'{body['method']}' raised: {error}", error)


async def _finish(
    worker: Worker,
    engine: Any,
    body: dict[str, Any],
    value: Awaitable[Any],
    is_wanted: bool,
) -> bytes:
    try:
        value = await value
    except Exception as e:
        return _raised(body, e)
    return _result(worker, engine, value if is_wanted else None)


def _call(worker: Worker, body: dict[str, Any]) -> bytes | Awaitable[bytes]:
    engine, method = _find_method(worker, body)
    try:
        (args, kwargs), is_wanted = _arguments(worker, engine, body)
        threads = worker.threads_of(method)
        run: Any = method
        if threads is not None:
            run = functools.partial(threads.submit, method)
        value = run(*args, **kwargs)
        if worker.is_async and isinstance(value, Future):
            from asyncio import wrap_future

            value = wrap_future(value)
        elif isinstance(value, Future):
            value = value.result()
        if inspect.isawaitable(value):
            return _finish(worker, engine, body, value, is_wanted)
    except Refused:
        raise
    except Exception as e:
        return _raised(body, e)
    return _result(worker, engine, value if is_wanted else None)


_OPERATIONS: dict[int, Callable[[Worker, dict[str, Any]], bytes | Awaitable[bytes]]] = {
    _core.OP_HTTP_CONFIGURE: _configure,
    _core.OP_HTTP_SET_ENV: _set_env,
    _core.OP_HTTP_CREATE_ENGINE: _create_engine,
    _core.OP_HTTP_CALL: _call,
}


def operate(worker: Worker, op: int, data: bytes) -> bytes | Awaitable[bytes]:
    """Three digits of a status and JSON; awaitable if the method is (async worker)."""
    try:
        try:
            body = json.loads(data)
        except (ValueError, RecursionError) as e:
            raise Refused(400, f"the body is not JSON: {e}") from None
        if not isinstance(body, dict):
            raise Refused(400, "the body is not a JSON object")
        return _OPERATIONS[op](worker, body)
    except Refused as e:
        return _failure(e.status, str(e))
    except RecursionError as e:
        return _failure(400, f"the body is nested too deeply: {e}")
