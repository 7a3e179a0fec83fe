"""Names of ROLL and verl that are not here, and what to use instead of each."""

from __future__ import annotations

from typing import Any, NoReturn

_SGLANG = (
    "is not here: muster.generate.HttpEngine is a replica that talks to an SGLang server, "
    "and the scheduler routes"
)
_PLACES = (
    "is not here: the scheduler of the RouterManager knows what each replica runs, and "
    "moves requests itself"
)
_DRIVERS = (
    "Muster has no driver ranks and starts no Ray: muster.init() starts or joins a "
    "session, and muster.nodes() tells its nodes"
)
_RULES = (
    "is not here: register(dispatch_mode=...) has the modes, and takes rules of your own "
    'as {"dispatch_fn": f, "collect_fn": g}'
)
_INTERNAL = "is internal to verl: use the registered methods of the group"

# Each row: the names, then the sentence that follows the name. A class stands for its
# members; doc/adapters.md has the same rows.
_ROLL: dict[str, str] = {
    "SglangProxy SglangRouter raise_for_status wait_sglang_router_ready "
    "wait_sglang_router_workflow": _SGLANG,
    "Router.rebalance_on_shrink Router.rebalance_on_expand "
    "EnvAffinityRouter.rebalance_on_shrink EnvAffinityRouter.rebalance_on_shrink_impl "
    "EnvAffinityRouter.rebalance_on_expand EnvAffinityRouter.rebalance_on_expand_impl "
    "PromptAffinityRouter.acquire PromptAffinityRouter.reacquire "
    "PromptAffinityRouter.release PromptAffinityRouter.size "
    "PromptAffinityRouter.full": _PLACES,
    "ItemsGroup": "is not here: ReplayBuffer has the rules of all steps",
    "is_driver get_driver_rank get_driver_world_size get_driver_master_addr "
    "get_driver_master_port get_driver_node_name get_driver_dashboard_port "
    "is_multi_tenant is_connection_refused get_ray_status filter_known_msg "
    "is_ray_cluster_running wait_for_nodes wait_for_head_node_ready start_ray_cluster "
    "stop_handler log_monitor_listener": f"is not here: {_DRIVERS}",
    "execute": "is not here: use subprocess.run",
    "Barrier Locker": "is not here: use muster.kv (put_if_absent, and get with a timeout)",
    "ModelUpdateGroup": "is not here: call setup_model_update and start_model_update of "
    "the clusters with execute_all_sync",
    "_split_args_kwargs dispatch_one_to_all collect_all_to_all collect_all_to_one "
    "dispatch_all_to_all _dispatch_dp_mp_compute dispatch_dp_mp_compute "
    "dispatch_dp_mp_dispatch_first need_collect_dp_mp_compute collect_dp_mp_compute "
    "get_predefined_dispatch_fn get_predefined_execute_fn func_generator "
    "_check_dispatch_mode _check_execute_mode BIND_WORKER_METHOD_FLAG "
    "predefined_dispatch_mode_fn predefined_execute_mode_fn": _RULES,
    "DataProto.to_remote DataProto.prefetch DataProto.drop": "is not here: the store of "
    "the node has the data of calls, and muster.put gives a reference",
    "ResourceManager.nodes_placement_group": "is not here: allocate_placement_group "
    "tells the devices of each worker",
}
_VERL: dict[str, str] = {
    "tensordict_utils": "is not here: keep `from verl.utils import tensordict_utils`, "
    "which needs torch and tensordict but no Ray cluster; TensorDicts are divided and "
    "joined as they are",
    "serialize_single_tensor serialize_tensordict deserialize_single_tensor "
    "deserialize_tensordict": "is not here: tensors go beside the pickle by themselves; "
    "use save_to_disk, or pickle",
    "all_gather_data_proto": "is not here: return the DataProto from a registered method, "
    "whose group joins it, or use torch.distributed on its tensors",
    "check_workers_alive WorkerGroup.start_worker_aliveness_check": "is not here: a call "
    "to a dead worker fails at once, and says why it died",
    "sort_placement_group_by_node_ip extract_pg_from_exist": "is not here: ranks are in "
    "the order of nodes; split_resource_pool and merge_resource_pool share out a pool",
    "get_random_string": "is not here: use secrets.token_hex",
    "BatchData._CHUNKABLE_TYPES BatchData._CONCATABLE_TYPES": "is not here: "
    "is_chunkable() and is_concatable() tell it",
    "get_master_addr_port": "is not here: a worker has get_available_master_addr_port(), "
    "a group master_address and master_port",
    "create_colocated_worker_raw_cls FusedWorkerCLSName "
    "WorkerGroup.fused_worker_execute_fn_name": "is not here: "
    "create_colocated_worker_cls_fused makes the class, and fused_worker_dict has the "
    "objects of all roles",
    "dummy_direct_rollout_call": "is not here: Dispatch.DIRECT_ROLLOUT_METHOD calls rank 0",
    "init_predefined_dispatch_mode init_predefined_execute_mode": "is not here: the modes "
    "are there from the import",
    "func_generator _array_equal _deep_equal _padding_size_key _DataProtoConfigMeta "
    "_split_args_kwargs_data_proto _split_args_kwargs_data_proto_with_auto_padding "
    "_concat_data_proto_or_future _check_dispatch_mode _check_execute_mode "
    "_materialize_futures _bind_workers_method_to_parent _unwrap_ray_remote "
    "_determine_fsdp_megatron_base_class": _INTERNAL,
}


def _sentences(rows: dict[str, str]) -> dict[str, str]:
    return {
        name: f"{name} {rest}" for names, rest in rows.items() for name in names.split()
    }


REFUSED = {"roll": _sentences(_ROLL), "verl": _sentences(_VERL)}


def missing(adapter: str, name: str) -> NoReturn:
    """Of a module: ImportError for what is refused, which `from x import name` shows as
    it is, unlike an AttributeError."""
    if name in REFUSED[adapter]:
        raise ImportError(REFUSED[adapter][name], name=f"muster.{adapter}")
    raise AttributeError(f"module 'muster.{adapter}' has no attribute {name!r}")


class _Member:
    """An attribute that is refused."""

    def __init__(self, sentence: str) -> None:
        self._sentence = sentence

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(self._sentence)


def refuse_members(adapter: str, *classes: Any) -> None:
    for cls in classes:
        for name, sentence in REFUSED[adapter].items():
            if name.startswith(f"{cls.__name__}."):
                setattr(cls, name.partition(".")[2], _Member(sentence))
