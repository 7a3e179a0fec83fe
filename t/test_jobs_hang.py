"""Roles of a job that hang: who is taken to hang, the stacks in the events, the restart."""

import os
import signal
import sys
from pathlib import Path

from cli_rig import home  # noqa: F401
from jobs_rig import Jobs, jobs, until  # noqa: F401

WORKERS = """
import os, threading, time
import muster


class Loop:
    def stand_still(self):
        open("stands", "w").close()
        threading.Event().wait()

    def report(self, seconds):
        for _ in range(int(seconds * 10)):
            muster.progress()
            time.sleep(0.1)
        return os.getpid()
"""
JOB = f"""
name: stuck
nodes: [{{name: "n[0-1]", cpus: 8}}]
roles:
  good: {{worker_cls: hang_workers.Loop, world_size: 1, hang: 5}}
  bad: {{worker_cls: hang_workers.Loop, world_size: 2, hang: 5}}
  plain: {{command: [sleep, "1000"], world_size: 1, critical: false}}
driver: [{sys.executable}, train.py]
"""
TRAIN = """
import muster

muster.init()
good, bad = muster.get_cluster("good"), muster.get_cluster("bad")
try:
    bad.execute_rank_zero_sync("stand_still")
except muster.WorkerDied as e:
    open("died", "w").write(str(e))
before = good.execute_all_sync("report", 0)
assert good.execute_all_sync("report", 15) == before
"""


def start(jobs: Jobs) -> dict[str, int]:  # noqa: F811
    jobs.write(WORKERS, "hang_workers.py")
    jobs.write(TRAIN, "train.py")
    assert jobs.submit(JOB) == "stuck"
    until((jobs.folder / "stands").exists)
    return jobs.workers()


def test_a_worker_that_stands_still(jobs: Jobs) -> None:  # noqa: F811
    before = start(jobs)
    until((jobs.folder / "died").exists)
    jobs.run("wait", "stuck", timeout_s=120)
    lines = jobs.events("stuck")
    texts = jobs.texts("stuck")
    said = [e["text"] for e in lines if e["cause"] == "hang"]
    assert any("no sign of work for 5 s" in t for t in said), texts
    stacks = [t for t in said if "in stand_still" in t]
    assert len(stacks) == 1, texts  # of the rank that is called; and of the other:
    assert any(t.startswith("bad/1, process") and "File" in t for t in said), texts
    assert any("of 2 of 2 processes" in t for t in said), texts
    order = [t for t in said if t in stacks or "show no sign" in t]
    assert "show no sign" in order[0], texts
    assert before["stuck.bad/0"]
    # who has nothing to do, or says that it works, is left alone
    assert not [t for t in said if t.startswith("role good") or "good/0" in t], texts
    assert jobs.get("stuck")["attempt"] == 1


def test_a_worker_that_was_stopped(jobs: Jobs) -> None:  # noqa: F811
    jobs.write(WORKERS, "hang_workers.py")
    jobs.submit(
        'name: stuck\nroles:\n  bad: {command: [sh, -c, "while :; do :; done"], '
        "world_size: 2, hang: 4, restart: rank}\n"
    )
    jobs.wait_stage("stuck", "running")
    before = until(lambda: len(w := jobs.workers()) == 2 and w)
    until(lambda: Path(f"/proc/{before['stuck.bad/1']}/stat").exists())
    os.kill(before["stuck.bad/1"], signal.SIGSTOP)
    after = until(
        lambda: (
            (now := jobs.workers()).get("stuck.bad/1")
            not in (None, before["stuck.bad/1"])
            and now
        )
    )
    assert after["stuck.bad/0"] == before["stuck.bad/0"]
    texts = jobs.texts("stuck")
    assert "it is stopped, by a signal" in texts, texts
    assert "(sh): stopped by a signal" in texts, texts
    jobs.run("stop", "job", "stuck")
    jobs.run("wait", "stuck", code=143)


def test_a_command_whose_child_stands_still(jobs: Jobs) -> None:  # noqa: F811
    """Nobody can ask it: the kernel says of all its processes where they wait."""
    jobs.submit(
        'name: stuck\nroles:\n  bad: {command: [sh, -c, "sleep 1000; :"], hang: 3}\n'
    )
    until(lambda: "bad/0 ended: hang" in jobs.texts("stuck"))
    [said] = [e["text"] for e in jobs.events("stuck") if "no stack" in e["text"]][:1]
    first, *rest = said.splitlines()
    assert first.endswith("no stack, it is a command"), said
    assert any(line.endswith("sh -c sleep 1000; :") for line in rest), said
    assert any(line.endswith(": sleep 1000") for line in rest), said
    assert sum("): sleeping" in line for line in rest) == 2, said
    jobs.run("stop", "job", "stuck")
    jobs.run("wait", "stuck", code=143)


def test_a_hang_that_is_only_said(jobs: Jobs) -> None:  # noqa: F811
    jobs.submit(
        "name: stuck\nroles:\n"
        '  bad: {command: [sleep, "1000"], hang: 2, on_hang: say}\n'
    )
    jobs.wait_stage("stuck", "running")
    before = until(jobs.workers)
    until(lambda: jobs.texts("stuck").count("hangs; its policy is to say so") == 2)
    assert jobs.workers() == before  # also after the second time
    assert "no stack, it is a command" in jobs.texts("stuck")
    jobs.run("stop", "job", "stuck")
    jobs.run("wait", "stuck", code=143)


DRIVER = """
import os, time, muster

muster.init()
c = muster.get_cluster("works")
assert c.execute_all_sync("report", 10) != []  # its worker works: that is no hang
if os.environ["MUSTER_ATTEMPT"] == "1":
    time.sleep(1000)
"""


def test_a_driver_that_stands_still(jobs: Jobs) -> None:  # noqa: F811
    jobs.write(WORKERS, "hang_workers.py")
    jobs.write(DRIVER, "train.py")
    jobs.submit(
        "name: stuck\nroles: {works: {worker_cls: hang_workers.Loop, world_size: 1}}\n"
        f"driver: {{command: [{sys.executable}, train.py], hang: 5}}\n"
    )
    jobs.run("wait", "stuck", timeout_s=120)
    texts = jobs.texts("stuck")
    assert "the driver and all workers show no sign of work for 5 s" in texts, texts
    assert "driver/0, process" in texts, texts
    assert f": {sys.executable} train.py\n" in texts, texts
    assert "the driver ended: hang" in texts, texts
    assert jobs.get("stuck")["attempt"] >= 2, texts
