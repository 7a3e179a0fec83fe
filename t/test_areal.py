"""What of muster.areal needs no AReaL."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from muster._session.logs import Line
from muster.areal.log_files import TAIL_LINES, LogFiles, tail


def test_the_package_needs_no_areal() -> None:
    script = """
import sys
import muster.areal
assert "MusterScheduler" in muster.areal.__all__
assert not any(name in sys.modules for name in ("areal", "torch", "numpy"))
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_names() -> None:
    import muster.areal

    with pytest.raises(AttributeError, match="nothing"):
        muster.areal.nothing  # noqa: B018
    if importlib.util.find_spec("areal") is None:
        with pytest.raises(ModuleNotFoundError, match="areal"):
            muster.areal.MusterScheduler  # noqa: B018


def test_logs_of_roles(tmp_path: Path) -> None:
    logs = LogFiles(str(tmp_path / "new" / "folder"))
    logs.add("actor")
    lines = [Line("actor", 0, False, "one"), Line("other", 0, False, "not ours")]
    logs.write([*lines, Line("actor", 1, True, "two")])
    logs.write([Line("actor", 0, False, "three")])
    folder = Path(logs.folder)
    assert (folder / "actor.log").read_text() == "one\ntwo\nthree\n"
    assert (folder / "merged.log").read_text().splitlines()[1] == "[actor] two"
    assert not (folder / "other.log").exists()
    (folder / "actor.log").unlink()
    (folder / "actor.log").mkdir()  # cannot be written: no job ends of that
    logs.write([Line("actor", 0, False, "four")])
    assert "four" in (folder / "merged.log").read_text()


def test_the_end_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\xff\n" + b"".join(b"%d\n" % i for i in range(100_000)))
    assert tail(str(log)) == [str(i) for i in range(100_000 - TAIL_LINES, 100_000)]
    assert tail(str(tmp_path / "nothing")) == []
