"""Jobs that a head hosts: submitted, killed at any place, explained, and ended."""

import os
import signal
import sys

import muster.jobs
import pytest
from cli_rig import home  # noqa: F401
from helpers import MARK
from jobs_rig import Jobs, jobs, until  # noqa: F401
from muster.errors import MusterError

ROLES = """
name: first
nodes: [{name: "n[0-1]", cpus: 8}]
roles:
  infer: {worker_cls: jobs_workers.Echo, world_size: "1:4", restart: rank}
  side: {command: [sleep, "1000"], world_size: 2, restart: role}
"""
DRIVER = f"driver: [{sys.executable}, train.py]\ncheckpoint: ./ckpt\n"
TRAIN = """
import os, sys, time
import muster

muster.init()
print("attempt", os.environ["MUSTER_ATTEMPT"], os.environ["MUSTER_CHECKPOINT"], flush=True)
if os.path.exists("call"):
    infer = muster.get_cluster("infer")
    print("pids", *infer.execute_all_sync("pid"), infer.world_size, flush=True)
    open("called", "w").write(" ".join(map(str, infer.execute_all_sync("pid"))))
while not os.path.exists("done"):
    time.sleep(0.05)
sys.exit(int(open("done").read() or 0))
"""


def start(jobs: Jobs) -> None:  # noqa: F811
    jobs.write(TRAIN, "train.py")
    assert jobs.submit(ROLES + DRIVER) == "first"
    jobs.wait_running("first")


def finish(jobs: Jobs, code: int = 0) -> None:  # noqa: F811
    jobs.write(str(code), "done")
    jobs.run("wait", "first", code=code)


def test_a_job_from_its_submission_to_its_end(jobs: Jobs) -> None:  # noqa: F811
    start(jobs)
    assert "first" in jobs.run("list", "jobs")
    assert "already, and it is running" in jobs.run("submit", "job.yaml", code=1)
    assert len(jobs.workers()) == 7
    finish(jobs)
    job = jobs.get("first")
    assert (job["stage"], job["code"]) == ("succeeded", 0)
    assert "which has ended" in jobs.run("submit", "job.yaml", code=1)
    assert jobs.workers() == {}
    assert jobs.run("delete", "first") == "job 'first' is deleted\n"
    until(lambda: "first" not in jobs.run("list", "jobs"))
    assert "there is no job 'first'" in jobs.run("get", "job/first", code=5)


def test_what_dies_is_replaced(jobs: Jobs) -> None:  # noqa: F811
    start(jobs)
    before = jobs.workers()
    os.kill(before["first.infer/1"], signal.SIGKILL)
    after = until(
        lambda: (
            (now := jobs.workers()).get("first.infer/1", before["first.infer/1"])
            != before["first.infer/1"]
        )
        and len(now) == 7
        and now
    )
    assert after["first.infer/0"] == before["first.infer/0"]
    os.kill(before["first.side/0"], signal.SIGKILL)  # the role restarts together
    until(
        lambda: {"first.side/0", "first.side/1"}
        <= {n for n, p in jobs.workers().items() if before.get(n) != p}
    )
    os.kill(before["first.driver/0"], signal.SIGKILL)
    until(lambda: jobs.get("first")["attempt"] == 2)
    jobs.wait_running("first")
    texts = jobs.texts("first")
    assert "infer/1" in texts and "signal 9" in texts, texts
    finish(jobs)


def test_the_head_is_killed_and_nothing_else_notices(jobs: Jobs) -> None:  # noqa: F811
    start(jobs)
    before = jobs.workers()
    jobs.kill_head()
    jobs.wait_running("first")
    assert jobs.workers() == before
    assert jobs.get("first")["attempt"] == 1
    os.kill(before["first.infer/2"], signal.SIGKILL)
    until(
        lambda: (
            (now := jobs.workers()).get("first.infer/2")
            not in (None, before["first.infer/2"])
            and len(now) == 7
        )
    )
    finish(jobs, 7)
    assert jobs.get("first")["code"] == 7


