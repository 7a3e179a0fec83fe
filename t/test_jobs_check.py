"""The check of a job's nodes: before it starts, and after a failure of a machine."""

from cli_rig import home  # noqa: F401
from jobs_rig import Jobs, jobs, until  # noqa: F401
from test_jobs_elsewhere import nodes

# Of the pair in MUSTER_CHECK_NODES the rank on node n2 fails; with FILE it passes again.
BAD_N2 = (
    "set -- $MUSTER_CHECK_NODES; shift $RANK; "
    "case $1 in *.n2) echo the bus is bent; exit 7;; esac"
)


def test_good_nodes_pass_muster_s_own_check(jobs: Jobs) -> None:  # noqa: F811
    jobs.submit(
        'name: fine\nnodes: [{name: "n[0-2]", cpus: 4}]\ncheck: true\nroles:\n'
        '  a: {command: [sleep, "1000"], world_size: 3}\n'
    )
    until(lambda: jobs.get("fine")["roles"][0]["running"] == 3)
    assert "node check: 3 nodes in" in jobs.texts("fine")
    assert "failed" not in jobs.texts("fine")
    until(lambda: len(jobs.workers()) == 3)  # nothing of the check stays
    jobs.run("delete", "fine")


def test_a_faulty_node_is_avoided(jobs: Jobs) -> None:  # noqa: F811
    jobs.submit(
        'name: bent\nnodes: [{name: "n[0-3]", cpus: 4}]\n'
        f'check: {{command: [sh, -c, "{BAD_N2}"], timeout: 60}}\nroles:\n'
        '  a: {command: [sleep, "1000"], world_size: 4}\n'
    )
    until(lambda: jobs.get("bent")["roles"][0]["running"] == 4)
    texts = jobs.texts("bent")
    assert "1 node failed the check: bent.n2" in texts
    assert "bent.n2: exit code 7: the bus is bent" in texts
    assert "node bent.n2 is avoided: node check failed" in texts
    assert set(nodes(jobs).values()) == {"bent.n0", "bent.n1", "bent.n3"}
    jobs.run("delete", "bent")


def test_a_check_that_never_ends(jobs: Jobs) -> None:  # noqa: F811
    jobs.submit(
        'name: stuck\nnodes: [{name: "n[0-1]", cpus: 4}]\n'
        'check: {command: [sleep, "1000"], timeout: 1}\n'
        "budget: {check_failed: 1}\nroles:\n"
        '  a: {command: [sleep, "1000"]}\n'
    )
    assert jobs.wait_stage("stuck", "failed")["cause"] == "node check failed"
    texts = jobs.texts("stuck")
    assert (
        "node check, round 1: stuck.n0 with stuck.n1 failed: no end after 1 s" in texts
    )
    assert "nodes failed the check 2 times; the last were stuck.n0, stuck.n1" in texts
    jobs.run("delete", "stuck")


def test_a_slow_node_is_avoided(jobs: Jobs) -> None:  # noqa: F811
    slow = "set -- $MUSTER_CHECK_NODES; shift $RANK; case $1 in *.n2) sleep 1.5;; esac"
    jobs.submit(
        'name: lame\nnodes: [{name: "n[0-3]", cpus: 4}]\n'
        f'check: {{command: [sh, -c, "{slow}"], slower: 3, slow: avoid}}\nroles:\n'
        '  a: {command: [sleep, "1000"], world_size: 4}\n'
    )
    until(lambda: jobs.get("lame")["roles"][0]["running"] == 4)
    assert "lame.n2 is slow: it counts as if it had failed" in jobs.texts("lame")
    assert "node lame.n2 is avoided: node check failed" in jobs.texts("lame")
    assert "lame.n2" not in nodes(jobs).values()
    jobs.run("delete", "lame")


def test_nodes_are_checked_after_a_node_was_lost(jobs: Jobs) -> None:  # noqa: F811
    jobs.submit(
        'name: lost\nnodes: [{name: "n[0-1]", cpus: 4}]\ncheck: true\nroles:\n'
        '  a: {command: [sleep, "1000"], world_size: 2, restart: rank}\n'
    )
    until(lambda: jobs.get("lost")["roles"][0]["running"] == 2)
    jobs.kill_agent("lost.n1")
    until(
        lambda: (
            "checked before anything is started again: node lost" in jobs.texts("lost")
        )
    )
    until(lambda: jobs.texts("lost").count("node check: ") >= 2)
    until(lambda: jobs.get("lost")["roles"][0]["running"] == 2)
    jobs.run("delete", "lost")


def test_a_head_that_is_killed_checks_again(jobs: Jobs) -> None:  # noqa: F811
    jobs.submit(
        'name: twice\nnodes: [{name: "n[0-1]", cpus: 4}]\n'
        'check: {command: [sh, -c, "touch began.$RANK; '
        'while test ! -e go; do sleep 0.1; done"], timeout: 60}\nroles:\n'
        '  a: {command: [sleep, "1000"]}\n'
    )
    until(lambda: (jobs.folder / "began.1").exists())
    jobs.kill_head()
    (jobs.folder / "go").touch()
    until(lambda: jobs.get("twice")["roles"][0]["running"] == 1)
    assert "node check: 2 nodes" in jobs.texts("twice")
    until(lambda: list(jobs.workers()) == ["twice.a/0"])
    jobs.run("delete", "twice")
