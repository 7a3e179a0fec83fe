"""The wheel that `make wheel` has made (MUSTER_WHEEL), on machines that have nothing else."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from wheel_rig import WHEEL, BareMachine

if not WHEEL:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def bare() -> Iterator[BareMachine]:
    """With the wheel installed in /venv."""
    folder = Path(tempfile.mkdtemp(prefix="mw-", dir="/tmp"))
    machine = BareMachine(folder)
    machine.install()
    yield machine
    shutil.rmtree(folder)
