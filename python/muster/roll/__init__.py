"""ROLL's Cluster, on Muster: change the import lines, drop `ray.remote`.

from muster.roll import Cluster, Dispatch, ResourceManager, Worker, WorkerConfig, register

Everything is importable from here, whichever module of ROLL's it was in.
doc/adapters.md says what differs.
"""

from muster._adapters.actor import Handle, remote
from muster._data.store import put
from muster.api import init, is_initialized, shutdown
from muster.dispatch import Dispatch, Execute
from muster.future import get, wait
from muster.roll.cluster import Cluster, ResourceManager
from muster.roll.config import StrategyArguments, WorkerConfig
from muster.roll.decorator import ObjectRefWrap, materialize_concat, register
from muster.roll.storage import RAY_NAMESPACE, STORAGE_NAME, SharedStorage
from muster.roll.worker import RankInfo, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from muster.roll.protocol import *


def __getattr__(name: str) -> object:
    """DataProto needs numpy, which is imported when it is asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'muster.roll' has no attribute {name!r}")
    from muster.roll import protocol

    return getattr(protocol, name)


__all__ = [
    "RAY_NAMESPACE",
    "STORAGE_NAME",
    "Cluster",
    "DataProto",
    "Dispatch",
    "Execute",
    "Handle",
    "ObjectRefWrap",
    "RankInfo",
    "ResourceManager",
    "SharedStorage",
    "StrategyArguments",
    "Worker",
    "WorkerConfig",
    "get",
    "init",
    "is_initialized",
    "materialize_concat",
    "pad_dataproto_to_divisor",
    "put",
    "register",
    "remote",
    "shutdown",
    "unpad_dataproto",
    "wait",
]
