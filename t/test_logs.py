"""_logs.py: which lines are shown, and how. Pure: the clock is a number."""

import io
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import DEADLINE_S
from muster._session.logs import KEPT_MAX, Fold, Line, LogPump, render


def line(text: str, rank: int = 0, *, stderr: bool = False, cluster: str = "a") -> Line:
    return Line(cluster, rank, stderr, text, node="n")


def shown(lines: list[Line]) -> list[str]:
    return [render(x, colour=False).rstrip("\n") for x in lines]


def test_prefix() -> None:
    assert render(line("hello", 3), False) == "(a/3@n) hello\n"
    assert render(line("hello", 3), True).startswith("\x1b[")


def test_the_first_is_shown_at_once_and_others_are_counted() -> None:
    fold = Fold()
    assert shown(fold.add(line("ready", 0), 0.0)) == ["(a/0@n) ready"]
    for rank in range(1, 8):
        assert fold.add(line("ready", rank), 0.1) == []
    assert fold.due_in(1.1) == pytest.approx(3.9)
    assert fold.expire(4.9) == []
    assert shown(fold.expire(5.0)) == ["(a/7@n) ready [repeated 7x across cluster]"]
    assert fold.due_in(5.0) is None


def test_numbers_do_not_count() -> None:
    fold = Fold()
    fold.add(line("rank 0 loss=0.31 ready", 0), 0.0)
    assert fold.add(line("rank 1 loss=1.02 ready", 1), 0.0) == []
    assert len(fold.add(line("rank 1 loss=1.02 failed", 1), 0.0)) == 1


def test_one_rank_that_repeats_itself_is_shown() -> None:
    fold = Fold()
    for step in range(5):
        assert len(fold.add(line(f"step {step}"), float(step) / 10)) == 1


def test_a_single_repetition_is_shown_as_it_is() -> None:
    fold = Fold()
    fold.add(line("ready", 0), 0.0)
    fold.add(line("ready", 1), 0.0)
    assert shown(fold.expire(6.0)) == ["(a/1@n) ready"]


def test_streams_and_roles_are_apart() -> None:
    fold = Fold()
    assert len(fold.add(line("x", 0), 0.0)) == 1
    assert len(fold.add(line("x", 1, stderr=True), 0.0)) == 1
    assert len(fold.add(line("x", 1, cluster="b"), 0.0)) == 1


def test_goes_on_folding_what_goes_on() -> None:
    fold = Fold()
    out: list[str] = []
    for tenth in range(200):
        for rank in range(4):
            out += shown(fold.add(line("tick", rank), tenth / 10))
    assert out[0] == "(a/0@n) tick"
    assert all("repeated" in text for text in out[1:]) and 3 <= len(out) <= 5


def test_after_a_pause_it_is_shown_again() -> None:
    fold = Fold()
    fold.add(line("ready", 0), 0.0)
    assert len(fold.add(line("ready", 1), 60.0)) == 1


def test_flush_shows_all_that_was_held_back() -> None:
    fold = Fold()
    for rank in range(3):
        fold.add(line("bye", rank), 0.0)
    assert shown(fold.flush()) == ["(a/2@n) bye [repeated 2x across cluster]"]
    assert fold.flush() == []


def test_blank_lines_are_never_folded() -> None:
    fold = Fold()
    assert [len(fold.add(line("", rank), 0.0)) for rank in range(3)] == [1, 1, 1]


def test_memory_is_bounded() -> None:
    fold = Fold()
    for i in range(KEPT_MAX + 500):
        fold.add(line("x" * (i % 7) + chr(65 + i % 26) * (i // 26 + 1)), 0.0)
    assert len(fold._seen) <= KEPT_MAX


class FakeHead:
    """Gives its batches, one after the other, and then the end."""

    def __init__(self, *batches: list[tuple[str, int, str, bool, str]]) -> None:
        self.batches = list(batches)

    def next_logs(self, timeout: float) -> list[tuple[str, int, str, bool, str]] | None:
        return self.batches.pop(0) if self.batches else None


def test_pump_shows_all_by_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    head = FakeHead(
        [("a", r, "n", False, "ready") for r in range(3)],
        [],
        [("a", 0, "n", True, "oh")],
    )
    LogPump(head).join()  # type: ignore[arg-type]
    out, err = capsys.readouterr()
    assert out == "(a/0@n) ready\n(a/2@n) ready [repeated 2x across cluster]\n"
    assert err == "(a/0@n) oh\n"


def test_pump_without_folding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MUSTER_LOG_FOLD", "0")
    head = FakeHead([("a", r, "n", False, "ready") for r in range(3)])
    LogPump(head).join()  # type: ignore[arg-type]
    assert capsys.readouterr().out.count("ready") == 3


ALL_LINES = """
import muster

class Talker:
    def __init__(self):
        print("ready")

if __name__ == "__main__":
    muster.init(num_gpus=0, dedup_logs=False)
    muster.Cluster("talker", Talker, world_size=3)
    muster.shutdown()
"""


def test_init_can_switch_merging_off(tmp_path: Path) -> None:
    script = tmp_path / "all_lines.py"
    script.write_text(ALL_LINES)
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.returncode == 0, done.stderr
    lines = sorted(line.partition("@")[0] for line in done.stdout.splitlines())
    assert lines == [f"(talker/{rank}" for rank in range(3)]


def test_pump_survives_a_closed_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr("sys.stdout", closed)
    pump = LogPump(FakeHead([("a", 0, "n", False, "x")], [("a", 0, "n", False, "y")]))  # type: ignore[arg-type]
    pump.join()
    assert not pump._thread.is_alive()
