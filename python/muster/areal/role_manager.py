"""The roles of a scheduler: their workers are created, forked, looked at and ended."""

from __future__ import annotations

import logging
import sys
import threading
import time
from contextlib import suppress
from typing import NamedTuple

from areal.api import Worker  # type: ignore[import-not-found]
from areal.api.cli_args import SchedulingSpec  # type: ignore[import-not-found]
from areal.infra.scheduler.exceptions import (  # type: ignore[import-not-found]
    WorkerCreationError,
    WorkerNotFoundError,
    WorkerTimeoutError,
)

from muster import api
from muster.areal import failures, placement
from muster.areal.environment import check_command, environments, visible
from muster.areal.roles import NativeWorker, Role
from muster.cluster import Cluster
from muster.config import WorkerConfig
from muster.errors import MusterError, WorkerDied
from muster.future import gather
from muster.groups import GroupPart

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from muster.areal.log_files import LogFiles
    from muster.areal.roles import RoleWorker

logger = logging.getLogger("muster.areal")
SERVER = "muster.areal.engine_server.EngineServer"


class Settings(NamedTuple):
    """What holds for all roles of a scheduler."""

    exp_config: Any
    experiment_name: str | None
    trial_name: str | None
    fileroot: str | None
    startup_timeout: float
    http_open: bool
    rtensors: bool
    preload: list[str]
    lends: bool  # an orchestrator is asked for the machines of each role
    ray_job: (
        tuple[str, str, dict[str, str]] | None
    )  # where the trial's names are, if that is Ray


class Beside(NamedTuple):
    """Where a role's workers go, and which devices of it each may use ({}: all)."""

    target: str | None  # whose places they are; None: its own
    part: GroupPart
    devices: list[dict[str, str]]


