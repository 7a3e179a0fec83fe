"""verl's single controller, on Muster: change the import lines, drop `ray.remote`.

from muster.verl import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from muster.verl import Dispatch, Worker, register

Everything is importable from here, whichever module of verl's it was in.
doc/adapters.md says what differs.
"""

import logging

from muster._adapters.actor import Handle, remote
from muster._adapters.refused import missing, refuse_members
from muster._data.store import put
from muster.api import init, is_initialized, shutdown
from muster.future import get, wait
from muster.verl import decorator, init_args, pool
from muster.verl.batch import BatchData, DataProtoFuture
from muster.verl.decorator import *
from muster.verl.group import RayWorkerGroup, WorkerGroup
from muster.verl.init_args import *
from muster.verl.pool import *
from muster.verl.worker import DistGlobalInfo, DistRankInfo, Worker, WorkerHelper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from muster.verl.protocol import *

logger = logging.getLogger("muster.verl")
refuse_members("verl", BatchData, WorkerGroup)


def __getattr__(name: str) -> object:
    """DataProto needs numpy, which is imported when it is asked for."""
    if name not in __all__:
        missing("verl", name)
    from muster.verl import protocol

    return getattr(protocol, name)


__all__ = [
    "BatchData",
    "DataProto",
    "DataProtoConfig",
    "DataProtoFuture",
    "DataProtoItem",
    "DistGlobalInfo",
    "DistRankInfo",
    "Handle",
    "RayWorkerGroup",
    "Worker",
    "WorkerGroup",
    "WorkerHelper",
    "collate_fn",
    "fold_batch_dim",
    "get",
    "init",
    "is_initialized",
    "logger",
    "pad_dataproto_to_divisor",
    "put",
    "remote",
    "shutdown",
    "unfold_batch_dim",
    "union_numpy_dict",
    "union_tensor_dict",
    "unpad_dataproto",
    "wait",
]
__all__ += decorator.__all__
__all__ += init_args.__all__
__all__ += pool.__all__
