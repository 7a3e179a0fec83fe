"""A store in a container with little memory: an error, and never the kernel's killer."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

MIB = 1 << 20
DRIVER = """
import warnings, muster, numpy as np
warnings.simplefilter("always")
muster.init(store_limit="2GiB", spill=False, num_gpus=0)
print("limit", muster.store_stats()["limit"] >> 20, flush=True)
refs = []
try:
    while len(refs) < 100:
        refs.append(muster.put(np.ones(50 << 20, np.uint8)))
except muster.StoreFull as error:
    print("full", error)
refs.clear()
print("again", muster.put(np.ones(50 << 20, np.uint8)).get()[-1])
muster.shutdown()
print("end")
"""


def own_group() -> tuple[Path, bool] | None:
    """Of this process, for memory; whether it is of version 2."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if "memory" in names.split(","):
            return Path("/sys/fs/cgroup/memory" + path), False
    folder = Path("/sys/fs/cgroup")
    return (folder, True) if (folder / "cgroup.controllers").exists() else None


@pytest.fixture
def container() -> Iterator[Path]:
    """A group of 600 MiB."""
    found = own_group()
    if found is None:
        pytest.skip("no control groups for memory")
    group = found[0] / f"muster-test-{os.getpid()}"
    try:
        group.mkdir()
        limit = "memory.max" if found[1] else "memory.limit_in_bytes"
        (group / limit).write_text(str(600 * MIB))
    except OSError as error:
        if group.exists():
            group.rmdir()
        pytest.skip(f"no control groups can be made: {error}")
    yield group
    for pid in (group / "cgroup.procs").read_text().split():
        (group.parent / "cgroup.procs").write_text(pid)
    group.rmdir()


def test_a_limit_above_the_container(container: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        preexec_fn=lambda: (container / "cgroup.procs").write_text("0") and None,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    assert lines["limit"] == "450"
    assert "again" in lines and done.stdout.endswith("end\n")
    assert "container" in lines["full"] or "is full" in lines["full"]
    assert "store_limit is 2048 MiB" in done.stderr
    assert "may use 600 MiB" in done.stderr and "450 MiB are used" in done.stderr
