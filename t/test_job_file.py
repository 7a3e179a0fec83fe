"""`muster check`, and the JSON Schema of job.yaml beside the tables that read it."""

import json
import re
from pathlib import Path
from typing import Any

from cli_rig import Home

ROOT = Path(__file__).resolve().parent.parent
TABLES = {
    "file.c": {"job_fields": "", "driver_fields": "driver"},
    "file_nodes.c": {"node_fields": "node", "device_fields": "devices"},
    "file_roles.c": {"role_fields": "role"},
    "file_bundles.c": {"bundle_fields": "bundle"},
    "file_generation.c": {"generation_fields": "generation"},
    "file_policy.c": {"check_fields": "check", "rules_fields": "policy"},
    "file_workers.c": {"mesh_fields": "mesh"},
}
GOOD = """
name: grpo
nodes: [{name: "n[0-1]", cpus: 8, gpus: 4}]
roles:
  actor_train: {worker_cls: workers.ActorTrain, device_mapping: "0-3", restart: role, args: [0]}
  actor_infer: {worker_cls: workers.ActorInfer, world_size: "2:4", num_gpus_per_worker: 1,
                restart: rank, budget: {failed: 5, preempted: unlimited}}
  reward: {worker_cls: "libreward.so:reward", world_size: 2, critical: false}
driver: [python, train.py]
checkpoint: ./ckpt
"""


def schema() -> dict[str, Any]:
    with open(ROOT / "doc/job.schema.json") as file:
        read: dict[str, Any] = json.load(file)
    return read


def test_the_schema_has_the_keys_that_are_read() -> None:
    whole = schema()
    for file, tables in TABLES.items():
        text = (ROOT / "src/job" / file).read_text()
        for table, name in tables.items():
            rows = re.search(rf"{table}\[\] = \{{(.*?)\n\}};", text, re.S)
            assert rows, table
            keys = set(re.findall(r'\{"(\w+)",', rows.group(1)))
            assert keys == set(
                (whole["$defs"][name] if name else whole)["properties"]
            ), name
    text = (ROOT / "src/job/file_policy.c").read_text()
    causes = set(re.findall(r'\[MS_JOB_\w+\] = "(\w+)",', text.split("};")[0]))
    assert causes == set(whole["$defs"]["budget"]["properties"])


def test_a_file_that_is_right(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(GOOD)
    said = home.run("check", str(file))
    assert said.returncode == 0, said.stderr
    assert "job 'grpo' is right: 2 nodes, 3 roles" in said.stdout
    assert home.json("check", str(file))["created_by_the_controller"] == 3


def test_the_least_nodes_are_enough(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    nodes = 'nodes: [{name: n, cpus: 1, count: "2:4"}]\n'
    role = 'roles: {a: {command: [sleep, "1"], num_cpus: 1, world_size: "%s"}}\n'
    file.write_text(nodes + role % "2:4")
    said = home.run("check", str(file))
    assert said.returncode == 0, said.stderr
    assert "is right: 2 to 4 nodes, 1 role" in said.stdout
    file.write_text(nodes + role % "3:4")
    said = home.run("check", str(file))
    assert (said.returncode, said.stdout) == (6, ""), said
    assert "it fits with 2 workers" in said.stderr and "n2" not in said.stderr


def test_files_that_are_wrong(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    for old, new, code, why in (
        (
            "checkpoint",
            "chekpoint",
            2,
            ":10:1: a job has no key 'chekpoint'; is 'checkpoint' meant?",
        ),
        (
            "restart: rank",
            "restrt: rank",
            2,
            ":7:17: role 'actor_infer' has no key 'restrt'",
        ),
        (
            "failed: 5",
            "faild: 5",
            2,
            ":7:41: a cause in 'budget': 'faild' is none of failed",
        ),
        (
            "[python, train.py]",
            "python train.py",
            2,
            ":9:9: 'driver' must be a list of words",
        ),
        ("world_size: 2,", "world_size: two,", 2, ":8:59: "),
        ("0-3", "0-9", 6, "it fits with device_mapping"),
        ('world_size: "2:4"', "world_size: 40", 6, "actor_infer"),
        ("name: grpo", "name: grpo\non: kubernetes", 2, "on kubernetes: not built yet"),
        # what `submit` would refuse
        ("  reward:", "  driver:", 2, ":8:3: role 'driver': that is the driver's name"),
        ("name: grpo", f"name: {'x' * 55}", 2, ":5:3: job 'xxx"),
        (
            "name: grpo",
            "budget: {hang: 2}",
            2,
            ":2:10: 'budget' of a job has no key 'hang'",
        ),
    ):
        file.write_text(GOOD.replace(old, new))
        said = home.run("check", str(file))
        assert (said.returncode, said.stdout) == (code, ""), (new, said)
        assert why in said.stderr, (why, said.stderr)
    assert home.run("check", str(tmp_path / "none.yaml")).returncode == 2
    assert home.run("check").returncode == 2
