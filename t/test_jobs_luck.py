"""Bad luck of submitted jobs: journals, disks, files, roles, drivers and clocks go wrong.

Each time the command line and the events say why, within a deadline; nothing is lost, and
nothing is left. Elsewhere: a name in use, a driver that cannot be found, a running job that is
deleted (test_jobs.py); an orchestrator that cannot be asked (test_jobs_capacity.py).
"""

import contextlib
import fcntl
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_rig import CLI, Home, home  # noqa: F401
from helpers import wait_gone
from jobs_rig import Jobs, until

SLEEPERS = """
name: {name}
nodes: [{{name: n0, cpus: 4}}]
roles:
  a: {{command: [sleep, "1000"], world_size: "1:4", restart: rank, num_cpus: 1}}
"""
WAL_PAGE = 4096 + 24  # bytes of SQLite's log
# wants nothing of the machine, which "luck" has
OTHER = "name: other\nnodes: [{name: n0, cpus: 0}]\ndriver: ['true']\n"


@pytest.fixture
def jobs(home: Home, tmp_path: Path) -> Iterator[Jobs]:  # noqa: F811
    made = Jobs(home, tmp_path)
    yield made
    made.end()
    assert [p for p in home.path.rglob("*") if p.is_socket()] == []


def sleepers(
    jobs: Jobs, name: str = "luck", count: int = 4, text: str = SLEEPERS
) -> dict[str, int]:
    assert jobs.submit(text.format(name=name)) == name
    found: dict[str, int] = until(lambda: len(w := jobs.workers()) == count and w)
    return found


def wait_replaced(jobs: Jobs, name: str, pid: int) -> dict[str, int]:
    found: dict[str, int] = until(
        lambda: (w := jobs.workers()).get(name, pid) != pid and w
    )
    return found


def wait_back(jobs: Jobs, workers: dict[str, int]) -> None:
    """The head is there again, and these have gone on."""
    until(lambda: jobs.home.run("get", "job/luck").returncode == 0)
    assert until(lambda: len(w := jobs.workers()) == len(workers) and w) == workers


def journal(jobs: Jobs) -> Path:
    return jobs.home.path / "jobs" / "state.db"


def watchdog(jobs: Jobs) -> int:
    return int((jobs.home.path / "jobs" / "watchdog").read_text().split()[0])


def fails(jobs: Jobs, *args: str, code: int, says: str) -> None:
    said = jobs.run(*args, code=code)
    assert says in said, said


def kill_all_of_head(jobs: Jobs) -> None:
    pids = [watchdog(jobs), jobs.head_pid()]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert wait_gone(pids) == []


# ---- the journal -----------------------------------------------------------------------


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def garbage(path: Path) -> None:
    with path.open("r+b") as f:
        f.seek(4096)
        f.write(os.urandom(path.stat().st_size - 4096))


