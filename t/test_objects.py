"""`muster list objects`, its REST, and limits that head and agents say themselves."""

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import muster
import numpy as np
import pytest
from conftest import _started
from daemon_rig import CLI, Daemon, Process, daemon  # noqa: F401
from helpers import until

MIB = 1 << 20


class Worker:
    def keep(self, x: Any) -> str:
        self.kept = x
        return os.uname().nodename

    def stats(self) -> dict[str, Any]:
        return muster.store_stats()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = str(tmp_path_factory.mktemp("spill"))
    for _ in _started(
        num_nodes=2, store_limit="32MiB", spill=folder, http="127.0.0.1:0"
    ):
        yield folder


def _listed() -> list[dict[str, Any]]:
    name = os.path.basename(muster.api.session().head.session_dir)
    args = [CLI, "list", "objects", "--session", name, "--json"]
    done = subprocess.run(args, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def _served() -> dict[str, Any]:
    host, _, port = str(muster.http_address()).rpartition(":")
    conn = http.client.HTTPConnection(host, int(port), timeout=20)
    token = {"Authorization": f"Bearer {muster.http_token()}"}
    conn.request("GET", "/api/v1/objects", headers=token)
    answer = conn.getresponse()
    assert answer.status == 200
    found: dict[str, Any] = json.loads(answer.read())
    conn.close()
    return found


def test_who_holds_what(two: str) -> None:
    assert _listed() == []
    refs = [muster.put(np.full(12 * MIB, i, np.int8)) for i in range(3)]
    with muster.Cluster("holder", Worker, world_size=2) as cluster:
        cluster.execute_all_sync("keep", refs[2])
        found = _listed()
        assert found[0]["nbytes"] >= found[-1]["nbytes"] >= 12 * MIB
        mine = [o for o in found if o["node"] == o["origin"]]
        assert {o["where"] for o in mine} == {"memory", "disk"}
        assert len(mine) == 3
        assert all(__file__ in o["site"] or "test_objects" in o["site"] for o in mine)
        read = next(o for o in mine if len(o["holders"]) > 1)
        names = {h["name"] for o in found for h in o["holders"]}
        assert f"driver {os.getpid()}" in names
        assert {"holder/0", "holder/1"} <= names
        assert all(h["since_s"] >= 0 and h["count"] for h in read["holders"])
        copies = [o for o in found if o["where"] == "copy"]
        assert [c["id"] for c in copies] in ([], [read["id"]])
        assert all(c["site"] == read["site"] for c in copies)
        served = _served()
        assert [(o["node"], o["id"]) for o in served["objects"]] == [
            (o["node"], o["id"]) for o in found
        ]
        stores = {s["node"]: s for s in served["nodes"]}
        assert set(stores) == {"n0", "n1"}
        assert all(s["limit"] == 32 * MIB and s["why"] is None for s in stores.values())
        assert sum(s["spilled"] for s in stores.values()) >= 12 * MIB
        assert stores["n0"]["spill"] == two
    del refs
    until(lambda: not _listed(), _listed)


def test_as_a_table(two: str) -> None:
    name = os.path.basename(muster.api.session().head.session_dir)
    kept = muster.put(np.ones(2 * MIB, np.int8))
    done = subprocess.run(
        [CLI, "list", "objects", "--session", name],
        capture_output=True,
        text=True,
        timeout=30,
    )
    title, row = done.stdout.splitlines()
    assert title.split() == "NODE OBJECT SIZE WHERE AGE FROM HELD BY".split()
    assert "memory" in row
    assert f"driver {os.getpid()} (" in row
    assert "test_objects.py:" in row
    assert kept.nbytes == 2 * MIB


DRIVER = """
import muster, numpy as np, json, sys
sys.path.insert(0, {here!r})
from test_objects import Worker
muster.init({address!r}, secret_file={secret!r})
cluster = muster.Cluster("w", Worker, device_mapping="0-1")
stats = {{s["node"]: s for s in cluster.execute_all_sync("stats")}}
refs = [cluster.execute_rank_zero_sync("keep", muster.empty(1 << 20))]
print(json.dumps(stats), flush=True)
sys.stdin.readline()
"""


def _agent(one: Daemon, node: str, *more: str) -> Process:
    args = ["agent", "--head", one.address, "--node-name", node, "--num-gpus", "1"]
    args += ["--secret-file", one.secret_file, "--bind", "127.0.0.1", *more]
    agent = Process(args, one.env)
    agent.wait_line("has joined")
    one.agents[node] = agent
    return agent


def test_a_daemon_and_its_agents(daemon: Daemon, tmp_path: Path) -> None:  # noqa: F811
    daemon.head.signal(signal.SIGTERM)
    daemon.head.end()
    args = ["head", "--listen", daemon.address, "--store-limit", "40MiB"]
    args += ["--spill", "off"]
    daemon.head = Process(args, daemon.env)
    daemon.head.wait_line("listening on")
    _agent(daemon, "a")
    _agent(daemon, "b", "--store-limit", "64MiB", "--spill", str(tmp_path))
    code = DRIVER.format(
        here=os.path.dirname(__file__),
        address=daemon.address,
        secret=daemon.secret_file,
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env=daemon.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as driver:
        assert driver.stdin is not None and driver.stdout is not None
        stats = json.loads(driver.stdout.readline())
        assert (stats["a"]["limit"], stats["a"]["spill"]) == (40 * MIB, "")
        assert (stats["b"]["limit"], stats["b"]["spill"]) == (64 * MIB, str(tmp_path))
        found = json.loads(daemon.run("list", "objects", "--json").stdout)
        assert {o["node"] for o in found} <= {"a", "b"}
        assert any(o["nbytes"] >= MIB for o in found)
        driver.stdin.close()
        driver.wait(30)


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--store-limit", "lots", "wants a size"),
        ("--spill-limit", "-1", "wants a size"),
        ("--spill-limit", "0", "--spill off"),
        ("--spill", "here", "whole path"),
    ],
)
def test_bad_options(tmp_path: Path, option: str, value: str, says: str) -> None:
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text("ab" * 32)
    agent = ["agent", "--head", "127.0.0.1:1", "--secret-file", str(secret)]
    for command in (["head"], agent):
        done = subprocess.run(
            [CLI, *command, f"{option}={value}"],
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert done.returncode == 2
        assert says in done.stderr, done.stderr
