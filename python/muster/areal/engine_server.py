"""What runs in the workers of a MusterScheduler: engines, called as AReaL's server does."""

# A call's arguments may be those of the data-parallel head alone, and may have handles of
# tensors in them; its result gives handles back. AReaL is not imported here before an
# engine does it: what its platform is, is found out after the worker's environment is
# complete.

from __future__ import annotations

import asyncio
import copyreg
import importlib
import inspect
import os
import subprocess
import sys
import weakref
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from muster._worker import broadcast, engines, rtensor, seeds

_HEAD = "current_data_parallel_head"
_PLAIN = (type(None), bool, int, float, str, bytes)


class NoEngine(LookupError):
    """There is no engine of that name in the worker; it may come."""


class NoMethod(AttributeError):
    """The engine has no such method."""


class NotImported(ImportError):
    """The path of the engine's class leads nowhere."""


class NameTaken(ValueError):
    """There is an engine of that name in the worker."""


class WrongMeta(ValueError):
    """`rpc_meta` says nothing that is known, or asks for what cannot be."""


def _prepare_exits() -> None:
    """What AReaL's imports leave to the end of a process, 0.25 s in each worker, is done
    once, in the interpreter that they are forked from, or not at all."""
    if "ray" in sys.modules:
        with suppress(ImportError):  # Ray imports it when it ends
            importlib.import_module("ray.dag.compiled_dag_node")
    for one in list(getattr(weakref.finalize, "_registry", ())):
        alive = one.peek()
        # operators are taken out of a table that ends with the process
        if alive is not None and alive[1].__module__ == "torch.library":
            one.atexit = False


_prepare_exits()

# A server that an engine has launched stays the engine's: its caller gets None.
_none: Any = type(None)
copyreg.pickle(subprocess.Popen, lambda process: (_none, ()))


def _worker() -> Any:
    from muster._worker import main

    return main._worker


def _set_threads(number: str) -> None:
    """torch has read its variables when it was imported."""
    torch = sys.modules.get("torch")
    if torch is not None and number.isdecimal() and int(number) > 0:
        torch.set_num_threads(int(number))


def _join_ray(address: str, namespace: str, auth: dict[str, str]) -> None:
    ray = importlib.import_module("ray")
    os.environ.update(auth)
    if auth:  # which Ray has read when it was imported
        importlib.import_module("ray._raylet").Config.initialize("")
    ray.init(address=address, namespace=namespace, log_to_driver=False)


