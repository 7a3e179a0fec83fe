"""tools/step: a slow command shows what it does, a fast one nothing."""

import os
import pty
import subprocess
from pathlib import Path

STEP = str(Path(__file__).resolve().parent.parent / "tools/step")
SLOW = "echo unpacking libevent; sleep 3"


def step(tmp_path: Path, command: str) -> subprocess.CompletedProcess[str]:
    words = [STEP, str(tmp_path / "log"), "1/3 installing", "a minute"]
    return subprocess.run(
        [*words, "sh", "-c", command], capture_output=True, text=True, timeout=60
    )


def test_a_fast_one_says_nothing(tmp_path: Path) -> None:
    done = step(tmp_path, "echo hidden")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "log").read_text() == "hidden\n"


def test_a_slow_one_says_what_it_is(tmp_path: Path) -> None:
    first, last = step(tmp_path, SLOW).stderr.splitlines()
    assert first == f"1/3 installing (usually a minute; see {tmp_path}/log)"
    assert last.startswith("    done in ")


def test_a_failure_is_shown(tmp_path: Path) -> None:
    done = step(tmp_path, "echo '[1/2] Compiling'; echo 'a.c:1: error' >&2; exit 7")
    assert done.returncode == 7
    shown, what = done.stderr.splitlines()
    assert shown == "a.c:1: error" and what.startswith("failed: 1/3 installing")


def test_a_terminal_shows_the_last_line(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    words = [STEP, str(tmp_path / "log"), "1/3 installing", "a minute"]
    process = subprocess.Popen([*words, "sh", "-c", SLOW], stderr=theirs)
    os.close(theirs)
    assert process.wait(60) == 0
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert "s: unpacking libevent\r" in shown
    assert shown.endswith(" s\r\n") and "done in" in shown
