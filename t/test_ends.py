"""SIGTERM ends a worker wherever its interpreter is, and its engines clean up, once."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import muster
import pytest
from end_workers import Cleans, CleansLater
from helpers import Bell

Bells = Callable[[], Bell]
ROUNDS = 40
GRACE_S = 3.0  # SIGTERM until SIGKILL: MS_STOP_GRACE_NS


def noted(folder: Path, what: str) -> list[str]:
    return [(folder / f"{what}-{rank}").read_text() for rank in range(3)]


def test_destroy_runs_behind_a_call_that_frees_much(
    session: Any, tmp_path: Path
) -> None:
    """The arguments of the last call are freed when the signal comes."""
    for turn in range(ROUNDS):
        folder = tmp_path / str(turn)
        folder.mkdir()
        c = muster.Cluster("c", Cleans, world_size=3, args=(str(folder),))
        c.execute_all_sync("echo", lambda turn=turn: turn)
        c.destroy()
        assert noted(folder, "destroyed") == ["once\n"] * 3


@pytest.mark.parametrize(
    ("cls", "method"),
    [
        (Cleans, "swallow"),
        (Cleans, "drop"),
        (Cleans, "tidy"),
        (CleansLater, "block"),
        (CleansLater, "drop"),
    ],
)
def test_destroy_runs_in_the_middle_of(
    session: Any, bell: Bells, tmp_path: Path, cls: Any, method: str
) -> None:
    c = muster.Cluster("c", cls, world_size=1, args=(str(tmp_path),))
    begun = bell()
    future = c.execute_rank_zero_async(method, begun.path)
    begun.hear()
    start = time.monotonic()
    c.destroy()
    assert time.monotonic() - start < GRACE_S
    ended = future.exception(GRACE_S)
    assert isinstance(ended, muster.MusterError) == (method != "swallow"), ended
    notes = {p.name: p.read_text() for p in tmp_path.glob("*-0")}
    assert notes.pop("destroyed-0") == "once\n"
    assert notes.pop("tidied-0", None) == ("once\n" if method == "tidy" else None)
    swallowed = "once\n" * 2 if method == "swallow" else None
    assert notes.pop("swallowed-0", None) == swallowed


def test_nothing_is_said_of_a_dropped_exception(
    session: Any, bell: Bells, tmp_path: Path
) -> None:
    c = muster.Cluster("c", Cleans, world_size=1, args=(str(tmp_path),))
    begun = bell()
    c.execute_rank_zero_async("drop", begun.path)
    begun.hear()
    c.destroy()
    logs = Path(session.head.session_dir).rglob("*.log")
    texts = [text for path in logs if "it drops" in (text := path.read_text())]
    assert texts and not any("SystemExit" in text for text in texts), texts
