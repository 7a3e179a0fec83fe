"""What a driver sees is the same in C and in Python: one list of behaviours, through both.

driver_behaviours.c and driver_behaviours.py have a function for each name in the list;
both must print the lines that stand here.
"""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import muster
import pytest
from daemon_rig import Daemon, daemon  # noqa: F401  (a fixture)
from driver_workers import Mortal
from helpers import BUILD, DEADLINE_S, MARK, leftovers, new_mark, processes, wait_gone

HERE = Path(__file__).resolve().parent
PROGRAMS = {
    "c": [str(BUILD / "t/driver_behaviours")],
    "python": [sys.executable, str(HERE / "driver_behaviours.py")],
}

BEHAVIOURS = {
    "calls": ["3", "1", "raised: builtins.ValueError"],
    "dies_in_a_call": [
        "worker_died: mortal/0: code 7: leaving",
        "worker_died: mortal/1: signal 9: ",
    ],
    "dies_between_calls": [
        "1",
        "worker_died: mortal/1: signal 9: ",
        "worker_died: mortal/1: signal 9: ",
        "0",
    ],
    "dies_before_a_call": ["worker_died: mortal/0: signal 9: "],
    "keeps_the_secret": [
        "nowhere",
        "nowhere",
    ],  # of a forked one, of a fresh interpreter
    "changes": ["1", "0", "2", "1", "0"],  # restart, then three workers, then one
    "follows": ["3", "2", "0"],  # after a restart and a resize by another handle
    "has_its_roles_environment": ["hello"],  # when the module was imported
    "ends_rank_zero_last": ["10"],
    "calls_after_shutdown": ["shutting_down", "shutting_down"],
    "forks": ["0", "refused: forked", "1"],  # before, in the child, after it has ended
}

pytestmark = pytest.mark.skipif(
    not (BUILD / "build.ninja").exists(),
    reason="there is no program in C to run",
)


def environment(mark: str) -> dict[str, str]:
    """Also with a secret that workers must not have."""
    env = os.environ | {
        MARK: mark,
        "MUSTER_SECRET": secrets.token_hex(32),
        "MUSTER_PYTHON": sys.executable,
        "MUSTER_BIN": str(Path(sys.executable).parent / "muster"),
        "PYTHONPATH": str(HERE),
    }
    for name in ("MUSTER_ADDRESS", "MUSTER_SECRET_FILE"):
        env.pop(name, None)
    return env


@pytest.fixture
def mark() -> Iterator[str]:
    """Of all processes of a test; none is left."""
    made = new_mark()
    yield made
    wait_gone(processes(made))
    assert leftovers(made) == []


@pytest.mark.parametrize("language", PROGRAMS)
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_both(behaviour: str, language: str, mark: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [*PROGRAMS[language], behaviour],
        env=environment(mark) | {"TOLD": str(tmp_path / "told")},
        capture_output=True,
        text=True,
        timeout=3 * DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == BEHAVIOURS[behaviour], done.stderr


@pytest.fixture
def kept(daemon: Daemon) -> Iterator[muster.Cluster]:  # noqa: F811
    """A cluster of another driver's, of a head that both join."""
    daemon.agent("n")
    muster.init(address=daemon.address, secret_file=daemon.secret_file)
    try:
        with muster.Cluster("kept", Mortal, world_size=2) as cluster:
            yield cluster
    finally:
        muster.shutdown()


@pytest.mark.parametrize("how", ["killed", "ended"])
@pytest.mark.parametrize("language", PROGRAMS)
def test_a_successor_is_found(
    kept: muster.Cluster,
    daemon: Daemon,  # noqa: F811
    language: str,
    how: str,
    mark: str,
) -> None:
    """Another driver has put a new worker in its place."""
    where = {
        "MUSTER_ADDRESS": daemon.address,
        "MUSTER_SECRET_FILE": daemon.secret_file,
        "MUSTER_HOME": str(daemon.folder),
    }
    process = subprocess.Popen(
        [*PROGRAMS[language], "finds_a_successor"],
        env=environment(mark) | where,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    old = int(process.stdout.readline() or 0)
    assert old == kept.pids[1], process.communicate(timeout=DEADLINE_S)
    if how == "killed":
        os.kill(old, 9)
        assert wait_gone([old]) == []
    kept.replace(1, grace=0)
    said, errors = process.communicate("\n", timeout=DEADLINE_S)
    assert process.returncode == 0, errors
    assert int(said) == kept.pids[1] != old


def test_the_lists_are_the_same() -> None:
    """Nobody forgets one of the two."""
    names = {*BEHAVIOURS, "finds_a_successor"}
    python = (HERE / "driver_behaviours.py").read_text()
    in_c = (HERE / "driver_behaviours.c").read_text()
    for name in names:
        assert f"def {name}(" in python
        assert f'{{"{name}", {name}}}' in in_c
    assert in_c.count('{"') == len(names)
