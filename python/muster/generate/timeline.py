"""The timeline of a scheduler as events that Perfetto opens."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from muster._core import RolloutMark

QUEUE = 0  # the track of what happens on no replica
_ENDS = {"finished", "aborted", "chunk", "failed"}


def events(marks: Iterable[RolloutMark]) -> list[dict[str, Any]]:
    """Spans of attempts (ph "X") on the track (tid) of their replica, number + 1, and marks
    (ph "i") for all else; times are microseconds of the monotonic clock."""
    found: list[dict[str, Any]] = []
    running: dict[tuple[int, int], tuple[int, int, dict[str, Any]]] = {}
    last = 0
    for mark in marks:
        (
            at,
            name,
            is_decision,
            rid,
            group,
            seq,
            replica,
            attempt,
            tokens,
            version,
            why,
        ) = mark
        last = at
        of = {"group": group, "seq": seq, "attempt": attempt}
        if is_decision and name == "send":
            running[rid, attempt] = (
                at,
                replica,
                {**of, "from": tokens, "version": version},
            )
        elif not is_decision and name in _ENDS and (rid, attempt) in running:
            begun, where, args = running.pop((rid, attempt))
            args |= {"tokens": tokens, "end": name}
            found.append(_span(begun, at, where, args))
        elif name not in ("pull", "consumed", "deliver", "alive"):
            args = {"version": version} if not group else of
            if why is not None:
                args = {**args, "why": why}
            found.append(_mark(at, name, replica, args))
        if name == "replica_down":
            lost = [one for one, (_, where, _) in running.items() if where == replica]
            for one in lost:
                begun, where, args = running.pop(one)
                found.append(_span(begun, at, where, {**args, "end": "replica down"}))
    for begun, where, args in running.values():
        found.append(_span(begun, last, where, args))
    return found


def _span(begun: int, at: int, replica: int, args: dict[str, Any]) -> dict[str, Any]:
    name = f"group {args['group']} sample {args['seq']}"
    return {
        "name": name,
        "ph": "X",
        "ts": begun / 1000,
        "dur": (at - begun) / 1000,
        "pid": 1,
        "tid": replica + 1,
        "args": args,
    }


def _mark(at: int, name: str, replica: int, args: dict[str, Any]) -> dict[str, Any]:
    tid = QUEUE if replica < 0 else replica + 1
    base = {"name": name, "ph": "i", "s": "t", "ts": at / 1000, "pid": 1, "tid": tid}
    return {**base, "args": args}
