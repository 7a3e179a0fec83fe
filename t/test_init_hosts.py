"""The same script on several hosts (hosts.py), as torchrun and ROLL start it."""

import os
import secrets
import sys
from pathlib import Path

import pytest
from hosts import Host, Net, Process, needs_ipv6, obstacle
from test_init import SCRIPT
from test_package import DRIVER as CODE_DRIVER
from test_package import MODULE

pytestmark = pytest.mark.skipif(obstacle() is not None, reason=str(obstacle()))


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.touch(mode=0o600)
    path.write_text(secrets.token_hex(32))
    return path


def start(
    host: Host, master: str, rank: int, size: int, *env: str, script: str = SCRIPT
) -> Process:
    """What a launcher does on each node."""
    here = str(Path(__file__).parent)
    paths = os.pathsep.join([here, *filter(None, sys.path)])
    return host.start(
        *["env", f"RANK={rank}", f"WORLD_SIZE={size}", f"MASTER_ADDR={master}"],
        *["MASTER_PORT=29500", f"PYTHONPATH={paths}", *env],
        *[sys.executable, "-u", "-c", script],
    )


@pytest.mark.parametrize("family", ["v4", pytest.param("v6", marks=needs_ipv6)])
def test_the_same_script_on_three_hosts(net: Net, secret: Path, family: str) -> None:
    hosts = [net.host(f"h{i}") for i in range(3)]
    master = getattr(hosts[0], family)
    file = f"MUSTER_SECRET_FILE={secret}"
    ranks = [start(h, master, i, 3, file) for i, h in reversed(list(enumerate(hosts)))]
    first = ranks[-1]
    assert first.until("ready")[-1] == "ready node0 node1 node2"
    first.tell("start 0-5")
    assert first.until("started")[-1] == "started 0 1 2 3 4 5"
    first.tell("env MASTER_ADDR")
    assert first.until("env")[-1].split()[1:] == [master] * 6
    first.tell("env NODE_RANK")
    assert first.until("env")[-1] == "env 0 0 1 1 2 2"
    first.pipe(first.process.stdin).close()
    assert [rank.wait() for rank in ranks] == [0, 0, 0]


def test_a_host_that_falls_is_told(net: Net, secret: Path) -> None:
    hosts = [net.host(f"h{i}") for i in range(2)]
    file = f"MUSTER_SECRET_FILE={secret}"
    first = start(hosts[0], hosts[0].v4, 0, 2, file)
    start(hosts[1], hosts[0].v4, 1, 2, file)
    first.until("ready")
    hosts[1].kill()
    assert f"node node1 ({hosts[1].v4})" in first.until("is silent")[-1]


def test_a_host_without_the_secret_is_not_let_in(net: Net, secret: Path) -> None:
    hosts = [net.host(f"h{i}") for i in range(2)]
    good = f"MUSTER_SECRET_FILE={secret}"
    bad = f"MUSTER_SECRET={secrets.token_hex(32)}"
    first = start(hosts[0], hosts[0].v4, 0, 2, good, "OPTIONS={'timeout': 4}")
    other = start(hosts[1], hosts[0].v4, 1, 2, bad)
    assert other.wait() == 1
    assert "missing: rank 1." in first.until("missing")[-1]
    assert first.wait() == 1


MEET = """
import muster
from meet_workers import Meeter
muster.init(num_gpus=1)
src = muster.Cluster("src", Meeter, device_mapping="1")
tgt = muster.Cluster("tgt", Meeter, device_mapping="0-2")
muster.kv.put("k", "found")
print("got", *tgt.execute_all_sync("get", "k"), flush=True)
print("met", *tgt.execute_all_sync("barrier", "b", 20), flush=True)
with muster.collective_group(src, tgt) as group:
    src.execute_all_sync("listen", group)
    print("dialled", group.master_addr, *tgt.execute_all_sync("dial", muster.each(group.tgt_envs)))
"""


def test_workers_on_several_hosts_meet(net: Net, secret: Path) -> None:
    hosts = [net.host(f"h{i}") for i in range(3)]
    file = f"MUSTER_SECRET_FILE={secret}"
    ranks = [
        start(h, hosts[0].v4, i, 3, file, script=MEET) for i, h in enumerate(hosts)
    ]
    assert ranks[0].until("got")[-1] == "got found found found"
    assert ranks[0].until("met")[-1] == "met 0 1 2"
    assert ranks[0].until("dialled")[-1] == f"dialled {hosts[1].v4} 1 2 3"
    assert [rank.wait() for rank in ranks] == [0, 0, 0]


def test_code_reaches_hosts_that_have_not_got_it(
    net: Net, secret: Path, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    (code / "job").mkdir(parents=True)
    (code / "job" / "reader.py").write_text(MODULE.replace("from . import", "import"))
    (code / "values.py").write_text("VALUE = 42\n")
    (code / "data").mkdir()
    (code / "data" / "text").write_text("some data")
    hosts = [net.host(f"h{i}") for i in range(2)]
    file = f"MUSTER_SECRET_FILE={secret}"
    told = (file, f"CODE={code}", "SIZE=2")
    first = start(hosts[0], hosts[0].v4, 0, 2, *told, script=CODE_DRIVER)
    here = str(Path(__file__).parent)
    paths = os.pathsep.join([here, *filter(None, sys.path)])
    hidden = f"mount -t tmpfs none {code} && exec env PYTHONPATH={paths} RANK=1 "
    hidden += f"WORLD_SIZE=2 MASTER_ADDR={hosts[0].v4} MASTER_PORT=29500 {file} "
    hidden += f"{sys.executable} -u -c 'import muster; muster.init()'"
    other = hosts[1].start("unshare", "-m", "sh", "-c", hidden)
    lines = first.until("sent")
    found = [line for line in lines if line.startswith("('some data', 42")]
    assert all(str(h.home) in line for h, line in zip(hosts, found, strict=True))
    assert [first.wait(), other.wait()] == [0, 0]
