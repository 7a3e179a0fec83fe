"""Roles of a job in bundles: shared ones, shares of devices, labels, resources by name."""

import json
import os
import signal
from typing import Any

from cli_rig import home  # noqa: F401
from jobs_rig import Jobs, jobs, until  # noqa: F401

SLEEP = 'command: [sleep, "1000"]'


def places(jobs: Jobs) -> dict[str, tuple[str, list[int]]]:  # noqa: F811
    """Node and devices of each worker that lives."""
    found = json.loads(jobs.run("list", "workers", "--session", "jobs", "--json"))
    return {
        f"{w['cluster']}/{w['rank']}".partition(".")[2]: (
            w["node"].partition(".")[2],
            w["devices"],
        )
        for w in found
        if w["state"] == "running"
    }


def running(jobs: Jobs, job: str, role: str) -> Any:  # noqa: F811
    return next(r for r in jobs.get(job)["roles"] if r["name"] == role)["running"]


def kill(jobs: Jobs, worker: str, job: str) -> None:  # noqa: F811
    """One worker; it is replaced then."""
    name = f"{job}.{worker}"
    before = jobs.workers()[name]
    os.kill(before, signal.SIGKILL)
    until(lambda: jobs.workers().get(name, before) != before)


def test_two_roles_in_the_same_bundles(jobs: Jobs) -> None:  # noqa: F811
    jobs.submit(
        'name: pair\nnodes: [{name: "n[0-2]", cpus: 4, gpus: 2}]\nroles:\n'
        f"  actor: {{{SLEEP}, world_size: 2, restart: rank, "
        "bundle: {GPU: 2, CPU: 1}, strategy: STRICT_SPREAD}\n"
        "  ref: {worker_cls: jobs_workers.Echo, restart: rank, bundle: actor}\n"
        f"  other: {{{SLEEP}, num_gpus_per_worker: 2}}\n"
    )
    whole = until(lambda: len(p := places(jobs)) == 5 and p)
    assert whole["actor/0"] == whole["ref/0"] and whole["actor/1"] == whole["ref/1"]
    assert len({whole[f"{r}/0"][0] for r in ("actor", "other")}) == 2
    assert whole["actor/0"][0] != whole["actor/1"][0]
    assert whole["actor/0"][1] == [0, 1]
    kill(jobs, "ref/1", "pair")  # in the bundle that it had
    assert until(lambda: len(p := places(jobs)) == 5 and p) == whole
    jobs.kill_head()
    until(lambda: not jobs.get("pair")["is_recovering"])
    kill(jobs, "actor/1", "pair")
    assert until(lambda: len(p := places(jobs)) == 5 and p) == whole
    jobs.run("restart", "pair/other")  # nobody else has got its devices meanwhile
    assert until(lambda: len(p := places(jobs)) == 5 and p) == whole
    jobs.run("suspend", "pair")
    jobs.wait_stage("pair", "suspended")
    jobs.run("resume", "pair")
    again = until(lambda: len(p := places(jobs)) == 5 and p)
    assert again["actor/0"] == again["ref/0"] and again["actor/1"] == again["ref/1"]
    jobs.run("delete", "pair")


def test_bundles_move_with_all_who_stand_in_them(jobs: Jobs) -> None:  # noqa: F811
    jobs.submit(
        'name: lost\nnodes: [{name: "n[0-2]", cpus: 2}]\nroles:\n'
        f"  a: {{{SLEEP}, world_size: 2, restart: rank, bundle: {{CPU: 2}}}}\n"
        f"  b: {{{SLEEP}, restart: role, bundle: a}}\n"
    )
    before = until(lambda: len(p := places(jobs)) == 4 and p)
    assert before["a/1"] == before["b/1"]
    assert {before["a/0"][0], before["a/1"][0]} == {"n0", "n1"}
    jobs.kill_agent("lost.n1")

    def both() -> Any:
        now = places(jobs)
        return len(now) == 4 and now["a/1"] == now["b/1"] and now

    after = until(both)
    assert after["a/0"] == before["a/0"] == after["b/0"]
    jobs.kill_head()
    until(lambda: not jobs.get("lost")["is_recovering"])
    kill(jobs, "a/1", "lost")
    assert until(both) == after
    jobs.run("delete", "lost")


