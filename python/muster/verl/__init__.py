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
from muster.verl.batch import DataProtoFuture
from muster.verl.decorator import (
    DISPATCH_MODE_FN_REGISTRY,
    MAGIC_ATTR,
    collect_all_to_all,
    collect_dp_compute,
    collect_dp_compute_data_proto,
    collect_lazy_compute_data_proto,
    collect_nd_compute,
    collect_nd_compute_dataproto,
    dispatch_all_to_all,
    dispatch_dp_compute,
    dispatch_dp_compute_data_proto,
    dispatch_dp_compute_data_proto_with_func,
    dispatch_lazy_compute_data_proto,
    dispatch_nd_compute,
    dispatch_nd_compute_dataproto,
    dispatch_one_to_all,
    get_predefined_dispatch_fn,
    get_predefined_execute_fn,
    make_nd_compute_dataproto_dispatch_fn,
    register,
    register_dispatch_mode,
    update_dispatch_mode,
)
from muster.verl.group import RayWorkerGroup, WorkerGroup
from muster.verl.init_args import (
    ClassWithInitArgs,
    RayClassWithInitArgs,
    create_colocated_worker_cls,
    create_colocated_worker_cls_fused,
)
from muster.verl.modes import Dispatch, Execute
from muster.verl.pool import (
    RayResourcePool,
    ResourcePool,
    ResourcePoolManager,
    SubRayResourcePool,
    SubResourcePool,
    merge_resource_pool,
    split_resource_pool,
)
from muster.verl.worker import Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from muster.verl.protocol import (
        DataProto,
        DataProtoConfig,
        DataProtoItem,
        fold_batch_dim,
        pad_dataproto_to_divisor,
        unfold_batch_dim,
        unpad_dataproto,
    )


def __getattr__(name: str) -> object:
    """DataProto needs numpy, which is imported when it is asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'muster.verl' has no attribute {name!r}")
    from muster.verl import protocol

    return getattr(protocol, name)


__all__ = [
    "DISPATCH_MODE_FN_REGISTRY",
    "MAGIC_ATTR",
    "ClassWithInitArgs",
    "DataProto",
    "DataProtoConfig",
    "DataProtoFuture",
    "DataProtoItem",
    "Dispatch",
    "Execute",
    "Handle",
    "RayClassWithInitArgs",
    "RayResourcePool",
    "RayWorkerGroup",
    "ResourcePool",
    "ResourcePoolManager",
    "SubRayResourcePool",
    "SubResourcePool",
    "Worker",
    "WorkerGroup",
    "collect_all_to_all",
    "collect_dp_compute",
    "collect_dp_compute_data_proto",
    "collect_lazy_compute_data_proto",
    "collect_nd_compute",
    "collect_nd_compute_dataproto",
    "create_colocated_worker_cls",
    "create_colocated_worker_cls_fused",
    "dispatch_all_to_all",
    "dispatch_dp_compute",
    "dispatch_dp_compute_data_proto",
    "dispatch_dp_compute_data_proto_with_func",
    "dispatch_lazy_compute_data_proto",
    "dispatch_nd_compute",
    "dispatch_nd_compute_dataproto",
    "dispatch_one_to_all",
    "fold_batch_dim",
    "get",
    "get_predefined_dispatch_fn",
    "get_predefined_execute_fn",
    "init",
    "is_initialized",
    "make_nd_compute_dataproto_dispatch_fn",
    "merge_resource_pool",
    "pad_dataproto_to_divisor",
    "put",
    "register",
    "register_dispatch_mode",
    "remote",
    "shutdown",
    "split_resource_pool",
    "unfold_batch_dim",
    "unpad_dataproto",
    "update_dispatch_mode",
    "wait",
]
