"""What can go wrong, as types.

Every failure of Muster is a MusterError. Its text says what happened, where, and what to
do about it; its attributes say the same to a program.
"""

from __future__ import annotations

import _pickle
import errno
import functools
import types
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from muster._core import ExitInfo

__all__ = [
    "Cancelled",
    "ClusterError",
    "DeadlineExceeded",
    "DeadlockError",
    "MusterError",
    "NoSuchMethod",
    "NotInitialized",
    "ObjectLost",
    "PlacementError",
    "RemoteError",
    "RendezvousClosed",
    "SerializationError",
    "ShardsFailed",
    "StoreFull",
    "WorkerDied",
    "WorkerUnreachable",
]


class MusterError(Exception):
    """The base of all of them. Where several workers have failed together, `failures` has
    the failure of each by its rank, and the notes of the one that is raised name them."""

    failures: dict[int, BaseException] | None = None


class NotInitialized(MusterError):
    """`muster.init()` has not been called in this process, or `shutdown()` has."""


class ClusterError(MusterError):
    """What was asked of a cluster or of a worker's engine cannot be done."""


class NoSuchMethod(ClusterError, AttributeError):
    """The worker's class has no such method."""


class PlacementError(MusterError):
    """The workers do not fit. `table`: what was asked and what each node has."""

    def __init__(self, message: str, table: str = "") -> None:
        super().__init__(message)
        self.table = table

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\n{self.table}" if self.table else message


class StoreFull(MusterError, MemoryError):
    """The node's store has no room: its limit, or the machine's memory, is reached. The
    text names the largest holders."""


class ObjectLost(MusterError):
    """An object of the store is gone: its node was lost, or its last holder had gone."""


class RendezvousClosed(MusterError):
    """A member has closed the rendezvous: it cannot be joined any more."""


class ShardsFailed(MusterError):
    """All shards of a data set were taken, and some have failed too often. `shards` tells of
    each (the first sixteen): epoch, start, end, failures, deaths, reason."""

    def __init__(
        self, message: str, shards: list[dict[str, Any]] | None = None
    ) -> None:
        super().__init__(message)
        self.shards = shards or []


class WorkerUnreachable(MusterError):
    """A worker does not answer, and it is not known what became of it."""


class WorkerDied(MusterError):
    """The worker's process ended. Exactly one of `exit_code` and `signal` is set, or
    neither if it is not known how it ended."""

    exit_code: int | None = None
    signal: int | None = None
    out_of_memory: bool = False
    last_lines: tuple[str, ...] = ()
    node: str = ""
    pid: int = 0
    cluster: str = ""
    rank: int = -1
    log_path: str = ""


class DeadlineExceeded(MusterError, TimeoutError):
    """No answer in time."""


class Cancelled(MusterError):
    """The call was cancelled by its caller."""


class SerializationError(MusterError):
    """An argument or a result cannot be sent. The text names the part of it."""


class DeadlockError(MusterError):
    """A worker would wait on itself, straight or through others."""


class RemoteError(MusterError):
    """A worker's method raised.

    Where the exception's class can be had here, what is raised is an instance of that
    class as well, with its `args` and attributes: `except ValueError` works.

    remote_type: its class, as "module.Class"; remote_traceback: text, as the worker would
    print it; where: "cluster/rank@node"; cause: the exception itself, or None.
    """

    remote_type: str = ""
    remote_traceback: str = ""
    where: str = ""
    cause: BaseException | None = None
    _message: str = ""
    _pickled: bytes = b""

    def __str__(self) -> str:
        kind = self.remote_type.removeprefix("builtins.")
        head = ": ".join(filter(None, (kind, self._message))) or super().__str__()
        if self.where:
            head += f" (in {self.where})"
        if not self.remote_traceback:
            return head
        return f"{head}\n\nIn the worker:\n{self.remote_traceback.rstrip()}"

    def __reduce__(self) -> tuple[Any, ...]:
        return remote_error, (
            self._message,
            self.remote_type,
            self.remote_traceback,
            self._pickled,
            self.where,
        )


# ---- remote exceptions ----------------------------------------------------------------

# Python gives these a meaning of their own as they fly: never of both classes.
_CONTROL_FLOW = (StopIteration, StopAsyncIteration)
_HEAP_TYPE = 1 << 9


@functools.cache
def _class_of_both(cls: type[BaseException]) -> Any:
    """RemoteError and `cls` in one class, or None if that cannot be."""
    if not issubclass(cls, Exception) or issubclass(cls, _CONTROL_FLOW):
        return None
    body = {
        "__module__": "muster",
        "__qualname__": f"RemoteError[{cls.__name__}]",
        "__doc__": RemoteError.__doc__,
        "__str__": RemoteError.__str__,
        "__reduce__": RemoteError.__reduce__,
        "__reduce_ex__": lambda self, protocol: self.__reduce__(),
        "__setattr__": Exception.__setattr__,  # frozen dataclasses refuse
    }
    metaclass: Any = type(cls)
    try:
        return metaclass(f"RemoteError[{cls.__name__}]", (RemoteError, cls), body)
    except Exception:
        return None  # final, an odd metaclass, a layout that does not mix