def test_scale_restart_suspend_and_resume(jobs: Jobs) -> None:  # noqa: F811
    start(jobs)
    before = jobs.workers()
    jobs.run("scale", "first", "infer=2")
    until(lambda: len(jobs.workers()) == 5)
    assert "infer" in jobs.run("scale", "first", "infer=9", code=1)
    assert "no role 'infr'" in jobs.run("scale", "first", "infr=2", code=1)
    jobs.run("restart", "first/infer/0")
    until(
        lambda: jobs.workers().get("first.infer/0")
        not in (None, before["first.infer/0"])
    )
    jobs.wait_running("first")
    jobs.run("suspend", "first")
    jobs.wait_stage("first", "suspended")
    assert jobs.workers() == {}
    jobs.run("resume", "first")
    assert jobs.wait_running("first")["attempt"] == 2
    jobs.run("stop", "job", "first")
    jobs.run("wait", "first", code=143)
    assert jobs.get("first")["stage"] == "stopped"


def test_a_job_that_cannot_work(jobs: Jobs) -> None:  # noqa: F811
    assert jobs.submit("name: none\ndriver: [/nowhere/driver]\n") == "none"
    said = jobs.run("wait", "none", code=1)
    assert "/nowhere/driver" in said, said
    assert "/nowhere/driver" in jobs.texts("none")
    text = "name: bad\nroles: {a: {worker_cls: jobs_workers.None_, world_size: 1}}\n"
    assert jobs.submit(text) == "bad"
    jobs.run("wait", "bad", code=1)
    assert "None_" in jobs.texts("bad")


def test_an_agent_is_killed(jobs: Jobs) -> None:  # noqa: F811
    start(jobs)
    jobs.kill_agent("first.n1")
    until(lambda: "node lost" in jobs.texts("first") and len(jobs.workers()) == 7)
    finish(jobs)


def test_an_agent_with_many_ranks_is_killed(jobs: Jobs) -> None:  # noqa: F811
    """One decision, and one request for all of them."""
    jobs.submit(
        'name: many\nnodes: [{name: "n0", cpus: 64}]\nroles:\n'
        '  a: {command: [sleep, "1000"], world_size: 50, restart: rank}\n'
    )
    before = until(lambda: len(w := jobs.workers()) == 50 and w)
    for pid in jobs.agents("many.n0"):
        os.kill(pid, signal.SIGKILL)
    until(lambda: "50 start again together" in jobs.texts("many"))
    until(
        lambda: len(w := jobs.workers()) == 50
        and not set(w.values()) & {*before.values()}
    )
    until(lambda: "complete again" in jobs.texts("many"))
    said = jobs.texts("many")
    assert said.count(" ended: node lost") <= 8, said  # not one for each
    assert said.count("start again together") == 1, said
    assert said.count("complete again") == 1, said
    jobs.run("delete", "many")


def test_delete_of_a_running_job(jobs: Jobs) -> None:  # noqa: F811
    start(jobs)
    jobs.run("delete", "first")
    until(lambda: "first" not in jobs.run("list", "jobs"))
    assert jobs.workers() == {}


def test_a_driver_calls_the_roles_of_its_job(jobs: Jobs) -> None:  # noqa: F811
    jobs.write("", "call")
    start(jobs)
    called = until(lambda: (f := jobs.folder / "called").exists() and f.read_text())
    workers = jobs.workers()
    assert called.split() == [str(workers[f"first.infer/{i}"]) for i in range(4)]
    finish(jobs)


def test_from_python(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    for name in ("MUSTER_HOME", MARK):
        monkeypatch.setenv(name, jobs.home.env[name])
    monkeypatch.chdir(jobs.folder)
    jobs.write(TRAIN, "train.py")
    jobs.write(ROLES + DRIVER)
    job = muster.jobs.submit("job.yaml")
    jobs.wait_running(job.name)
    assert [j.name for j in muster.jobs.jobs()] == ["first"]
    with pytest.raises(MusterError, match="already"):
        muster.jobs.submit("job.yaml")
    with pytest.raises(TimeoutError):
        job.wait(timeout=1)
    job.scale("infer", 3)
    until(lambda: job.status()["roles"][0]["running"] == 3)
    job.restart("infer", 0)
    with pytest.raises(MusterError, match="no role"):
        job.restart("nobody")
    jobs.write("0", "done")
    assert job.wait() == 0
    assert any("succeeded" in e["text"] for e in job.events())
    job.delete()
    with pytest.raises(MusterError, match="there is no job"):
        until(lambda: muster.jobs.get("first") and False)
