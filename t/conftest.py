"""What the tests of the Python API share: sessions that must leave nothing behind."""

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # workers.py, helpers.py

from cli_rig import driver, ended, home  # noqa: F401  (fixtures)
from helpers import MARK, Bell, leftovers, new_mark
from hosts import net  # noqa: F401  (fixture)

# a shell (and nohup) ignores these for what is in the background; drivers inherit that
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def _muster_home() -> Iterator[None]:
    """The sessions of these tests are their own."""
    if "MUSTER_HOME" in os.environ:
        yield
        return
    # short: the path of a socket has 107 characters
    folder = os.environ["MUSTER_HOME"] = tempfile.mkdtemp(
        prefix="muster-t-", dir="/tmp"
    )
    yield
    del os.environ["MUSTER_HOME"]
    shutil.rmtree(folder)


def _started(**options: Any) -> Iterator[Any]:
    import muster
    from muster import api

    assert not muster.is_initialized()
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
    """One for this test alone; not in a file that uses `session`."""
    yield from _started(num_gpus=4)


@pytest.fixture
def cluster(session: Any) -> Iterator[Callable[..., Any]]:
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
def short_path() -> Iterator[Path]:
    """As tmp_path, for sockets: the path of one has 107 characters."""
    folder = tempfile.mkdtemp(prefix="muster-t-", dir="/tmp")
    yield Path(folder)
    shutil.rmtree(folder)


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
