"""The zygote: an interpreter that has imported what workers need, and forks them.

One thread, no event loop. The talk with the agent is in C (src/agent/zygote_side.h).
"""

from __future__ import annotations

import gc
import importlib
import os
import random
import sys
from typing import Any

from . import _core


def _preload(modules: list[str]) -> str:
    """Import what can be imported; what cannot is told, and seen again in the worker."""
    problems = []
    for name in modules:
        try:
            importlib.import_module(name)
        except BaseException as error:
            problems.append(f"{name}: {type(error).__name__}: {error}")
    return "; ".join(problems)


def _get_ready(fd: int, modules: list[str]) -> None:
    problem = _preload(modules)
    threads = _core.zygote_threads()
    gc.collect()
    gc.freeze()
    if threads > 1:
        problem = "; ".join(filter(None, [problem, f"{threads} threads are running"]))
    _core.zygote_ready(fd, problem, threads <= 1)


def _become_worker(fd: int, request: tuple[Any, ...]) -> None:
    _, _, _, _, env, working_dir, boot, control_fd, listen_fd = request
    _core.zygote_child(fd)
    for entry in env:
        name, _, value = entry.partition("=")
        os.environ[name] = value
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy.random" in sys.modules:
        numpy.random.seed()
    sys.argv = ["muster-worker"]
    from . import _worker

    _worker.main_fork(boot, control_fd, listen_fd)


def _fork(fd: int, uid: int) -> int:
    try:
        pid = os.fork()
    except OSError as error:
        _core.zygote_started(fd, uid, 0, error.errno or 0)
        return -1
    if pid:
        _core.zygote_started(fd, uid, pid, 0)
    return pid


def main() -> None:
    fd = int(os.environ.pop("MUSTER_ZYGOTE_FD"))
    while (request := _core.zygote_next(fd)) is not None:
        kind = request[0]
        if kind == "setup":
            _, sys_path, preload = request
            sys.path[:] = sys_path + [p for p in sys.path if p not in sys_path]
            importlib.import_module("muster._worker")
            _preload(["numpy", "cloudpickle"])
            _get_ready(fd, preload)
        elif kind == "spawn":
            if _fork(fd, request[1]) == 0:
                try:
                    _become_worker(fd, request)
                finally:
                    os._exit(1)
        elif kind == "derive":
            if _fork(fd, request[1]) == 0:
                fd = _core.zygote_child(fd)
                _get_ready(fd, request[2])
