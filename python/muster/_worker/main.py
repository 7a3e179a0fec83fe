"""A worker's main program: engines under names, and what runs them."""

# The C host answers everything that must be answered while an engine computes; this
# module creates engines, finds their methods, and describes their exceptions. A worker
# whose engines are all synchronous runs them one at a time, in order, on the main
# thread; as soon as one engine's class has an `async def` method, all methods run on
# one asyncio loop.

from __future__ import annotations

import atexit
import faulthandler
import importlib
import inspect
import os
import signal
import sys
import threading
import traceback
import types
from _signal import (  # type: ignore[import-not-found]
    signal as set_signal,  # without its enums
)
from typing import TYPE_CHECKING, Any, NoReturn

from muster import _core
from muster._data.serialize import dumps_exception
from muster._session import package
from muster._session.addresses import join_host
from muster._worker import engines, seeds
from muster._worker.exit import exit_code, finish_engines, leave
from muster.dispatch import methods_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor

DEFAULT_CONCURRENCY = 1000
_HIDDEN = "is_hidden_engine"  # an attribute of its class
_SIGTERM = int(signal.SIGTERM)


class _NoSuchEngine(LookupError):
    """A call to an engine that is not here."""


class _NoSuchMethod(AttributeError):
    """A call to a method that the engine does not have."""


def find_class(cls: Any) -> Any:
    """A class as it is, or the one at an import path ("pkg.mod.Class")."""
    if not isinstance(cls, str):
        return cls
    module_name, _, name = cls.rpartition(".")
    if not module_name:
        raise ImportError(f"'{cls}' is not an import path: pkg.module.Class is needed")
    found: Any = importlib.import_module(module_name)
    try:
        return getattr(found, name)
    except AttributeError:
        raise ImportError(f"module '{module_name}' has no class '{name}'") from None


def _is_async(member: object) -> bool:
    return inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)


def _has_async_methods(cls: Any) -> bool:
    functions = (types.FunctionType, staticmethod)
    return any(
        isinstance(member, functions) and _is_async(getattr(cls, name, None))
        for base in getattr(cls, "__mro__", ())[:-1]  # object has none
        for name, member in base.__dict__.items()
    )


_mask = threading.local()  # of signals, before a fork


