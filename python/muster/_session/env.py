"""What workers start from, and the names of what tells them of their devices."""

from __future__ import annotations

from muster import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
DEVICE_VARIABLE = "MUSTER_DEVICE_VARIABLE"  # names the variable with a worker's devices


def session_env(environ: Mapping[str, str]) -> dict[str, str]:
    """What all processes of a session start from: the driver's environment, but for what
    must not travel. As for a driver in C."""
    driver = [f"{name}={value}" for name, value in environ.items()]
    pairs = (entry.partition("=") for entry in _core.session_env(driver))
    return {name: value for name, _, value in pairs}
