"""muster.jobs asks the head itself: by its session or its address, and while it comes back."""

import contextlib
import json
import sys
import threading

import muster.jobs
import pytest
from cli_rig import home  # noqa: F401
from helpers import BUILD, MARK
from jobs_rig import Jobs, jobs, until  # noqa: F401
from muster.errors import MusterError

JOB = """
name: py
nodes: [{name: n0, cpus: 4}]
driver: [sh, -c, "while [ ! -e done ]; do sleep 0.05; done; exit 5"]
"""


def test_a_job_by_python(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    for name in ("MUSTER_HOME", MARK):
        monkeypatch.setenv(name, jobs.home.env[name])
    for name in ("MUSTER_ADDRESS", "MUSTER_SECRET_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(jobs.folder)
    with pytest.raises(MusterError, match="`muster submit FILE` starts one"):
        muster.jobs.jobs()
    jobs.write(JOB)
    job = muster.jobs.submit("job.yaml", name="other")
    until(lambda: job.status()["driver_runs"])
    with pytest.raises(MusterError, match="there is a job 'other' already"):
        muster.jobs.submit("job.yaml", name="other")
    seen: list[str] = []
    follow = threading.Thread(
        target=lambda: seen.extend(e["text"] for e in job.events(follow=True))
    )
    follow.start()
    with pytest.raises(TimeoutError, match="is running after"):
        job.wait(timeout=0.2)
    jobs.kill_head()
    assert job.status()["attempt"] == 1  # the head has come back
    address = (jobs.home.path / "jobs" / "address").read_text().strip()
    monkeypatch.setenv("MUSTER_ADDRESS", address)
    assert [one.name for one in muster.jobs.jobs()] == ["other"]
    monkeypatch.setenv("MUSTER_SECRET_FILE", str(jobs.home.path / "jobs" / "secret"))
    assert muster.jobs.get("other").status()["stage"] == "running"
    with pytest.raises(MusterError, match="there is no job 'othr'; did you mean"):
        muster.jobs.get("othr")
    (jobs.folder / "done").write_text("")
    until(lambda: job.status()["attempt"] >= 2)  # exit code 5 is its own error
    with contextlib.suppress(MusterError):  # its driver's budget may be spent already
        job.stop()
    assert job.wait(timeout=60) in (5, 143)
    follow.join(60)
    assert "submitted" in seen[0] and any("attempt 2" in text for text in seen)
    job.delete()
    until(lambda: muster.jobs.jobs() == [])


def test_logs_checks_and_reasons_by_python(
    jobs: Jobs,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("MUSTER_HOME", MARK):
        monkeypatch.setenv(name, jobs.home.env[name])
    for name in ("MUSTER_ADDRESS", "MUSTER_SECRET_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(jobs.folder)
    jobs.write(JOB.replace('[sh, -c, "', '[sh, -c, "echo one; echo two; '))
    assert muster.jobs.check("job.yaml")["name"] == "py"
    with pytest.raises(MusterError, match="on sim: it has no role with"):
        muster.jobs.check("job.yaml", on="sim")
    job = muster.jobs.submit("job.yaml")
    until(lambda: len(list(job.logs())) == 2)
    assert [(e["cluster"], e["line"]) for e in job.logs(lines=1)] == [
        ("py.driver", "two")
    ]
    assert [e["line"] for e in job.logs(grep="on.")] == ["one"]
    follow = job.logs(follow=True)
    assert [next(follow)["line"] for _ in range(2)] == ["one", "two"]
    job.suspend("the cooling is off")
    until(lambda: job.status()["stage"] == "suspended")
    job.resume()
    until(lambda: job.status()["driver_runs"])
    assert [next(follow)["line"] for _ in range(2)] == ["one", "two"]
    said = jobs.run("stop", "job", "py", "--reason", "enough of it")
    assert "job 'py' is" in said
    job.wait(timeout=60)
    assert list(follow) == []
    texts = jobs.texts("py")
    assert "the cooling is off" in texts and "enough of it" in texts, texts
    with pytest.raises(MusterError, match="there is no job 'pi'; did you mean"):
        list(muster.jobs.Job("pi").logs())
    said = jobs.run("stop", "cluster", "x", "--reason", "y", code=2)
    assert "--reason belongs to `stop job`" in said


def test_a_job_whose_head_is_elsewhere(
    jobs: Jobs,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("MUSTER_HOME", MARK):
        monkeypatch.setenv(name, jobs.home.env[name])
    for name in ("MUSTER_ADDRESS", "MUSTER_SECRET_FILE"):
        monkeypatch.delenv(name, raising=False)
    folder = jobs.home.path / ".elsewhere"
    folder.mkdir(0o700)
    record = folder / "far"
    record.write_text(f"127.0.0.1:99999\n{'00' * 32}\njob muster-far-1 of Ray at x\n")
    record.chmod(0o600)
    (folder / "torn").write_text("127.0.0.1:7\n")  # none of ours
    [listed] = json.loads(jobs.run("list", "jobs", "--json"))
    assert (listed["name"], listed["stage"]) == ("far", "not reached")
    assert [one.name for one in muster.jobs.jobs()] == ["far"]
    said = jobs.run("get", "job/far", code=4)
    assert "the head in job muster-far-1 of Ray at x does not answer" in said
    with pytest.raises(MusterError, match="99999"):
        muster.jobs.get("far")
    jobs.write("name: far\nnodes: [{name: n0, cpus: 1}]\ndriver: [a]\n")
    ray = ["submit", "--on", "ray", "--address", "http://127.0.0.1:1"]
    assert "`muster delete far` frees the name" in jobs.run(*ray, "job.yaml", code=1)
    assert "which one?" in jobs.run("submit", "--on", "ray", "job.yaml", code=2)
    assert "belongs to" in jobs.run("submit", "--address", "x", "job.yaml", code=2)
    assert "forgotten here" in jobs.run("delete", "far")
    assert not record.exists()
    jobs.submit("name: near\nnodes: [{name: n0, cpus: 1}]\ndriver: ['true']\n")
    jobs.run("wait", "near")
    jobs.write("on: ray\nnodes: [{name: n0, cpus: 1}]\ndriver: ['true']\n")
    said = jobs.run("submit", "--session", "jobs", "job.yaml", code=1)
    assert "this head has no Ray" in said


BOTH = f"""
name: both
nodes: [{{name: n0, cpus: 4}}]
roles:
  actor: {{worker_cls: jobs_workers.Echo, world_size: 2, args: [7], restart: rank}}
  bare: {{world_size: 1}}
driver: [{sys.executable}, train.py]
generation: {{slots: 7, silence: 0.5}}
"""
TRAIN = """
import muster, muster.generate
from jobs_workers import Echo

muster.init()
assert set(muster.roles()) == {"actor", "bare"}, muster.roles()
first, second = muster.get_cluster("actor"), muster.get_cluster("actor")
assert first.execute_all_sync("pid") == second.execute_all_sync("pid")
assert muster.Cluster("bare", Echo).world_size == 1
assert muster.generate.settings() == {"slots": 7, "silence": 0.5}
for given, slots in ({}, 7), ({"slots": 3}, 3):
    with muster.generate.Scheduler(first, **given) as sched:
        assert {one["slots"] for one in sched.stats()["replicas"]} == {slots}
print("done", muster.roles()["actor"]["args"], flush=True)
"""
CREATES = TRAIN.replace('muster.get_cluster("actor"), ', 'muster.Cluster("actor"), ')


@pytest.mark.parametrize("train", [TRAIN, CREATES], ids=["get_cluster", "Cluster"])
def test_one_file_and_driver_by_run_and_submit(
    jobs: Jobs,  # noqa: F811
    train: str,
) -> None:
    """Whoever creates the role: the controller of a submitted job, or the driver."""
    jobs.write(train, "train.py")
    jobs.write(BOTH)
    assert "done [7]" in jobs.run("run", "job.yaml")
    jobs.run("submit", "job.yaml")
    jobs.run("wait", "both")
    assert "done [7]" in jobs.run("logs", "--job", "both")
    assert jobs.get("both")["attempt"] == 1


def test_what_a_driver_says_of_a_role_that_the_controller_has_created(
    jobs: Jobs,  # noqa: F811
) -> None:
    jobs.write(BOTH)
    jobs.write(
        """
import muster

muster.init()
for more in ({"env": {"A": "1"}}, {"world_size": 3}, {"worker_cls": "other.Class"}):
    try:
        muster.Cluster("actor", **more)
    except muster.ClusterError as e:
        print("@", e, flush=True)
""",
        "train.py",
    )
    jobs.run("submit", "job.yaml")
    jobs.run("wait", "both")
    said = jobs.run("logs", "--job", "both")
    assert "env ['A'] cannot be added here" in said, said
    assert "world_size is 3 here and 2 there" in said, said
    assert "worker_cls is other.Class here" in said, said


def test_a_driver_in_c_finds_what_the_controller_has_created(
    jobs: Jobs,  # noqa: F811
) -> None:
    jobs.write(
        BOTH.replace(f"{sys.executable}, train.py", f"{BUILD}/t/role_driver, find")
    )
    jobs.run("submit", "job.yaml")
    jobs.run("wait", "both")
    said = jobs.run("logs", "--job", "both")
    assert "2\n" in said, said
    assert "env cannot be added here" in said, said
    assert "world_size is 3 here and 2 there" in said, said
