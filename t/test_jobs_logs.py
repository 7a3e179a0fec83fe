"""`muster logs --job`: what a submitted job prints, while it runs and after its end."""

import json
import subprocess

from cli_rig import CLI, home  # noqa: F401
from jobs_rig import Jobs, jobs, until  # noqa: F401

JOB = """
name: talk
nodes: [{name: "n[0-1]", cpus: 4}]
roles:
  side: {command: [sh, -c, "echo from $RANK; touch ran.$RANK; exec sleep 1000"],
         world_size: 2}
driver: [sh, -c, "echo begun; while [ ! -e done ] || [ ! -e ran.0 ] || [ ! -e ran.1 ];
                  do sleep 0.05; done; echo over"]
"""
FIRST = {"talk.side/0": "from 0", "talk.side/1": "from 1", "talk.driver/0": "begun"}


def lines(jobs: Jobs, *options: str) -> list[tuple[str, str]]:  # noqa: F811
    said = jobs.run("logs", "--job", "talk", "--json", *options).splitlines()
    found = [json.loads(line) for line in said]
    return [(f"{one['cluster']}/{one['rank']}", one["line"]) for one in found]


def test_logs_of_a_job(jobs: Jobs) -> None:  # noqa: F811
    jobs.submit(JOB)
    jobs.wait_running("talk")
    until(lambda: dict(lines(jobs)) == FIRST)
    follow = subprocess.Popen(
        [CLI, "logs", "--job", "talk", "--follow"],
        env=jobs.home.env,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert follow.stdout is not None
    begun = [follow.stdout.readline() for _ in FIRST]
    assert any(line.endswith(": begun\n") for line in begun)
    jobs.kill_head()  # its supervisor starts it again, and the logs are followed on
    jobs.wait_running("talk")
    jobs.write("", "done")
    assert follow.communicate(timeout=60)[0] == "talk.driver/0@talk.n0: over\n"
    assert follow.returncode == 0
    jobs.run("wait", "talk")
    assert lines(jobs)[-1] == ("talk.driver/0", "over")
    assert {*lines(jobs)} == {*FIRST.items(), ("talk.driver/0", "over")}
    assert lines(jobs, "--grep", "ov.r", "--follow") == [("talk.driver/0", "over")]
    assert "no operand" in jobs.run("logs", "--job", "talk", "talk.side", code=2)
    assert "there is no job 'tolk'; did you mean 'talk'?" in jobs.run(
        "logs", "--job", "tolk", code=5
    )
    jobs.run("delete", "talk")
    until(lambda: "talk" not in jobs.run("list", "jobs"))
    for rank in (0, 1):
        (jobs.folder / f"ran.{rank}").unlink()
    jobs.submit(JOB)  # of its own name, and its own lines
    until(lambda: ("talk.driver/0", "over") in lines(jobs, "--follow"))
    assert len(lines(jobs)) == 4
