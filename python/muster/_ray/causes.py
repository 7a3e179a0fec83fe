"""Why a piece ended, from what its agent or Ray said: pure."""

from __future__ import annotations

import signal
from typing import Any

from ray import exceptions

DETAIL_MAX = 240
MEMORY_WORDS = ("running low on memory", "memory monitor", "OutOfMemory")
NODE_WORDS = ("node has died", "node died", "node was terminated", "Owner's node")


def of_agent(end: dict[str, Any]) -> tuple[str, int, str]:
    """Its own end, by the word of who reaped it."""
    if end["signaled"]:
        try:
            how = f"was killed by {signal.Signals(end['code']).name}"
        except ValueError:
            how = f"was killed by signal {end['code']}"
    else:
        how = f"ended with exit code {end['code']}"
    detail = f"the agent {how}"
    if not end["joined"]:
        detail += " before it had joined"
    if end["said"] and not (end["joined"] and end["code"] == 0):
        detail += f": {end['said'][-DETAIL_MAX + len(detail) + 2 :]}"
    if end["oom"]:
        return "out of memory", end["code"], detail
    if not end["joined"]:
        return "refused", end["code"], detail
    return "signaled" if end["signaled"] else "exited", end["code"], detail


def of_error(error: BaseException, node_lost: str) -> tuple[str, int, str]:
    """Of the actor that keeps it. `node_lost`: why, if its node is no more."""
    text = _essence(str(error))
    if isinstance(error, exceptions.OutOfMemoryError) or _has(text, MEMORY_WORDS):
        return "out of memory", 0, text
    if getattr(error, "preempted", False):
        return "preempted", 0, text
    if node_lost or _has(text, NODE_WORDS):
        return "node lost", 0, node_lost or text
    if getattr(error, "actor_init_failed", False) or isinstance(
        error, (exceptions.RuntimeEnvSetupError, exceptions.ActorUnschedulableError)
    ):
        return "refused", 0, text
    if isinstance(error, exceptions.RayTaskError):
        return "refused", 0, _essence(str(error.cause))
    return "unknown", 0, text


def is_passing(error: BaseException) -> bool:
    """Ray does not know yet."""
    return isinstance(error, exceptions.ActorUnavailableError)


def _has(text: str, words: tuple[str, ...]) -> bool:
    return any(word in text for word in words)


def _essence(text: str) -> str:
    """Without the list of guesses, in one line."""
    lines = [line.strip() for line in text.splitlines()]
    skipped = ("class_name:", "actor_id:", "pid:", "namespace:", "ip:", "name:")
    kept = " ".join(li for li in lines if li and not li.startswith(skipped))
    kept = kept.replace("The actor died unexpectedly before finishing this task. ", "")
    return kept.partition(" Some common causes include")[0][:DETAIL_MAX]
