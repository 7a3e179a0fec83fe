"""`muster plan`: where every rank would go."""

import os
import subprocess
from pathlib import Path
from typing import Any

import muster
import pytest
from cli_rig import CLI, Home
from workers import Echo

NODES = """
nodes:
  - {name: "n[0-3]", cpus: 64, memory: 512GiB, gpus: 8, gpu_memory: 80GiB,
     labels: {rack: r1}}
"""
FOUR = (
    NODES
    + """
roles:
  actor_train: {device_mapping: "0-1,8", num_gpus_per_worker: 1}
  actor_infer: {device_mapping: "0-31", num_gpus_per_worker: 16}
  reward: {world_size: 5, num_cpus: 1}
"""
)
FOUR_MAP = """
ROLE         RANK  NODE  DEVICES  GLOBAL  SHARED WITH
actor_train     0  n0    0        0       actor_infer
                1  n0    1        1       actor_infer
                2  n1    0        8       actor_infer
actor_infer     0  n0    0-7      0-7     actor_train
                +  n1    0-7      8-15    actor_train
                1  n2    0-7      16-23
                +  n3    0-7      24-31
reward          0  n0    -        -
                1  n1    -        -
                2  n2    -        -
                3  n3    -        -
                4  n0    -        -
"""
UNEQUAL = """
nodes:
  - {name: n10, cpus: 8, gpus: 1}
  - {name: n9, cpus: 8, gpus: 4, gpus_per_domain: 2}
  - {name: n11, cpus: 4, labels: {zone: a}}
roles:
  pairs: {world_size: 2, bundle: {GPU: 2, one_domain: true}, strategy: STRICT_PACK}
  single: {device_mapping: "4"}
  here: {world_size: 2, bundle: {CPU: 2, labels: {zone: a}}}
"""
UNEQUAL_MAP = """
ROLE    RANK  NODE  DEVICES  GLOBAL  SHARED WITH
pairs      0  n9    0,1      0,1
           1  n9    2,3      2,3
single     0  n10   0        4
here       0  n11   -        -
           1  n11   -        -
"""


def write(folder: Path, text: str) -> str:
    path = folder / "job.yaml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "nodes", "wanted"),
    [(FOUR, "4 nodes of %s, 32 devices\n", FOUR_MAP)]
    + [(UNEQUAL, "3 nodes of %s, 5 devices\n", UNEQUAL_MAP)],
)
def test_the_map(
    home: Home, tmp_path: Path, text: str, nodes: str, wanted: str
) -> None:
    file = write(tmp_path, text)
    done = home.run("plan", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == nodes % file + wanted
    assert home.run("plan", file).stdout == done.stdout


def test_the_map_for_programs(home: Home, tmp_path: Path) -> None:
    plan = home.json("plan", write(tmp_path, FOUR))
    assert [n["name"] for n in plan["nodes"]] == ["n0", "n1", "n2", "n3"]
    assert plan["nodes"][3] == {
        "name": "n3",
        "cpus": 64.0,
        "memory": 512 << 30,
        "devices": 8,
        "first_id": 24,
    }
    roles = {role["name"]: role for role in plan["roles"]}
    assert list(roles) == ["actor_train", "actor_infer", "reward"]
    assert roles["actor_train"]["ranks"][2] == {
        "rank": 2,
        "node": "n1",
        "devices": [0],
        "ids": [8],
        "helpers": [],
    }
    wide = roles["actor_infer"]["ranks"][1]
    assert (wide["node"], wide["ids"]) == ("n2", list(range(16, 24)))
    assert [(h["node"], h["ids"]) for h in wide["helpers"]] == [
        ("n3", list(range(24, 32)))
    ]
    assert roles["reward"]["world_size"] == 5


def test_what_does_not_fit(home: Home, tmp_path: Path) -> None:
    file = write(
        tmp_path,
        NODES
        + """
roles:
  actor_train: {device_mapping: "0-15"}
  actor_infer: {device_mapping: "0-9", num_gpus_per_worker: 4}
""",
    )
    done = home.run("plan", file)
    assert (done.returncode, done.stdout) == (6, "")
    lines = done.stderr.splitlines()
    assert lines[0] == (
        "muster plan: cluster 'actor_infer': 10 devices cannot be divided into workers of "
        "4 devices"
    )
    assert lines[1].startswith("> asked: cluster 'actor_infer', ")
    assert any(line.startswith("  n0    0-7      0-7 actor_train") for line in lines)
    assert lines[-1].startswith("it fits with ")
    error = home.json("plan", file, code=6)["error"]
    assert error["exit_code"] == 6
    assert error["message"] in lines[0]
    assert error["table"].splitlines() == lines[1:]
    big = write(tmp_path, NODES + "roles: {a: {bundle: {GPU: 9}}}")
    done = home.run("plan", big)
    assert done.returncode == 6
    assert "group 'a'" in done.stderr


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("roles: {a: {world_size: three}}", '1:25: a whole number, "min:max"'),
        ("roles:\n  a: {}\n  b:\n    worldsize: 3", "4:5: role 'b' has no key"),
        ("nodes:\n  - name: a\n    gpu: 3", "3:5: a node has no key 'gpu'; is 'gpus'"),
        ("nodes:\n\t- name: a", "2:1: found character that cannot start any token"),
    ],
)
def test_where_it_is_wrong(home: Home, tmp_path: Path, text: str, error: str) -> None:
    file = write(tmp_path, text)
    done = home.run("plan", file)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"muster plan: {file}:{error}")
    assert home.json("plan", file, code=2)["error"]["message"] in done.stderr


