"""MusterScheduler: AReaL's Scheduler over Muster's clusters."""

from __future__ import annotations

import asyncio
import getpass
import os
import sys
import time
from contextlib import suppress

from areal.api import Scheduler  # type: ignore[import-not-found]
from areal.infra.scheduler.exceptions import (  # type: ignore[import-not-found]
    EngineCreationError,
)
from areal.utils import name_resolve, names  # type: ignore[import-not-found]

from muster import api
from muster.areal import failures
from muster.areal.attempts import Attempts, watch_of
from muster.areal.log_files import LogFiles
from muster.areal.role_manager import RoleManager, Settings
from muster.areal.shards import use_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Self

START_S = 120.0  # of a role's workers; machines that are lent have it too
ENGINE_S = 300.0  # of an engine's constructor
ENV_S = 30.0
PRELOAD = ("areal.infra.rpc.rtensor", "muster.areal.engine_server")


class MusterScheduler(Scheduler):  # type: ignore[misc]
    """Workers of AReaL's roles as clusters of Muster.

    exp_config: the experiment's; it says the names and the folder of the logs, is given to
        every worker, and seeds it. Without it: experiment_name, trial_name and fileroot,
        or log_dir; without those there are no log files beside Muster's own.
    orchestrator, address: who lends the machines ("ray" and its dashboard): one reservation
        for a role that trains, one for each rollout instance. None: the session that
        `muster.init` has begun, or one on this machine.
    n_gpus_per_node: of this machine, where there is no session yet; None: those it has.
    startup_timeout: seconds in which workers are there.
    http_open: AReaL's clients show no token, so whoever reaches a worker's port may run
        anything in it. False: they need `muster.http_token()`.
    rtensors: tensors in results stay where they are, as AReaL's RTensor. False: they come.
    preload: modules that workers have before they start, imported once on each node.
    """

    def __init__(
        self,
        *,
        exp_config: Any = None,
        experiment_name: str | None = None,
        trial_name: str | None = None,
        fileroot: str | None = None,
        log_dir: str | None = None,
        orchestrator: str | None = None,
        address: str | None = None,
        n_gpus_per_node: int | None = None,
        startup_timeout: float = START_S,
        http_open: bool = True,
        rtensors: bool = True,
        preload: Sequence[str] = (),
    ) -> None:
        self.exp_config = exp_config
        if exp_config is not None:
            experiment_name = exp_config.experiment_name
            trial_name = exp_config.trial_name
            fileroot = exp_config.cluster.fileroot
        self._is_own = not api.is_initialized()
        modules = [*PRELOAD, *preload]
        if self._is_own:
            _begin(modules, orchestrator, address, n_gpus_per_node)
        elif orchestrator is not None:
            raise ValueError("orchestrator: muster.init() was called: give it there")
        nodes = api.nodes()
        lends = not nodes and api.session().options["lender"] is not None
        self._n_gpus_per_node = n_gpus_per_node
        if n_gpus_per_node is None and lends and exp_config is not None:
            self._n_gpus_per_node = int(exp_config.cluster.n_gpus_per_node)
        elif n_gpus_per_node is None:
            self._n_gpus_per_node = max((node.gpus for node in nodes), default=0)
        if log_dir is None and all((fileroot, experiment_name, trial_name)):
            path = (str(experiment_name), str(trial_name))
            log_dir = os.path.join(str(fileroot), "logs", getpass.getuser(), *path)
        self._logs = None if log_dir is None else LogFiles(str(log_dir))
        if self._logs is not None:
            api.session().pump.tap(self._logs.write)
        ray_job = None if exp_config is None else _clear_names(exp_config)
        if rtensors:
            use_store()
        settings = Settings(
            exp_config,
            experiment_name,
            trial_name,
            fileroot,
            startup_timeout,
            http_open,
            rtensors,
            modules,
            lends,
            ray_job,
        )
        self._manager = RoleManager(settings, self._logs)

    @property
    def n_gpus_per_node(self) -> int:
        return self._n_gpus_per_node or 0

    @property
    def log_dir(self) -> str | None:
        """Where `role.log` and `merged.log` are."""
        return self._logs.folder if self._logs else None

    # ---- workers ----------------------------------------------------------------------

    def create_workers(self, job: Any, *args: Any, **kwargs: Any) -> list[str]:
        """The workers of a role, all or none; their ids, "role/0" and so on."""
        return self._manager.create_workers(job)

    def fork_workers(
        self, role: str, target_role: str, command: str | None = None
    ) -> list[str]:
        """A worker beside each of another role's, on its devices; or `python -m command`,
        which speaks AReaL's HTTP."""
        return self._manager.fork_workers(role, target_role, command)

    def get_workers(self, role: str, timeout: float | None = None) -> list[Any]:
        """Their ids, addresses and ports, when all answer."""
        return self._manager.get_workers(role, timeout)

    def delete_workers(
        self, role: str | None = None, reverse_order: bool = False
    ) -> None:
        """End the workers of a role, or all, and give back what they held. Engines are
        destroyed first, in all ranks at once; rank 0 always ends last. What runs beside
        them ends too."""
        self._manager.delete_workers(role)

    def close(self) -> None:
        """End all workers, and the session if this scheduler has begun it."""
        self.delete_workers()
        if self._is_own:
            api.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(Exception):
            if not sys.is_finalizing():  # the session ends them
                self.delete_workers()

    # ---- engines ----------------------------------------------------------------------

    async def set_worker_env(self, worker_id: str, env: dict[str, str]) -> None:
        """Variables of a worker, before its engines are made."""
        worker = self._manager.find_worker(worker_id)
        try:
            if env:
                await worker.set_env(ENV_S, env)
        except Exception as e:
            raise failures.of_env(worker, e) from e

    async def create_engine(
        self,
        worker_id: str,
        engine: str,
        engine_name: str | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Make an object of the class at the import path `engine` in a worker."""
        worker = self._manager.find_worker(worker_id)
        if not isinstance(engine, str):
            raise EngineCreationError(
                worker_id, f"engine: an import path is needed: {engine!r}"
            )
        name = _name(worker_id, engine_name)
        try:
            return await worker.create_engine(ENGINE_S, engine, name, args, kwargs)
        except Exception as e:
            raise failures.of_engine(worker, engine, e) from e

    def call_engine(
        self,
        worker_id: str,
        method: str,
        engine_name: str | None = None,
        *args: Any,
        rpc_meta: dict[str, Any] | None = None,
        http_timeout: float = 7200.0,
        max_retries: int = 3,
        retry_delay: float = 1.0,
        **kwargs: Any,
    ) -> Any:
        """Call a method of an engine, once. An attempt that gets no answer within
        http_timeout seconds is followed by another wait for the same call, max_retries in
        all; retry_delay, 2 * retry_delay, ... seconds are between them."""
        worker = self._manager.find_worker(worker_id)
        what = (_name(worker_id, engine_name), method, args, kwargs, rpc_meta)
        attempts = Attempts(http_timeout, max_retries, retry_delay)
        pending: Any = None
        while True:
            try:
                if pending is None:
                    pending = worker.call(attempts.left, *what)
                if pending.wait(attempts.wait_s):
                    return pending.value()
                attempts.next_wait(worker_id, method)
            except Exception as e:
                if not attempts.may_repeat(e):
                    raise failures.of_call(worker, method, e, attempts.number) from e
                pending = None
                time.sleep(attempts.next_try())
            except BaseException:  # Ctrl-C
                if pending is not None:
                    pending.cancel()
                raise

    async def async_call_engine(
        self,
        worker_id: str,
        method: str,
        engine_name: str | None = None,
        *args: Any,
        rpc_meta: dict[str, Any] | None = None,
        http_timeout: float = 7200.0,
        max_retries: int = 3,
        retry_delay: float = 1.0,
        **kwargs: Any,
    ) -> Any:
        """The same, to be awaited."""
        worker = self._manager.find_worker(worker_id)
        what = (_name(worker_id, engine_name), method, args, kwargs, rpc_meta)
        attempts = Attempts(http_timeout, max_retries, retry_delay)
        loop = asyncio.get_running_loop()
        watch = watch_of(loop)
        while True:
            try:
                pending = worker.call(attempts.left, *what, waits=False)
                watch.add(loop, attempts, worker_id, method)
                return await pending
            except Exception as e:
                if not attempts.may_repeat(e):
                    raise failures.of_call(worker, method, e, attempts.number) from e
                await asyncio.sleep(attempts.next_try())
            finally:
                watch.remove(attempts)


def _name(worker_id: str, engine_name: str | None) -> str:
    """Of an engine."""
    return worker_id if engine_name is None else engine_name


def _begin(
    preload: list[str], orchestrator: str | None, address: str | None, gpus: int | None
) -> None:
    """A session: machines are lent when a role needs them."""
    options: dict[str, Any] = {"preload": preload}
    if orchestrator is not None:
        options |= {"orchestrator": orchestrator, "address": address}
    if orchestrator not in (None, "local"):
        options["num_nodes"] = 0
    elif gpus is not None:
        options["num_gpus"] = gpus
    api.init(**options)


def _clear_names(exp_config: Any) -> tuple[str, str, dict[str, str]] | None:
    """What an earlier run of the same trial has told about itself is wrong now. If names
    are in Ray: its address, the namespace in which others find them, and what it asks of those
    who connect."""
    name_resolve.reconfigure(exp_config.cluster.name_resolve)
    name_resolve.clear_subtree(
        names.trial_root(exp_config.experiment_name, exp_config.trial_name)
    )
    if exp_config.cluster.name_resolve.type != "ray":
        return None
    import ray

    context = ray.get_runtime_context()
    auth = {k: v for k, v in os.environ.items() if k.startswith("RAY_AUTH_")}
    return context.gcs_address, context.namespace, auth
