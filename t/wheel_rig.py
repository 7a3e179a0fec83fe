"""A machine with Python and nothing of ours: a root folder in a mount namespace.

It has the interpreter, the shared libraries that this and Ray's wheels are linked with, a
shell, and what is asked for besides. No compiler, no header, no library of a -dev package,
and nothing of this tree can be seen there.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

WHEEL = os.environ.get("MUSTER_WHEEL", "")
RAY_PYTHON = os.environ.get("RAY_PYTHON", "")
ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ["sh", "bash", "env", "sleep", "cat", "ls"]
TIMEOUT_S = 300.0
# a namespace of its own for processes: none outlives its command
UNSHARE = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
if os.getuid() != 0:
    UNSHARE.append("--map-root-user")


def libraries_of(files: list[Path]) -> set[Path]:
    """What the loader finds for these, and the loader."""
    done = subprocess.run(
        ["ldd", *map(str, files)], capture_output=True, text=True, check=False
    )
    return {Path(p) for p in re.findall(r"(/\S+) \(0x", done.stdout)}


def shared_objects(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*.so*") if p.is_file()]


class BareMachine:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.python = Path(sys.base_prefix)
        # same paths there and here
        self.shared = [
            self.python,
            *([Path(RAY_PYTHON).parent.parent] if RAY_PYTHON else []),
        ]
        self._fill()

    def _fill(self) -> None:
        for name in ("proc", "dev", "sys", "tmp", "etc", "root", "wheels", "usr/bin"):
            (self.root / name).mkdir(parents=True)
        for name in ("bin", "lib", "lib64"):  # as this machine has them
            if Path("/", name).is_symlink():
                (self.root / name).symlink_to(os.readlink(f"/{name}"))
                (self.root / os.readlink(f"/{name}")).mkdir(exist_ok=True)
        for name in ("passwd", "group", "hosts", "nsswitch.conf"):
            shutil.copy(f"/etc/{name}", self.root / "etc")
        for folder in self.shared:
            (self.root / str(folder)[1:]).mkdir(parents=True)
        programs = [Path(shutil.which(name) or name) for name in PROGRAMS]
        interpreter = Path(os.path.realpath(sys.executable))
        objects = [o for folder in self.shared for o in shared_objects(folder)]
        inside = tuple(map(str, self.shared))
        for file in {*programs, *libraries_of([*programs, interpreter, *objects])}:
            if not str(file).startswith(inside):
                to = self.root / str(file)[1:]
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, to)

    def put(self, path: str, text: str) -> None:
        to = self.root / path[1:]
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(text)

    def run(self, command: str, **env: str) -> subprocess.CompletedProcess[str]:
        """A line of the shell there, in /tmp."""
        mounts = [
            "mount -t proc proc proc",
            "mount --rbind /dev dev",
            "mount --rbind /sys sys",
        ]
        mounts += [f"mount --bind {p} {self.root}{p}" for p in self.shared]
        known = {"PATH": "/venv/bin:/usr/bin:/bin", "HOME": "/root"} | env
        clean = " ".join(
            ["env", "-i", *(shlex.quote(f"{k}={v}") for k, v in known.items())]
        )
        inside = f"cd /tmp && {command}"
        enter = f"exec {clean} {shutil.which('chroot')} . sh -ec {shlex.quote(inside)}"
        return subprocess.run(
            [*UNSHARE, "sh", "-ec", "\n".join([*mounts, enter])],
            cwd=self.root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )

    def say(self, command: str, **env: str) -> str:
        done = self.run(command, **env)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def install(self) -> None:
        shutil.copy(WHEEL, self.root / "wheels")
        download = ["pip", "download", "-q", "--no-deps", "cloudpickle>=3"]
        subprocess.run(
            [sys.executable, "-m", *download, "-d", str(self.root / "wheels")],
            check=True,
        )
        python = Path(os.path.realpath(sys.executable))
        self.say(f"{python} -m venv /venv")
        self.say("pip install --no-index --find-links /wheels muster-rl")
