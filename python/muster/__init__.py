"""Muster: the control plane of RL post-training.

muster.init()
actors = muster.Cluster("actor", Actor, world_size=4)
actors.execute_all_sync("step", batch)
muster.shutdown()
"""

# first: it watches which hooks the others register
from muster._worker import fork_hooks  # noqa: F401  isort: skip

from muster import _core, api, dispatch, errors, groups, kv, timeline
from muster._cluster.member import helpers
from muster._cluster.role import roles
from muster._data import plain, serialize
from muster._data.rows import each, same
from muster._data.store import Ref, empty, put, site, store_stats, stored_objects
from muster._session.collective import CollectiveGroup, barrier, collective_group
from muster._session.nodes import Node
from muster._session.reservation import LentPiece, Reservation, reservation, reserve
from muster._worker.engines import register_mesh, worker_config
from muster.api import *
from muster.cluster import Cluster, Processes, get_cluster
from muster.config import WorkerConfig
from muster.dispatch import *
from muster.errors import *
from muster.future import Future, get, wait
from muster.groups import *
from muster.rendezvous import Rendezvous, World
from muster.resources import ResourceManager, ResourcePool
from muster.shards import Shard, Shards, restore_shards, save_shards
from muster.stream import Stream
from muster.view import View

TYPE_CHECKING = False
if TYPE_CHECKING:
    from muster.batch import Batch
    from muster.ragged import Ragged


def progress() -> None:
    """In a worker of a job: it gets on with its work, although it answers no calls and uses
    no processor. A role whose file says `hang` is otherwise taken to hang (doc/jobs.md)."""
    _core.progress()


def __getattr__(name: str) -> object:
    """Batches need numpy, which is imported when they are asked for; generation too."""
    if name == "generate":
        import muster.generate

        return muster.generate
    if name not in __all__:
        raise AttributeError(f"module 'muster' has no attribute {name!r}")
    from muster import batch

    return getattr(batch, name)


__version__ = _core.version

__all__ = [
    "Batch",
    "Cluster",
    "CollectiveGroup",
    "Future",
    "LentPiece",
    "Node",
    "Processes",
    "Ragged",
    "Ref",
    "Rendezvous",
    "ResourcePool",
    "ResourceManager",
    "Reservation",
    "Shard",
    "Shards",
    "Stream",
    "View",
    "WorkerConfig",
    "World",
    "barrier",
    "collective_group",
    "empty",
    "each",
    "get",
    "get_cluster",
    "helpers",
    "kv",
    "progress",
    "register_mesh",
    "reservation",
    "reserve",
    "restore_shards",
    "roles",
    "same",
    "save_shards",
    "put",
    "store_stats",
    "stored_objects",
    "timeline",
    "wait",
    "worker_config",
]
__all__ += api.__all__
__all__ += dispatch.__all__
__all__ += errors.__all__
__all__ += groups.__all__

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
