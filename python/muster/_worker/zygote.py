"""The zygote: an interpreter that has imported what workers need, and forks them."""

# Started by the agent as ``python -c "from muster._worker.zygote import main; main()"``
# with a seqpacket socket whose number is in ``MUSTER_ZYGOTE_FD``. One thread and no
# event loop: it waits in C (``src/agent/zygotes/process.h``), forks, reports and reaps.
# A module that cannot be imported here is no failure: a worker that needs it imports it
# again, and the error reaches the caller.

from __future__ import annotations

import errno
import gc
import importlib
import os
import sys
import traceback
from typing import Any, NoReturn

from muster import _core
from muster._session.package import usable_paths
from muster._worker import fork_hooks, loaded_files
from muster._worker.exit import leave

# What every worker has, if it is installed.
_ALWAYS = ("numpy", "cloudpickle")


# What a module imports only when it is used: seconds of each worker's first step.
_USED_LATER = {"torch": ("torch.distributed", "torch.nn.parallel", "torch._dynamo")}


def _import_all(preload: list[str]) -> list[str]:
    problems = _import(preload, optional=False)
    for name in preload:
        _import(_USED_LATER.get(name, ()), optional=True)
    return problems


def _import(names: list[str] | tuple[str, ...], *, optional: bool) -> list[str]:
    """Import modules and say what went wrong with which."""
    problems = []
    for name in names:
        try:
            with loaded_files.watch():
                importlib.import_module(name)
        except BaseException as error:  # a module may even call sys.exit
            missing = isinstance(error, ModuleNotFoundError) and error.name == name
            if optional and missing:
                continue
            traceback.print_exc()
            problems.append(f"cannot import '{name}': {type(error).__name__}: {error}")
    return problems


def _obstacle() -> str:
    """Why a fork of this process would not work, or nothing."""
    if _core.zygote_threads() > 1:
        # OpenBLAS and its like end their threads before a fork and start them again
        # when they are needed: only what is left after one is in the way.
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        count = _core.zygote_threads()
        if count > 1:
            return f"the imports started {count - 1} threads"
    torch = sys.modules.get("torch")
    for device in ("cuda", "npu"):
        is_initialized = getattr(getattr(torch, device, None), "is_initialized", None)
        if is_initialized is not None and is_initialized():
            return f"the imports initialised {device}"
    return ""


def _report(fd: int, problems: list[str]) -> None:
    for path, (size, mtime_ns) in loaded_files.files.items():
        _core.zygote_loaded(fd, path, size, mtime_ns)
    for entry in loaded_files.changed_variables():
        _core.zygote_changed(fd, entry)
    obstacle = _obstacle()
    if obstacle:
        problems = [*problems, obstacle]
    _core.zygote_ready(fd, "; ".join(problems), not obstacle)


def _settle() -> None:
    """Let children share the memory of what was imported."""
    from muster._worker.main import prepare_process

    sys.stdout.flush()
    sys.stderr.flush()
    prepare_process()
    gc.freeze()
    _core.zygote_fill()


def _set_up(sys_path: list[str], preload: list[str]) -> list[str]:
    if sys_path:
        role = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        found = [os.path.abspath(entry) for entry in role]
        added = [entry for entry in found if entry not in sys_path]
        sys.path[:] = usable_paths([*added, *sys_path])
    sys.argv = ["muster-worker"]
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    problems = _import(_ALWAYS, optional=True)
    problems += _import(("muster._worker.main",), optional=False)
    return problems + _import_all(preload)


def _be_own() -> None:
    """In the child: have what must not be the zygote's."""
    gc.enable()
    numpy_random = sys.modules.get("numpy.random")  # random does it by itself
    if numpy_random is not None:
        # from numbers: ten times as quick as from nothing
        numpy_random.seed(memoryview(os.urandom(16)).cast("I").tolist())


def _run_worker(fd: int, request: tuple[Any, ...]) -> NoReturn:
    """In the child: the rest of the worker's life."""
    try:
        _core.zygote_child(fd)
        _, _, env, fds = request
        # what is behind os.environ, whose own steps touch more pages
        environ = os.environ._data  # type: ignore[attr-defined]
        for entry in env:
            name, _, value = entry.partition(b"=")
            if environ.get(name) != value:  # most are the zygote's own
                os.putenv(name, value)
                environ[name] = value
        from muster._worker.main import run

        run(*fds)
    except BaseException:  # before that
        traceback.print_exc()
    leave(1)


def _fork(fd: int, uid: int) -> int:
    """A fork, reported. -1: it failed, 0: this is the child."""
    try:
        pid = fork_hooks.fork()
    except OSError as error:
        _core.zygote_started(fd, uid, 0, error.errno or errno.EAGAIN)
        return -1
    if pid:
        _core.zygote_started(fd, uid, pid, 0)
    return pid


def _carry_out(fd: int, request: tuple[Any, ...]) -> int:
    """In the child: be a worker, or return as a zygote with a socket of its own."""
    _be_own()
    if request[0] == "spare":
        request = _core.zygote_spare(fd) or os._exit(0)
    if request[0] == "spawn":
        _run_worker(fd, request)
    gc.disable()
    fd = _core.zygote_child(fd)
    problems = _import_all(request[2])
    _settle()
    _report(fd, problems)
    return fd


def _serve(fd: int) -> None:
    while True:
        request = _core.zygote_next(fd)
        if request is None:
            return
        if _fork(fd, request[1]) == 0:
            fd = _carry_out(fd, request)


def main() -> NoReturn:
    """The whole life of a zygote."""
    gc.disable()  # on again in each worker
    fd = int(os.environ.pop("MUSTER_ZYGOTE_FD"))
    os.environ.pop("MUSTER_WORKER_UID", None)
    request = _core.zygote_next(fd)
    if request is not None:
        _, sys_path, preload = request
        problems = _set_up(sys_path, preload)
        _settle()
        _report(fd, problems)
        _serve(fd)
    os._exit(0)
