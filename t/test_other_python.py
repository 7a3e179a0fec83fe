"""Workers of another Python than the driver's (`python=` of a role)."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import muster
import pytest
from workers import Version

OLDEST = (3, 11)


def version_of(python: Path) -> tuple[int, ...]:
    digits = python.name.removeprefix("python").split(".")
    return tuple(int(d) for d in digits) if all(d.isdigit() for d in digits) else ()


def runs(python: Path) -> bool:
    return subprocess.run([python, "-c", ""], capture_output=True).returncode == 0


@pytest.fixture
def python() -> str:
    """Of another minor version: on the PATH, or installed beside this one."""
    names = [f"python3.{minor}" for minor in range(11, 20)]
    found = [Path(path) for name in names if (path := shutil.which(name))]
    found += Path(sys.base_prefix).parent.glob("*/bin/python3.*")
    for one in found:
        version = version_of(one)
        if version >= OLDEST and version != sys.version_info[:2] and runs(one):
            return str(one)
    pytest.skip("there is no other Python of version 3.11 or newer here")


@pytest.fixture
def packages(tmp_path: Path) -> dict[str, str]:
    """An environment in which another Python finds what workers need, and nothing else."""
    for module in (muster, cloudpickle):
        folder = Path(str(module.__file__)).parent
        (tmp_path / folder.name).symlink_to(folder)
    return {"PYTHONPATH": str(tmp_path)}


def test_classes_by_name_run(
    session: Any, python: str, packages: dict[str, str]
) -> None:
    for start in ("fork", "exec"):
        role = muster.Cluster(
            "other", Version, world_size=2, python=python, env=packages, start=start
        )
        assert role.execute_all_sync("version") == [version_of(Path(python))] * 2
        role.destroy()


def test_classes_by_value_are_refused(
    session: Any, python: str, packages: dict[str, str]
) -> None:
    class Local:
        pass

    ours = ".".join(map(str, sys.version_info[:2]))
    theirs = ".".join(map(str, version_of(Path(python))))
    text = f"the sender runs Python {ours}, this process Python {theirs}: "
    with pytest.raises(muster.MusterError, match=text):
        muster.Cluster("other", Local, world_size=1, python=python, env=packages)
