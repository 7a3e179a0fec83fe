"""One Ray cluster for all tests of a file that change nothing in it."""

from collections.abc import Iterator

import pytest
from ray_rig import PYTHON, Bridge, RayCluster

NODES = 3

if not PYTHON:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """Three nodes. Whoever breaks one starts a cluster of its own."""
    if not PYTHON:
        pytest.skip("RAY_PYTHON is not set")
    one = RayCluster(NODES)
    yield one
    one.stop()


@pytest.fixture(autouse=True)
def _no_bridges(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "ray_cluster" in request.fixturenames:
        request.getfixturevalue("ray_cluster").end_bridges()


@pytest.fixture
def bridge(ray_cluster: RayCluster) -> Iterator[Bridge]:
    """With agents that only say that they have joined, and end as they are told."""
    one = ray_cluster.bridge()
    yield one
    if one.process.poll() is None:
        one.quit()
