"""AReaL's Scheduler on Muster: a Scheduler for its controllers, over any orchestrator.

from muster.areal import MusterScheduler
scheduler = MusterScheduler(exp_config=config)

This package can be imported without AReaL, which MusterScheduler imports when it is used.
doc/areal.md says what differs from AReaL's own schedulers.
"""

from importlib import import_module

_HOME = {
    "AsyncTaskRunner": "muster.areal.task_runner",
    "BatchTaskDispatcher": "muster.areal.dispatcher",
    "MusterScheduler": "muster.areal.scheduler",  # alone needs AReaL
    "RolloutStat": "muster.areal.staleness",
    "Rollouts": "muster.areal.rollouts",
    "StalenessManager": "muster.areal.staleness",
    "TaskQueueFullError": "muster.areal.task_runner",
    "TimedResult": "muster.areal.task_runner",
}
__all__ = list(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'muster.areal' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
