"""What happens when, in a file that `muster timeline` makes a trace for Perfetto of.

    muster.timeline.start()                  # or MUSTER_TIMELINE=1 in the environment
    with muster.timeline.span("step", number=3):
        ...

While one is recorded, every call to a worker is a span of that worker's track. In a
worker, and while nothing is recorded, all of this does nothing. What cannot be recorded is
left out with one warning: `span`, `add_span`, `mark` and `count` raise nothing.
"""

from __future__ import annotations

import os
import warnings
from contextlib import contextmanager
from math import isfinite
from time import monotonic_ns

from muster import _core, api

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

__all__ = ["add_span", "count", "is_on", "mark", "span", "start", "stop"]

_has_warned = False
DRIVER = "driver"  # the track of what this program does


def start(path: str | os.PathLike[str] | None = None) -> None:
    """Record to the end of this file; without a path to one of the session's folder, which
    `muster timeline` finds by itself and which stays with the logs."""
    api.session().head.record(None if path is None else os.fspath(path))


def stop() -> None:
    """Record nothing more."""
    if (head := _recorder()) is not None:
        head.record_end()


def is_on() -> bool:
    return _recorder() is not None


@contextmanager
def span(name: str, track: str = DRIVER, **args: Any) -> Iterator[None]:
    """The time that the body takes. Spans of a track lie within each other."""
    begin = monotonic_ns()
    try:
        yield
    finally:
        end = monotonic_ns()
        _tell(lambda to: to.add_span(track, name, begin, end, 0, True, _text(args)))


def add_span(
    name: str,
    begin_ns: int,
    end_ns: int,
    *,
    track: str = DRIVER,
    flow: int = 0,
    **args: Any,
) -> None:
    """Of something that has ended, by time.monotonic_ns(); others of its track may overlap
    it. Spans with the same `flow` are joined by arrows: one thing that went on elsewhere."""
    _tell(
        lambda to: to.add_span(track, name, begin_ns, end_ns, flow, False, _text(args))
    )


def mark(name: str, track: str = DRIVER, **args: Any) -> None:
    """Something that happens now."""
    now = monotonic_ns()
    _tell(lambda to: to.add_mark(track, name, now, _text(args)))


def count(name: str, value: float, track: str = DRIVER) -> None:
    """A number that holds from now on: shown as a curve."""
    now = monotonic_ns()
    _tell(lambda to: to.add_count(track, name, now, _finite(value)))


def _recorder() -> _core.Head | None:
    """What records, if anything does."""
    if _core.in_worker() is not None or not api.is_initialized():
        return None
    head = api.session().head
    return head if head.is_recording else None


def _tell(record: Callable[[_core.Head], None]) -> None:
    """What cannot be recorded is missing in the file, and ends nothing."""
    global _has_warned
    try:
        if (head := _recorder()) is not None:
            record(head)
    except Exception as e:
        if not _has_warned:
            _has_warned = True
            warnings.warn(f"the timeline misses what it was told: {e}", stacklevel=4)


def _text(args: dict[str, Any]) -> str | None:
    if not args:
        return None
    import json

    return json.dumps({name: _plain(value) for name, value in args.items()})


def _plain(value: Any) -> Any:
    """What JSON can say of it: numbers that are not finite, and all odd things, as text."""
    import json

    try:
        return json.loads(json.dumps(value, default=repr, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def _finite(value: float) -> float:
    if not isfinite(value):
        raise ValueError(f"count: not a finite number: {value!r}")
    return value