def newer(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 9")


def test_a_journal_that_cannot_be_read(jobs: Jobs) -> None:
    before = sleepers(jobs)
    kill_all_of_head(jobs)
    fails(
        jobs, "get", "job/luck", code=3, says="was killed, and nobody starts it again"
    )
    path = journal(jobs)
    with contextlib.closing(sqlite3.connect(path)) as db:  # all of it in one file
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    good = path.read_bytes()
    jobs.write(OTHER, "other.yaml")
    for harm, says in {
        cut: "it is damaged. Move it away",
        empty: "it is empty",
        garbage: "it is damaged",
        newer: "was written by a newer Muster (format 9",
    }.items():
        harm(path)
        bad = path.read_bytes()
        fails(jobs, "submit", "other.yaml", code=1, says=says)
        assert path.read_bytes() == bad  # for who wants to mend it
        for more in path.parent.glob("state.db-*"):
            more.unlink()
        path.write_bytes(good)
    jobs.run("submit", "other.yaml")  # and the first one goes on
    assert jobs.run("wait", "other") == ""
    assert until(lambda: len(w := jobs.workers()) == 4 and w) == before
    assert jobs.get("luck")["roles"][0]["restarts"] == 0


@pytest.mark.parametrize("can_note", [True, False])
def test_a_journal_that_is_damaged_while_the_head_is_away(
    jobs: Jobs, can_note: bool
) -> None:
    before = sleepers(jobs)
    path = journal(jobs)
    kept = watchdog(jobs)
    os.kill(kept, signal.SIGSTOP)  # until the file is as it will be found
    os.kill(jobs.head_pid(), signal.SIGKILL)
    wait_gone([jobs.head_pid()])
    good = {p: p.read_bytes() for p in path.parent.glob("state.db*")}
    for p in good:
        p.write_bytes(b"garbage" * 1000)
    os.kill(kept, signal.SIGCONT)
    until(lambda: "damaged" in (path.parent / "watchdog").read_text())
    fails(jobs, "get", "job/luck", code=3, says="it is damaged. Move it away")
    fails(jobs, "submit", "job.yaml", code=3, says="tries again")
    if not can_note:  # that it is there again
        (path.parent / "watchdog.new").mkdir()
    for p, data in good.items():
        p.write_bytes(data)
    wait_back(jobs, before)


def test_two_controllers_on_one_journal(jobs: Jobs, tmp_path: Path) -> None:
    before = sleepers(jobs)
    head = ["head", "--name", "jobs", "--listen", "127.0.0.1:0"]
    fails(jobs, *head, code=1, says=f"runs here already as process {jobs.head_pid()}")
    folder = jobs.home.path / "second" / "jobs"
    folder.mkdir(parents=True, mode=0o700)
    folder.parent.chmod(0o700)
    os.link(journal(jobs), folder / "state.db")
    said = jobs.home.run(*head, MUSTER_HOME=str(folder.parent))
    assert said.returncode == 1 and "another process has it open" in said.stderr, said
    assert jobs.workers() == before


# ---- the disk --------------------------------------------------------------------------


@contextlib.contextmanager
def mounted(target: Path, *options: str) -> Iterator[bool]:
    """False: this user may not mount."""
    done = subprocess.run(["mount", *options, str(target)], capture_output=True)
    try:
        yield done.returncode == 0
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", "--lazy", str(target)], check=True)


@contextlib.contextmanager
def full_disk(jobs: Jobs, is_small: bool) -> Iterator[None]:
    """A file that takes all that is left, or files of the head that cannot grow."""
    pid = jobs.head_pid()
    filler = jobs.home.path / "filler"
    limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    if is_small:
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as f:
            while True:
                f.write(b"x" * 4096)
    else:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, limits[1]))
    yield
    filler.unlink(missing_ok=True)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


def test_a_full_disk(jobs: Jobs) -> None:
    options = ["-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs"]
    with mounted(jobs.home.path, *options) as is_small:
        before = sleepers(jobs)
        with full_disk(jobs, is_small):
            os.kill(before["luck.a/2"], signal.SIGKILL)
            why = until(lambda: jobs.get("luck")["journal"])
            assert "cannot write the journal" in why, why
            assert not is_small or "the disk is full" in why, why
            fails(jobs, "scale", "luck", "a=1", code=1, says="cannot write the journal")
            jobs.write(OTHER, "other.yaml")
            fails(jobs, "submit", "other.yaml", code=1, says="cannot write the journal")
            assert "cannot write the journal" in jobs.run("get", "job/luck")
            left = {k: v for k, v in before.items() if k != "luck.a/2"}
            assert jobs.workers() == left  # nothing is begun that is not written down
        after = until(lambda: len(w := jobs.workers()) == 4 and w)
        assert {k: v for k, v in after.items() if k != "luck.a/2"} == left
        assert jobs.get("luck")["journal"] == ""
        assert "signal 9" in jobs.texts("luck")
        assert "other" not in jobs.run("list", "jobs")
        jobs.end()


def test_a_disk_that_is_full_after_a_change(jobs: Jobs) -> None:
    """What is answered as refused was not done; what was done is not answered so."""
    jobs.submit(
        "name: luck\non: sim\nnodes: [{name: n0, cpus: 8}]\n"
        "roles: {a: {command: [sh], world_size: '1:8', num_cpus: 1}}\n"
    )
    until(lambda: jobs.get("luck")["roles"][0]["running"] == 8)
    log = journal(jobs).with_name("state.db-wal")
    pid = jobs.head_pid()
    _, hard = limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    codes = set()
    wanted = 8
    for pages in range(8):  # more fit each time
        size = log.stat().st_size + pages * WAL_PAGE
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))
        code = jobs.home.run("scale", "luck", f"a={wanted - 1}").returncode
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
        wanted -= code == 0
        codes.add(code)
        job = until(lambda: not (job := jobs.get("luck"))["journal"] and job)
        assert job["roles"][0]["wanted"] == wanted, (pages, code)
    assert codes == {0, 1}


