"""The key-value store of a head of its own process: other drivers, and a new head."""

import hmac
import http.client
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import muster
import pytest
from daemon_rig import Daemon, daemon  # noqa: F401  (fixture)
from helpers import DEADLINE_S, Driver, until
from meet_workers import Meeter
from muster import kv
from test_kv import told


@pytest.fixture
def joined(daemon: Daemon) -> Iterator[Daemon]:  # noqa: F811
    daemon.agent("n1")
    daemon.agent("n2")
    muster.init(address=daemon.address, secret_file=daemon.secret_file)
    yield daemon
    muster.shutdown()


def test_entries_go_with_the_driver(joined: Daemon, tmp_path: Path) -> None:
    script = """
import sys
import muster
from meet_workers import Meeter
muster.init()
muster.kv.put("job/driver", 1)
muster.kv.put("job/none", 1, owner="none")
c = muster.Cluster("c", Meeter, device_mapping="0-3")
c.execute_rank_sync(3, "put", "job/worker", 1)
d = muster.Cluster("d", Meeter, world_size=1, detached=True)
d.execute_rank_zero_sync("put", "job/detached", 1)
print("ready", flush=True)
sys.stdin.read()
"""
    where = {"MUSTER_ADDRESS": joined.address, "MUSTER_SECRET_FILE": joined.secret_file}
    other = Driver(script, tmp_path, **where)
    assert other.line() == "ready"
    names = ["detached", "driver", "none", "worker"]
    assert kv.keys("job/") == [f"job/{name}" for name in names]
    status = joined.run("status", "--json", "--session", "head").stdout
    assert '"script": "a worker"' not in status  # workers that ask are no drivers
    watch = kv.watch("job/", existing=False)
    other.signal(signal.SIGKILL)
    gone = sorted(key for _, key, _ in told(watch, 2))
    assert gone == ["job/driver", "job/worker"]
    assert kv.keys("job/") == ["job/detached", "job/none"]
    muster.get_cluster("d").destroy()
    assert told(watch, 1) == [("delete", "job/detached", None)]
    assert kv.keys("job/") == ["job/none"]
    other.end()


def ask_http(daemon: Daemon, where: str, method: str, path: str) -> Any:  # noqa: F811
    secret = bytes.fromhex(Path(daemon.secret_file).read_text().strip())
    token = hmac.new(secret, b"muster http token", "sha256").hexdigest()
    conn = http.client.HTTPConnection(where, timeout=DEADLINE_S)
    conn.request(method, f"/api/v1{path}", headers={"Authorization": f"Bearer {token}"})
    return json.loads(conn.getresponse().read())


def test_what_http_puts_belongs_to_no_driver(
    daemon: Daemon,  # noqa: F811
    tmp_path: Path,
) -> None:
    daemon.head.kill()
    daemon.more = ["--http", "127.0.0.1:0"]
    daemon.start()
    where = daemon.head.wait_line("HTTP on").rpartition(" ")[2]
    daemon.agent("n1")
    script = """
import sys
import muster
muster.init()
muster.kv.put("of-driver", 1)
print("ready", flush=True)
sys.stdin.read()
"""
    env = {"MUSTER_ADDRESS": daemon.address, "MUSTER_SECRET_FILE": daemon.secret_file}
    driver = Driver(script, tmp_path, **env)
    assert driver.line() == "ready"
    assert ask_http(daemon, where, "POST", "/kv/of-nobody")["done"]
    daemon.head.kill()
    driver.signal(signal.SIGKILL)
    driver.end()
    daemon.start()
    where = daemon.head.wait_line("HTTP on").rpartition(" ")[2]

    def keys() -> list[str]:
        return [k["key"] for k in ask_http(daemon, where, "GET", "/kv")["keys"]]

    assert "of-nobody" in keys()
    until(lambda: "of-driver" not in keys())  # what was a driver's has gone
    assert keys() == ["of-nobody"]


def test_a_new_head_has_the_store_of_the_old_one_and_all_go_on(joined: Daemon) -> None:
    c = muster.Cluster("c", Meeter, device_mapping="0-3")
    kv.put("before", 1)
    assert c.execute_all_sync("get", "before") == [1] * 4
    watch = kv.watch()
    assert told(watch, 1) == [("put", "before", 1)]
    waiting = c.execute_rank_async(1, "get", "after", DEADLINE_S)
    joined.head.kill()
    joined.start()
    assert kv.get("before") == 1
    kv.put("after", 2)
    assert waiting.result(timeout=DEADLINE_S) == 2
    assert told(watch, 1) == [("put", "after", 2)]
    assert c.execute_all_sync("barrier", "x", DEADLINE_S) == [0, 1, 2, 3]
    c.execute_rank_sync(3, "put", "own", 1, owner="worker")
    os.kill(c.pids[3], signal.SIGKILL)
    assert told(watch, 2) == [("put", "own", 1), ("delete", "own", None)]


def test_what_belonged_to_who_did_not_come_back_goes(
    joined: Daemon, tmp_path: Path
) -> None:
    """A head that was started again waits for owners as long as for a link."""
    script = """
import sys
import muster
muster.init()
muster.kv.put("job/driver", 1)
muster.kv.put("job/none", 1, owner="none")
print("ready", flush=True)
sys.stdin.read()
"""
    where = {"MUSTER_ADDRESS": joined.address, "MUSTER_SECRET_FILE": joined.secret_file}
    other = Driver(script, tmp_path, **where)
    assert other.line() == "ready"
    kv.put("job/mine", 1)
    kv.delete("job/mine")
    kv.put("job/mine", 2)
    watch = kv.watch("job/")
    told(watch, 3)
    joined.head.kill()
    other.signal(signal.SIGKILL)
    other.end()
    joined.start()
    assert kv.get("job/driver") == 1
    assert told(watch, 1) == [("delete", "job/driver", None)]
    assert {key: kv.get(key) for key in kv.keys("job/")} == {
        "job/mine": 2,
        "job/none": 1,
    }
