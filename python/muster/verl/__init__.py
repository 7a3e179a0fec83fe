"""verl's single controller, on Muster: change the import lines, drop `ray.remote`.

from muster.verl import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from muster.verl import Dispatch, Worker, register

Everything is importable from here, whichever module of verl's it was in.
doc/adapters.md says what differs.
"""

from muster._adapters.actor import Handle, remote
from muster._data.store import put
from muster.api import init, is_initialized, shutdown
from muster.future import get, wait
from muster.verl import decorator, init_args, pool
from muster.verl.batch import DataProtoFuture
from muster.verl.decorator import *
from muster.verl.group import RayWorkerGroup, WorkerGroup
from muster.verl.init_args import *
from muster.verl.pool import *
from muster.verl.worker import Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from muster.verl.protocol import *


def __getattr__(name: str) -> object:
    """DataProto needs numpy, which is imported when it is asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'muster.verl' has no attribute {name!r}")
    from muster.verl import protocol

    return getattr(protocol, name)


__all__ = [
    "DataProto",
    "DataProtoConfig",
    "DataProtoFuture",
    "DataProtoItem",
    "Handle",
    "RayWorkerGroup",
    "Worker",
    "WorkerGroup",
    "fold_batch_dim",
    "get",
    "init",
    "is_initialized",
    "pad_dataproto_to_divisor",
    "put",
    "remote",
    "shutdown",
    "unfold_batch_dim",
    "unpad_dataproto",
    "wait",
]
__all__ += decorator.__all__
__all__ += init_args.__all__
__all__ += pool.__all__
