"""Processes that are there and silent, of roles without `hang`: they count as ended."""

import os
import signal
from pathlib import Path

from cli_rig import home  # noqa: F401
from jobs_rig import Jobs, jobs, until  # noqa: F401

ROLES = """
nodes: [{name: "n[0-1]", cpus: 8}]
roles:
  plain: {command: [sleep, "1000"], world_size: 2, restart: rank, heartbeat: 2}
  class: {worker_cls: jobs_workers.Echo, world_size: 2, restart: role, heartbeat: 2}
  patient: {worker_cls: jobs_workers.Echo, world_size: 1}
"""


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def silent(jobs: Jobs, name: str) -> list[str]:  # noqa: F811
    return [
        e["text"]
        for e in jobs.events(name)
        if e["cause"] == "no heart-beat" and " ended: " in e["text"]
    ]


def start(jobs: Jobs, name: str, more: str = "") -> dict[str, int]:  # noqa: F811
    jobs.submit(f"name: {name}\n{ROLES}{more}")
    count = 6 if more else 5
    return until(lambda: len(w := jobs.workers()) == count and w)


def test_a_rank_that_was_stopped(jobs: Jobs) -> None:  # noqa: F811
    before = start(jobs, "still")
    stop(before["still.patient/0"])  # its time is 600 s
    stop(before["still.plain/1"])
    until(
        lambda: jobs.workers().get("still.plain/1")
        not in (None, before["still.plain/1"])
    )
    stop(before["still.class/0"])
    until(lambda: len(silent(jobs, "still")) == 2)
    until(
        lambda: len(w := jobs.workers()) == 5
        and not {w["still.class/0"], w["still.class/1"]} & {*before.values()}
    )
    first, second = silent(jobs, "still")
    assert first.startswith("plain/1 ended: no heart-beat on still.n1: it was stopped")
    assert second.startswith("class/0 ended: no heart-beat on still.n0: it was stopped")
    now = jobs.workers()
    for name in ("still.patient/0", "still.plain/0"):
        assert now[name] == before[name]  # nothing happened to it
    until(lambda: not is_there(before["still.plain/1"]))  # nor is one left
    until(lambda: not is_there(before["still.class/0"]))
    jobs.run("delete", "still")


def test_a_driver_that_was_stopped(jobs: Jobs) -> None:  # noqa: F811
    before = start(jobs, "lead", 'driver: {command: [sleep, "1000"], heartbeat: 2}\n')
    stop(before["lead.driver/0"])
    until(lambda: jobs.get("lead")["attempt"] == 2)
    until(
        lambda: jobs.workers().get("lead.driver/0")
        not in (None, before["lead.driver/0"])
    )
    assert "the driver ended: no heart-beat" in jobs.texts("lead")
    assert not is_there(before["lead.driver/0"])
    now = jobs.workers()
    assert {n: p for n, p in now.items() if "driver" not in n} == {
        n: p for n, p in before.items() if "driver" not in n
    }
    jobs.run("delete", "lead")


def test_the_budget_for_it_is_spent(jobs: Jobs) -> None:  # noqa: F811
    driver = (
        'driver: {command: [sleep, "1000"], heartbeat: 2, budget: {no_heartbeat: 0}}'
    )
    before = start(jobs, "spent", driver + "\n")
    stop(before["spent.driver/0"])
    job = jobs.wait_stage("spent", "failed")
    assert job["cause"] == "no heart-beat"
    until(lambda: not any(is_there(p) for p in before.values()))
    jobs.run("delete", "spent")
