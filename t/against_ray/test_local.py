"""A Ray of our own on this machine: `address: local`. It ends with who started it."""

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_rig import CLI
from helpers import MARK, Driver, leftovers, new_mark, processes, wait_gone
from ray_rig import PATIENCE, PYTHON, SAY, SAY_JOB, SLOW_S

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def env() -> Iterator[dict[str, str]]:
    """Where `ray` is in the path; what it writes is seen."""
    with tempfile.TemporaryDirectory(prefix="ml-", dir="/tmp") as folder:
        path = f"{Path(PYTHON).parent}{os.pathsep}{os.environ['PATH']}"
        yield PATIENCE | {"PATH": path, "TMPDIR": folder}
        assert list(Path(folder).iterdir()) == []


DRIVER = """
import sys
import muster
from workers import Echo
if __name__ == "__main__":
    muster.init(orchestrator="ray", address="local", num_cpus=1)
    c = muster.Cluster("echo", Echo, world_size=2)
    print(*c.execute_all_sync("rank"), len(muster.nodes()), flush=True)
    if sys.stdin.readline() == "on\\n":
        muster.shutdown()
"""


def _rays(mark: str) -> list[int]:
    """Processes of the Ray itself, which have its folder in their arguments."""
    found = []
    for pid in processes(mark):
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"muster-ray-" in command and b"hold" not in command.split(b"\0"):
                found.append(pid)
    return found


def _sockets(pids: list[int]) -> set[str]:
    """Inodes, as /proc/net has them."""
    found = set()
    for pid in pids:
        for fd in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError):
                name = os.readlink(fd)
                if name.startswith("socket:["):
                    found.add(name[8:-1])
    return found


def _listens(pids: list[int]) -> list[str]:
    ours, found = _sockets(pids), []
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and inode in ours:
                found.append(local)
    return found


@pytest.mark.parametrize("token", ["", "a-token-of-the-tests-0123456789abcdef"])
def test_a_driver_starts_it_and_ends_it(
    tmp_path: Path, env: dict[str, str], token: str
) -> None:
    """Also where the user has a token: Ray 2.60 then wants it, without being told to."""
    if token:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text(token)
    driver = Driver(DRIVER, tmp_path, **env, HOME=str(tmp_path))
    assert driver.process.stdout is not None
    assert driver.process.stdout.readline() == "0 1 1\n"
    listens = _listens(_rays(driver.mark))
    assert len(listens) > 3
    assert [at for at in listens if "0100007F:" not in at] == []  # 127.0.0.1
    driver.send("on")
    code, _, err = driver.end(SLOW_S)
    assert code == 0, err
    assert leftovers(driver.mark) == []


def test_a_killed_driver_leaves_nothing(tmp_path: Path, env: dict[str, str]) -> None:
    driver = Driver(DRIVER, tmp_path, **env)
    assert driver.process.stdout is not None
    assert driver.process.stdout.readline() == "0 1 1\n"
    driver.process.kill()
    driver.process.communicate(timeout=SLOW_S)
    assert wait_gone(processes(driver.mark), SLOW_S) == []


def test_run(tmp_path: Path, env: dict[str, str]) -> None:
    more = '    import os; print("@", os.environ["TMPDIR"])'
    (tmp_path / "train.py").write_text(SAY + more)
    (tmp_path / "job.yaml").write_text(SAY_JOB)
    mark = new_mark()
    command = [CLI, "run", "--on", "ray", "--address", "local", "--json", "job.yaml"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | env | {MARK: mark},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=4 * SLOW_S,
    )
    assert done.returncode == 0, done
    said = [line for line in done.stdout.splitlines() if line.startswith("@")]
    assert said == ["@ hello", f"@ {env['TMPDIR']}"]  # ours, not Ray's own
    events = [json.loads(line)["event"] for line in done.stderr.splitlines()]
    assert events[0] == "submitted" and events[-1] == "released"
    assert leftovers(mark) == []


def test_it_wants_a_token_that_nobody_can_send(
    tmp_path: Path, env: dict[str, str]
) -> None:
    """Says so at once, and ends that Ray."""
    (tmp_path / "job.yaml").write_text(SAY_JOB)
    mark = new_mark()
    tokens = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "two words"}
    done = subprocess.run(
        [CLI, "run", "--on", "ray", "--address", "local", "job.yaml"],
        cwd=tmp_path,
        env=os.environ | env | tokens | {MARK: mark},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SLOW_S,
    )
    assert done.returncode == 1 and "RAY_AUTH_TOKEN holds is no token" in done.stderr
    assert leftovers(mark) == []


def test_there_is_no_ray(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("nodes: [{name: n0, cpus: 1}]\ndriver: [echo, never]\n")
    done = subprocess.run(
        [CLI, "run", "--on", "ray", "--address", "local", str(job)],
        cwd=tmp_path,
        env={"PATH": "/nowhere", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=SLOW_S,
    )
    assert done.returncode == 1 and "ray[default]" in done.stderr, done
    assert done.stdout == ""


def test_what_ray_does_not_have(tmp_path: Path, env: dict[str, str]) -> None:
    """One sentence with what was asked for and what there is, and the exit code for it."""
    (tmp_path / "job.yaml").write_text(
        "nodes: [{name: n0, cpus: 1000}]\ndriver: [echo, never]\ntimeout: 15\n"
    )
    done = subprocess.run(
        [CLI, "run", "--on", "ray", "--address", "local", "job.yaml"],
        cwd=tmp_path,
        env=os.environ | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=4 * SLOW_S,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 6, done
    assert "asked for 1 x {1000 CPU}" in said and "free: " in said
    assert "Traceback" not in said and "never" not in said