class Worker:
    """The engines of this process."""

    def __init__(self, control_fd: int, listen_fd: int, listen_tcp_fd: int) -> None:
        self.engines = engines.engines
        self.listen_tcp_fd = listen_tcp_fd
        self.mesh: dict[str, int] | None = None  # as the cluster's creator gave it
        self.is_async = False
        self.finished: set[int] = set()  # engines whose clean-up was begun, by id
        self.concurrency = DEFAULT_CONCURRENCY
        self.threads: dict[int, Executor] = {}  # of engines whose methods run in them
        self.unanswered: dict[Any, _core.Request] = {}  # the process's end answers them
        self.host = _core.Host(
            control_fd,
            listen_fd,
            listen_tcp_fd,
            self.operate,
            self.resolve,
            self.describe,
        )
        self.on_terminate = (
            self.terminate
        )  # one object, so that `is` finds out whether it is installed

    # -- what the host calls ------------------------------------------------------------

    def resolve(self, engine: str, method: str) -> Any:
        """The engine, which has that method."""
        target = self.engines.get(engine)
        if target is None:
            there = ", ".join(self.engines) or "none"
            raise _NoSuchEngine(f"no engine '{engine}' in this worker (there: {there})")
        if not callable(getattr(target, method, None)):
            raise _NoSuchMethod(f"'{type(target).__name__}' has no method '{method}'")
        return target

    def operate(self, op: int, argument: Any) -> Any:
        if _core.OP_HTTP_CONFIGURE <= op <= _core.OP_HTTP_CALL:  # answered with bytes
            from muster._worker import http

            return http.operate(self, op, argument)
        operation = _OPERATIONS.get(op)
        if operation is None:
            raise ValueError(f"unknown operation {op}")
        return operation(self, argument)

    def describe(
        self, error: BaseException, kind: int
    ) -> tuple[int, str, str, str, bytes]:
        """(kind, type, message, traceback, pickled) of an exception."""
        if isinstance(error, _NoSuchEngine):
            kind = _core.NO_ENGINE
        elif isinstance(error, _NoSuchMethod):
            kind = _core.NO_METHOD
        cls = type(error)
        text = "".join(traceback.format_exception(cls, error, error.__traceback__))
        return (
            kind,
            f"{cls.__module__}.{cls.__qualname__}",
            _as_text(_message_of(error)),
            _as_text(text),
            dumps_exception(error),
        )

    @property
    def http_address(self) -> str:
        """ "host:port", by which others reach its HTTP."""
        import socket

        with socket.socket(fileno=os.dup(self.listen_tcp_fd)) as listener:
            port = listener.getsockname()[1]
        return join_host(self.host.address, port)

    # -- operations ---------------------------------------------------------------------

    def create_engine(
        self,
        name: str,
        cls: Any,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        max_concurrency: int | None = None,
        mesh: dict[str, int] | None = None,
    ) -> Any:
        """Its registered methods, if the class was given by its path."""
        _core.check_engine_name(name)
        if name in self.engines:
            raise ValueError(f"there is an engine '{name}' in this worker already")
        found = find_class(cls)
        seeds.set_new()
        engines.constructing.append(name)
        try:
            self.engines[name] = found(*args, **(kwargs or {}))
        finally:
            engines.constructing.pop()
        has_async = _has_async_methods(found)
        if max_concurrency and has_async:
            self.concurrency = max_concurrency
        has_threads = (max_concurrency or 1) > 1 and not has_async
        if has_threads:
            from concurrent.futures import ThreadPoolExecutor

            made = self.engines[name]
            threads = ThreadPoolExecutor(max_concurrency, type(made).__name__)
            self.threads[id(made)] = threads
        self._tell_engines()
        if (has_async or has_threads) and not self.is_async:
            self.is_async = True
            self.host.stop()  # leaves serve(); _run goes on with an event loop
        if mesh:
            self.mesh = mesh
        return methods_of(found) if isinstance(cls, str) else None

    def _tell_engines(self) -> None:
        """What health reports, without those that only hold others."""
        shown = (n for n, e in self.engines.items() if not hasattr(type(e), _HIDDEN))
        self.host.set_engines(list(shown))

    def threads_of(self, function: Any) -> Executor | None:
        """Where a method runs; None: on the main thread."""
        if not self.threads:
            return None
        found = self.threads.get(id(getattr(function, "__self__", None)))
        if found is None and len(self.threads) == len(self.engines):
            found = next(iter(self.threads.values()))  # of a class or static method
        return found

    def look(self, engine: str, what: str, name: str) -> Any:
        """What a cluster wants to know of an engine, for its registered methods."""
        if what == "mesh":
            return self.mesh
        if what == "registered":
            return engines.registered_mesh(engine, name)
        target = self.engines.get(engine)
        if target is None:
            raise _NoSuchEngine(f"no engine '{engine}' in this worker")
        if what == "methods":
            return methods_of(type(target))
        return engines.rank_info(target)

    def _destroy_engine(self, name: str) -> Any:
        engine = self.engines.pop(name, None)
        if engine is None:
            raise _NoSuchEngine(f"no engine '{name}' in this worker")
        engines.meshes.pop(name, None)
        threads = self.threads.pop(id(engine), None)
        if threads is not None:
            threads.shutdown(wait=False)
        self._tell_engines()
        return _call_hook(engine)

    def set_env(self, env: Mapping[str, str]) -> None:
        os.environ.update(env)

    def configure(self, config: Any, seed: int = 0, key: str | None = None) -> None:
        """Random generators begin anew, each worker's with numbers of its own."""
        engines.config = config
        if key is None:
            key = f"{self.host.cluster}{self.host.rank}"
        seeds.set_seed(seed, key)

    # -- the end ------------------------------------------------------------------------

    def terminate(self, signum: int, frame: Any) -> None:
        """The handler of SIGTERM."""
        if self.host.terminate(signum):  # no exception ends what runs
            self.host.leave()
            leave(128 + signum, self.end, atexit._run_exitfuncs)

    def end(self) -> None:
        """Answer what can be answered, and let the engines clean up."""
        self.host.end()
        signal.set_wakeup_fd(-1)
        finish_engines(self)

    @property
    def is_child(self) -> bool:
        """This is a process that the worker has forked."""
        return _core.in_worker() is None

    def before_fork(self) -> None:
        """SIGTERM waits until it is clear whose it is."""
        _mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def after_fork(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _mask.before)

    def after_fork_in_child(self) -> None:
        """Be no worker; and a signal that we get is not our parent's."""
        try:
            signal.set_wakeup_fd(-1)
            if signal.getsignal(signal.SIGTERM) is self.on_terminate:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
        finally:
            self.host.forget()
            self.after_fork()

    def finish(self) -> Any:
        """Give each engine its chance to clean up, once; to be awaited, unless None."""
        self.host.hold(True)
        try:
            later = self._begin_hooks()
        finally:
            self.host.hold(False)
        return _await_each(later) if later else None

    def _begin_hooks(self) -> list[Any]:
        later = []
        for engine in reversed(list(self.engines.values())):
            if id(engine) in self.finished:
                continue
            self.finished.add(id(engine))
            hook = _call_hook(engine)
            if hook is not None:
                later.append(hook)
        return later


