"""WorkerConfig as ROLL has it: a role's resources, and whatever else a role is told."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from muster import config as native
from muster._adapters.checks import WrongValue
from muster._arguments import check_misspelt
from muster.roll import device_mapping

# strategies whose engine spreads over the devices of one worker by itself
_WIDE = ("hf_infer", "vllm", "sglang")
_RPC_TIMEOUT = "roll_RPC_TIMEOUT"


@dataclasses.dataclass
class StrategyArguments:
    """Which engine a role runs, and how: `strategy_config` is the engine's own."""

    strategy_name: str = "deepspeed_train"
    strategy_config: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class SequencePackingConfig:
    """How a strategy packs sequences into micro-batches."""

    algorithm: str = "none"
    max_packed_sequence_length_forward: int | None = None
    max_packed_sequence_length_train: int | None = None
    min_num_micro_batches_forward: int = 1
    min_num_micro_batches_train: int = 1


@dataclasses.dataclass
class RouterReplayConfig:
    """Whether the routing of a mixture of experts is recorded and replayed."""

    mode: str = "disable"


class _StrategyMesh(dict[str, int]):
    """A mesh that follows from the strategy."""


class _TakesFurtherFields(type):
    """A dataclass whose constructor takes fields that it does not know: `extra`."""

    def __call__(cls, *args: Any, **given: Any) -> Any:
        known = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
        extra = {k: given.pop(k) for k in [*given] if k not in known}
        check_misspelt("WorkerConfig", extra, tuple(known))
        extra = {**given.pop("extra", {}), **extra}
        made: Any = object.__new__(cls)  # type: ignore[arg-type]
        vars(made).update(extra)  # before __post_init__, which may read them
        made.__init__(*args, **given, extra=extra)
        return made


