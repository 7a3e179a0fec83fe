"""Lines of JSON on stdin and stdout, and what is in the ones that ask for pieces."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
import sys
import threading
from typing import Any, Callable

from muster._ray import Refused

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
        except OSError:  # the reader has gone: the end of input follows
            self.is_open = False

    def read(
        self, on_line: Callable[[dict[str, Any]], None], on_end: Callable[[], None]
    ) -> None:
        """From a thread, to this loop. What comes when the loop has ended is not wanted."""
        loop = asyncio.get_running_loop()

        def tell(function: Callable[..., None], *args: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(function, *args)

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
                        tell(on_line, message)
                    else:
                        print(f"not a message: {line[:80]!r}", file=sys.stderr)
            tell(on_end)

        threading.Thread(target=run, daemon=True).start()


def _check(is_good: bool, code: int, why: str) -> None:
    if not is_good:
        raise Refused(code, why)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _amount(piece: dict[str, Any], name: str) -> float:
    value = piece.get(name) or 0
    is_good = _is_number(value) and value >= 0
    _check(is_good, errno.EINVAL, f"'{name}' of a piece is {value!r}")
    return float(value)


def _check_piece(piece: Any) -> None:
    _check(isinstance(piece, dict), errno.EINVAL, "a piece is an object")
    why = "a share of a GPU: Ray does not tie it to its piece; ask for whole ones"
    _check(not _amount(piece, "gpus") % 1, errno.ENOTSUP, why)
    _amount(piece, "cpus")
    _amount(piece, "memory")
    resources, labels = piece.get("resources") or {}, piece.get("labels") or {}
    are_good = isinstance(resources, dict) and isinstance(labels, dict)
    _check(are_good, errno.EINVAL, "'resources' and 'labels' are objects")
    for name in resources:
        _amount(resources, name)
        why = f"{name!r} is Ray's own: '{OWN.get(name)}' asks for it"
        _check(name not in OWN, errno.EINVAL, why)


def check_request(m: dict[str, Any]) -> None:
    """Of reserve and grow; raises Refused."""
    check_key(m)
    key, pieces = m["key"], m.get("pieces")
    timeout: Any = m.get("timeout_s")
    if not isinstance(pieces, list) or not pieces:
        raise Refused(errno.EINVAL, f"{key}: no pieces are asked for")
    why = f"{key}: more than {PIECES_MAX} pieces"
    _check(len(pieces) <= PIECES_MAX, errno.E2BIG, why)
    for piece in pieces:
        _check_piece(piece)
    strategy = m.get("strategy") or "PACK"
    why = f"no strategy is called {strategy!r}"
    _check(strategy in STRATEGIES, errno.EINVAL, why)
    is_good = _is_number(timeout) and 0 < timeout <= TIMEOUT_MAX_S
    _check(is_good, errno.EINVAL, f"'timeout_s' is {timeout!r}")


def check_key(m: dict[str, Any]) -> None:
    key = m.get("key")
    is_good = isinstance(key, str) and KEY.fullmatch(key) is not None
    _check(is_good, errno.EINVAL, f"{key!r} is no key")


def mark_of(m: dict[str, Any]) -> str:
    """Equal requests have equal marks."""
    asks = [m["pieces"], m.get("strategy") or "PACK", m.get("same") or None]
    return json.dumps(asks, sort_keys=True)
