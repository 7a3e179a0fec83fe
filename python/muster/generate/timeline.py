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
    of: dict[str, Any]
    args: dict[str, Any]
    last = 0
    for mark in marks:
        last, name = mark.at_ns, mark.name
        of = {"group": mark.group, "seq": mark.seq, "attempt": mark.attempt}
        key = (mark.request, mark.attempt)
        if mark.is_decision and name == "send":
            args = {**of, "from": mark.tokens, "version": mark.version}
            running[key] = (last, mark.replica, args)
        elif not mark.is_decision and name in _ENDS and key in running:
            begun, where, args = running.pop(key)
            args |= {"tokens": mark.tokens, "end": name}
            found.append(_span(begun, last, where, args))
        elif name not in ("pull", "consumed", "deliver", "alive"):
            args = of if mark.group else {"version": mark.version}
            if mark.why is not None:
                args = {**args, "why": mark.why}
            found.append(_mark(last, name, mark.replica, args))
        if name == "replica_down":
            lost = [k for k, (_, on, _) in running.items() if on == mark.replica]
            for key in lost:
                begun, where, args = running.pop(key)
                found.append(_span(begun, last, where, {**args, "end": "replica down"}))
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
