"""Machines of a job: an orchestrator that cannot be asked, room for less than all."""

import contextlib
import os
import shutil
import signal
import subprocess
from typing import Any

from cli_rig import CLI, home  # noqa: F401
from jobs_rig import Jobs, jobs, until  # noqa: F401


def role(jobs: Jobs, job: str, name: str) -> Any:  # noqa: F811
    return next(r for r in jobs.get(job)["roles"] if r["name"] == name)


def test_an_orchestrator_that_cannot_be_asked(jobs: Jobs) -> None:  # noqa: F811
    jobs.submit(
        'name: mute\nnodes: [{name: "n[0-1]", cpus: 1}]\n'
        'roles: {a: {command: [sleep, "1000"], num_cpus: 1, world_size: 2, '
        "restart: rank}}\n"
    )
    until(lambda: role(jobs, "mute", "a")["running"] == 2)
    kept = jobs.home.path / "jobs" / "lent-mute."
    was = kept.read_bytes()
    kept.unlink()
    kept.mkdir()  # what local has lent cannot be written down any more
    os.kill(jobs.agents("mute.n1")[0], signal.SIGKILL)
    until(lambda: "the orchestrator cannot be asked" in jobs.texts("mute"))
    texts = jobs.texts("mute")
    assert "lent-mute." in texts and "nothing is started until it can" in texts
    jobs.kill_head()  # the next one finds that too: the file cannot be read
    kept.rmdir()
    kept.write_bytes(was)
    until(lambda: role(jobs, "mute", "a")["running"] == 2)
    assert "can be asked again" in jobs.texts("mute")
    assert jobs.get("mute")["stage"] == "running"
    jobs.run("delete", "mute")


def test_a_role_begins_with_what_fits(jobs: Jobs) -> None:  # noqa: F811
    jobs.submit(
        'name: part\nnodes: [{name: "n[0-1]", cpus: 3}]\nroles:\n'
        '  first: {command: [sleep, "1000"], num_cpus: 1, world_size: "1:2", '
        "restart: rank}\n"
        '  wide: {command: [sleep, "1000"], num_cpus: 1, world_size: "2:6", '
        "restart: rank}\n"
    )
    # two CPUs of six are the other role's
    until(lambda: role(jobs, "part", "wide")["running"] == 4)
    found = role(jobs, "part", "wide")
    assert (found["size"], found["wanted"]) == (4, 6), found
    assert "there is some for 4 more" in jobs.texts("part")
    assert jobs.get("part")["stage"] == "running"
    jobs.run("scale", "part", "first=1")
    until(lambda: role(jobs, "part", "first")["running"] == 1)
    jobs.run("scale", "part", "wide=5")  # one more fits now
    until(lambda: role(jobs, "part", "wide")["running"] == 5)
    jobs.run("delete", "part")


def test_more_than_there_is_room_for(jobs: Jobs) -> None:  # noqa: F811
    jobs.submit(
        'name: big\nnodes: [{name: "n[0-1]", cpus: 1}]\n'
        'roles: {a: {command: [sleep, "1000"], num_cpus: 1, world_size: "1:4", '
        "restart: rank}}\n"
    )
    until(lambda: role(jobs, "big", "a")["running"] == 2)
    assert "there is some for 2 more" in jobs.texts("big")
    jobs.run("delete", "big")


def test_a_node_that_cannot_be_had_again(jobs: Jobs) -> None:  # noqa: F811
    program = jobs.folder / "muster"
    shutil.copy2(CLI, program)  # the agents are of it, too
    jobs.write(
        'name: lack\nnodes: [{name: "n[0-1]", cpus: 1}]\n'
        'roles: {a: {command: [sleep, "1000"], num_cpus: 1, world_size: "1:2", '
        "restart: rank}}\n"
    )
    command = [str(program), "submit", "job.yaml"]
    subprocess.run(command, env=jobs.home.env, cwd=jobs.folder, check=True)
    until(lambda: role(jobs, "lack", "a")["running"] == 2)
    program.rename(jobs.folder / "away")
    for pid in jobs.agents("lack.n1"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: "its machines: " in jobs.texts("lack"))
    said = [e["text"] for e in jobs.events("lack") if "its machines: " in e["text"]]
    assert "agent" in said[0] or "No such file" in said[0], said
    (jobs.folder / "away").rename(program)
    until(lambda: role(jobs, "lack", "a")["running"] == 2)
    assert "node n1 is there again" in jobs.texts("lack")
    jobs.run("suspend", "lack")  # and nothing is asked for any more
    jobs.wait_stage("lack", "suspended")
    assert jobs.agents("lack.n0") == jobs.agents("lack.n1") == []
    jobs.run("delete", "lack")
