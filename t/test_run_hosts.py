"""`muster run` with nodes in network namespaces (hosts.py)."""

import sys
from pathlib import Path

import pytest
from cli_rig import CLI
from hosts import Net, obstacle

pytestmark = pytest.mark.skipif(obstacle() is not None, reason=str(obstacle()))

DRIVER = """
import muster

class Near:
    def networks(self):
        with open("/proc/self/net/fib_trie") as table:
            return sorted({word for word in table.read().split()
                           if word.startswith("10.77.0.") and len(word) == 9})

if __name__ == "__main__":
    muster.init()
    near = muster.Cluster(name="near", worker_cls=Near,
                          worker_config=muster.WorkerConfig(device_mapping="0-1"))
    for rank, found in enumerate(near.execute_all_sync("networks")):
        print("@", rank, *[at for at in found if at[-1] != "0"], flush=True)
"""


def test_nodes_in_network_namespaces(net: Net, tmp_path: Path) -> None:
    here, one, two = net.host("here"), net.host("one"), net.host("two")
    (tmp_path / "driver.py").write_text(DRIVER)
    job = tmp_path / "job.yaml"
    job.write_text(
        f"nodes:\n"
        f"  - {{name: one, cpus: 2, gpus: 1, netns: {one.namespace}}}\n"
        f"  - {{name: two, cpus: 2, gpus: 1, netns: {two.namespace}}}\n"
        f"driver: [{sys.executable}, {tmp_path / 'driver.py'}]\n"
    )
    run = here.start(CLI, "run", "--listen", f"{here.v4}:0", str(job))
    said = run.until("released")
    assert run.wait() == 0, said
    assert f"@ 0 {one.v4}" in said  # each sees its own network, and no other
    assert f"@ 1 {two.v4}" in said


def test_namespace_that_is_not_there(net: Net, tmp_path: Path) -> None:
    here = net.host("here")
    job = tmp_path / "job.yaml"
    job.write_text("nodes: [{name: one, cpus: 2, netns: none}]\ndriver: [a]\n")
    run = here.start(CLI, "run", "--listen", f"{here.v4}:0", str(job))
    said = run.until("piece 0 on one ended (refused)")[-1]
    assert run.wait() == 1
    log = Path(said.rpartition("see ")[2].partition(" (")[0])
    assert "none" in log.read_text()  # what `ip` said of it
