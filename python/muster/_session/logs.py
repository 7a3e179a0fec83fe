"""What workers print, on the driver's terminal."""

# Each line has the prefix `(role/rank@node)`. A line that several ranks print within a
# few seconds appears once, and then as "... [repeated 7x across cluster]"; numbers in
# it do not count, as Ray's users know it. `init(dedup_logs=False)` and MUSTER_LOG_FOLD=0
# show all.

from __future__ import annotations

import os
import sys
import threading
from collections import namedtuple
from contextlib import suppress
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from muster._core import Head

WINDOW_S = 5.0
KEPT_MAX = 10_000
IDLE_S = 60.0
JOIN_S = 5.0
_COLOURS = (36, 35, 34, 33, 32, 96, 95, 94, 93, 92)


class Line(
    namedtuple("Line", "cluster rank is_stderr text repeated node", defaults=(0, ""))
):
    """What a rank has printed; `repeated`: other lines that this one stands for."""

    __slots__ = ()

    def key(self) -> tuple[str, bool, str]:
        """The same for lines that say the same: words with digits do not count."""
        import re  # 4 ms that `init` can do without

        masked = re.sub(r"(?<!\S)[^\s\d]*+\d\S*", "#", self.text)
        return self.cluster, self.is_stderr, masked


class _Seen:
    __slots__ = ("count", "last", "ranks", "since")

    def __init__(self, now: float, line: Line) -> None:
        self.since = now
        self.ranks = {line.rank}
        self.last = line
        self.count = 0  # lines held back


class Fold:
    """Which lines to show. Pure: time is passed in."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self.window_s = window_s
        self._seen: dict[tuple[str, bool, str], _Seen] = {}  # oldest first

    def add(self, line: Line, now: float) -> list[Line]:
        """Take a line; what to show now."""
        show = self.expire(now)
        key = line.key()
        seen = self._seen.get(key)
        if seen is None or not line.text.strip():
            show.append(line)
            if seen is None:
                self._seen[key] = _Seen(now, line)
        else:
            seen.ranks.add(line.rank)
            if len(seen.ranks) == 1:
                show.append(line)  # one rank that repeats itself
            else:
                seen.count += 1
                seen.last = line
        if len(self._seen) > KEPT_MAX:
            show += self._end(next(iter(self._seen)))
        return show

    def expire(self, now: float) -> list[Line]:
        """What is to be shown because its time is over."""
        show: list[Line] = []
        while self._seen:
            key = next(iter(self._seen))
            if now - self._seen[key].since < self.window_s:
                break
            held = self._seen[key].count
            show += self._end(key)
            if held > 1:  # it goes on: do not begin with a full line again
                self._seen[key] = seen = _Seen(now, show[-1])
                seen.ranks.add(-1)
        return show

    def flush(self) -> list[Line]:
        return [line for key in list(self._seen) for line in self._end(key)]

    def due_in(self, now: float) -> float | None:
        """Seconds until `expire` has something to show; None: nothing is held back."""
        times = [s.since for s in self._seen.values() if s.count]
        return max(0.0, min(times) + self.window_s - now) if times else None

    def _end(self, key: tuple[str, bool, str]) -> list[Line]:
        seen = self._seen.pop(key)
        if not seen.count:
            return []
        return [seen.last._replace(repeated=seen.count if seen.count > 1 else 0)]


def render(line: Line, colour: bool) -> str:
    prefix = f"({line.cluster}/{line.rank}@{line.node})"
    if colour:
        code = _COLOURS[sum(line.cluster.encode()) % len(_COLOURS)]
        prefix = f"\x1b[{code}m{prefix}\x1b[0m"
    tail = f" [repeated {line.repeated}x across cluster]" if line.repeated else ""
    return f"{prefix} {line.text}{tail}\n"


class LogPump:
    """A daemon thread that shows the lines of a head until its end."""

    def __init__(self, head: Head, dedup: bool = True) -> None:
        self._head = head
        dedup = dedup and os.environ.get("MUSTER_LOG_FOLD", "1") != "0"
        self._fold = Fold() if dedup else None
        self._taps: list[Callable[[list[Line]], object]] = []
        self._thread = threading.Thread(
            target=self._run, name="muster-logs", daemon=True
        )
        self._thread.start()

    def tap(self, take: Callable[[list[Line]], object]) -> None:
        """Have all lines given to `take` too, as they come and unfolded, on this thread."""
        self._taps.append(take)

    def join(self) -> None:
        """Wait until all has been shown; the head was stopped."""
        if self._thread is not threading.current_thread():
            self._thread.join(JOIN_S)

    def _run(self) -> None:
        fold = self._fold
        while True:
            due = fold.due_in(monotonic()) if fold else None
            lines = self._head.next_logs(IDLE_S if due is None else due)
            if lines is None:
                break
            now = monotonic()
            show: list[Line] = fold.expire(now) if fold else []
            come = [Line(c, r, e, text, node=node) for c, r, node, e, text in lines]
            for line in come:
                show += fold.add(line, now) if fold else [line]
            for take in self._taps:
                take(come)
            self._show(show)
        if fold:
            self._show(fold.flush())

    def _show(self, lines: list[Line]) -> None:
        for is_stderr in (False, True):
            mine = [line for line in lines if line.is_stderr is is_stderr]
            if not mine:
                continue
            out = sys.stderr if is_stderr else sys.stdout
            # it may be closed, full, or replaced by something odd: not worth a job
            with suppress(Exception):
                colour = out.isatty()
                out.write("".join(render(line, colour) for line in mine))
                out.flush()
