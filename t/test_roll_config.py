"""muster.roll.WorkerConfig as users of ROLL derive from it and replace its fields."""

import dataclasses
import pickle

import pytest
from muster import roll


@dataclasses.dataclass
class RewardConfig(roll.WorkerConfig):
    """As the configs of ROLL's reward workers are."""

    code_url: str = "http://localhost"
    tags: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.first = (self.tags or ["none"])[0]


def test_a_derived_dataclass() -> None:
    config = RewardConfig(
        name="reward", device_mapping="list(range(0,4))", tags=["math"], judge="exact"
    )
    assert (config.code_url, config.first, config.judge) == (  # type: ignore[attr-defined]
        "http://localhost",
        "math",
        "exact",
    )
    assert (config.world_size, config.device_mapping) == (4, [0, 1, 2, 3])
    names = [field.name for field in dataclasses.fields(config)]
    assert names.index("name") == 0 and "code_url" in names
    assert pickle.loads(pickle.dumps(config)) == config
    assert "tags=['math']" in repr(config)
    with pytest.raises(TypeError, match="'device_maping' is misspelt"):
        RewardConfig(device_maping="0-3")


def test_fields_are_replaced() -> None:
    megatron = {
        "strategy_name": "megatron_train",
        "strategy_config": {"tensor_model_parallel_size": 2},
    }
    config = roll.WorkerConfig(
        strategy_args=megatron, device_mapping="0-3", env={"A": "1"}, judge="exact"
    )
    other = dataclasses.replace(
        config, strategy_args=None, device_mapping="0-7", system_envs={"A": "2"}
    )
    assert repr(other).startswith(
        "WorkerConfig(judge='exact', device_mapping=[0, 1, 2, "
    )
    assert (config.mesh, other.mesh) == ({"tp": 2}, {})
    assert (config.world_size, other.world_size) == (4, 8)
    assert other.judge == "exact"  # type: ignore[attr-defined]
    assert other.fields()["env"] == {"A": "2"}
    without = roll.WorkerConfig(world_size=2)
    assert without.num_gpus_per_worker == 0
    with_devices = dataclasses.replace(without, device_mapping=[0, 1])
    assert with_devices.num_gpus_per_worker == 1
    with pytest.raises(AssertionError, match="3 devices do not divide"):
        roll.WorkerConfig(device_mapping="0-2", num_gpus_per_worker=2)


def test_a_cluster_has_a_derived_config(session: object) -> None:
    config = RewardConfig(world_size=1, tags=["math"])
    cluster = roll.Cluster("rewarded", roll.Worker, None, config)
    try:
        assert cluster.worker_config is config
    finally:
        cluster.destroy(grace=0)


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("list(range(0,8))", list(range(8))),
        ("[i for i in range(4)]", [0, 1, 2, 3]),
        ("list(2 * i + 1 for i in range(0, 8, 2))", [1, 5, 9, 13]),
        ("[i for i in range(8) if i % 4 != 0]", [1, 2, 3, 5, 6, 7]),
    ],
)
def test_device_mappings(text: str, devices: list[int]) -> None:
    assert roll.WorkerConfig(device_mapping=text).device_mapping == devices


@pytest.mark.parametrize(
    "text",
    [
        "[i for i in open('/etc/passwd')]",
        "[__import__('os') for i in range(1)]",
        "[i.real for i in range(2)]",
        "[i - 5 for i in range(2)]",
        "[i for i in range(10**9)]",
        "[i for i in range(1000000000)]",
        "[i // 0 for i in range(2)]",
        "[i for ",
    ],
)
def test_what_is_no_device_mapping(text: str) -> None:
    with pytest.raises(ValueError, match="device mapping"):
        roll.WorkerConfig(device_mapping=text)
