"""A job on sim: the same file, the same decisions, and nothing is started."""

from cli_rig import home  # noqa: F401
from helpers import processes
from jobs_rig import Jobs, jobs, until  # noqa: F401

JOB = """
name: what-if
on: sim
nodes: [{name: "n[0-9]", gpus: 8, cpus: 64}]
roles:
  train: {worker_cls: workers.Train, device_mapping: "0-39", restart: role}
  infer: {worker_cls: workers.Infer, world_size: "8:64:8", num_gpus_per_worker: 1}
driver: [python, train.py]
"""


def test_a_simulated_job(jobs: Jobs) -> None:  # noqa: F811
    assert jobs.submit(JOB) == "what-if"

    def running(infer: int) -> None:
        until(
            lambda: [r["running"] for r in jobs.get("what-if")["roles"]] == [40, infer]
        )

    running(40)  # 64 are wanted; there are 80 devices, and 40 are the others'
    job = jobs.get("what-if")
    assert (job["stage"], job["on"], job["driver_runs"]) == ("running", "sim", False)
    before = processes(jobs.mark)
    jobs.run("scale", "what-if", "infer=16")
    running(16)
    assert "in units of 8" in jobs.run("scale", "what-if", "infer=20", code=1)
    jobs.kill_head()
    running(16)
    assert jobs.get("what-if")["roles"][0]["restarts"] == 0
    jobs.run("restart", "what-if/train")
    until(lambda: jobs.get("what-if")["roles"][0]["restarts"] == 40)
    running(16)
    jobs.run("suspend", "what-if")
    jobs.wait_stage("what-if", "suspended")
    jobs.run("resume", "what-if")
    running(16)
    assert len(processes(jobs.mark)) == len(before)  # watchdog and head
    jobs.run("stop", "job", "what-if")
    jobs.run("wait", "what-if", code=143)
    assert jobs.run("logs", "--job", "what-if", code=5)


def test_a_job_on_sim_without_roles(jobs: Jobs) -> None:  # noqa: F811
    jobs.write("name: none\non: sim\ndriver: [python, train.py]\n")
    for command in ("check", "submit"):
        said = jobs.run(command, "job.yaml", code=2)
        assert "job.yaml:2:5: on sim: it has no role with" in said, said


def test_all_nodes_of_a_range_are_there(jobs: Jobs) -> None:  # noqa: F811
    jobs.submit(
        'name: wide\non: sim\nnodes: [{name: n, gpus: 1, count: "2:4"}]\nroles:\n'
        '  a: {worker_cls: w.A, world_size: "2:4", num_gpus_per_worker: 1}\n'
    )
    until(lambda: jobs.get("wide")["roles"][0]["running"] == 4)
    jobs.run("delete", "wide")
