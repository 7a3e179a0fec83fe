"""The file of lengths, where it cannot be written."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from generate_workers import Engine
from muster.generate import Scheduler
from test_generate import WAIT_S, check, until

Make = Callable[..., Any]


@pytest.fixture
def read_only(tmp_path: Path) -> Path:
    if os.geteuid() == 0:  # whom modes do not stop
        return Path("/proc")
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o500)
    return folder


def test_a_read_only_folder(cluster: Make, read_only: Path) -> None:
    """Generation goes on, and `stats` says what is wrong."""
    path = read_only / "lengths"
    with Scheduler(cluster(Engine, 1), history=path) as sched:
        assert sched.stats()["history"] == {"saves": 0, "failures": 0, "error": None}
        check(sched.submit([1], n=2, max_new_tokens=20).result(WAIT_S), 10, 2)
        told = until(lambda: (now := sched.stats()["history"])["failures"] and now)
        assert told["saves"] == 0 and str(path) in told["error"]
        check(sched.submit([2], n=2, max_new_tokens=20).result(WAIT_S), 10, 2)
    assert sched.stats()["history"]["failures"] == told["failures"] + 1  # by close
    assert not path.exists()


def test_what_could_not_be_saved_is_saved_later(cluster: Make, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    with Scheduler(cluster(Engine, 1), history=folder / "lengths") as sched:
        folder.write_text("no folder")
        sched.submit([1], n=2, max_new_tokens=20).result(WAIT_S)
        until(lambda: sched.stats()["history"]["failures"] == 1)
        folder.unlink()
    told = sched.stats()["history"]
    assert (told["saves"], told["failures"]) == (1, 1) and "lengths" in told["error"]
    assert [one.name for one in folder.iterdir()] == ["lengths"]
