"""What went wrong, as the exceptions that AReaL's users catch."""

from __future__ import annotations

from areal.infra.scheduler.exceptions import (  # type: ignore[import-not-found]
    EngineCallError,
    EngineCreationError,
    EngineImportError,
    RPCConnectionError,
    SchedulerError,
    WorkerCreationError,
    WorkerFailedError,
)

from muster.areal.engine_server import NameTaken, NoEngine, NoMethod, NotImported
from muster.areal.log_files import tail
from muster.errors import (
    DeadlineExceeded,
    NotInitialized,
    RemoteError,
    WorkerDied,
    WorkerUnreachable,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from muster.areal.roles import RoleWorker

BAD_REQUEST, RAISED = 400, 500  # status_code of an EngineCreationError


def died(worker_id: str, error: WorkerDied) -> Exception:
    """exit_code is that of `subprocess`: negative of a signal; -1: nobody knows."""
    code = error.exit_code
    if code is None:
        code = -1 if error.signal is None else -error.signal
    lines = tail(error.log_path) or error.last_lines
    text = str(error).partition("\n")[0]
    failed: Exception = WorkerFailedError(worker_id, code, "\n".join([text, *lines]))
    return failed


def _unreachable(worker: RoleWorker, error: Exception) -> Exception:
    info = worker.info
    failed: Exception = RPCConnectionError(
        info.id, info.ip, int(info.worker_ports[0]), str(error)
    )
    return failed


def is_of(error: BaseException, kind: type[BaseException]) -> bool:
    """Whether the worker's server, not the engine, has raised that."""
    return isinstance(error, RemoteError) and type(error.cause) is kind


def message(error: BaseException) -> str:
    """Of one of the server's own: without type, place and traceback."""
    return str(error.cause) if isinstance(error, RemoteError) else str(error)


def of_call(
    worker: RoleWorker, method: str, error: Exception, attempt: int
) -> Exception:
    """The failure of call_engine."""
    worker_id = worker.info.id
    if isinstance(error, WorkerDied):
        return died(worker_id, error)
    if isinstance(error, WorkerUnreachable):
        reason = f"Connection error: {error}"
    elif isinstance(error, DeadlineExceeded) and not isinstance(error, RemoteError):
        reason = f"Timeout: {error}"
    elif is_of(error, NoMethod) or is_of(error, NoEngine):
        reason = message(error)
    else:
        reason = str(error)
    failed: Exception = EngineCallError(worker_id, method, reason, attempt)
    return failed


def of_engine(worker: RoleWorker, path: str, error: Exception) -> Exception:
    """The failure of create_engine."""
    worker_id = worker.info.id
    if isinstance(error, WorkerDied):
        return died(worker_id, error)
    if isinstance(error, WorkerUnreachable):
        return _unreachable(worker, error)
    failed: Exception
    if is_of(error, NotImported):
        failed = EngineImportError(path, message(error))
    elif is_of(error, NameTaken):
        failed = EngineCreationError(worker_id, message(error), BAD_REQUEST)
    elif isinstance(error, RemoteError):
        failed = EngineCreationError(worker_id, str(error), RAISED)
    elif "Failed to import" in str(error):  # as AReaL's servers say it
        failed = EngineImportError(path, str(error))
    else:
        status = getattr(error, "status", None)
        failed = EngineCreationError(worker_id, str(error), status)
    return failed


def of_env(worker: RoleWorker, error: Exception) -> Exception:
    """The failure of set_worker_env."""
    if isinstance(error, WorkerDied):
        return died(worker.info.id, error)
    if isinstance(error, WorkerUnreachable):
        return _unreachable(worker, error)
    failed: Exception = SchedulerError(worker.info.id, f"set_env: {error}")
    return failed


def of_creation(role: str, error: Exception) -> Exception:
    """The failure of create_workers."""
    if isinstance(error, (SchedulerError, NotInitialized)):
        return error
    reason, _, details = str(error).partition("\n")
    if isinstance(error, WorkerDied):
        details = "\n".join(tail(error.log_path)) or details
    failed: Exception = WorkerCreationError(role, reason, details)
    return failed
