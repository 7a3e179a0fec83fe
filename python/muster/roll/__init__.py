"""ROLL's Cluster, on Muster: change the import lines, drop `ray.remote`.

from muster.roll import Cluster, Dispatch, ResourceManager, Worker, WorkerConfig, register

Everything is importable from here, whichever module of ROLL's it was in.
doc/adapters.md says what differs.
"""

import importlib
import logging

from muster._adapters.actor import Handle, remote
from muster._adapters.refused import missing, refuse_members
from muster._data.store import put
from muster.api import init, is_initialized, shutdown
from muster.dispatch import Dispatch, Execute
from muster.future import get, wait
from muster.roll.cluster import Cluster, ResourceManager
from muster.roll.config import (
    RouterReplayConfig,
    SequencePackingConfig,
    StrategyArguments,
    WorkerConfig,
    is_actor_infer_overlapping_with_any_cluster,
)
from muster.roll.decorator import ObjectRefWrap, materialize_concat, register
from muster.roll.group_queue import (
    EnvActivityMonitor,
    GroupData,
    GroupQueue,
    GroupQueueManager,
)
from muster.roll.replay_buffer import ExperienceItem, ReplayBuffer
from muster.roll.storage import RAY_NAMESPACE, STORAGE_NAME, SharedStorage
from muster.roll.worker import RankInfo, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from muster.roll.generate_scheduler import DynamicSamplingScheduler
    from muster.roll.protocol import *
    from muster.roll.reward_scheduler import RewardScheduler
    from muster.roll.rollout_context import RolloutContext
    from muster.roll.rollout_data import *
    from muster.roll.rollout_loop import UserDefinedRolloutLoop
    from muster.roll.rollout_scheduler import RolloutScheduler
    from muster.roll.router_clients import (
        InprocProxy,
        RayProxy,
        RouterClient,
        RouterProxy,
    )
    from muster.roll.router_manager import PartialGPUManager, RouterManager
    from muster.roll.router_types import EnvAffinityRouter, PromptAffinityRouter, Router

logger = logging.getLogger("muster.roll")
refuse_members("roll", ResourceManager)


def __getattr__(name: str) -> object:
    """DataProto, and what has to do with it, needs numpy, which is imported when it is
    asked for."""
    if name not in __all__:
        missing("roll", name)
    for module in _NEED_NUMPY:
        of = importlib.import_module(f"muster.roll.{module}")
        if name in of.__all__:
            return getattr(of, name)
    raise AttributeError(f"module 'muster.roll' has no attribute {name!r}")


_NEED_NUMPY = (
    "protocol",
    "rollout_data",
    "router_types",
    "router_clients",
    "router_manager",
    "rollout_scheduler",
    "rollout_context",
    "rollout_loop",
    "reward_scheduler",
    "generate_scheduler",
)

__all__ = [
    "RAY_NAMESPACE",
    "STORAGE_NAME",
    "Cluster",
    "DataProto",
    "Dispatch",
    "DynamicSamplingScheduler",
    "EnvActivityMonitor",
    "Execute",
    "ExperienceItem",
    "GroupData",
    "GroupQueue",
    "GroupQueueManager",
    "Handle",
    "ObjectRefWrap",
    "RankInfo",
    "ReplayBuffer",
    "ResourceManager",
    "RewardScheduler",
    "RolloutContext",
    "RouterClient",
    "RouterManager",
    "RouterReplayConfig",
    "SequencePackingConfig",
    "SharedStorage",
    "StrategyArguments",
    "UserDefinedRolloutLoop",
    "Worker",
    "WorkerConfig",
    "collate_fn",
    "custom_np_concatenate",
    "expand_requests",
    "expand_responses",
    "get",
    "init",
    "is_actor_infer_overlapping_with_any_cluster",
    "is_initialized",
    "is_report_data_finished",
    "list_of_dict_to_dict_of_list",
    "logger",
    "materialize_concat",
    "move_tensors_to_device",
    "pad_dataproto_to_divisor",
    "postprocess_output_data",
    "postprocess_paused_data",
    "put",
    "query_filter",
    "register",
    "remote",
    "response_filter",
    "shutdown",
    "union_numpy_dict",
    "union_tensor_dict",
    "unpad_dataproto",
    "wait",
    "RolloutScheduler",
    "PartialGPUManager",
    "InprocProxy",
    "RayProxy",
    "RouterProxy",
    "EnvAffinityRouter",
    "PromptAffinityRouter",
    "Router",
]
