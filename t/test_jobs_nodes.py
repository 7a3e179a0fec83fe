"""Nodes with `count: "min:max:unit"`: a job has those that there are, from min on.

The machine's memory is what jobs share here: each node takes almost a quarter of it."""

import json
import os
import signal
from typing import Any

import pytest
from cli_rig import home  # noqa: F401
from jobs_rig import Jobs, jobs, until  # noqa: F401

PART = 0.23  # of the memory: four nodes fit, and not five


@pytest.fixture
def memory(jobs: Jobs) -> int:  # noqa: F811
    """Of one node."""
    jobs.write('name: none\nroles: {a: {command: [sleep, "1"], world_size: 1}}\n')
    [here] = json.loads(jobs.run("plan", "--json", "job.yaml"))["nodes"]
    return int(here["memory"] * PART)


def submit_other(jobs: Jobs, name: str, memory: int, count: int) -> None:  # noqa: F811
    jobs.submit(
        f'name: {name}\nnodes: [{{name: "o[0-{count - 1}]", cpus: 0, '
        f"memory: {memory}}}]\n"
        'roles: {a: {command: [sleep, "1000"], num_cpus: 0}}\n'
    )


def submit(jobs: Jobs, memory: int, count: str) -> None:  # noqa: F811
    """A rank fills a node."""
    jobs.submit(
        f'name: part\nnodes: [{{name: n, cpus: 0, memory: {memory}, count: "{count}"}}]\n'
        'roles: {a: {command: [sleep, "1000"], num_cpus: 0, '
        f'memory: {memory}, world_size: "{count}", restart: rank}}}}\n'
    )


def role(jobs: Jobs) -> Any:  # noqa: F811
    return jobs.get("part")["roles"][0]


def wait_nodes(jobs: Jobs, count: int) -> None:  # noqa: F811
    """So many, and a rank on each."""
    until(lambda: len(jobs.get("part")["nodes"]) == count)
    until(lambda: role(jobs)["running"] == count)


def test_three_of_four_and_one_that_comes_later(jobs: Jobs, memory: int) -> None:  # noqa: F811
    submit_other(jobs, "other", memory, 1)
    jobs.wait_stage("other", "running")
    submit(jobs, memory, "2:4")
    wait_nodes(jobs, 3)
    texts = jobs.texts("part")
    assert "has 3 of 4 nodes like n0; the others may come later" in texts
    before = {k: v for k, v in jobs.workers().items() if k.startswith("part.")}
    submit_other(jobs, "late", memory, 2)  # wants two parts, and there will be one
    until(lambda: jobs.get("late")["text"].startswith("waits for"))
    jobs.run("delete", "other")
    until(lambda: "held by part" in jobs.get("late")["text"])
    jobs.kill_head()  # what is free is for the one that waits, also of the next head
    until(lambda: not jobs.get("part")["is_recovering"])
    until(lambda: jobs.get("late")["text"].endswith("held by part"))
    assert len(jobs.get("part")["nodes"]) == 3
    jobs.run("delete", "late")
    wait_nodes(jobs, 4)
    assert "has 4 of 4 nodes like n0" in jobs.texts("part")
    after = jobs.workers()
    assert before.items() <= after.items(), (before, after)
    jobs.run("delete", "part")


def test_a_node_beyond_the_least_is_lost(jobs: Jobs, memory: int) -> None:  # noqa: F811
    submit(jobs, memory, "2:4")
    wait_nodes(jobs, 4)
    os.kill(jobs.agents("part.n3")[0], signal.SIGKILL)
    until(lambda: "is there again" in jobs.texts("part"))
    wait_nodes(jobs, 4)
    jobs.run("suspend", "part")
    jobs.wait_stage("part", "suspended")
    submit_other(jobs, "other", memory, 2)
    jobs.wait_stage("other", "running")
    jobs.run("resume", "part")
    wait_nodes(jobs, 2)
    jobs.run("delete", "part")
    jobs.run("delete", "other")


def test_whole_units(jobs: Jobs, memory: int) -> None:  # noqa: F811
    submit_other(jobs, "other", memory, 1)
    jobs.wait_stage("other", "running")
    submit(jobs, memory, "2:4:2")
    wait_nodes(jobs, 2)  # there is room for three
    until(lambda: "has 2 of 4 nodes like n0" in jobs.texts("part"))
    jobs.run("delete", "other")
    wait_nodes(jobs, 4)
    jobs.run("delete", "part")


def test_less_than_the_least_waits(jobs: Jobs, memory: int) -> None:  # noqa: F811
    submit_other(jobs, "other", memory, 1)
    jobs.wait_stage("other", "running")
    submit(jobs, memory, "4:8:4")
    until(lambda: jobs.get("part")["text"].endswith("held by other"))
    assert jobs.get("part")["stage"] == "queued"
    jobs.run("delete", "other")
    wait_nodes(jobs, 4)
    jobs.run("delete", "part")
