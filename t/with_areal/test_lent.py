"""Machines that an orchestrator lends to the roles of a scheduler."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import muster
import pytest
from areal.api import Job
from areal.api.cli_args import SchedulingSpec
from conftest import _started
from muster.areal import MusterScheduler

pytestmark = pytest.mark.filterwarnings("ignore:http_open")


@pytest.fixture
def lent(tmp_path: Path) -> Iterator[Any]:
    (tmp_path / "nodes.yaml").write_text('nodes: [{name: "n[0-3]", cpus: 8, gpus: 4}]')
    nodes = str(tmp_path / "nodes.yaml")
    for _ in _started(orchestrator="local", num_nodes=0, nodes=nodes):
        yield MusterScheduler(log_dir=str(tmp_path))


def test_reservations(lent: Any) -> None:
    """One for a role that trains, and one for each rollout instance."""

    def create(role: str, replicas: int, **fields: Any) -> list[Any]:
        spec = SchedulingSpec(cpu=1, mem=0, **fields)
        lent.create_workers(Job(role=role, replicas=replicas, tasks=[spec]))
        held = lent._manager.roles[role].places.reservations
        return [(one.name, len(one.pieces)) for one in held]

    assert create("actor", 4, gpu=1) == [("actor", 4)]
    assert create("rollout", 2, gpu=2, ray_placement_strategy="separate") == [
        ("rollout-0", 1),
        ("rollout-1", 1),
    ]
    assert len(lent.get_workers("rollout")) == 2
    assert muster.nodes()
    lent.delete_workers("actor")
    assert [one.gpus for one in muster.nodes()] == [2, 2]
    lent.delete_workers()
    assert muster.nodes() == []  # all were given back
