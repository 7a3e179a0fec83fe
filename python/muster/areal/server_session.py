"""The session behind `muster.areal.rpc_server`: one worker, and nothing for others."""

from __future__ import annotations

import getpass
import json
import os
import select
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import muster
from muster import _core, api
from muster._cluster.member import http_url
from muster._cluster.spec import cluster_spec
from muster._worker.rtensor import NAMES_VARIABLE
from muster.areal.log_files import LogFiles
from muster.config import WorkerConfig
from muster.errors import MusterError, WorkerDied

if TYPE_CHECKING:
    import argparse

# What a launcher says of the process that it has started; here it is a server's, and the
# session must not take it for its own.
_LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
# What Muster would set, and a server of AReaL's takes from its environment.
_KEPT = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")


def _numeric(host: str) -> str:
    import socket

    return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])


class Names:
    """Where AReaL's schedulers look for a server: its record in name_resolve."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.kind = options.name_resolve_type
        self.config = {
            "type": self.kind,
            "nfs_record_root": options.nfs_record_root,
            "etcd3_addr": options.etcd3_addr,
        }
        trial = f"{getpass.getuser()}/{options.experiment_name}/{options.trial_name}"
        self.name = f"{trial}/workers/{options.role}/{options.worker_index}"
        self.root = os.path.normpath(options.nfs_record_root)
        self.path = os.path.join(self.root, self.name, "ENTRY")
        self._resolve: Any = None
        self._address = ""  # that was added

    def add(self, address: str) -> None:
        if self.kind == "nfs":  # a file, and AReaL need not be loaded for it
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            written = f"{self.path}.tmp.{os.getpid()}"
            with open(written, "w") as out:
                out.write(address)
            os.rename(written, self.path)
            self._address = address
            return
        import importlib

        self._resolve = importlib.import_module("areal.utils.name_resolve")
        config = importlib.import_module("areal.api.cli_args").NameResolveConfig
        self._resolve.reconfigure(config(**self.config))
        self._resolve.add(self.name, address, replace=True)

    def _read(self) -> str:
        with open(self.path) as entry:
            return entry.read()

    def remove(self) -> None:
        """Ours alone: another server of that name may have replaced it."""
        with suppress(Exception):  # a scheduler may have cleared the whole trial
            if self._resolve is not None:
                self._resolve.delete(self.name)
            elif self._address and self._read() == self._address:
                os.remove(self.path)
                folder = os.path.dirname(self.path)
                while folder != self.root:
                    os.rmdir(folder)  # until one is not empty
                    folder = os.path.dirname(folder)


class ChildLogs(LogFiles):
    """Of all but the server itself: whoever started that has its output."""

    def __init__(self, options: argparse.Namespace) -> None:
        parts = ("logs", getpass.getuser(), options.experiment_name, options.trial_name)
        super().__init__(os.path.join(options.fileroot or "/tmp", *parts))
        self.add(options.role)

    def has(self, role: str) -> bool:
        return not super().has(role)


def _worker_env(names: Names) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return kept | {NAMES_VARIABLE: json.dumps(names.config)}


def _start(options: argparse.Namespace, names: Names) -> dict[str, Any]:
    """The worker, as its head tells of it. It has no engine yet."""
    import warnings

    role = WorkerConfig(
        world_size=1, start="exec", http_open=True, env=_worker_env(names)
    )
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # that it is open: AReaL's is too, and it is said
        where = muster.ResourceManager().request(role)
        spec = cluster_spec(options.role, object, role, where, False)
    host = _numeric(options.host)
    at = f"[{host}]" if ":" in host else host
    spec["worker"]["listen"] = f"{at}:{options.port}"
    try:
        status = api.session().head.ask("create", {"spec": spec}).result(None)
    except _core.Refused as e:
        raise MusterError(e.args[0]) from None
    found: dict[str, Any] = status["workers"][0]
    return found


def _wait(stop_fd: int, pid: int) -> bool:
    """Until the end is asked for (True), or the worker has ended."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGTERM, lambda signum, frame: None)
    signal.set_wakeup_fd(wake_write)
    pidfd = os.pidfd_open(pid)
    try:
        ready, _, _ = select.select([stop_fd, wake_read, pidfd], [], [])
        return pidfd not in ready
    finally:
        os.close(pidfd)


def _exit_code(worker: dict[str, Any], role: str) -> int:
    """Of a worker that has ended by itself; says how."""
    peer = api.session().head.peer(worker["address"], worker["uid"], role)
    try:
        peer.control("health", {}, _core.ANSWER_S)
    except WorkerDied as e:
        print(e, file=sys.stderr, flush=True)
        if e.signal:
            return 128 + e.signal
        return 1 if e.exit_code is None else e.exit_code
    except Exception as e:
        print(e, file=sys.stderr, flush=True)
    return 1


def serve(options: argparse.Namespace, stop_fd: int) -> int:
    """Until `stop_fd` can be read, or the worker ends; the exit code."""
    for name in _LAUNCHERS:
        os.environ.pop(name, None)
    names = Names(options)
    muster.init("local", num_gpus=0, dedup_logs=False)
    try:
        with suppress(OSError):  # their folder cannot be made: they are on the terminal
            api.session().pump.tap(ChildLogs(options).write)
        worker = _start(options, names)
        address = http_url(worker["address"]).removeprefix("http://")
        names.add(address)
        print(
            f"{options.role}/{options.worker_index} at {address}: whoever reaches it can "
            "run anything here, as with AReaL's own server",
            flush=True,
        )
        if not _wait(stop_fd, worker["pid"]):
            return _exit_code(worker, options.role)
        return 0
    finally:
        names.remove()
        muster.shutdown()
