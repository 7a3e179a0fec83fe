"""Lines of JSON on stdin and stdout, and what is in the ones that ask for pieces."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import sys
import threading
from typing import Any, Callable

from muster._ray_gang import Refused

LINE_MAX = 64 << 20
PIECES_MAX = 1 << 16
KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
OWN = {"CPU": "cpus", "GPU": "gpus", "memory": "memory"}
TIMEOUT_MAX_S = 30 * 24 * 3600.0


class Lines:
    """stdout is ours alone: whatever else prints there is sent to stderr."""

    def __init__(self) -> None:
        self.out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self.is_open = True

    def say(self, message: dict[str, Any]) -> None:
        if not self.is_open:
            return
        try:
            self.out.write(json.dumps(message, separators=(",", ":")) + "\n")
            self.out.flush()
        except OSError:  # nobody listens: the end of input follows
            self.is_open = False

    def read(
        self, on_line: Callable[[dict[str, Any]], None], on_end: Callable[[], None]
    ) -> None:
        """From a thread, to this loop."""
        loop = asyncio.get_running_loop()

        def run() -> None:
            with os.fdopen(os.dup(0), "rb") as lines:
                while True:
                    line = lines.readline(LINE_MAX)
                    if not line.endswith(b"\n"):
                        break  # the end, perhaps within a line
                    try:
                        message = json.loads(line)
                    except ValueError:
                        message = None
                    if isinstance(message, dict):
                        loop.call_soon_threadsafe(on_line, message)
                    else:
                        print(f"not a message: {line[:80]!r}", file=sys.stderr)
            loop.call_soon_threadsafe(on_end)

        threading.Thread(target=run, daemon=True).start()


def _amount(piece: dict[str, Any], name: str) -> float:
    value = piece.get(name) or 0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise Refused(errno.EINVAL, f"'{name}' of a piece is {value!r}")
    return float(value)


def _check_piece(piece: Any) -> None:
    if not isinstance(piece, dict):
        raise Refused(errno.EINVAL, "a piece is an object")
    if _amount(piece, "gpus") % 1:
        raise Refused(
            errno.ENOTSUP,
            "a share of a GPU: Ray does not tie it to its piece; ask for whole ones",
        )
    _amount(piece, "cpus")
    _amount(piece, "memory")
    resources, labels = piece.get("resources") or {}, piece.get("labels") or {}
    if not isinstance(resources, dict) or not isinstance(labels, dict):
        raise Refused(errno.EINVAL, "'resources' and 'labels' are objects")
    for name in resources:
        _amount(resources, name)
        if name in OWN:
            raise Refused(
                errno.EINVAL, f"{name!r} is Ray's own: '{OWN[name]}' asks for it"
            )


def check_request(m: dict[str, Any]) -> None:
    """Of reserve and grow; raises Refused."""
    check_key(m)
    pieces, timeout = m.get("pieces"), m.get("timeout_s")
    if not isinstance(pieces, list) or not pieces:
        raise Refused(errno.EINVAL, f"{m['key']}: no pieces are asked for")
    if len(pieces) > PIECES_MAX:
        raise Refused(errno.E2BIG, f"{m['key']}: more than {PIECES_MAX} pieces")
    for piece in pieces:
        _check_piece(piece)
    if (m.get("strategy") or "PACK") not in STRATEGIES:
        raise Refused(errno.EINVAL, f"no strategy is called {m['strategy']!r}")
    if (
        isinstance(timeout, bool)
        or not isinstance(timeout, (int, float))
        or not 0 < timeout <= TIMEOUT_MAX_S
    ):
        raise Refused(errno.EINVAL, f"'timeout_s' is {timeout!r}")


def check_key(m: dict[str, Any]) -> None:
    if not isinstance(m.get("key"), str) or not KEY.fullmatch(m["key"]):
        raise Refused(errno.EINVAL, f"{m.get('key')!r} is no key")


def mark(m: dict[str, Any]) -> str:
    """Equal requests have equal marks."""
    asks = [m["pieces"], m.get("strategy") or "PACK", m.get("same") or None]
    return json.dumps(asks, sort_keys=True)
