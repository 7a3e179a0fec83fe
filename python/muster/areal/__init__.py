"""AReaL's Scheduler on Muster: a Scheduler for its controllers, over any orchestrator.

from muster.areal import MusterScheduler
scheduler = MusterScheduler(exp_config=config)

This package can be imported without AReaL; AReaL is imported when a name of it is used.
doc/areal.md says what differs from AReaL's own schedulers.
"""

from importlib import import_module

_HOME = {
    "MusterScheduler": "muster.areal.scheduler",
}
__all__ = list(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'muster.areal' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
