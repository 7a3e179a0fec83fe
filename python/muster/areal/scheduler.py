"""MusterScheduler: AReaL's Scheduler over Muster's clusters."""

from __future__ import annotations

import asyncio
import getpass
import logging
import os
import sys
import threading
import time
from contextlib import suppress
from typing import NamedTuple

from areal.api import Scheduler, Worker  # type: ignore[import-not-found]
from areal.api.cli_args import SchedulingSpec  # type: ignore[import-not-found]
from areal.infra.scheduler.exceptions import (  # type: ignore[import-not-found]
    EngineCreationError,
    WorkerCreationError,
    WorkerNotFoundError,
    WorkerTimeoutError,
)
from areal.utils import name_resolve, names  # type: ignore[import-not-found]

from muster import api
from muster.areal import failures, placement
from muster.areal.attempts import Attempts
from muster.areal.environment import check_command, environments, visible
from muster.areal.log_files import LogFiles
from muster.areal.roles import NativeWorker, Role
from muster.areal.shards import use_store
from muster.cluster import Cluster
from muster.config import WorkerConfig
from muster.errors import MusterError, WorkerDied
from muster.future import gather
from muster.groups import GroupPart

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Self

    from muster.areal.roles import RoleWorker

logger = logging.getLogger("muster.areal")
START_S = 120.0  # of a role's workers; machines that are lent have it too
ENGINE_S = 300.0  # of an engine's constructor
ENV_S = 30.0
SERVER = "muster.areal.engine_server.EngineServer"
PRELOAD = ("areal.infra.rpc.rtensor", "muster.areal.engine_server")


