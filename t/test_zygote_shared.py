"""Zygotes belong to what they have imported: who shares one, and who gets another."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import muster
import pytest
from daemon_rig import Daemon, daemon  # noqa: F401  (fixture)
from helpers import MARK, Driver

# A module that tells of each import.
COUNTED = """
import os
with open({log!r}, "a") as log:
    log.write(f"{{os.getpid()}} {{os.environ.get('PLACE')}}\\n")
os.environ.setdefault("SET_BY_IMPORT", "yes")
import counted_part
import ctypes
import muster

PLACE = os.environ.get("PLACE")

class Worker:
    def value(self):
        return counted_part.VALUE

    def place(self):
        return PLACE, os.environ["PLACE"]

    def nest(self, size):
        self.inner = muster.Cluster(f"in-{{os.getpid()}}", Worker, world_size=size)
        return self.inner.execute_all_sync("value")

    def environments(self):
        getenv = ctypes.CDLL(None).getenv
        getenv.restype = ctypes.c_char_p
        names = (*os.environb, b"MUSTER_ZYGOTE_FD")
        return [(name, os.environb.get(name), getenv(name)) for name in names]

    def has(self, name):
        return name in os.environ
"""


class Job:
    """A folder with that module."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "imports"
        self.part = folder / "counted_part.py"
        self.part.write_text("VALUE = 1\n")
        self.module = folder / "counted.py"
        self.module.write_text(COUNTED.format(log=str(self.log)))

    def imports(self) -> list[str]:
        """What $PLACE was at each."""
        return [line.split()[1] for line in self.log.read_text().splitlines()]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield Job(tmp_path)


@pytest.fixture
def counted(job: Job) -> Iterator[Job]:
    muster.init(num_gpus=4)
    yield job
    muster.shutdown()


def workers(size: int, **fields: Any) -> Any:
    name = f"c{os.urandom(4).hex()}"
    return muster.Cluster(name, "counted.Worker", world_size=size, **fields)


def test_a_cluster_of_a_worker_imports_nothing(counted: Job) -> None:
    outer = workers(2)
    assert outer.execute_rank_sync(1, "nest", 3) == [1, 1, 1]
    assert counted.imports() == ["None"]


def test_nor_does_one_of_a_role_with_variables(counted: Job) -> None:
    outer = workers(1, env={"PLACE": "here"})
    assert outer.execute_rank_zero_sync("nest", 2) == [1, 1]
    assert counted.imports() == ["here"]


def test_nor_where_all_workers_have_modules(job: Job) -> None:
    muster.init(preload="xmlrpc.client")
    try:
        assert workers(1).execute_rank_zero_sync("nest", 2) == [1, 1]
    finally:
        muster.shutdown()
    assert job.imports() == ["None"]


def test_variables_of_a_role_are_there_at_import(counted: Job) -> None:
    left, right = (workers(2, env={"PLACE": where}) for where in ("left", "right"))
    again = workers(1, env={"PLACE": "left"})
    assert left.execute_all_sync("place") == [("left", "left")] * 2
    assert right.execute_all_sync("place") == [("right", "right")] * 2
    assert again.execute_all_sync("place") == [("left", "left")]
    assert sorted(counted.imports()) == ["left", "right"]


def test_python_and_c_see_one_environment(counted: Job) -> None:
    one = workers(1, env={"PLACE": "here"})
    for name, python, c in one.execute_rank_zero_sync("environments"):
        assert python == c, name


def test_variables_of_terminals_reach_workers(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("SSH_TTY", "/dev/pts/9")
    muster.init()
    try:
        one = workers(1)
        assert one.execute_rank_zero_sync("has", "TERM")
        assert one.execute_rank_zero_sync("has", "SSH_TTY")
    finally:
        muster.shutdown()


@pytest.mark.parametrize("which", ["module", "part"])
def test_an_edited_module_within_one_session(counted: Job, which: str) -> None:
    first = workers(1)
    assert first.execute_all_sync("value") == [1]
    if which == "part":
        counted.part.write_text("VALUE = 1 + 1\n")
    else:
        text = counted.module.read_text()
        counted.module.write_text(text.replace("counted_part.VALUE", "2 * 1"))
    assert workers(2).execute_all_sync("value") == [2, 2]
    assert first.execute_all_sync("value") == [1]  # it lives on
    assert workers(1).execute_all_sync("value") == [2]
    assert counted.imports() == ["None", "None"]


DRIVER = """
import muster
muster.init()
one = muster.Cluster("one", "counted.Worker", world_size=2)
print(*one.execute_all_sync("value"), flush=True)
muster.shutdown()
"""


def run_at(daemon: Daemon, job: Job, **env: str) -> str:  # noqa: F811
    driver = Driver(
        DRIVER,
        job.folder,
        MUSTER_ADDRESS=daemon.address,
        MUSTER_SECRET_FILE=daemon.secret_file,
        **{MARK: daemon.mark},
        **env,
    )
    said = driver.line()
    assert driver.end()[0] == 0
    return said


def test_drivers_of_a_head_share(daemon: Daemon, job: Job) -> None:  # noqa: F811
    daemon.agent("n1")
    assert run_at(daemon, job, TERM="vt100") == "1 1"
    assert run_at(daemon, job, TERM="xterm") == "1 1"
    assert job.imports() == ["None"]
    assert run_at(daemon, job, PLACE="there") == "1 1"
    assert job.imports() == ["None", "there"]


def test_an_edited_module_between_drivers(daemon: Daemon, job: Job) -> None:  # noqa: F811
    daemon.agent("n1")
    assert run_at(daemon, job) == "1 1"
    job.part.write_text("VALUE = 40 + 2\n")
    assert run_at(daemon, job) == "42 42"
    assert run_at(daemon, job) == "42 42"
    assert job.imports() == ["None", "None"]
