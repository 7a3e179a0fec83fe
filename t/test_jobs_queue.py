"""Jobs that wait for the machine: by priority, then age, and it is said for what."""

import subprocess

from cli_rig import CLI, home  # noqa: F401
from jobs_rig import Jobs, jobs, until  # noqa: F401

ALL = 100000  # CPUs, more than any machine has: such a job runs alone


def submit(jobs: Jobs, name: str, cpus: int, priority: int = 0) -> None:  # noqa: F811
    jobs.submit(
        f"name: {name}\nnodes: [{{name: n0, cpus: {cpus}}}]\npriority: {priority}\n"
        'roles: {a: {command: [sleep, "1000"]}}\n'
    )


def test_by_priority_then_age(jobs: Jobs) -> None:  # noqa: F811
    submit(jobs, "first", ALL)
    jobs.wait_stage("first", "running")
    submit(jobs, "old", ALL)
    submit(jobs, "young", ALL)
    submit(jobs, "urgent", ALL, 5)
    submit(jobs, "free", 0)  # wants nothing
    jobs.wait_stage("free", "running")
    why = until(lambda: jobs.get("urgent")["text"])
    assert why == f"waits for {ALL:g} of CPUs, free are 0; held by first"
    assert why in jobs.texts("urgent")
    until(
        lambda: jobs.get("old")["text"]
        == "waits behind job urgent, whose priority is 5"
    )
    listed = jobs.run("list", "jobs")
    assert "waits behind job urgent" in listed and "queued" in listed
    for done, after in (("first", "urgent"), ("urgent", "old"), ("old", "young")):
        jobs.run("delete", done)
        jobs.wait_stage(after, "running")
        if after != "young":
            assert jobs.get("young")["stage"] == "queued"
    jobs.run("delete", "young")
    jobs.run("delete", "free")


def test_what_is_resumed_waits_too(jobs: Jobs) -> None:  # noqa: F811
    submit(jobs, "one", ALL)
    jobs.wait_stage("one", "running")
    submit(jobs, "two", ALL)
    jobs.wait_stage("two", "queued")
    jobs.run("suspend", "one")
    jobs.wait_stage("two", "running")
    jobs.run("resume", "one")
    jobs.wait_stage("one", "queued")
    until(lambda: "held by two" in jobs.get("one")["text"])
    jobs.kill_head()  # the next one has the same queue
    until(lambda: "held by two" in jobs.get("one")["text"])
    jobs.run("delete", "two")
    jobs.wait_stage("one", "running")
    jobs.run("delete", "one")


def test_without_nodes_it_is_the_whole_machine(jobs: Jobs) -> None:  # noqa: F811
    submit(jobs, "part", 1)
    jobs.wait_stage("part", "running")
    jobs.submit('name: whole\nroles: {a: {command: [sleep, "1000"]}}\n')
    until(lambda: "held by part" in jobs.get("whole")["text"])
    jobs.run("delete", "part")
    jobs.wait_stage("whole", "running")
    jobs.run("delete", "whole")


def test_on_nodes_that_have_joined_it_waits_for_nothing(jobs: Jobs) -> None:  # noqa: F811
    submit(jobs, "all", ALL)
    jobs.wait_stage("all", "running")
    session = jobs.home.path / "jobs"
    env = jobs.home.env | {"MUSTER_SECRET_FILE": str(session / "secret")}
    address = (session / "address").read_text().strip()
    joins = [CLI, "agent", "--head", address, "--node-name", "own"]
    agent = subprocess.Popen(joins, env=env, stdout=subprocess.DEVNULL)
    try:
        until(lambda: "own" in jobs.run("list", "nodes", "--session", "jobs"))
        jobs.submit('name: whole\nroles: {a: {command: [sleep, "1000"]}}\n')
        jobs.wait_stage("whole", "running")
        assert jobs.get("all")["stage"] == "running"
        jobs.run("delete", "whole")
    finally:
        agent.terminate()
        agent.wait(60)
    jobs.run("delete", "all")
