"""What is in the wheel, other Pythons, and C with nothing but the wheel."""

import platform
import re
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from doc_rig import blocks_of
from test_other_python import OLDEST, runs, version_of
from wheel_rig import ROOT, UNSHARE, WHEEL

NAME = (
    "muster_rl-"
    + re.search(r"version: '([^']+)'", (ROOT / "meson.build").read_text())[1]
)
LIBRARIES = ("libevent_core", "libprotobuf-c", "libcrypto", "libssl", "libjansson")
LIBRARIES += ("libyaml", "libhwloc")


@pytest.fixture(scope="module")
def wheel():  # type: ignore[no-untyped-def]
    with zipfile.ZipFile(WHEEL) as opened:
        yield opened


def test_its_name_and_metadata(wheel: zipfile.ZipFile) -> None:
    glibc = int(platform.libc_ver()[1].split(".")[1])
    (allowed,) = re.findall(
        rf"{NAME}-cp311-abi3-manylinux_2_(\d+)_{platform.machine()}\.whl", WHEEL
    )
    assert int(allowed) <= glibc
    about = Parser().parsestr(wheel.read(f"{NAME}.dist-info/METADATA").decode())
    assert about["Name"] == "muster-rl" and f"muster_rl-{about['Version']}" == NAME
    assert about["Requires-Python"] == ">=3.11"
    assert about.get_all("Requires-Dist") == ["cloudpickle"]
    assert about["License-Expression"] == "Apache-2.0"


def test_all_is_in_its_folders(wheel: zipfile.ZipFile) -> None:
    share = f"{NAME}.data/data/share/"
    places = ("muster/", "muster_rl.libs/", f"{NAME}.dist-info/", share)
    files = [name for name in wheel.namelist() if not name.endswith("/")]
    others = [name for name in files if not name.startswith(places)]
    assert others == [f"{NAME}.data/scripts/muster"]
    headers = {p.name for p in (ROOT / "include/muster").glob("*.h")}
    assert {Path(n).name for n in files if "/include/muster/" in n} == headers
    for library in LIBRARIES:
        assert any(n.startswith(f"muster_rl.libs/{library}-") for n in files), library


def test_no_path_of_this_machine(wheel: zipfile.ZipFile) -> None:
    for name in wheel.namelist():
        found = re.search(
            re.escape(str(ROOT)).encode() + rb"[^\0\n]*", wheel.read(name)
        )
        assert not found, (name, found)


def install(python: str, folder: Path) -> str:
    """A virtual environment with the wheel; its Python."""
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin/python"), "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-q", WHEEL], check=True)
    return str(folder / "bin/python")


def others() -> list[str]:
    """One of each version: on the PATH, or installed beside this one."""
    names = [f"python3.{minor}" for minor in range(11, 20)]
    found = [Path(path) for name in names if (path := shutil.which(name))]
    found += Path(sys.base_prefix).parent.glob("*/bin/python3.*")
    wanted = {
        version_of(p): str(p) for p in found if version_of(p) >= OLDEST and runs(p)
    }
    wanted.pop(sys.version_info[:2], None)
    return sorted(wanted.values())


FIRST = """
import muster
muster.init()
print(muster.Cluster("c", "collections:Counter", world_size=2).execute_all_sync("total"))
muster.shutdown()
"""


@pytest.mark.parametrize("python", others())
def test_another_python(python: str, tmp_path: Path) -> None:
    there = install(python, tmp_path / "venv")
    out = subprocess.check_output([there, "-c", FIRST], text=True, timeout=60)
    assert out == "[0, 0]\n"


def test_c_without_the_tree(tmp_path: Path) -> None:
    """The lines of the README, where .venv has the wheel and the tree is gone."""
    install(sys.executable, tmp_path / ".venv")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (lines,) = blocks_of("README.md", "sh", "export PKG_CONFIG_PATH")
    script = f"mount -t proc proc /proc\nmount -t tmpfs none {ROOT}\nls {ROOT}\n{lines}"
    done = subprocess.run(
        [*UNSHARE, "sh", "-ec", script],
        cwd=tmp_path,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" and done.stdout.count("0.417 0.800") == 3
