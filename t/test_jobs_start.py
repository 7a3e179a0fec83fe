"""Who keeps the head that `muster submit` starts: `muster keep`, or systemd."""

import concurrent.futures
import os
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

from cli_rig import CLI, home  # noqa: F401
from helpers import processes
from jobs_rig import Jobs, jobs, until  # noqa: F401

JOB = "name: {}\nnodes: [{{name: n0, cpus: 1}}]\ndriver: [sh, -c, 'exit 0']\n"
SIM = """
name: sim
on: sim
nodes: [{name: n, gpus: 4, cpus: 4}]
roles:
  a: {worker_cls: workers.A, world_size: "1:4", num_gpus_per_worker: 1}
"""
# What systemd answers, and does: it runs the command in a session of its own.
TOOLS = {
    "systemctl": "echo running",
    "loginctl": "echo yes",
    "systemd-run": """echo "$@" > "$MUSTER_HOME/asked"
while [ "$1" != -- ]; do shift; done
shift
setsid "$@" < /dev/null > /dev/null 2>&1 &""",
}


def test_the_port_stays_and_the_message_says_who_keeps_it(jobs: Jobs) -> None:  # noqa: F811
    jobs.write(JOB.format("one"))
    said = jobs.run("submit", "job.yaml")
    assert "`muster keep` starts it again" in said, said
    address = (jobs.home.path / "jobs" / "address").read_text()
    jobs.kill_head()
    jobs.run("wait", "one")
    assert (jobs.home.path / "jobs" / "address").read_text() == address
    assert jobs.run("submit", "job.yaml", "--name", "two") == "two\n"  # one is there


def test_a_change_outlives_the_head_that_was_asked(jobs: Jobs) -> None:  # noqa: F811
    jobs.submit(SIM)
    changes = [("scale", "sim", "a=2"), ("delete", "sim")]
    for change in changes:
        head = jobs.head_pid()
        os.kill(head, signal.SIGSTOP)  # it has the request, and does not carry it out
        asking = subprocess.Popen(
            [CLI, *change],
            env=jobs.home.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        time.sleep(0.3)
        os.kill(head, signal.SIGKILL)
        said, _ = asking.communicate(timeout=60)
        assert asking.returncode == 0, (change, said)
    assert "sim" not in jobs.run("list", "jobs")


def test_two_submissions_start_one_head(jobs: Jobs) -> None:  # noqa: F811
    names = ["a", "b", "c"]
    for name in names:
        jobs.write(JOB.format(name), f"{name}.yaml")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        said = [*pool.map(lambda name: jobs.run("submit", f"{name}.yaml"), names)]
    assert [text.splitlines()[0] for text in said] == names
    for name in names:
        jobs.run("wait", name)


def test_systemd_keeps_it_where_it_runs(jobs: Jobs, tmp_path: Path) -> None:  # noqa: F811
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in TOOLS.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    jobs.home.env["PATH"] = f"{tools}:{os.environ['PATH']}"
    jobs.write(JOB.format("one"))
    said = jobs.run("submit", "job.yaml")
    assert "a unit of systemd starts it again" in said, said
    asked = (jobs.home.path / "asked").read_text()
    assert "--user" in asked and "KillMode=process" in asked and "keep -" in asked
    assert f"--setenv=MUSTER_HOME={jobs.home.path}" in asked
    jobs.run("wait", "one")
    jobs.kill_head()
    until(lambda: "one" in jobs.run("list", "jobs"))
    shutil.rmtree(tools)
    assert processes(jobs.mark)


def test_what_a_head_prints_first_is_no_failure(jobs: Jobs) -> None:  # noqa: F811
    jobs.home.env["LD_PRELOAD"] = "/nowhere/to/be/found.so"  # the loader warns of it
    jobs.write(JOB.format("one"))
    assert "found.so" in jobs.run("submit", "job.yaml")
    jobs.run("wait", "one")


def test_a_head_that_cannot_be_started_is_tried_again(jobs: Jobs) -> None:  # noqa: F811
    """There is no descriptor left for a pipe when the head has been killed."""
    jobs.write(JOB.format("one"))
    jobs.run("submit", "job.yaml")
    jobs.run("wait", "one")
    folder = jobs.home.path / "jobs"
    watchdog = int((folder / "watchdog").read_text().splitlines()[0])
    count = len(os.listdir(f"/proc/{watchdog}/fd"))  # one of them ends with the head
    before = resource.prlimit(watchdog, resource.RLIMIT_NOFILE)
    resource.prlimit(watchdog, resource.RLIMIT_NOFILE, (count, before[1]))
    os.kill(jobs.head_pid(), signal.SIGKILL)
    until(lambda: "it cannot be started: Too many" in (folder / "watchdog").read_text())
    resource.prlimit(watchdog, resource.RLIMIT_NOFILE, before)
    until(lambda: "one" in jobs.run("list", "jobs"))
