"""init and shutdown: the session of this process."""

from __future__ import annotations

import atexit
import os
import sys
import threading

from muster import _core
from muster._env import session_env
from muster._logs import LogPump
from muster.errors import DeadlineExceeded, MusterError, NotInitialized

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from muster._env import Placement
    from muster.config import WorkerConfig

STOP_GRACE_S = 3.0  # SIGTERM until SIGKILL
_HERE_ONLY = "this version starts its workers on this machine alone: leave {} out"


class Session:
    """What `init` started."""

    def __init__(
        self, options: dict[str, Any], head: _core.Head, env: dict[str, str]
    ) -> None:
        self.options = options
        self.head = head
        self.env = env
        self.pid = os.getpid()
        self.placing = threading.Lock()  # from a plan until what it takes is in `held`
        # what living clusters hold: their placements and what each worker asked for
        self.held: dict[str, tuple[list[Placement], WorkerConfig]] = {}
        self.pump = LogPump(head)


_lock = threading.RLock()
_session: Session | None = None
_inherited: list[Session] = []  # of the process that forked us: never touched again


def session() -> Session:
    """The session of this process, or NotInitialized."""
    if _session is None:
        raise NotInitialized("call muster.init() first")
    return _session


def is_initialized() -> bool:
    return _session is not None


def http_token() -> str:
    """What HTTP clients of this session show: `Authorization: Bearer <token>`."""
    return session().head.http_token


def init(
    address: str | None = None,
    *,
    num_nodes: int = 1,
    num_cpus: int | None = None,
    num_gpus: int | None = None,
    nodes: str | None = None,
    orchestrator: str | None = None,
    timeout: float = 60,
    log_to_driver: bool = True,
) -> None:
    """Start a head in this process and an agent on this machine, and wait for them.

    num_gpus: devices to hand out, also where there are none; None: those that are found.
    log_to_driver: what workers print appears here too, with a prefix.

    Everything ends with `shutdown()`, or with this process, however that ends. A second
    call is an error unless it asks for the same.
    """
    global _session
    options: dict[str, Any] = {
        "num_cpus": _number(num_cpus, "num_cpus"),
        "num_gpus": _number(num_gpus, "num_gpus"),
        "log_to_driver": bool(log_to_driver),
    }
    _refuse_other_machines(address, num_nodes, nodes, orchestrator)
    with _lock:
        if _session is not None and _session.head.alive:
            if _session.options == options:
                return
            raise MusterError(
                f"init() was called already, with {_session.options}; shutdown() first"
            )
        if _core.in_worker() is not None:
            raise MusterError("init() is for drivers; this process is a worker")
        if _session is not None:
            shutdown()  # its agent was lost
        try:
            _session = _start(options, timeout)
        except TimeoutError as e:
            raise DeadlineExceeded(f"init: not ready within {timeout} s: {e}") from None


def _start(options: dict[str, Any], timeout: float) -> Session:
    env = session_env(os.environ)
    head = _core.Head(
        agent_path=find_executable(),
        node_name=None,
        num_gpus=options["num_gpus"],
        num_cpus=options["num_cpus"],
        log_to_driver=options["log_to_driver"],
        python=interpreter(),
        sys_path=[os.path.abspath(p) for p in map(str, sys.path)],
        env=[f"{name}={value}" for name, value in env.items()],
        working_dir=os.getcwd(),
        timeout=timeout,
    )
    try:
        return Session(options, head, env)
    except BaseException:
        head.stop(0)
        raise


def _number(value: int | None, field: str) -> int:
    """As the head takes it: -1 is "look"."""
    if value is None:
        return -1
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{field}: must be a number of at least 0: {value!r}")
    return value


def _refuse_other_machines(
    address: str | None, num_nodes: int, nodes: str | None, orchestrator: str | None
) -> None:
    if address not in (None, "local"):
        raise MusterError(_HERE_ONLY.format(f"address={address!r}"))
    if num_nodes != 1:
        raise MusterError(_HERE_ONLY.format(f"num_nodes={num_nodes!r}"))
    if nodes is not None:
        raise MusterError(_HERE_ONLY.format(f"nodes={nodes!r}"))
    if orchestrator not in (None, "local"):
        raise MusterError(_HERE_ONLY.format(f"orchestrator={orchestrator!r}"))


def shutdown(*, grace: float = STOP_GRACE_S) -> None:
    """End all workers and whatever `init` started, and wait until they are gone.

    Workers get SIGTERM, and SIGKILL `grace` seconds later. Does nothing if there is
    nothing to end.
    """
    global _session
    with _lock:
        ending, _session = _session, None
        if ending is None:
            return
        try:
            ending.head.stop(grace)
        finally:
            ending.pump.join()


@atexit.register
def _at_exit() -> None:
    if _session is not None and _session.pid == os.getpid():
        shutdown()


def _after_fork() -> None:
    """In a child: the session is its parent's, and so is whoever held the lock."""
    global _session, _lock
    _lock = threading.RLock()
    if _session is not None:
        _session.head.forget()
        _inherited.append(_session)
        _session = None


os.register_at_fork(after_in_child=_after_fork)


# ---- what to start --------------------------------------------------------------------

_FLAGS = (
    ("isolated", "-I"),
    ("ignore_environment", "-E"),
    ("no_user_site", "-s"),
    ("no_site", "-S"),
    ("dont_write_bytecode", "-B"),
    ("optimize", "-O"),
)


def interpreter() -> list[str]:
    """How to start another interpreter like this one."""
    if not sys.executable:
        raise MusterError(
            "sys.executable is empty: which interpreter would workers use?"
        )
    command = [sys.executable]
    for name, flag in _FLAGS:
        command += [flag] * int(getattr(sys.flags, name))
    for name, value in sys._xoptions.items():
        command += ["-X", name if value is True else f"{name}={value}"]
    return command


def _executables() -> Iterator[str]:
    """Where the muster executable may be, the best place first."""
    if told := os.environ.get("MUSTER_BIN"):
        yield told
        return
    beside = os.path.join(os.path.dirname(sys.executable), "muster")
    yield beside
    import sysconfig

    yield os.path.join(sysconfig.get_path("scripts"), "muster")
    user = sysconfig.get_preferred_scheme("user")
    yield os.path.join(sysconfig.get_path("scripts", user), "muster")
    from importlib import metadata

    try:
        for file in metadata.files("muster-rl") or ():
            if file.name == "muster" and file.parent.name == "bin":
                yield str(file.locate())
    except metadata.PackageNotFoundError:
        pass
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        yield os.path.join(folder, "muster")


def find_executable() -> str:
    """The muster executable of this installation."""
    looked = []
    for path in _executables():
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return os.path.abspath(path)
        looked.append(path)
    raise MusterError(
        f"the muster executable was not found in {', '.join(dict.fromkeys(looked))}: "
        "install muster-rl again, or name it in MUSTER_BIN"
    )
