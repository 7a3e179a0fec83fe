"""Ray on loopback for these tests alone, and nothing of it afterwards."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

RAY_ENV = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # else 127.0.0.1 is replaced
}
os.environ.update(RAY_ENV)  # read when Ray is imported


@pytest.fixture(scope="session")
def ray_options() -> Iterator[dict[str, Any]]:
    """Of ray.init."""
    folder = tempfile.mkdtemp(prefix="mv", dir="/tmp")  # short: sockets are made there
    yield {
        "num_cpus": 64,
        "include_dashboard": False,
        "log_to_driver": False,
        "_node_ip_address": "127.0.0.1",
        "_temp_dir": folder,
    }
    shutil.rmtree(folder, ignore_errors=True)
