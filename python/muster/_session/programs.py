"""What a session starts: the muster executable, interpreters, and their environment."""

from __future__ import annotations

import os
import sys

from muster import _core
from muster.errors import MusterError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_FLAGS = (
    ("isolated", "-I"),
    ("ignore_environment", "-E"),
    ("no_user_site", "-s"),
    ("no_site", "-S"),
    ("dont_write_bytecode", "-B"),
    ("optimize", "-O"),
)


def interpreter() -> list[str]:
    """How to start another interpreter like this one."""
    if not sys.executable:
        raise MusterError(
            "sys.executable is empty: which interpreter would workers use?"
        )
    command = [sys.executable]
    for name, flag in _FLAGS:
        command += [flag] * int(getattr(sys.flags, name))
    for name, value in sys._xoptions.items():
        command += ["-X", name if value is True else f"{name}={value}"]
    return command


def _executables() -> Iterator[str]:
    """Where the muster executable may be, the best place first."""
    if path := os.environ.get("MUSTER_BIN"):
        yield path
        return
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    yield os.path.join(package, "bin", "muster")  # of a wheel
    yield os.path.join(os.path.dirname(sys.executable), "muster")
    import sysconfig

    yield os.path.join(sysconfig.get_path("scripts"), "muster")
    user = sysconfig.get_preferred_scheme("user")
    yield os.path.join(sysconfig.get_path("scripts", user), "muster")
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        yield os.path.join(folder, "muster")


def find_executable() -> str:
    """The muster executable of this installation."""
    looked = []
    for path in _executables():
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return os.path.abspath(path)
        looked.append(path)
    raise MusterError(
        f"the muster executable was not found in {', '.join(dict.fromkeys(looked))}: "
        "install muster-rl again, or name it in MUSTER_BIN"
    )


def session_env(environ: Mapping[str, str]) -> dict[str, str]:
    """The driver's environment, but for what must not travel."""
    driver = [f"{name}={value}" for name, value in environ.items()]
    pairs = (entry.partition("=") for entry in _core.session_env(driver))
    return {name: value for name, _, value in pairs}