@dataclasses.dataclass(eq=False, repr=False)
class WorkerConfig(native.WorkerConfig, metaclass=_TakesFurtherFields):
    """A role: ROLL's fields, and after them those of `muster.WorkerConfig`.

    name: of the role. strategy_args: a StrategyArguments, a mapping, or any object with
        `strategy_name` and `strategy_config`. It says how wide a worker is (vLLM: tensor
        times pipeline; training: one device) and, for Megatron, the mesh.
    system_envs: environment variables of the workers, over those of `env`.
    max_concurrency: 1 for synchronous workers; asynchronous ones have 1000 unless told.

    It is a dataclass: classes may be derived from it, and `dataclasses.replace` makes
    another one. `device_mapping` is a list after construction, and `world_size` follows
    from it. The workers get this object as `worker_config`; fields that neither ROLL nor
    Muster knows are attributes of it too (`extra` has them), unless they are a known one
    misspelt.
    """

    name: str | None = None
    worker_cls: str | None = None
    pg_variant: str | None = None
    model_args: Any = None
    training_args: Any = None
    data_args: Any = None
    generating_args: Any = None
    strategy_args: Any = None
    world_size: int | None = None
    device_mapping: str | Iterable[int] | None = None  # type: ignore[assignment]
    num_gpus_per_worker: int = 1
    model_update_frequency: int = 1
    infer_batch_size: int = 16
    backend_timeout: int = 30
    system_envs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    topr_positive_weight: float = 1.0
    topr_negative_weight: float = 1.0
    max_concurrency: int | None = 1
    use_dynamic_batching_in_train: bool = False
    max_tokens_per_microbatch_in_train: int = 0
    sequence_length_round_in_train: int = 4
    use_dynamic_batching_in_infer: bool = False
    max_tokens_per_microbatch_in_infer: int | None = None
    sequence_length_round_in_infer: int = 4
    offload_nccl: bool = False
    use_sequence_packing: bool = False
    sequence_packing_args: SequencePackingConfig = dataclasses.field(
        default_factory=SequencePackingConfig
    )
    logits_in_fp32: bool = True
    router_replay: RouterReplayConfig = dataclasses.field(
        default_factory=RouterReplayConfig
    )
    apply_loss_scale: bool = True
    mtp_training_mode: str | None = "disabled"
    opd_kl_coef: float | None = None
    tag_included: list[str] = dataclasses.field(default_factory=list)

    num_cpus: float = 0
    gpu_memory: int | str | None = None  # type: ignore[assignment]
    memory: int | str | None = None  # type: ignore[assignment]
    mesh: Mapping[str, int] | None = None  # type: ignore[assignment]
    args: Sequence[Any] = ()  # type: ignore[assignment]
    kwargs: Mapping[str, Any] | None = None  # type: ignore[assignment]
    env: Mapping[str, Any] | None = None  # type: ignore[assignment]
    preload: str | Iterable[str] = ()  # type: ignore[assignment]
    start: str | Sequence[str] = "fork"  # type: ignore[assignment]
    visible: str = "own"
    http_open: bool = False
    timeout: float | None = None
    start_timeout: float | None = None
    python: str | Sequence[str] | None = None  # type: ignore[assignment]
    working_dir: str | None = None
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.checkpoint_config: dict[str, Any] | None = None
        self.strategy_args = _strategy(self.strategy_args)
        self._take_devices()
        mesh = self.mesh
        if not mesh or isinstance(mesh, _StrategyMesh):
            mesh = _mesh(self.strategy_args)
        if self.timeout is None and _RPC_TIMEOUT in os.environ:
            self.timeout = float(os.environ[_RPC_TIMEOUT])
        self.system_envs = dict(self.system_envs or {})
        fields = {name: getattr(self, name) for name in native.fields_known()}
        super().__init__(**fields)
        self.mesh = mesh

    def _take_devices(self) -> None:
        """As a list, from which follows how many workers there are."""
        devices: Any = self.device_mapping
        if isinstance(devices, str):
            devices = device_mapping.parse(devices)
        devices = None if devices is None else list(devices) or None
        width = 0
        if devices is not None:
            width = _width(self.strategy_args, self.num_gpus_per_worker or 1)
            if width < 1 or len(devices) % width:
                raise WrongValue(
                    f"device_mapping: {len(devices)} devices do not divide into workers "
                    f"of {width}"
                )
            self.world_size = len(devices) // width
        self.device_mapping = devices
        self.num_gpus_per_worker = width

    def fields(self) -> dict[str, Any]:
        kept = super().fields()
        del kept["extra"], kept["checkpoint_config"]
        kept["env"] = {**kept["env"], **kept.pop("system_envs")}
        if self.device_mapping is not None:
            del kept["world_size"]
        return kept

    def __repr__(self) -> str:
        default = vars(WorkerConfig())
        changed = (
            f"{k}={v!r}" for k, v in self.fields().items() if v != default.get(k)
        )
        return f"WorkerConfig({', '.join(changed)})"


def is_actor_infer_overlapping_with_any_cluster(
    actor_infer: WorkerConfig,
    actor_train: WorkerConfig | None = None,
    reference: WorkerConfig | None = None,
    critic: WorkerConfig | None = None,
) -> bool:
    """Whether one of the others has a device of `actor_infer`."""
    mine: set[Any] = set(actor_infer.device_mapping or ())
    others = [role for role in (actor_train, reference, critic) if role is not None]
    return any(not mine.isdisjoint(role.device_mapping or ()) for role in others)


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


def _mesh(strategy: Any) -> _StrategyMesh:
    """Of Megatron's workers; those of other strategies are all data parallel."""
    if strategy is None or not strategy.strategy_name.startswith("megatron"):
        return _StrategyMesh()
    config = strategy.strategy_config or {}
    names = {
        "tp": "tensor_model_parallel_size",
        "pp": "pipeline_model_parallel_size",
        "cp": "context_parallel_size",
    }
    sizes = ((dim, config.get(name)) for dim, name in names.items())
    return _StrategyMesh({dim: size for dim, size in sizes if size})
