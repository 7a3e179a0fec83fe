"""The way to the head, from a driver or from a worker."""

from __future__ import annotations

from muster import _core, api

ANSWER_S = _core.HEAD_ANSWER_S


def head() -> _core.Head:
    """The session's; a worker joins its head when that is needed first, or again."""
    found = api.session().head
    if not found.alive and _core.in_worker() is not None:
        api.shutdown(grace=0)
        found = api.session().head
    return found
