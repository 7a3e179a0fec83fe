"""Ranks that are killed at their memory limit: they may have more the next time."""

import json
from pathlib import Path

import pytest
from cli_rig import home  # noqa: F401
from jobs_rig import Jobs, jobs, until  # noqa: F401

MIB = 1 << 20

# Writes down what it may have; rank 0 then takes 300 MiB, as often as it is started.
HUNGRY = """
import os, re, time

cgroups = open("/proc/self/cgroup").read()
v1 = re.search(r"memory[^:]*:(.*)", cgroups)
v2 = re.search(r"^0::(.*)", cgroups, re.M)
path = (
    f"/sys/fs/cgroup/memory{v1[1]}/memory.limit_in_bytes"
    if v1
    else f"/sys/fs/cgroup{v2[1]}/memory.max"
)
with open("limits." + os.environ["RANK"], "a") as f:
    f.write(open(path).read().strip() + "\\n")
if os.environ["RANK"] == "0":
    taken = b"x" * (300 << 20)
time.sleep(1000)
"""


@pytest.fixture
def hungry(jobs: Jobs) -> Jobs:  # noqa: F811
    found = json.loads(jobs.run("doctor", "--json"))["checks"]
    if any(c["check"] == "memory-limits" and c["level"] != "ok" for c in found):
        pytest.skip("no memory limits here")
    (jobs.folder / "hungry.py").write_text(HUNGRY)
    return jobs


def limits(jobs: Jobs, rank: int) -> list[int]:  # noqa: F811
    path: Path = jobs.folder / f"limits.{rank}"
    return [int(x) // MIB for x in path.read_text().split()] if path.exists() else []


def submit(
    jobs: Jobs,  # noqa: F811
    name: str,
    restart: str,
    count: str = "2",
    memory: str = "memory: 200MiB",
) -> None:
    jobs.submit(
        f"name: {name}\nroles:\n"
        f'  a: {{command: [python3, hungry.py], world_size: "{count}", '
        f"restart: {restart}, {memory}, memory_growth: 2}}\n"
    )


def ends(jobs: Jobs, name: str) -> list[tuple[str, int]]:  # noqa: F811
    return [
        (e["cause"], e["rank"]) for e in jobs.events(name) if " ended: " in e["text"]
    ]


def test_a_rank_is_replaced_with_more_memory(hungry: Jobs) -> None:
    submit(hungry, "big", "rank", "2:3")
    until(lambda: limits(hungry, 0) == [200, 400])
    assert limits(hungry, 1) == [200]  # nothing happened to it
    assert ends(hungry, "big") == [("out of memory", 0)]
    assert "role a asks for 200 % of its memory" in hungry.texts("big")
    hungry.run("delete", "big")


def test_a_rank_has_what_its_bundle_has(hungry: Jobs) -> None:
    submit(hungry, "held", "rank", "2:3", "bundle: {memory: 200MiB}")
    until(lambda: limits(hungry, 0) == [200, 400])
    assert limits(hungry, 1) == [200]
    hungry.run("delete", "held")


def test_a_new_rank_has_as_much_as_the_role_asks_for(hungry: Jobs) -> None:
    submit(hungry, "more", "rank", "2:3")
    hungry.run("scale", "more", "a=2")
    until(lambda: limits(hungry, 0) == [200, 400])
    hungry.run("scale", "more", "a=3")
    until(lambda: limits(hungry, 2)[-1:] == [400])
    hungry.run("delete", "more")


def test_a_role_restarts_with_more_memory(hungry: Jobs) -> None:
    submit(hungry, "all", "role")
    until(lambda: limits(hungry, 0) == [200, 400])
    until(lambda: limits(hungry, 1) == [200, 400])
    hungry.run("restart", "all/a")  # as large as it is now
    until(lambda: limits(hungry, 1) == [200, 400, 400])
    assert ends(hungry, "all") == [("out of memory", 0)]
    hungry.run("delete", "all")
