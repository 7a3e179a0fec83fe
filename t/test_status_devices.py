"""Memory that is in use on devices, as `muster status` shows it."""

import os
import time
from pathlib import Path
from typing import Any

import muster
import pytest

SMI = """#!/bin/sh
echo "0, GPU-0, 00000000:01:00.0, 10"
echo "1, GPU-1, 00000000:02:00.0, 30"
"""

NODES = (
    "nodes: [{name: a, cpus: 2, gpus: 2, vendor: nvidia}, {name: b, cpus: 2, gpus: 1}]"
)


class Plain:
    pass


def used(cluster: str) -> Any:
    (found,) = (c for c in muster.status()["clusters"] if c["name"] == cluster)
    return found["workers"][0]["activity"]["device_memory"]


def test_device_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of devices whose driver's program can be run; of others it is not known."""
    program = tmp_path / "nvidia-smi"
    program.write_text(SMI)
    program.chmod(0o700)
    (tmp_path / "nodes.yaml").write_text(NODES)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    muster.init(nodes=str(tmp_path / "nodes.yaml"))
    try:
        muster.Cluster("both", Plain, device_mapping="0-1", num_gpus_per_worker=2)
        muster.Cluster("other", Plain, device_mapping="2")
        assert used("both") == 40 << 20
        assert used("other") is None
        program.write_text("#!/bin/sh\nexec sleep 60\n")  # a device that has failed
        began = time.monotonic()
        assert used("both") == 40 << 20  # as it was last
        used("both")
        assert time.monotonic() - began < 5
    finally:
        muster.shutdown()