class EngineServer:
    """The engines of this process."""

    is_hidden_engine = True  # health tells of those in it

    def __init__(self, rtensors: bool = True) -> None:
        self._rtensors = rtensors
        self._node_addr = ""
        self._tensor_class: Any = None

    # ---- set-up -----------------------------------------------------------------------

    def configure(
        self,
        env: dict[str, str],
        config: Any,
        role: str,
        rank: int,
        node_addr: str,
        ray_job: tuple[str, str, dict[str, str]] | None,
    ) -> None:
        """The rest of the environment; and what AReaL's server does with the
        configuration of the experiment. `ray_job`: address, namespace and RAY_AUTH_* of the driver's,
        if the names of the trial are there."""
        os.environ.update(env)
        _set_threads(env.get("OMP_NUM_THREADS", ""))
        self._node_addr = node_addr
        if config is None:
            return
        engines.config = config
        seeds.set_seed(config.seed, f"{role}{rank}")
        resolve = importlib.import_module("areal.utils.name_resolve")
        if ray_job is not None:
            _join_ray(*ray_job)
        resolve.reconfigure(config.cluster.name_resolve)

    def visible_devices(self) -> dict[str, str]:
        """The variables that say which devices this process may use."""
        suffix = "_VISIBLE_DEVICES"
        return {k: v for k, v in os.environ.items() if k.endswith(suffix)}

    def create_engine(
        self, engine: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if name in engines.engines:
            raise NameTaken(f"there is an engine '{name}' in this worker already")
        module, _, cls = engine.rpartition(".")
        try:
            found = getattr(importlib.import_module(module), cls)
        except Exception as e:
            raise NotImported(f"{type(e).__name__}: {e}") from e
        if not callable(found):
            raise NotImported(f"'{engine}' is no class")
        worker = _worker()
        rtensor.prepare(worker, found)
        worker.create_engine(name, found, args, kwargs)

    # ---- calls ------------------------------------------------------------------------

    def call(
        self,
        name: str,
        method: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        rpc_meta: dict[str, Any] | None,
    ) -> Any:
        engine = engines.engines.get(name)
        if engine is None:
            there = ", ".join(n for n in engines.engines if n != "default") or "none"
            raise NoEngine(f"no engine '{name}' in this worker (there: {there})")
        function = getattr(engine, method, None)
        if not callable(function):
            raise NoMethod(f"'{type(engine).__name__}' has no method '{method}'")
        is_wanted = True
        if _is_broadcast(engine, rpc_meta):
            (args, kwargs), is_wanted = self._from_head(engine, method, args, kwargs)
        elif args or kwargs:
            args, kwargs = self._localized((args, kwargs))
        result = function(*args, **kwargs)
        if type(result) in _PLAIN:
            return result if is_wanted else None
        return self._answer(engine, result, is_wanted)

    def _from_head(self, engine: Any, method: str, args: Any, kwargs: Any) -> Any:
        try:
            target = broadcast.target_of(engine, method)
        except broadcast.CannotBroadcast as e:
            raise WrongMeta(f"arguments cannot be broadcast: {e}") from None
        made = broadcast.broadcast(target, lambda: self._localized((args, kwargs)))
        return made, target.is_source

    def _answer(self, engine: Any, result: Any, is_wanted: bool) -> Any:
        if isinstance(result, Future) and not _worker().is_async:
            result = result.result()
        elif isinstance(result, Future):
            result = asyncio.wrap_future(result)
        if inspect.isawaitable(result):
            later = _awaited(self, engine, result, is_wanted)
            return later if _worker().is_async else asyncio.run(later)
        return self._outgoing(engine, result) if is_wanted else None

    # ---- tensors ----------------------------------------------------------------------

    def _outgoing(self, engine: Any, result: Any) -> Any:
        """Of a rank whose results nobody looks at nothing is kept."""
        if not self._rtensors or "torch" not in sys.modules:
            return result
        if (
            _trains(engine)
            and engine.initialized
            and not engine.is_data_parallel_head()
        ):
            return None
        from muster.areal.shards import remotize

        return remotize(result, self._node_addr, self._handles())

    def _localized(self, arguments: Any) -> Any:
        if not self._rtensors or "areal.infra.rpc.rtensor" not in sys.modules:
            return arguments
        from muster.areal.shards import localize

        return localize(arguments, self._handles())

    def _handles(self) -> Any:
        if self._tensor_class is None:
            from muster.areal.shards import use_store

            self._tensor_class = use_store()
        return self._tensor_class


# not a method: a class with async ones is served by a loop, which costs each call more
async def _awaited(server: EngineServer, engine: Any, result: Any, wanted: bool) -> Any:
    result = await result
    return server._outgoing(engine, result) if wanted else None


def _trains(engine: Any) -> bool:
    api = sys.modules.get("areal.api.engine_api")
    return api is not None and isinstance(engine, api.TrainEngine)


def _is_broadcast(engine: Any, rpc_meta: dict[str, Any] | None) -> bool:
    asked = None
    if rpc_meta is not None:
        if not isinstance(rpc_meta, dict):
            raise WrongMeta(f"rpc_meta: a dict or None is needed: {rpc_meta!r}")
        asked = rpc_meta.get("broadcast")
        if not isinstance(asked, (bool, type(None))):
            raise WrongMeta(f"rpc_meta['broadcast']: True or False: {asked!r}")
    if asked is None:
        if _trains(engine):
            return bool(engine.initialized)
        return hasattr(engine, _HEAD) and broadcast.by_default(engine)
    return bool(asked)
