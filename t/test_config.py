"""config.py and _env.py: fields, their checks, and the environment of a rank. Pure."""

import pickle
from types import SimpleNamespace
from typing import Any

import pytest
from muster import WorkerConfig, roll
from muster._session.programs import session_env
from muster.config import mesh_sizes, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (None, 0),
        (4096, 4096),
        ("4096", 4096),
        ("512MiB", 512 << 20),
        ("2GiB", 2 << 30),
        ("1.5 gib", 3 << 29),
        ("2GB", 2 * 10**9),
        ("10k", 10_000),
    ],
)
def test_sizes(text: Any, size: int) -> None:
    assert parse_size(text, "memory") == size


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"memory": "much"}, "memory"),
        ({"memory": -1}, "memory"),
        ({"gpu_memory": "1XB"}, "gpu_memory"),
        ({"world_size": 0}, "world_size"),
        ({"world_size": "2"}, "world_size"),
        ({"device_mapping": [0, "1"]}, "device_mapping"),
        ({"num_gpus_per_worker": -1}, "num_gpus_per_worker"),
        ({"num_cpus": "two"}, "num_cpus"),
        ({"num_cpus": -1}, "num_cpus"),
        ({"env": {"A=B": "1"}}, "env"),
        ({"env": {"RANK": "1"}}, "env"),
        ({"env": {"WORLD_SIZE": 2}}, "env"),
        ({"env": {"A": None}}, r"env\['A'\]"),
        ({"preload": [1]}, "preload"),
        ({"start": "spawn"}, "start"),
        ({"start": []}, "start"),
        ({"visible": "all"}, "visible"),
        ({"max_concurrency": 0}, "max_concurrency"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": "1"}, "timeout"),
        ({"mesh": {"xp": 2}}, "mesh"),
        ({"mesh": {"tp": 0}}, r"mesh\['tp'\]"),
    ],
)
def test_a_bad_field_is_named(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named}: "):
        WorkerConfig(**fields)


def test_roll_keeps_unknown_fields() -> None:
    config = roll.WorkerConfig(world_size=2, learning_rate=1, memory="1KiB")
    assert config.learning_rate == 1 and config.extra == {"learning_rate": 1}
    assert config.memory == 1024
    again = pickle.loads(pickle.dumps(config))
    assert again == config and again.learning_rate == 1
    other = config.replace(world_size=3)
    assert other.world_size == 3 and other.extra == config.extra and other != config
    assert "world_size=2" in repr(config) and "start" not in repr(config)


def test_from_other_objects() -> None:
    config = WorkerConfig.of(SimpleNamespace(world_size=4, _private=1), env={"A": 1})
    assert config.world_size == 4 and config.env == {"A": "1"}
    with pytest.raises(TypeError, match="no argument 'strategy_args'"):
        WorkerConfig.of(SimpleNamespace(world_size=4, strategy_args=None))
    role = roll.WorkerConfig(world_size=4, learning_rate=1)
    assert not hasattr(WorkerConfig.of(role), "learning_rate")
    assert WorkerConfig.of(config, world_size=5).world_size == 5
    assert WorkerConfig.of({"world_size": 2}).world_size == 2
    assert WorkerConfig.of(None).world_size is None
    with pytest.raises(ValueError, match=r"^worker_config: "):
        WorkerConfig.of(3)


def test_mesh() -> None:
    sizes = mesh_sizes({"tp": 2, "pp": 2}, 16)
    assert sizes == {"tp": 2, "cp": 1, "dp": 4, "pp": 2, "ep": 1}
    for mesh in ({"tp": 3}, {"tp": 2, "dp": 2}, {"tp": 4, "ep": 3}):
        with pytest.raises(ValueError, match=r"^mesh: "):
            mesh_sizes(mesh, 16)


def test_variables_that_are_the_ranks_own() -> None:
    for name in ("RANK", "NODE_RANK", "CLUSTER_NAME", "WORKER_NAME"):
        with pytest.raises(ValueError, match=rf"^env: {name} comes from Muster"):
            WorkerConfig(env={name: "1"})
    with pytest.raises(ValueError, match=r"^env: MASTER_ADDR and MASTER_PORT"):
        WorkerConfig(env={"MASTER_PORT": "1"})


def test_session_environment() -> None:
    assert session_env({})["OMP_NUM_THREADS"] == "1"
    assert session_env({"OMP_NUM_THREADS": "4"})["OMP_NUM_THREADS"] == "4"
