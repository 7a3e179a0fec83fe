"""A program written against verl, as it is and with its import lines changed."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "verl", reason="verl is not installed here: `make test-verl` has it"
)

HERE = Path(__file__).parent
TIMEOUT_S = 900  # Ray's workers import torch each
# doc/adapters.md tells them
CHANGED_LINES = [
    (r"^import ray$", "import muster.verl as ray"),
    (r"^from verl\.single_controller(?:\.\w+)* import", "from muster.verl import"),
]


def run(script: Path, folder: Path, options: dict[str, Any]) -> Any:
    out = folder / "found.json"
    env = {**os.environ, "INIT_OPTIONS": json.dumps(options)}
    done = subprocess.run(
        [sys.executable, script, out],
        env=env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return json.loads(out.read_text())


@pytest.mark.timeout(2 * TIMEOUT_S)
def test_both_print_the_same(tmp_path: Path, ray_options: dict[str, Any]) -> None:
    theirs = HERE / "user_code.py"
    text = theirs.read_text()
    for pattern, line in CHANGED_LINES:
        text, count = re.subn(pattern, line, text, flags=re.M)
        assert count
    ours = tmp_path / "changed.py"
    ours.write_text(text)
    (tmp_path / "ours").mkdir()
    found = run(ours, tmp_path / "ours", {"num_gpus": 0})
    (tmp_path / "theirs").mkdir()
    wanted = run(theirs, tmp_path / "theirs", ray_options)
    assert list(found) == list(wanted)
    for part in wanted:
        assert found[part] == wanted[part], part
    assert len(wanted) > 30
