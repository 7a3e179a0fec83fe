"""Devices of several vendors: each names its own to its processes in its own way."""

from typing import Any

import muster
from muster import roll, verl

VENDORS = """
nodes:
  - {name: a, cpus: 4, devices: [{count: 2, kind: npu, vendor: huawei}]}
  - {name: b, cpus: 4, gpus: 2, vendor: amd}
"""


class Seeing(roll.Worker):
    def seen(self) -> list[str]:
        return self.get_visible_gpus()


class SeeingToo(verl.Worker):
    def seen(self) -> str:
        return self.get_cuda_visible_devices()


def test_devices_of_other_vendors(tmp_path: Any) -> None:
    """Those who ask for their GPUs are told of what they have."""
    file = tmp_path / "nodes.yaml"
    file.write_text(VENDORS)
    muster.init(nodes=str(file))
    try:
        with muster.Cluster("v", SeeingToo, device_mapping="0-3") as group:
            assert group.execute_all_sync("seen") == ["0", "1", "0", "1"]
        config = roll.WorkerConfig(device_mapping="0-3")
        with roll.Cluster("r", Seeing, roll.ResourceManager(2), config) as cluster:
            assert cluster.execute_all_sync("seen") == [["0"], ["1"], ["0"], ["1"]]
    finally:
        muster.shutdown()
