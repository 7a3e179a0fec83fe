"""What workers print, in the files where AReaL's users look: role.log and merged.log."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from muster._session.logs import Line

TAIL_LINES = 50  # in errors
_TAIL_BYTES = 64 << 10


class LogFiles:
    """`ROLE.log` has the lines of all workers of a role, `merged.log` those of all roles,
    each with its role in front. They are appended to."""

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        self.folder = folder
        self._roles: set[str] = set()
        self._lock = threading.Lock()

    def add(self, role: str) -> None:
        with self._lock:
            self._roles.add(role)

    def has(self, role: str) -> bool:
        with self._lock:
            return role in self._roles

    def write(self, lines: Iterable[Line]) -> None:
        """On the thread that brings the lines. A full disk is not worth a job."""
        texts: dict[str, list[str]] = {}
        for line in lines:
            if self.has(line.cluster):
                texts.setdefault(f"{line.cluster}.log", []).append(f"{line.text}\n")
                merged = texts.setdefault("merged.log", [])
                merged.append(f"[{line.cluster}] {line.text}\n")
        for name, written in texts.items():
            with suppress(OSError), open(os.path.join(self.folder, name), "a") as out:
                out.write("".join(written))


def tail(path: str) -> list[str]:
    """The last lines of a file, if it is on this machine."""
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()[-TAIL_LINES:]
    except OSError:
        return []