def test_labels_choose_the_nodes(jobs: Jobs) -> None:  # noqa: F811
    jobs.submit(
        "name: chosen\nnodes:\n"
        "  - {name: a, cpus: 8}\n"
        "  - {name: b, cpus: 8, labels: {gpu: h100}}\n"
        "  - {name: c, cpus: 8, labels: {gpu: a100}}\n"
        "roles:\n"
        f'  r: {{{SLEEP}, world_size: "1:3", restart: rank, '
        'bundle: {CPU: 1, labels: {gpu: "!a100"}}, strategy: STRICT_PACK}\n'
        "  s: {worker_cls: jobs_workers.Echo, "
        'bundle: {CPU: 1, labels: {gpu: "in(a100,v100)"}}}\n'
    )
    whole = until(lambda: len(p := places(jobs)) == 4 and p)
    chosen = whole["r/0"][0]
    assert chosen in ("a", "b") and whole["s/0"][0] == "c"
    jobs.run("scale", "chosen", "r=1")
    until(lambda: len(places(jobs)) == 2)
    jobs.kill_head()
    until(lambda: not jobs.get("chosen")["is_recovering"])
    jobs.run("scale", "chosen", "r=3")  # where the first one is, as the strategy says
    whole = until(lambda: len(p := places(jobs)) == 4 and p)
    assert {whole[f"r/{i}"][0] for i in range(3)} == {chosen}
    jobs.run("delete", "chosen")


def test_shares_of_a_device(jobs: Jobs) -> None:  # noqa: F811
    jobs.submit(
        "name: half\nnodes: [{name: n, cpus: 4, gpus: 2}]\nroles:\n"
        f"  a: {{{SLEEP}, bundle: {{GPU: 0.5}}}}\n"
        f"  b: {{{SLEEP}, bundle: {{GPU: 0.5}}}}\n"
        f"  c: {{{SLEEP}, bundle: {{GPU: 0.8}}}}\n"
    )
    whole = until(lambda: len(p := places(jobs)) == 3 and p)
    assert whole["a/0"] == whole["b/0"] != whole["c/0"], whole
    jobs.kill_head()
    until(lambda: not jobs.get("half")["is_recovering"])
    kill(jobs, "b/0", "half")
    assert until(lambda: len(p := places(jobs)) == 3 and p) == whole
    jobs.run("delete", "half")


def test_too_little_of_a_resource(jobs: Jobs) -> None:  # noqa: F811
    jobs.submit(
        "name: few\nnodes: [{name: n, cpus: 8, resources: {license: 2}}]\nroles:\n"
        f'  a: {{{SLEEP}, world_size: "1:3", restart: rank, '
        "bundle: {CPU: 1, resources: {license: 1}}}\n"
    )
    until(lambda: running(jobs, "few", "a") == 2)
    texts = until(lambda: "license" in (t := jobs.texts("few")) and t)
    assert "there is some for 2 more" in texts, texts
    jobs.run("delete", "few")


def test_what_cannot_share(jobs: Jobs) -> None:  # noqa: F811
    def said(a: str, b: str) -> str:
        jobs.write(f"roles:\n  a: {{{a}}}\n  b: {{{b}}}\n")
        text = jobs.run("check", "job.yaml", code=2)
        return text.partition("job.yaml:")[2]

    own = f"{SLEEP}, bundle: {{CPU: 1}}"
    assert "did you mean 'a'" in said(own, f"{SLEEP}, bundle: aa")
    text = said(own, f"{SLEEP}, world_size: 2, bundle: a")
    assert text.startswith("3:56: role 'b' in the bundles of 'a': it has more"), text
    assert "one size each" in said(f'{own}, world_size: "1:2"', f"{SLEEP}, bundle: a")
    assert "the driver the other" in said("bundle: {CPU: 1}", f"{SLEEP}, bundle: a")
    assert "has no bundles of its own" in said(SLEEP, f"{SLEEP}, bundle: a")
    assert "whose bundles it shares" in said(own, f"{SLEEP}, bundle: a, same: rack")
    assert "does not grow" in said(
        f"{SLEEP}, bundle: {{memory: 1GiB}}, memory_growth: 2", f"{SLEEP}, bundle: a"
    )
