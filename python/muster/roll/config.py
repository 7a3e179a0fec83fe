"""WorkerConfig as ROLL has it: a role's resources, and whatever else a role is told."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable, Mapping
from typing import Any

from muster import _core
from muster import config as native
from muster._arguments import check_misspelt

# strategies whose engine spreads over the devices of one worker by itself
_WIDE = ("hf_infer", "vllm", "sglang")
_RPC_TIMEOUT = "roll_RPC_TIMEOUT"


@dataclasses.dataclass
class StrategyArguments:
    """Which engine a role runs, and how: `strategy_config` is the engine's own."""

    strategy_name: str = "deepspeed_train"
    strategy_config: dict[str, Any] = dataclasses.field(default_factory=dict)


class WorkerConfig(native.WorkerConfig):
    """A role: ROLL's fields beside those of `muster.WorkerConfig`.

    name: of the role. strategy_args: a StrategyArguments, a mapping, or any object with
        `strategy_name` and `strategy_config`. It says how wide a worker is (vLLM: tensor
        times pipeline; training: one device) and, for Megatron, the mesh.
    system_envs: environment variables of the workers; another name of `env`.
    max_concurrency: 1 for synchronous workers; asynchronous ones have 1000 unless told.

    `device_mapping` is a list after construction, and `world_size` follows from it. The
    workers get this object as `worker_config`; fields that neither ROLL nor Muster knows
    are attributes of it too (`extra` has them), unless they are a known one misspelt.
    """

    # what ROLL's own workers read, where nobody gave it
    worker_cls: str | None = None
    pg_variant: str | None = None
    model_args: Any = None
    training_args: Any = None
    data_args: Any = None
    generating_args: Any = None
    model_update_frequency: int = 1
    infer_batch_size: int = 16
    backend_timeout: int = 30
    offload_nccl: bool = False
    checkpoint_config: dict[str, Any] | None = None

    def __init__(
        self,
        *,
        name: str | None = None,
        strategy_args: Any = None,
        system_envs: Mapping[str, Any] | None = None,
        device_mapping: str | Iterable[int] | None = None,
        num_gpus_per_worker: int = 1,
        max_concurrency: int = 1,
        **fields: Any,
    ) -> None:
        extra = {k: fields.pop(k) for k in [*fields] if k not in native.fields_known()}
        check_misspelt("WorkerConfig", extra, _known())
        strategy = _strategy(strategy_args)
        if isinstance(device_mapping, str):
            device_mapping = _core.device_ids(device_mapping)
        devices = None if device_mapping is None else list(device_mapping) or None
        width = 0
        if devices is not None:
            width = _width(strategy, num_gpus_per_worker)
            if width < 1 or len(devices) % width:
                raise ValueError(
                    f"device_mapping: {len(devices)} devices do not divide into workers "
                    f"of {width}"
                )
            fields["world_size"] = len(devices) // width
        fields.setdefault("mesh", _mesh(strategy))
        if _RPC_TIMEOUT in os.environ:
            fields.setdefault("timeout", float(os.environ[_RPC_TIMEOUT]))
        env = {**(fields.pop("env", None) or {}), **(system_envs or {})}
        super().__init__(
            device_mapping=devices,
            num_gpus_per_worker=width,
            env=env,
            max_concurrency=max_concurrency,
            **fields,
        )
        self.name = name
        self.strategy_args = strategy
        self.extra = extra
        self.__dict__.update(extra)

    @property
    def system_envs(self) -> dict[str, str]:
        return self.env

    def fields(self) -> dict[str, Any]:
        kept = super().fields()
        del kept["extra"]
        if self.device_mapping is not None:
            del kept["world_size"]
        return kept


@functools.cache
def _known() -> tuple[str, ...]:
    own = (
        name
        for name, value in vars(WorkerConfig).items()
        if not name.startswith("_") and not callable(value)
    )
    return (*native.fields_known(), "name", "strategy_args", *own)


def _strategy(value: Any) -> Any:
    if isinstance(value, dict):
        return StrategyArguments(**value)
    if value is not None and not hasattr(value, "strategy_name"):
        raise ValueError(f"strategy_args: has no strategy_name: {value!r}")
    return value


def _width(strategy: Any, asked: int) -> int:
    if strategy is None:
        return asked
    if strategy.strategy_name not in _WIDE:
        return 1
    if strategy.strategy_name != "vllm":
        return asked
    config = strategy.strategy_config or {}
    tensor: int = config.get("tensor_parallel_size", 1)
    pipeline: int = config.get("pipeline_parallel_size", 1)
    return tensor * pipeline


def _mesh(strategy: Any) -> dict[str, int]:
    """Of Megatron's workers; those of other strategies are all data parallel."""
    if strategy is None or not strategy.strategy_name.startswith("megatron"):
        return {}
    config = strategy.strategy_config or {}
    names = {
        "tp": "tensor_model_parallel_size",
        "pp": "pipeline_model_parallel_size",
        "cp": "context_parallel_size",
    }
    return {dim: config[name] for dim, name in names.items() if config.get(name)}