def rebuild(
    cls: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]
) -> BaseException:
    """An exception without running any constructor written in Python."""
    base: Any = next(c for c in cls.__mro__ if not c.__flags__ & _HEAP_TYPE)
    made: BaseException
    try:
        made = base.__new__(cls, *args)
    except Exception:
        made = base.__new__(cls)
    put = BaseException.__setattr__
    put(made, "args", args)
    for name, value in state.items():
        with suppress(Exception):  # read-only
            put(made, name, value)
    return made


def state_of(error: BaseException) -> dict[str, Any]:
    """Its attributes: in __dict__ and in slots, Python's or C's (errno, filename...)."""
    state = dict(error.__dict__)
    for cls in type(error).__mro__:
        for name, member in vars(cls).items():
            if not name.startswith("__") and isinstance(
                member, (types.MemberDescriptorType, types.GetSetDescriptorType)
            ):
                try:
                    value = member.__get__(error)
                except Exception:
                    continue  # not set
                if value is not None:
                    state[name] = value
    state.pop("args", None)
    return state


def copy_of(error: BaseException) -> BaseException:
    """The same without its traceback, for callers that raise an error that they keep: see Call.result."""
    state = state_of(error)
    if notes := state.get("__notes__"):
        state["__notes__"] = list(notes)
    return rebuild(type(error), error.args, state)


def remote_error(
    message: str, type: str, traceback: str, exception: bytes, where: str
) -> RemoteError:
    """The error of a method that raised; `exception` is pickled, or empty."""
    cause: Any = None
    if exception:
        with suppress(
            BaseException
        ):  # its class is not here, or its constructor is odd
            cause = _pickle.loads(exception)
    if not isinstance(cause, BaseException):
        cause = None
    error = None if cause is None else _instance_of_both(cause)
    if error is None:
        error = RemoteError(message)
    error.remote_type = type
    error.remote_traceback = traceback
    error.where = where
    error.cause = cause
    error._message = message
    error._pickled = exception
    return error


def _instance_of_both(cause: BaseException) -> RemoteError | None:
    seen = cause
    while isinstance(seen, RemoteError) and seen.cause is not None:
        seen = seen.cause  # it passed through several workers
    kind: Any = type(seen)
    both = RemoteError if isinstance(seen, RemoteError) else _class_of_both(kind)
    if both is None:
        return None
    error: Any = None
    with suppress(Exception):
        error = rebuild(both, seen.args, state_of(seen))
    return error  # type: ignore[no-any-return]


# ---- deaths ---------------------------------------------------------------------------


_SIGKILL = 9
_CRASHES = (4, 6, 7, 8, 11)  # SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV


def _advice(exit: ExitInfo) -> str:
    code = exit["code"]
    if exit["requested"] or code < 0:
        return ""
    if exit["out_of_memory"]:
        return "Raise WorkerConfig(memory=...), or let it need less."
    if not exit["signaled"]:
        return "It ended by itself (sys.exit, os._exit, or a native library)."
    if code == _SIGKILL:
        return "A signal from outside killed it; `dmesg` tells if it was the kernel, for memory."
    return (
        "Native code crashed; its last lines may tell where."
        if code in _CRASHES
        else ""
    )


def worker_died(message: str, exit: ExitInfo | None, where: str) -> WorkerDied:
    """`where` is "cluster/rank@node"."""
    place, _, node = where.partition("@")
    cluster, _, rank = place.rpartition("/")
    if exit is None:
        error = WorkerDied(
            f"{where or 'a worker'} died: {message or 'its end was not seen'}"
        )
    else:
        error = WorkerDied(_died_text(message, exit, where))
        error.signal = exit["code"] if exit["signaled"] else None
        is_known = not exit["signaled"] and exit["code"] >= 0
        error.exit_code = exit["code"] if is_known else None
        error.out_of_memory = exit["out_of_memory"]
        error.last_lines = tuple(exit["last_lines"])
        error.pid = exit["pid"]
        error.log_path = exit["log_path"]
        node = exit["node"] or node
    error.node = node
    error.cluster = cluster
    error.rank = int(rank) if rank.isdecimal() else -1
    return error


