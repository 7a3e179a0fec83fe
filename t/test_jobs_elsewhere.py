"""Where ranks of a job are started again: elsewhere, not on nodes that are avoided."""

import json

from cli_rig import home  # noqa: F401
from jobs_rig import Jobs, jobs, until  # noqa: F401


def nodes(jobs: Jobs) -> dict[str, str]:  # noqa: F811
    found = json.loads(jobs.run("list", "workers", "--session", "jobs", "--json"))
    return {
        f"{w['cluster']}/{w['rank']}": w["node"]
        for w in found
        if w["state"] == "running"
    }


def test_a_rank_moves_after_quick_failures(jobs: Jobs) -> None:  # noqa: F811
    command = "echo $WORKER_NAME >>tries; test $(wc -l <tries) -gt 3 && exec sleep 1000; exit 5$(wc -l <tries)"
    jobs.submit(
        'name: move\nnodes: [{name: "n[0-1]", cpus: 4}]\nroles:\n'
        f'  a: {{command: [sh, -c, "{command}"], restart: rank, num_cpus: 1, '
        "budget: {failed: 9}}\n"
    )
    until(lambda: (jobs.folder / "tries").exists())
    until(lambda: (jobs.folder / "tries").read_text().count("\n") == 4)
    until(lambda: nodes(jobs).get("move.a/0") == "move.n1")
    jobs.run("delete", "move")


def test_a_node_with_a_hardware_error_is_avoided(jobs: Jobs) -> None:  # noqa: F811
    jobs.submit(
        'name: hot\nnodes: [{name: "n[0-1]", cpus: 4}]\nroles:\n'
        '  a: {command: [sh, -c, "test $RANK = 0 -a ! -e once && touch once && '
        'exit 201; exec sleep 1000"], world_size: 2, restart: role, num_cpus: 1}\n'
    )
    until(lambda: "is avoided: hardware error" in jobs.texts("hot"))
    until(lambda: sorted(nodes(jobs).values()) == ["hot.n1", "hot.n1"])
    jobs.run("delete", "hot")


def test_a_node_that_a_text_blames_is_avoided(jobs: Jobs) -> None:  # noqa: F811
    said = "CUDA error: uncorrectable ECC error encountered"
    jobs.submit(
        'name: ecc\nnodes: [{name: "n[0-1]", cpus: 4}]\nroles:\n'
        f'  a: {{command: [sh, -c, "test $RANK = 1 -a ! -e once && touch once && '
        f"echo '{said}' >&2 && exit 1; exec sleep 1000\"], world_size: 2, "
        "restart: role, num_cpus: 1}\n"
    )
    until(lambda: "is avoided: hardware error" in jobs.texts("ecc"))
    assert said in jobs.texts("ecc")
    until(lambda: len(set(nodes(jobs).values())) == 1 and len(nodes(jobs)) == 2)
    jobs.run("delete", "ecc")


def test_a_rank_that_was_given_up_does_not_stay(jobs: Jobs) -> None:  # noqa: F811
    jobs.submit(
        "name: stray\nroles:\n"
        '  a: {command: [sleep, "1000"], world_size: 2, restart: rank, hang: 1, '
        "critical: false, budget: {hang: 0}}\n"
        '  b: {command: [sleep, "1000"]}\n'
    )
    until(lambda: list(jobs.workers()) == ["stray.b/0"])
    assert jobs.get("stray")["stage"] == "running"
    jobs.run("delete", "stray")
