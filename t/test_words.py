"""What people are told when something odd is wrong: the cause, not a guess."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import muster
import pytest
from daemon_rig import CLI
from helpers import DEADLINE_S, Driver, agents_of, below, until
from muster import api
from workers import Echo


@pytest.mark.parametrize("name", ["a b", "a,b"])
def test_a_home_that_addresses_cannot_name(
    monkeypatch: pytest.MonkeyPatch, short_path: Path, name: str
) -> None:
    monkeypatch.setenv("MUSTER_HOME", str(short_path / name))
    with pytest.raises(muster.MusterError, match=r"MUSTER_HOME=.*space or a comma"):
        muster.init()


def test_a_worker_whose_end_nobody_saw(own_session: Any) -> None:
    c = muster.Cluster("c", Echo, world_size=1)
    pending = c.execute_rank_zero_async("hang")
    (agent,) = agents_of(below(os.getpid()))
    os.kill(agent, signal.SIGKILL)
    error = pending.exception(DEADLINE_S)
    assert isinstance(error, muster.WorkerDied)
    assert "printed nothing" not in str(error)
    assert error.exit_code is None or error.exit_code >= 0


def test_status_of_a_worker_whose_end_nobody_saw() -> None:
    muster.init(num_nodes=2, num_gpus=1)
    try:
        c = muster.Cluster("c", Echo, device_mapping="0-1")
        os.kill(agents_of(below(os.getpid()))[0], signal.SIGKILL)
        until(lambda: not all(node.alive for node in muster.nodes()))
        done = subprocess.run(
            [CLI, "status", "--session", Path(api.session().head.session_dir).name],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert "lost: the agent on node" in done.stdout, done
        assert "code -1" not in done.stdout
        assert c.world_size == 2
    finally:
        muster.shutdown()


SCRIPT = """
import resource, sys
import muster, numpy
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
limit = used + (300 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    muster.init(store_limit="4GiB")
    muster.put(numpy.zeros(1 << 20))
    print("no error")
except Exception as e:
    print(str(e).replace(chr(10), " "), flush=True)
"""


def test_no_room_for_the_store_in_the_address_space(tmp_path: Path) -> None:
    said = Driver(SCRIPT, tmp_path).end(DEADLINE_S)[1]
    assert "init() first" not in said, said
    assert "there is no store here" in said and "agent.log says why" in said, said