class RoleManager:
    def __init__(self, settings: Settings, logs: LogFiles | None) -> None:
        self.settings = settings
        self.roles: dict[str, Role] = {}
        self._logs = logs
        self._lock = threading.RLock()

    def create_workers(self, job: Any) -> list[str]:
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
            self.roles[job.role] = role
            return role.ids

    def _check_new(self, role: str) -> None:
        if role in self.roles:
            raise WorkerCreationError(
                role, "the role exists", f"delete_workers({role!r}) ends its workers"
            )

    def _find_role(self, role: str, what: str = "") -> Role:
        found = self.roles.get(role)
        if found is None:
            raise WorkerNotFoundError(f"{role}{what}")
        return found

    def _create(self, name: str, specs: list[Any], beside: Beside | None) -> Role:
        places = None
        try:
            if beside is None:
                limit = self.settings.startup_timeout
                places = placement.take(name, specs, self.settings.lends, limit)
                beside = Beside(None, places.part, [{}] * len(specs))
            cluster = self._start(name, specs, beside)
            try:
                workers = self._workers_of(name, cluster, specs)
            except BaseException:
                cluster.destroy()
                raise
            return Role(name, workers, cluster, beside.part, places, beside.target)
        except BaseException as e:
            if places is not None:
                with suppress(MusterError):
                    places.release()
            if not isinstance(e, Exception):
                raise
            raise failures.of_creation(name, e) from e

    def _start(self, name: str, specs: list[Any], beside: Beside) -> Cluster:
        """The cluster, with its environment and configuration in its workers."""
        envs = environments(specs, self.settings.exp_config)
        early = envs[0].early
        config = WorkerConfig(
            world_size=len(specs),
            env=early,
            preload=self.settings.preload,
            http_open=self.settings.http_open,
            kwargs={"rtensors": self.settings.rtensors},
            start_timeout=self.settings.startup_timeout,
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
                    self.settings.exp_config,
                    name,
                    rank,
                    cluster.address(rank),
                    self.settings.ray_job,
                )
                for rank, env in enumerate(envs)
            ]
            gather(calls, self.settings.startup_timeout)
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
            info = Worker(id=f"{name}/{rank}", ip=ip.strip("[]"), worker_ports=ports)
            made.append(NativeWorker(info, cluster, rank))
        return made

    # ---- colocation -------------------------------------------------------------------

    def _colocate(self, job: Any, specs: list[Any], strategy: Any) -> Role:
        if not strategy.target:
            raise WorkerCreationError(
                job.role,
                "colocation needs a target",
                "scheduling_strategy.target is empty",
            )
        target = self._find_role(strategy.target, " (the target of a colocation)")
        if not strategy.fork:
            if job.replicas != len(target.workers):
                raise _mismatch(job.role, job.replicas, target)
            return target.shared_as(job.role)
        return self._fork(job.role, specs, target)

    def _fork(self, name: str, specs: list[Any], target: Role) -> Role:
        """New processes on the devices of another role's, also if those are more, or
        fewer."""
        part, count, there = target.part, len(specs), len(target.workers)
        if part is None or (there % count and count % there):
            raise _mismatch(name, count, target)
        seats = [part._seats[i * there // count] for i in range(count)]
        devices: list[dict[str, str]] = [{}] * count
        if count != there or target.places is None:
            devices = visible(name, count, part.placement, target)
        return self._create(name, specs, Beside(target.name, GroupPart(seats), devices))

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
                ports = len(target.workers[0].info.worker_ports)
                spec = SchedulingSpec(cpu=0, mem=0, port_count=ports)
                made = self._fork(role, [spec] * len(target.workers), target)
            self.roles[role] = made
            return made.ids

    def _fork_command(self, name: str, target: Role, command: str) -> Role:
        from muster.areal.command_worker import READY_S, CommandWorker

        role = Role(name, [], target=target.name)
        if self._logs:
            self._logs.add(name)
        deadline = time.monotonic() + READY_S
        try:
            for index, beside in enumerate(target.workers):
                if not isinstance(beside, NativeWorker):
                    raise WorkerCreationError(
                        name,
                        f"{target.name!r} is made of commands, and cannot be forked",
                    )
                host, ports = beside.view.alloc_ports(
                    max(1, len(beside.info.worker_ports))
                )
                info = Worker(
                    id=f"{name}/{index}", ip=host, worker_ports=list(map(str, ports))
                )
                parent = (beside.info.ip, int(beside.info.worker_ports[0]))
                words = self._words(command, name, index, ports[0])
                role.workers.append(
                    CommandWorker(info, parent, api.http_token(), words)
                )
            for worker in role.workers:
                worker.wait_ready(deadline)  # type: ignore[attr-defined]
        except Exception as e:
            role.end()
            raise failures.of_creation(name, e) from e
        return role

    def _words(self, command: str, role: str, index: int, port: int) -> list[str]:
        """As AReaL's own servers are started."""
        words = [
            sys.executable,
            "-m",
            command,
            "--host",
            "0.0.0.0",
            "--port",
            str(port),
        ]
        options: dict[str, Any] = {
            "--experiment-name": self.settings.experiment_name,
            "--trial-name": self.settings.trial_name,
            "--role": role,
            "--worker-index": index,
            "--fileroot": self.settings.fileroot,
        }
        if self.settings.exp_config is not None:
            resolve = self.settings.exp_config.cluster.name_resolve
            options["--name-resolve-type"] = resolve.type
            options["--nfs-record-root"] = resolve.nfs_record_root
            options["--etcd3-addr"] = resolve.etcd3_addr
        for option, value in options.items():
            if value is not None:
                words += [option, str(value)]
        return words

    # ---- looking, and the end ---------------------------------------------------------

    def get_workers(self, role: str, timeout: float | None = None) -> list[Any]:
        """Their ids, addresses and ports, when all answer."""
        found = self._find_role(role)
        limit = self.settings.startup_timeout if timeout is None else timeout
        deadline = time.monotonic() + limit
        for worker in found.workers:
            left = max(0.001, deadline - time.monotonic())
            try:
                worker.check(left)
            except WorkerDied as e:
                raise failures.died(worker.info.id, e) from e
            except (MusterError, TimeoutError) as e:
                raise WorkerTimeoutError(role, limit) from e
        return [worker.info for worker in found.workers]

    def delete_workers(
        self, role: str | None = None, reverse_order: bool = False
    ) -> None:
        """End the workers of a role, or all, and give back what they held. Engines are
        destroyed first, in all ranks at once; rank 0 always ends last. What runs beside
        them ends too."""
        with self._lock:
            if role is None:
                while self.roles:
                    self.delete_workers(next(iter(self.roles)))
            elif role not in self.roles:
                logger.warning("delete_workers: there is no role %r", role)
            else:
                for name, other in list(self.roles.items()):
                    if other.target == role:
                        self.delete_workers(name)
                self._end(self.roles.pop(role))

    def _end(self, role: Role) -> None:
        if not api.is_initialized():
            return
        try:
            role.end()
        except MusterError as e:
            logger.warning("delete_workers: %s: %s", role.name, e)

    def find_worker(self, worker_id: str) -> RoleWorker:
        name, _, index = worker_id.rpartition("/")
        role = self.roles.get(name)
        if role is not None and not role.shares and index.isdecimal():
            number = int(index)
            if number < len(role.workers):
                return role.workers[number]
        raise WorkerNotFoundError(worker_id)


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
