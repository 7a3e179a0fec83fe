"""What the tests of the Python API share: sessions that must leave nothing behind."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # workers.py, helpers.py

from helpers import MARK, Bell, leftovers, new_mark


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The sessions of these tests are their own."""
    told = "MUSTER_HOME" in os.environ
    if not told:
        # short: the path of a socket has 107 characters
        os.environ["MUSTER_HOME"] = str(tmp_path_factory.mktemp("m"))
    yield
    if not told:
        del os.environ["MUSTER_HOME"]


def _started(**options: Any) -> Iterator[Any]:
    import muster
    from muster import api

    mark = os.environ[MARK] = new_mark()
    muster.init(**options)
    session = api.session()
    session_dir = session.head.session_dir
    try:
        yield session
    finally:
        muster.shutdown()
        del os.environ[MARK]
    assert leftovers(mark, session_dir) == []


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    """One for all tests of a file; 4 devices."""
    yield from _started(num_gpus=4)


@pytest.fixture
def own_session() -> Iterator[Any]:
    """One for this test alone."""
    yield from _started(num_gpus=4)


@pytest.fixture
def cluster(
    session: Any, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Any]]:
    """Makes clusters that end with the test."""
    import muster

    made: list[muster.Cluster] = []

    def make(worker_cls: Any, world_size: int | None = 1, **fields: Any) -> Any:
        name = fields.pop("name", f"c{os.urandom(4).hex()}")
        if fields.get("device_mapping") is None:
            fields["world_size"] = world_size
        one = muster.Cluster(name, worker_cls, **fields)
        made.append(one)
        return one

    yield make
    for one in made:
        if muster.is_initialized():
            one.destroy(grace=0.2)


@pytest.fixture
def bell(tmp_path: Path) -> Iterator[Callable[[], Bell]]:
    """Makes bells."""
    made: list[Bell] = []

    def make() -> Bell:
        made.append(Bell(tmp_path))
        return made[-1]

    yield make
    for one in made:
        one.close()
