"""Muster: the control plane of RL post-training.

muster.init()
actors = muster.Cluster("actor", Actor, world_size=4)
actors.execute_all_sync("step", batch)
muster.shutdown()
"""

# first: it watches which hooks the others register
from muster._worker import fork_hooks  # noqa: F401  isort: skip

from muster import _core, errors, kv
from muster._cluster.beside import Processes
from muster._cluster.member import helpers
from muster._data import plain, serialize
from muster._data.rows import each, same
from muster._data.store import Ref, empty, put, site, store_stats, stored_objects
from muster._session.nodes import Node
from muster._session.rendezvous import CollectiveGroup, barrier, collective_group
from muster._session.reservation import LentPiece, Reservation, reservation, reserve
from muster._worker.engines import register_mesh, worker_config
from muster.api import (
    http_address,
    http_token,
    init,
    is_initialized,
    nodes,
    on_node,
    shutdown,
)
from muster.cluster import Cluster, get_cluster
from muster.config import WorkerConfig
from muster.dispatch import (
    Dispatch,
    Execute,
    nd_mesh,
    register,
    register_dispatch_mode,
    update_dispatch_mode,
)
from muster.errors import (
    Cancelled,
    ClusterError,
    DeadlineExceeded,
    DeadlockError,
    MusterError,
    NoSuchMethod,
    NotInitialized,
    ObjectLost,
    PlacementError,
    RemoteError,
    SerializationError,
    StoreFull,
    WorkerDied,
    WorkerUnreachable,
)
from muster.future import Future, get, wait
from muster.groups import Bundle, GroupPart, PlacementGroup, get_placement_group
from muster.resources import ResourceManager, ResourcePool
from muster.stream import Stream
from muster.view import View

TYPE_CHECKING = False
if TYPE_CHECKING:
    from muster.batch import Batch
    from muster.ragged import Ragged


def __getattr__(name: str) -> object:
    """Batches need numpy, which is imported when they are asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'muster' has no attribute {name!r}")
    from muster import batch

    return getattr(batch, name)


__version__ = _core.version

__all__ = [
    "Batch",
    "Cancelled",
    "Cluster",
    "CollectiveGroup",
    "ClusterError",
    "DeadlineExceeded",
    "DeadlockError",
    "Dispatch",
    "Execute",
    "Future",
    "LentPiece",
    "MusterError",
    "NoSuchMethod",
    "Node",
    "NotInitialized",
    "ObjectLost",
    "PlacementError",
    "Processes",
    "Ragged",
    "Ref",
    "RemoteError",
    "Bundle",
    "GroupPart",
    "PlacementGroup",
    "ResourcePool",
    "ResourceManager",
    "Reservation",
    "SerializationError",
    "StoreFull",
    "Stream",
    "View",
    "WorkerConfig",
    "WorkerDied",
    "WorkerUnreachable",
    "barrier",
    "collective_group",
    "empty",
    "each",
    "get",
    "get_cluster",
    "get_placement_group",
    "helpers",
    "http_address",
    "http_token",
    "init",
    "is_initialized",
    "kv",
    "nd_mesh",
    "nodes",
    "on_node",
    "register",
    "register_dispatch_mode",
    "register_mesh",
    "reservation",
    "reserve",
    "same",
    "put",
    "shutdown",
    "store_stats",
    "stored_objects",
    "update_dispatch_mode",
    "wait",
    "worker_config",
]

_core.setup(
    dumps=serialize.dumps,
    dumps_call=serialize.dumps_call,
    dumps_alone=serialize.dumps_alone,
    site=site,
    loads=serialize.loads,
    make_error=errors.make_error,
    error=MusterError,
    tensor_of=plain.tensor_of,
    tensor=plain.tensor,
)