@contextlib.contextmanager
def starting(jobs: Jobs, kept: int) -> Iterator[None]:
    """A head is on its way, for as long as this."""
    folder = jobs.home.path / "jobs"
    os.kill(kept, signal.SIGSTOP)
    with (folder / "lock").open("r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the last one has ended
        (folder / "driver").write_text(f"{os.getpid()}\n")
        yield
    os.kill(kept, signal.SIGCONT)


def test_a_disk_that_cannot_be_written(jobs: Jobs) -> None:
    before = sleepers(jobs)
    path = journal(jobs)
    kept = watchdog(jobs)
    os.kill(kept, signal.SIGSTOP)  # until the file is as it will be found
    os.kill(jobs.head_pid(), signal.SIGKILL)
    with mounted(path, "--bind", str(path)) as can:
        if can:
            remount = ["mount", "-o", "remount,ro,bind", str(path)]
            subprocess.run(remount, check=True)
        os.kill(kept, signal.SIGCONT)
        if can:
            says = "Read-only file system"
            until(lambda: says in (path.parent / "watchdog").read_text())
            fails(jobs, "list", "jobs", code=3, says=says)
            with starting(jobs, kept):
                fails(jobs, "list", "jobs", code=3, says=says)
    wait_back(jobs, before)


# ---- the file, roles, drivers ----------------------------------------------------------


def test_a_file_that_is_edited_while_its_job_runs(jobs: Jobs) -> None:
    before = sleepers(jobs)
    jobs.write("name: [no job at all\n")
    jobs.kill_head()
    (jobs.folder / "job.yaml").unlink()
    jobs.run("restart", "luck/a/1")
    after = until(
        lambda: (w := jobs.workers()).get("luck.a/1", before["luck.a/1"])
        != before["luck.a/1"]
        and w
    )
    assert {k for k in before if before[k] != after.get(k)} == {"luck.a/1"}


def test_roles_and_drivers_that_do_not_work(jobs: Jobs) -> None:
    jobs.submit(
        "name: dies\nnodes: [{name: n0, cpus: 4}]\nroles:\n"
        "  a: {command: [sh, -c, 'echo no luck; exit 3'], world_size: 2}\n"
    )
    jobs.submit(
        "name: early\nnodes: [{name: n0, cpus: 4}]\nroles:\n"
        "  a: {command: [sleep, '1000'], world_size: 2}\n"
        "driver: ['true']\n"
    )
    jobs.submit(
        "name: never\nnodes: [{name: n0, cpus: 4}]\nroles:\n"
        "  a: {command: [sleep, '1000']}\n"
        "driver: [sh, -c, 'trap \"\" TERM; while :; do sleep 1; done']\n"
    )
    fails(jobs, "wait", "dies", code=3, says="the same error came 3 times: no luck")
    texts = jobs.texts("dies")
    assert "a/0" in texts and "exit code 3" in texts and "no luck" in texts, texts
    assert jobs.run("wait", "early") == ""
    assert "driver" in jobs.texts("early")
    jobs.wait_running("never")
    fails(
        jobs,
        *("wait", "never", "--timeout", "1"),
        code=1,
        says="job 'never' is running after 1 s",
    )
    jobs.run("stop", "job", "never")
    fails(jobs, "wait", "never", code=143, says="stopped")
    assert jobs.workers() == {}


def test_a_scale_beyond_what_there_is(jobs: Jobs) -> None:
    jobs.submit(
        "name: wide\nnodes: [{name: n0, cpus: 2}]\nroles:\n"
        "  a: {command: [sleep, '1000'], num_cpus: 1, world_size: '1:8', restart: rank}\n"
    )
    until(lambda: len(jobs.workers()) == 2)
    jobs.run("scale", "wide", "a=1")
    until(lambda: len(jobs.workers()) == 1)
    fails(jobs, "scale", "wide", "a=9", code=1, says="8")
    jobs.run("scale", "wide", "a=7")
    until(lambda: len(jobs.workers()) == 2)
    assert "there is some for 1 more" in jobs.texts("wide"), jobs.texts("wide")
    assert jobs.get("wide")["stage"] == "running"


SLOW = """
import os, time

class Slow:
    def __init__(self):
        open(f"begun-{os.getpid()}", "w").close()
        while not os.path.exists("go"):
            time.sleep(0.05)
"""


SLOW_JOB = """
name: {}
nodes: [{{name: n0, cpus: 4}}]
roles:
  a: {{worker_cls: slow.Slow, world_size: 2}}
"""


def wait_begun(jobs: Jobs, count: int) -> list[int]:
    found = until(lambda: len(f := [*jobs.folder.glob("begun-*")]) >= count and f)
    return [int(p.name.partition("-")[2]) for p in found]


def test_a_head_that_is_killed_in_the_middle_of_a_start(jobs: Jobs) -> None:
    jobs.write(SLOW, "slow.py")
    jobs.submit(SLOW_JOB.format("half"))
    wait_begun(jobs, 2)
    jobs.kill_head()
    jobs.write("", "go")
    until(lambda: jobs.get("half")["roles"][0]["running"] == 2)
    before = jobs.workers()
    os.kill(before["half.a/1"], signal.SIGKILL)
    after = wait_replaced(jobs, "half.a/1", before["half.a/1"])
    assert after["half.a/0"] == before["half.a/0"]
    assert jobs.get("half")["stage"] == "running"


def test_suspend_and_delete_in_the_middle_of_a_start(jobs: Jobs) -> None:
    jobs.write(SLOW, "slow.py")
    jobs.submit(SLOW_JOB.format("one"))
    first = wait_begun(jobs, 2)
    jobs.run("suspend", "one")
    jobs.wait_stage("one", "suspended")
    assert wait_gone(first) == []
    assert jobs.workers() == {}
    jobs.run("resume", "one")
    second = wait_begun(jobs, 4)
    jobs.kill_head()  # that one was starting them
    jobs.run("suspend", "one")
    jobs.wait_stage("one", "suspended")
    assert wait_gone(second) == []
    jobs.run("delete", "one")
    jobs.submit(SLOW_JOB.format("two"))
    third = wait_begun(jobs, 6)
    jobs.run("delete", "two")
    until(lambda: "two" not in jobs.run("list", "jobs"))
    assert wait_gone(third) == []


# ---- the clock -------------------------------------------------------------------------

SHIFT = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *t)
{
    int rc = (int)syscall(SYS_clock_gettime, id, t);
    const char *path = getenv("CLOCK_SHIFT");
    int fd = id == CLOCK_REALTIME && path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    char text[32] = "";

    if (fd >= 0 && read(fd, text, sizeof text - 1) > 0)
        t->tv_sec += atol(text);
    if (fd >= 0)
        close(fd);
    return rc;
}
"""


@pytest.fixture
def set_clock(jobs: Jobs) -> Callable[[int], None]:
    """All processes of these jobs have this clock, so many seconds off."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no compiler")
    jobs.write(SHIFT, "shift.c")
    library, now = jobs.folder / "shift.so", jobs.folder / "shift"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", library, jobs.folder / "shift.c"],
        check=True,
    )
    jobs.home.env |= {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(now)}

    def shift(seconds: int) -> None:
        now.with_suffix(".new").write_text(str(seconds))
        now.with_suffix(".new").rename(now)

    shift(0)
    return shift