class Beside(NamedTuple):
    """Where a role's workers go, and which devices of it each may use ({}: all)."""

    target: str | None  # whose places they are; None: its own
    part: GroupPart
    devices: list[dict[str, str]]


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
        self._roles: dict[str, Role] = {}
        self._lock = threading.RLock()
        self.exp_config = exp_config
        self.experiment_name = experiment_name
        self.trial_name = trial_name
        self.fileroot = fileroot
        if exp_config is not None:
            self.experiment_name = exp_config.experiment_name
            self.trial_name = exp_config.trial_name
            self.fileroot = exp_config.cluster.fileroot
        self.startup_timeout = startup_timeout
        self._http_open = http_open
        self._rtensors = rtensors
        self._preload = [*PRELOAD, *preload]
        self._lends = orchestrator is not None
        self._is_own = not api.is_initialized()
        self._begin(orchestrator, address, n_gpus_per_node)
        self._n_gpus_per_node = self._count_gpus(n_gpus_per_node)
        self._logs = self._open_logs(log_dir)
        if exp_config is not None:
            _clear_names(exp_config)
        if rtensors:
            use_store()

    def _begin(self, orchestrator: str | None, address: str | None, gpus: Any) -> None:
        """The session. One that `muster.init` has begun is used as it is."""
        if not self._is_own:
            if orchestrator is not None:
                raise ValueError(
                    "orchestrator: muster.init() was called already: give it there"
                )
            return
        options: dict[str, Any] = {"preload": self._preload}
        if orchestrator is not None:
            options |= {"orchestrator": orchestrator, "address": address}
            if orchestrator != "local":
                options["num_nodes"] = 0
        if orchestrator in (None, "local") and gpus is not None:
            options["num_gpus"] = gpus
        self._lends = orchestrator not in (None, "local")
        api.init(**options)

    def _count_gpus(self, given: int | None) -> int:
        if given is not None:
            return given
        found = max((node.gpus for node in api.nodes()), default=0)
        if not found and self._lends and self.exp_config is not None:
            return int(self.exp_config.cluster.n_gpus_per_node)
        return found

    def _open_logs(self, log_dir: str | None) -> LogFiles | None:
        names = (self.fileroot, self.experiment_name, self.trial_name)
        if log_dir is None and all(names):
            root, experiment, trial = map(str, names)
            log_dir = os.path.join(root, "logs", getpass.getuser(), experiment, trial)
        if log_dir is None:
            return None
        logs = LogFiles(str(log_dir))
        api.session().pump.tap(logs.write)
        return logs

    @property
    def n_gpus_per_node(self) -> int:
        return self._n_gpus_per_node

    @property
    def log_dir(self) -> str | None:
        """Where `role.log` and `merged.log` are."""
        return self._logs.folder if self._logs else None

    # ---- workers ----------------------------------------------------------------------

    def create_workers(self, job: Any, *args: Any, **kwargs: Any) -> list[str]:
        """The workers of a role, all or none; their ids, "role/0" and so on."""
        with self._lock:
            self._check_new(job.role)
            specs = _specs_of(job)
            strategy = job.scheduling_strategy
            kind = getattr(strategy.type, "value", strategy.type)
            if kind == "separation":
                role = self._create(job.role, specs, None)
            elif kind == "colocation":
                role = self._colocate(job, specs, strategy)
            else:
                raise ValueError(f"scheduling_strategy.type: {kind!r} is not known")
            self._roles[job.role] = role
            return role.ids

    def _check_new(self, role: str) -> None:
        if role in self._roles:
            raise WorkerCreationError(
                role, "the role exists", f"delete_workers({role!r}) ends its workers"
            )

    def _find_role(self, role: str, what: str = "") -> Role:
        found = self._roles.get(role)
        if found is None:
            raise WorkerNotFoundError(f"{role}{what}")
        return found

    def _create(self, name: str, specs: list[Any], beside: Beside | None) -> Role:
        places = None
        try:
            if beside is None:
                limit = self.startup_timeout
                places = placement.take(name, specs, self._lends, limit)
                beside = Beside(None, places.part, [{}] * len(specs))
            cluster = self._start(name, specs, beside)
            try:
                workers = self._workers_of(name, cluster, specs)
            except BaseException:
                cluster.destroy()
                raise
            return Role(name, workers, cluster, places, beside.target)
        except Exception as e:
            if places is not None:
                with suppress(MusterError):
                    places.release()
            raise failures.of_creation(name, e) from e

    def _start(self, name: str, specs: list[Any], beside: Beside) -> Cluster:
        """The cluster, with its environment and configuration in its workers."""
        envs = environments(specs, self.exp_config)
        early = envs[0].early
        config = WorkerConfig(
            world_size=len(specs),
            env=early,
            preload=self._preload,
            http_open=self._http_open,
            kwargs={"rtensors": self._rtensors},
            start_timeout=self.startup_timeout,
            start="exec" if "LD_PRELOAD" in early else "fork",
        )
        if self._logs:
            self._logs.add(name)
        cluster = Cluster(name, SERVER, beside.part, config)
        try:
            calls = [
                cluster.execute_rank_async(
                    rank,
                    "configure",
                    env.late | beside.devices[rank],
                    self.exp_config,
                    name,
                    rank,
                    cluster.address(rank),
                )
                for rank, env in enumerate(envs)
            ]
            gather(calls, self.startup_timeout)
        except BaseException:
            cluster.destroy()
            raise
        return cluster

    def _workers_of(
        self, name: str, cluster: Cluster, specs: list[Any]
    ) -> list[NativeWorker]:
        made = []
        for rank, spec in enumerate(specs):
            ip, _, port = cluster.address(rank).rpartition(":")
            ports = [port]
            if spec.port_count > 1:
                held = cluster.alloc_ports(spec.port_count - 1, rank)[1]
                ports += map(str, held)
            told = Worker(
                id=f"{name}/{rank}", ip=ip.strip("[]"), worker_ports=ports
            )
            made.append(NativeWorker(told, cluster, rank))
        return made

    # ---- colocation -------------------------------------------------------------------

    def _colocate(self, job: Any, specs: list[Any], strategy: Any) -> Role:
        if not strategy.target:
            raise WorkerCreationError(
                job.role, "colocation needs a target", "scheduling_strategy.target is empty"
            )
        target = self._find_role(strategy.target, " (the target of a colocation)")
        if not strategy.fork:
            if job.replicas != len(target.workers):
                raise _mismatch(job.role, job.replicas, target)
            return Role(job.role, target.workers, target=target.name, shares=True)
        return self._fork(job.role, specs, target)

    def _fork(self, name: str, specs: list[Any], target: Role) -> Role:
        """New processes on the devices of another role's, also if those are more, or
        fewer."""
        part = self._part_of(target)
        count, there = len(specs), len(target.workers)
        if part is None or (there % count and count % there):
            raise _mismatch(name, count, target)
        seats = [part._seats[i * there // count] for i in range(count)]
        devices: list[dict[str, str]] = [{}] * count
        if count != there:
            devices = visible(name, count, part.placement, target)
        return self._create(name, specs, Beside(target.name, GroupPart(seats), devices))

    def _part_of(self, role: Role) -> GroupPart | None:
        """Of a role that stands in another one's places: those."""
        while role.places is None and role.target is not None:
            if role.cluster is None and not role.shares:
                return None  # commands
            role = self._roles[role.target]
        return role.places.part if role.places else None

    def fork_workers(
        self, role: str, target_role: str, command: str | None = None
    ) -> list[str]:
        """A worker beside each of another role's, on its devices; or `python -m command`,
        which speaks AReaL's HTTP."""
        with self._lock:
            self._check_new(role)
            target = self._find_role(target_role, " (the target of a fork)")
            if command is not None:
                made = self._fork_command(role, target, command)
            else:
                ports = len(target.workers[0].told.worker_ports)
                spec = SchedulingSpec(cpu=0, mem=0, port_count=ports)
                made = self._fork(role, [spec] * len(target.workers), target)
            self._roles[role] = made
            return made.ids

    def _fork_command(self, name: str, target: Role, command: str) -> Role:
        from muster.areal.command_worker import READY_S, CommandWorker

        role = Role(name, [], target=target.name)
        deadline = time.monotonic() + READY_S
        try:
            for index, beside in enumerate(target.workers):
                if not isinstance(beside, NativeWorker):
                    raise WorkerCreationError(
                        name, f"{target.name!r} is made of commands, and cannot be forked"
                    )
                host, ports = beside.view.alloc_ports(
                    max(1, len(beside.told.worker_ports))
                )
                told = Worker(
                    id=f"{name}/{index}", ip=host, worker_ports=list(map(str, ports))
                )
                parent = (beside.told.ip, int(beside.told.worker_ports[0]))
                words = self._words(command, name, index, ports[0])
                role.workers.append(
                    CommandWorker(told, parent, api.http_token(), words)
                )
            for worker in role.workers:
                worker.wait_ready(deadline)  # type: ignore[attr-defined]
        except Exception as e:
            role.end()
            raise failures.of_creation(name, e) from e
        return role

    def _words(self, command: str, role: str, index: int, port: int) -> list[str]:
        """As AReaL's own servers are started."""
        words = [sys.executable, "-m", command, "--host", "0.0.0.0", "--port", str(port)]
        told: dict[str, Any] = {
            "--experiment-name": self.experiment_name,
            "--trial-name": self.trial_name,
            "--role": role,
            "--worker-index": index,
            "--fileroot": self.fileroot,
        }
        if self.exp_config is not None:
            resolve = self.exp_config.cluster.name_resolve
            told["--name-resolve-type"] = resolve.type
            told["--nfs-record-root"] = resolve.nfs_record_root
            told["--etcd3-addr"] = resolve.etcd3_addr
        for option, value in told.items():
            if value is not None:
                words += [option, str(value)]
        return words

    # ---- looking, and the end ---------------------------------------------------------

    def get_workers(self, role: str, timeout: float | None = None) -> list[Any]:
        """Their ids, addresses and ports, when all answer."""
        found = self._find_role(role)
        limit = self.startup_timeout if timeout is None else timeout
        deadline = time.monotonic() + limit
        for worker in found.workers:
            left = max(0.001, deadline - time.monotonic())
            try:
                worker.check(left)
            except WorkerDied as e:
                raise failures.died(worker.told.id, e) from e
            except (MusterError, TimeoutError) as e:
                raise WorkerTimeoutError(role, limit) from e
        return [worker.told for worker in found.workers]

    def delete_workers(
        self, role: str | None = None, reverse_order: bool = False
    ) -> None:
        """End the workers of a role, or all, and give back what they held. Engines are
        destroyed first, in all ranks at once; rank 0 always ends last. What runs beside
        them ends too."""
        with self._lock:
            if role is None:
                while self._roles:
                    self.delete_workers(next(iter(self._roles)))
            elif role not in self._roles:
                logger.warning("delete_workers: there is no role %r", role)
            else:
                for name, other in list(self._roles.items()):
                    if other.target == role:
                        self.delete_workers(name)
                self._end(self._roles.pop(role))

    def _end(self, role: Role) -> None:
        if not api.is_initialized():
            return
        try:
            role.end()
        except MusterError as e:
            logger.warning("delete_workers: %s: %s", role.name, e)

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

    def _find_worker(self, worker_id: str) -> RoleWorker:
        name, _, index = worker_id.rpartition("/")
        role = self._roles.get(name)
        if role is not None and not role.shares and index.isdecimal():
            number = int(index)
            if number < len(role.workers):
                return role.workers[number]
        raise WorkerNotFoundError(worker_id)

    async def set_worker_env(self, worker_id: str, env: dict[str, str]) -> None:
        """Variables of a worker, before its engines are made."""
        worker = self._find_worker(worker_id)
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
        worker = self._find_worker(worker_id)
        if not isinstance(engine, str):
            raise EngineCreationError(
                worker_id, f"engine: an import path is needed: {engine!r}"
            )
        name = worker_id if engine_name is None else engine_name
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
        worker = self._find_worker(worker_id)
        engine = worker_id if engine_name is None else engine_name
        told = (engine, method, args, kwargs, rpc_meta)
        attempts = Attempts(http_timeout, max_retries, retry_delay)
        pending: Any = None
        while True:
            try:
                if pending is None:
                    pending = worker.call(attempts.left, *told)
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
        worker = self._find_worker(worker_id)
        engine = worker_id if engine_name is None else engine_name
        told = (engine, method, args, kwargs, rpc_meta)
        attempts = Attempts(http_timeout, max_retries, retry_delay)
        while True:
            try:
                with attempts.telling(worker_id, method):
                    return await worker.call(attempts.left, *told)
            except Exception as e:
                if not attempts.may_repeat(e):
                    raise failures.of_call(worker, method, e, attempts.number) from e
                await asyncio.sleep(attempts.next_try())


def _specs_of(job: Any) -> list[Any]:
    """One for each worker."""
    if job.replicas < 1:
        raise WorkerCreationError(
            job.role, "replicas must be at least 1", f"it is {job.replicas}"
        )
    tasks = list(job.tasks or ())
    if not tasks:
        tasks = [SchedulingSpec(cpu=1, mem=1)]
    if len(tasks) == 1:
        tasks *= job.replicas
    if len(tasks) != job.replicas:
        raise WorkerCreationError(
            job.role,
            "tasks: one for all workers, or one for each",
            f"there are {len(tasks)} for {job.replicas} workers",
        )
    for spec in tasks:
        check_command(job.role, spec.cmd)
    return tasks


def _mismatch(role: str, count: int, target: Role) -> Exception:
    there = len(target.workers)
    made: Exception = WorkerCreationError(
        role,
        "the numbers of workers do not match",
        f"{count} workers beside the {there} of {target.name!r}",
    )
    return made


def _clear_names(exp_config: Any) -> None:
    """What an earlier run of the same trial has told about itself is wrong now."""
    name_resolve.reconfigure(exp_config.cluster.name_resolve)
    name_resolve.clear_subtree(
        names.trial_root(exp_config.experiment_name, exp_config.trial_name)
    )
