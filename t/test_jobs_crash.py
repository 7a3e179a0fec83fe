"""The head is killed while it does something: the next one does it, once and to the end."""

import os
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from cli_rig import home  # noqa: F401
from jobs_rig import Jobs, jobs, until  # noqa: F401

pytestmark = pytest.mark.timeout(600)  # the steps have limits of their own

LATE_S = 12.0  # more than other requests wait for old agents

# an agent takes its time to end: as long as there is a file `hold`
SLOW_END = r"""
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((destructor)) static void end_slowly(void)
{
    char text[4096] = "", *word = text;
    const char *hold = getenv("AGENTS_HOLD");
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    long len = read(fd, text, sizeof text - 1);

    close(fd);
    for (; hold && word < text + len; word += strlen(word) + 1)
        if (strcmp(word, "--node-name") == 0)
            while (access(hold, F_OK) == 0)
                usleep(20000);
}
"""


@pytest.fixture
def hold(jobs: Jobs) -> Path:  # noqa: F811
    """While there is this file no agent ends by itself."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no compiler")
    jobs.write(SLOW_END, "end.c")
    library = jobs.folder / "end.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", library, jobs.folder / "end.c"], check=True
    )
    held = jobs.folder / "hold"
    jobs.home.env |= {"LD_PRELOAD": str(library), "AGENTS_HOLD": str(held)}
    return held


def lent(jobs: Jobs) -> list[Path]:  # noqa: F811
    return [*(jobs.home.path / "jobs").glob("lent-*")]


def test_what_was_being_given_back_is_given_back(jobs: Jobs, hold: Path) -> None:  # noqa: F811
    text = "name: back\nnodes: [{name: n0, cpus: 1}]\nroles: {a: {command: [sleep, '1000']}}\n"
    jobs.submit(text)
    jobs.wait_stage("back", "running")
    hold.touch()
    jobs.run("suspend", "back")
    until(lambda: jobs.workers() == {})
    assert jobs.get("back")["stage"] == "suspending" and jobs.agents("back.n0")
    jobs.kill_head()
    hold.unlink()
    jobs.wait_stage("back", "suspended")
    assert not lent(jobs) and not jobs.agents("back.n0")
    jobs.run("delete", "back")
    until(lambda: "back" not in jobs.run("list", "jobs"))
    jobs.submit(text)  # its name is free, and so are its machines
    jobs.wait_stage("back", "running")
    jobs.run("delete", "back")


SLOW = """
import os, time

class Slow:
    def __init__(self):
        open("begun", "a").write(f"{os.getpid()} ")
        while not os.path.exists("go"):
            time.sleep(0.05)
        if os.path.exists("bad"):
            raise ValueError("bad luck")