def _died_text(message: str, exit: ExitInfo, where: str) -> str:
    lines = [f"{where or 'the worker'} (pid {exit['pid']}) {exit['how']}"]
    if message and message not in lines[0]:
        lines[0] += f": {message}"
    detail = exit["detail"]
    if detail and detail != message:
        lines.append(detail)
    if exit["last_lines"]:
        lines.append("Its last lines:")
        lines.extend(f"  | {line}" for line in exit["last_lines"])
    elif (
        exit["code"] < 0 and exit["log_path"]
    ):  # its agent, which had its last lines, is gone
        lines.append(f"What it printed, if anything: {exit['log_path']}")
    elif exit["code"] >= 0 and not exit["requested"]:
        lines.append("It had printed nothing.")
    if advice := _advice(exit):
        lines.append(advice)
    if exit["log_path"] and exit["last_lines"]:
        lines.append(f"All it printed: {exit['log_path']}")
    return "\n".join(lines)


# ---- what a head refuses --------------------------------------------------------------


# by what else the refusal of a cluster, a placement group or a reservation is
_REFUSED: dict[type[MusterError], dict[int, type[Exception]]] = {
    ClusterError: {
        errno.ENOSPC: PlacementError,
        errno.EPIPE: MusterError,
        errno.ETIMEDOUT: DeadlineExceeded,
    },
    PlacementError: {errno.ENOENT: MusterError, errno.ENOMEM: MusterError},
    MusterError: {
        errno.EEXIST: PlacementError,
        errno.ENOENT: PlacementError,
        errno.ENOSPC: PlacementError,
        errno.ENOTSUP: PlacementError,
        errno.ETIMEDOUT: DeadlineExceeded,
    },
}


def refused(
    e: LookupError, otherwise: type[MusterError], cluster: str = ""
) -> Exception:
    """Why a head does not do what it was asked for; `otherwise`: see _REFUSED; `cluster`:
    which should have been made."""
    text, table, code = e.args
    if code == errno.EEXIST and otherwise is ClusterError:
        advice = "destroy() it, or take another name"
        if cluster:
            found = f"muster.get_cluster({cluster!r})"
            advice = (
                f"{found} calls it, {found}.destroy() ends it; or take another name"
            )
        return ClusterError(f"{text}: {advice}")
    if table and otherwise is not MusterError:
        return PlacementError(text, table)
    return (_REFUSED[otherwise] | {errno.EINVAL: ValueError}).get(code, otherwise)(text)


# ---- several at once ------------------------------------------------------------------


def together(failures: dict[int, BaseException]) -> BaseException:
    """The failure of the lowest rank, which tells of the others too."""
    first = min(failures)
    error = failures[first]
    if len(failures) < 2:
        return error
    others = failures | {first: copy_of(error)}  # it must not refer to itself
    ranks: dict[str, list[int]] = {}
    for rank, one in sorted(failures.items()):
        ranks.setdefault(_reason(one), []).append(rank)
    error.add_note(f"{len(failures)} workers failed:")
    for reason, who in ranks.items():
        error.add_note(f"  rank {', '.join(map(str, who))}: {reason}")
    if isinstance(error, MusterError):
        error.failures = others
    return error


def _reason(error: BaseException) -> str:
    """In one line, without where it was."""
    if isinstance(error, RemoteError):
        kind = error.remote_type.removeprefix("builtins.")
        return f"{kind}: {error._message}".partition("\n")[0]
    text = str(error).partition("\n")[0]
    where, _, rest = text.partition(": ")
    if "/" in where and "@" in where and " " not in where:
        text = rest
    return text or type(error).__name__


# ---- what _core asks for --------------------------------------------------------------

_SIMPLE: dict[str, type[MusterError]] = {
    "no_engine": ClusterError,
    "no_method": NoSuchMethod,
    "deadline": DeadlineExceeded,
    "cancelled": Cancelled,
    "bad_argument": SerializationError,
    "bad_result": SerializationError,
    "refused": ClusterError,
    "deadlock": DeadlockError,
    "shutting_down": WorkerUnreachable,
    "unreachable": WorkerUnreachable,
    "placement": PlacementError,
    "store_full": StoreFull,
    "object_lost": ObjectLost,
}


def make_error(
    kind: str,
    message: str,
    type: str,
    traceback: str,
    exception: bytes,
    exit: ExitInfo | None,
    where: str,
) -> BaseException:
    """The exception of a failed call; `kind` is a name of Failure.Kind, lower-case."""
    if kind == "raised":
        return remote_error(message, type, traceback, bytes(exception), where)
    if kind == "worker_died":
        return worker_died(message, exit, where)
    cls = _SIMPLE.get(kind, MusterError)
    text = message or kind.replace("_", " ")
    if where and where not in text:
        text = f"{where}: {text}"
    if traceback:  # where it was when the time was over
        text = f"{text}\n\nIn the worker:\n{traceback.rstrip()}"
    return cls(text)