_OPERATIONS: dict[int, Callable[[Worker, Any], Any]] = {
    _core.OP_CREATE_ENGINE: lambda worker, fields: worker.create_engine(**fields),
    _core.OP_DESTROY_ENGINE: Worker._destroy_engine,
    _core.OP_SET_ENV: Worker.set_env,
    _core.OP_LOOK: lambda worker, fields: worker.look(**fields),
    _core.OP_FINISH: lambda worker, _: worker.finish(),
    _core.OP_CONFIGURE: Worker.configure,
}


def _call_hook(engine: Any) -> Any:
    """Its clean-up, done, or to be awaited."""
    hook = getattr(engine, "destroy", None) or getattr(engine, "close", None)
    if not callable(hook):
        return None
    try:
        result = hook()
    except Exception:
        traceback.print_exc()
        return None
    return _await_each([result]) if inspect.iscoroutine(result) else None


async def _await_each(hooks: list[Any]) -> None:
    for hook in hooks:
        try:
            await hook
        except Exception:
            traceback.print_exc()


def _as_text(text: str) -> str:
    """Without what a string of C or of UTF-8 cannot have."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def _message_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as other:
        return f"(its message cannot be had: {other!r})"


_worker: Worker | None = None  # that this process is, or was forked by


def _when_forked(step: Callable[[Worker], None]) -> Callable[[], None]:
    def hook() -> None:
        if _worker is not None:
            step(_worker)

    return hook


os.register_at_fork(
    before=_when_forked(Worker.before_fork),
    after_in_parent=_when_forked(Worker.after_fork),
    after_in_child=_when_forked(Worker.after_fork_in_child),
)


def _hide_dropped() -> None:
    """Do not print the SystemExit that Python drops: it is raised again."""
    before = sys.unraisablehook

    def hook(dropped: Any) -> None:
        is_ending = _worker is not None and _worker.host.is_ending
        if not (is_ending and isinstance(dropped.exc_value, SystemExit)):
            before(dropped)

    sys.unraisablehook = hook


def prepare_process() -> None:
    """What holds for every worker; of a zygote's workers it is done before their fork.

    Ctrl-C at a terminal is the driver's. A crash (SIGSEGV and its like) leaves the stack of
    its thread in the worker's log, and so in `WorkerDied`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable(file=2, all_threads=False)
    _hide_dropped()
    if sys.breakpointhook is sys.__breakpointhook__:
        sys.breakpointhook = _breakpoint


def _prepare(worker: Worker) -> None:
    """Signals, stacks, and what forked children must not keep."""
    host = worker.host
    signum, fd = host.stack
    faulthandler.register(signum, file=fd, all_threads=True, chain=True)
    set_signal(_SIGTERM, worker.on_terminate)
    signal.set_wakeup_fd(host.wake_fd, warn_on_full_buffer=False)


def _breakpoint(*args: Any, **kwargs: Any) -> Any:
    """`breakpoint()`: `muster debug` attaches. PYTHONBREAKPOINT goes first, as ever."""
    if os.environ.get("PYTHONBREAKPOINT") or _core.in_worker() is None:
        return sys.__breakpointhook__(*args, **kwargs)
    from muster._worker import debugger  # which few need

    debugger.stop(sys._getframe(1), *args, **kwargs)
    return None


def _take_path(host: _core.Host) -> None:
    """Look for modules where the driver does."""
    for entry in reversed(package.usable_paths(host.sys_path)):
        if entry not in sys.path:
            sys.path.insert(0, entry)


def _serve(worker: Worker) -> None:
    while not worker.is_async:
        worker.host.serve()
        if not worker.is_async:
            return
    from muster._worker.async_server import serve_async

    serve_async(worker)


def run(
    control_fd: int, listen_fd: int, listen_tcp_fd: int, *, is_forked: bool = True
) -> NoReturn:
    """The life of a worker."""
    # A zygote calls it in the process that it has forked, which has the driver's module
    # path already. Until the first answer every page of shared memory that is touched
    # is copied, so little is done here.
    global _worker
    code = 1
    steps: tuple[Callable[[], object], ...] = (atexit._run_exitfuncs,)
    try:
        worker = _worker = Worker(control_fd, listen_fd, listen_tcp_fd)
        try:
            _prepare(worker)
            if not is_forked:
                _take_path(worker.host)
            package.enter(os.environ)
            _serve(worker)
            code = 0
        except SystemExit as end:
            worker.host.leave()
            code = exit_code(end)
        finally:
            worker.host.leave()
            if worker.is_child:
                steps = ()
            else:
                worker.end()
    except BaseException:
        traceback.print_exc()
    leave(code, *steps)


def main_exec() -> NoReturn:
    """Of a worker that was started as a fresh interpreter."""
    prepare_process()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    control_fd = int(os.environ.pop("MUSTER_CONTROL_FD"))
    listen_fd = int(os.environ.pop("MUSTER_LISTEN_FD"))
    listen_tcp_fd = int(os.environ.pop("MUSTER_LISTEN_TCP_FD"))
    run(control_fd, listen_fd, listen_tcp_fd, is_forked=False)