"""
# the role is on n1, the driver on n0
ONCE = """
name: once
nodes: [{name: n0, cpus: 1}, {name: n1, cpus: 1, gpus: 1}]
roles: {a: {worker_cls: slow.Slow, num_gpus_per_worker: 1}}
driver: [sh, -c, "echo start >>starts; while [ ! -e end ]; do sleep 0.05; done"]
"""


def signal_agent(jobs: Jobs, node: str, number: int) -> None:  # noqa: F811
    """And its supervisor."""
    for pid in jobs.agents(node):
        os.kill(pid, number)


def end_of_journal(jobs: Jobs) -> None:  # noqa: F811
    """This head cannot write to it any more."""
    no_more = (4096, resource.RLIM_INFINITY)
    resource.prlimit(jobs.head_pid(), resource.RLIMIT_FSIZE, no_more)


def test_a_driver_that_ends_meanwhile_is_not_started_again(jobs: Jobs) -> None:  # noqa: F811
    jobs.write(SLOW, "slow.py")
    jobs.submit(ONCE)
    until((jobs.folder / "begun").exists)
    signal_agent(jobs, "once.n0", signal.SIGSTOP)  # is asked for the driver, and waits
    jobs.write("", "go")
    until(lambda: "the driver starts" in jobs.texts("once"))
    end_of_journal(jobs)
    signal_agent(jobs, "once.n0", signal.SIGCONT)
    until(lambda: jobs.get("once")["journal"])  # that it runs cannot be written down
    signal_agent(jobs, "once.n1", signal.SIGSTOP)  # the next head waits for it
    jobs.kill_head()
    jobs.get("once")  # it is there again
    until(lambda: "once.driver/0" in jobs.workers())
    jobs.write("", "end")
    until(lambda: "once.driver/0" not in jobs.workers())
    signal_agent(jobs, "once.n1", signal.SIGCONT)
    jobs.run("wait", "once")
    assert (jobs.folder / "starts").read_text().split() == ["start"]


def test_an_agent_that_comes_back_late(jobs: Jobs) -> None:  # noqa: F811
    jobs.submit(
        "name: late\nnodes: [{name: n0, cpus: 1}]\n"
        "roles: {a: {command: [sleep, '1000'], world_size: 2}}\n"
    )
    jobs.wait_stage("late", "running")
    before = jobs.workers()
    signal_agent(jobs, "late.n0", signal.SIGSTOP)
    jobs.kill_head()
    assert jobs.get("late")["is_recovering"]
    late = time.monotonic() + LATE_S
    until(lambda: time.monotonic() > late or not jobs.get("late")["is_recovering"])
    signal_agent(jobs, "late.n0", signal.SIGCONT)
    until(lambda: not jobs.get("late")["is_recovering"])
    jobs.wait_stage("late", "running")
    assert until(lambda: len(w := jobs.workers()) == 2 and w) == before
    assert jobs.get("late")["roles"][0]["restarts"] == 0, jobs.texts("late")


def test_a_constructor_that_was_running_is_waited_for(jobs: Jobs) -> None:  # noqa: F811
    jobs.write(SLOW, "slow.py")
    jobs.write("", "go")
    jobs.submit(
        "name: half\nnodes: [{name: n0, cpus: 1}]\n"
        "roles: {a: {worker_cls: slow.Slow, world_size: 2, restart: rank}}\n"
    )
    jobs.wait_stage("half", "running")
    before = jobs.workers()
    (jobs.folder / "go").unlink()
    os.kill(before["half.a/1"], signal.SIGKILL)
    until(lambda: len((jobs.folder / "begun").read_text().split()) == 3)
    jobs.kill_head()
    jobs.write("", "bad")
    jobs.write("", "go")
    until(lambda: "ValueError: bad luck" in jobs.texts("half"))
    (jobs.folder / "bad").unlink()
    until(lambda: jobs.get("half")["roles"][0]["running"] == 2)
    assert jobs.workers()["half.a/0"] == before["half.a/0"]


def test_a_role_that_has_started_again_is_not_started_once_more(jobs: Jobs) -> None:  # noqa: F811
    jobs.submit(
        "name: two\nnodes: [{name: 'n[0-1]', cpus: 1}]\nroles:\n"
        "  a: {command: [sleep, '1000'], world_size: 2, num_cpus: 1, restart: role}\n"
    )
    jobs.wait_stage("two", "running")
    before = jobs.workers()
    signal_agent(jobs, "two.n1", signal.SIGSTOP)  # its rank is to end, and waits
    os.kill(before["two.a/0"], signal.SIGKILL)
    until(lambda: "signal 9" in jobs.texts("two"))
    end_of_journal(jobs)
    signal_agent(jobs, "two.n1", signal.SIGCONT)
    until(lambda: jobs.get("two")["journal"])  # that it is done cannot be written down
    after = jobs.workers()
    assert len(after) == 2 and not set(after.values()) & set(before.values())
    jobs.kill_head()
    until(lambda: jobs.get("two")["roles"][0]["running"] == 2)
    assert jobs.workers() == after