def test_a_clock_that_jumps(jobs: Jobs, set_clock: Callable[[int], None]) -> None:
    # wants nothing of the machine: those behind it want all of it, one after the other
    text = SLEEPERS.replace("cpus: 4", "cpus: 0").replace(", num_cpus: 1", "")
    before = sleepers(jobs, text=text)
    for name, shift in {"first": 0, "second": 90000, "third": -90000}.items():
        set_clock(shift)
        jobs.submit(
            f"name: {name}\ndriver: [sh, -c, 'echo {name} >>order; "
            "while [ ! -e go ]; do sleep 0.05; done']\n"
        )
    until((jobs.folder / "order").exists)
    jobs.write("", "go")
    for name in ("first", "second", "third"):
        jobs.run("wait", name)
    assert (jobs.folder / "order").read_text().split() == ["first", "second", "third"]
    assert "2 d" not in jobs.run("list", "jobs")
    for shift in (90000, -90000):
        set_clock(shift)
        os.kill(before["luck.a/1"], signal.SIGKILL)
        after = wait_replaced(jobs, "luck.a/1", before["luck.a/1"])
        assert {k for k in before if before[k] != after.get(k)} == {"luck.a/1"}
        before = after
        jobs.kill_head()
        wait_back(jobs, before)
    numbers = [e["number"] for e in jobs.events("luck")]
    assert numbers == sorted(numbers)


# ---- what is left ----------------------------------------------------------------------


def sockets(jobs: Jobs) -> list[Path]:
    return [p for p in jobs.home.path.glob("jobs@*/**/*") if p.is_socket()]


