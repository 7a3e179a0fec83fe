"""`muster doctor`."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_rig import CLI, FakeSession, Home


def fake_python(home: Home, script: str) -> str:
    python = home.path / "python3"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o700)
    return str(python)


def test_doctor_without_the_package(home: Home) -> None:
    python = fake_python(home, "echo No module named muster >&2; exit 1")
    said = home.json("doctor", "--python", python, code=1)
    check = next(c for c in said["checks"] if c["check"] == "python")
    assert check["level"] == "fail"
    assert "No module named muster" in check["text"]
    assert "pip install" in check["advice"]
    os.unlink(python)
    assert home.run("doctor", "--python", python).returncode == 1


def test_doctor_with_another_version(home: Home) -> None:
    python = fake_python(home, "echo 3.11.0; echo /python; echo 0.0.1")
    checks = {c["check"]: c for c in home.json("doctor", "--python", python)["checks"]}
    assert checks["python"]["level"] == "warn"
    assert "0.0.1" in checks["python"]["text"]


def test_doctor_finds_what_was_left(home: Home) -> None:
    session = FakeSession(home, "20261115-120000-17", alive=True)
    assert session.lock is not None
    session.lock.close()  # as after a SIGKILL of everybody
    version = home.json("version")["version"]
    python = fake_python(home, f"echo 3.11.0; echo /python; echo {version}")
    checks = {c["check"]: c for c in home.json("doctor", "--python", python)["checks"]}
    assert checks["python"]["level"] == "ok"
    assert checks["sessions"]["level"] == "warn"
    assert "1 left behind" in checks["sessions"]["text"]


def test_doctor_of_a_wheel(home: Home, tmp_path: Path) -> None:
    """The Python of the environment, also where that is not active."""
    program = tmp_path / "lib/python3.11/site-packages/muster/bin/muster"
    program.parent.mkdir(parents=True)
    shutil.copy(CLI, program)
    (tmp_path / "bin").mkdir()
    version = home.json("version")["version"]
    python = fake_python(home, f"echo 3.11.0; echo /of/the/wheel; echo {version}")
    shutil.copy(python, tmp_path / "bin/python3")
    done = subprocess.run(
        [program, "doctor", "--json"], env=home.env, capture_output=True, text=True
    )
    (check,) = (c for c in json.loads(done.stdout)["checks"] if c["check"] == "python")
    assert check["level"] == "ok" and "/of/the/wheel" in check["text"]


def test_doctor_here(home: Home) -> None:
    pytest.importorskip("muster")
    said = home.json("doctor", "--python", sys.executable)
    assert said["fail"] == 0
    levels = {c["check"]: c["level"] for c in said["checks"]}
    assert levels["python"] == "ok"
    assert {"root", "sessions", "shm", "descriptors", "memory-limits"} <= set(levels)
    text = home.run("doctor", "--python", sys.executable).stdout
    for name, level in levels.items():
        assert re.search(rf"^{level} +{name} ", text, re.M)