def test_words(home: Home, tmp_path: Path) -> None:
    assert home.run("plan").returncode == 2
    done = home.run("plan", str(tmp_path / "nowhere.yaml"))
    assert done.returncode == 2
    assert "nowhere.yaml" in done.stderr


def reads_of_plan(home: Home, file: str) -> int:
    """How many read calls it takes; /proc tells that of a process until it is reaped."""
    asked = subprocess.Popen(
        [CLI, "plan", file], env=home.env, stdout=subprocess.DEVNULL
    )
    os.waitid(os.P_PID, asked.pid, os.WEXITED | os.WNOWAIT)
    counts = Path(f"/proc/{asked.pid}/io").read_text()
    assert asked.wait() == 0
    return int(counts.partition("syscr: ")[2].split()[0])


def test_it_looks_at_this_machine_once(home: Home, tmp_path: Path) -> None:
    """Nodes that do not say their CPUs and memory have those of this machine."""
    text = "nodes: [{name: 'n[1-%d]', gpus: 1}]\nroles: {a: {world_size: 1}}"
    few = reads_of_plan(home, write(tmp_path, text % 10))
    many = reads_of_plan(home, write(tmp_path, text % 4000))
    assert many <= few + 10


def test_over_this_machine(home: Home, tmp_path: Path) -> None:
    plan = home.json("plan", write(tmp_path, "roles: {a: {world_size: 2}}"))
    assert len(plan["nodes"]) == 1
    assert plan["nodes"][0]["cpus"] >= 1
    assert [r["node"] for r in plan["roles"][0]["ranks"]] == ["localhost"] * 2
    file = write(tmp_path, "roles: {a: {world_size: 2}}")
    done = home.run("plan", file, "--session", "nobody")
    assert done.returncode == 3


def test_over_a_head_that_runs(home: Home, tmp_path: Path) -> None:
    file = write(tmp_path, "roles: {infer: {device_mapping: '2-5', num_cpus: 3}}")
    before = os.environ["MUSTER_HOME"]
    os.environ["MUSTER_HOME"] = str(home.path)
    try:
        muster.init(num_nodes=2, num_gpus=4, num_cpus=8)
        done = home.run("plan", file)
        assert done.returncode == 0, done.stderr
        assert "2 nodes of the head of session" in done.stdout
        with muster.Cluster("train", Echo, device_mapping="0-3", num_cpus=0.5):
            plan: Any = home.json("plan", file)
            assert [r["ids"] for r in plan["roles"][0]["ranks"]] == [[2], [3], [4], [5]]
        with muster.Cluster("greedy", Echo, world_size=2, num_cpus=5):
            done = home.run("plan", file)
            assert done.returncode == 6, done.stdout
            assert "3 is what is free" in done.stderr
    finally:
        muster.shutdown()
        os.environ["MUSTER_HOME"] = before