def test_an_agent_that_is_killed_when_its_job_ends(jobs: Jobs) -> None:
    sleepers(jobs)
    assert sockets(jobs)
    pids = jobs.agents("luck.n0")
    jobs.run("delete", "luck")
    for pid in pids:  # it and its supervisor: nobody tidies up
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: "luck" not in jobs.run("list", "jobs"))
    assert not [*(jobs.home.path / "jobs").glob("lent-*")]
    jobs.end()
    assert not sockets(jobs)


def test_a_program_that_is_replaced(jobs: Jobs) -> None:
    """As by an update: the next head is of the program that is there then."""
    program = jobs.folder / "muster"
    shutil.copy2(CLI, program)
    jobs.write(SLEEPERS.format(name="luck"))
    command: list[str | Path] = [program, "submit", "job.yaml"]
    subprocess.run(command, env=jobs.home.env, cwd=jobs.folder, check=True)
    before = until(lambda: len(w := jobs.workers()) == 4 and w)
    program.unlink()
    os.kill(jobs.head_pid(), signal.SIGKILL)
    until(lambda: "cannot run" in (journal(jobs).parent / "watchdog").read_text())
    fails(jobs, "get", "job/luck", code=3, says="No such file or directory")
    shutil.copy2(CLI, program)
    wait_back(jobs, before)


# ---- the head --------------------------------------------------------------------------


def test_a_head_that_is_killed_again_and_again(jobs: Jobs) -> None:
    before = sleepers(jobs)
    for name in ("b", "a"):  # all of a journal's jobs come back
        jobs.submit(f"name: {name}\non: sim\nroles: {{x: {{command: [sh]}}}}\n")
    waits = subprocess.Popen(
        [CLI, "wait", "luck"],
        env=jobs.home.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    for _ in range(9):  # more often than a head that never comes up is tried
        jobs.kill_head()
        found = json.loads(jobs.run("list", "jobs", "--json"))
        assert sorted(j["name"] for j in found) == ["a", "b", "luck"]
    assert until(lambda: len(w := jobs.workers()) == 4 and w) == before
    jobs.run("stop", "job", "luck")
    assert waits.wait(60) == 143, waits.communicate()


@pytest.mark.parametrize(
    ("was", "now", "line"), [("critical:", "essentia:", 4), ("cpus:", "cpuz:", 2)]
)
def test_a_file_in_the_journal_that_is_refused_now(
    jobs: Jobs, was: str, now: str, line: int
) -> None:
    sleeping = SLEEPERS.replace("cpus: 4", "cpus: 0").replace(", num_cpus: 1", "")
    before = sleepers(jobs, text=sleeping)  # both fit on any machine
    jobs.write(
        "name: old\nnodes: [{name: m, cpus: 0}]\n# anything\n"
        'roles: {a: {command: [sleep, "1000"], critical: true, restart: rank}}\n'
        'driver: [sleep, "1000"]\n',
        "old.yaml",
    )
    jobs.run("submit", "old.yaml")
    jobs.wait_running("old")
    pids = [pid for name, pid in jobs.workers().items() if name.startswith("old.")]
    assert len(pids) == 2
    kill_all_of_head(jobs)
    with contextlib.closing(sqlite3.connect(journal(jobs))) as db, db:
        text = "SELECT space, key, data FROM record WHERE key = 'old'"
        for space, key, data in db.execute(text).fetchall():
            db.execute(
                "UPDATE record SET data = ? WHERE space = ? AND key = ?",
                (data.replace(was.encode(), now.encode()), space, key),
            )
    jobs.write(
        'name: new\nnodes: [{name: k, cpus: 0}]\nroles: {a: {command: ["true"]}}\n',
        "new.yaml",
    )
    jobs.run("submit", "new.yaml")  # starts the head again
    job = jobs.wait_stage("old", "stopped")
    said = f"its file is refused by this version of Muster: old.yaml:{line}:"
    assert said in job["text"], job
    assert f"'{now.rstrip(':')}'" in jobs.texts("old")
    assert wait_gone(pids) == []
    assert jobs.agents("old.m") == []
    assert until(lambda: len(w := jobs.workers()) >= 4 and w) == before
    assert jobs.get("luck")["stage"] == "running"
    jobs.run("wait", "new")
    jobs.kill_head()  # it is in the journal as it is
    assert jobs.get("old")["stage"] == "stopped"
    assert [r["name"] for r in jobs.get("old")["roles"]] == ["a"]
    jobs.run("delete", "old")
    until(lambda: "old" not in jobs.run("list", "jobs"))
