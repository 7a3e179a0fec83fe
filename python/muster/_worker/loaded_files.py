"""In a zygote: what its imports have loaded and changed."""

# When one of the user's files changes, workers must not be forked any more from a
# zygote that has loaded it. Files of the interpreter, of installed packages and of this
# package do not change while a head runs.

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from types import ModuleType

from muster import _core

_INSTALLED = {"site-packages", "dist-packages"}  # folders
_NOT_THEIRS = tuple(
    os.path.join(os.path.dirname(os.path.abspath(file)), "")
    for file in (os.__file__, _core.__file__)
)

Stats = tuple[int, int]  # size, and time in ns

files: dict[str, Stats] = {}  # as they were when they were loaded, by path
_seen: set[str] = set()  # names of modules
_environ = dict(os.environ)  # before the imports
for _name in ("MUSTER_ZYGOTE_FD", "MUSTER_WORKER_UID"):  # taken out by `main`
    _environ.pop(_name, None)


def _path_of(module: ModuleType) -> str | None:
    """Its file, or the archive that has it. Lazy modules are not woken up for that."""
    known = module.__dict__ if isinstance(module, ModuleType) else {}
    archive = getattr(known.get("__loader__"), "archive", None)
    path = archive or known.get("__file__")
    return os.path.abspath(path) if isinstance(path, str) else None


def _is_theirs(path: str) -> bool:
    return not path.startswith(_NOT_THEIRS) and _INSTALLED.isdisjoint(
        path.split(os.sep)
    )


@contextlib.contextmanager
def watch() -> Iterator[None]:
    """Note the files of the modules that are loaded meanwhile."""
    # Sources are looked at before they are read: what changes later was not loaded.
    read: dict[str, Stats] = {}
    original = SourceFileLoader.path_stats

    def path_stats(self: SourceFileLoader, path: str) -> dict[str, float]:
        size, mtime_ns = read[os.path.abspath(path)] = _stats(path)
        return {"mtime": mtime_ns / 1e9, "size": size}

    SourceFileLoader.path_stats = path_stats  # type: ignore[method-assign]
    try:
        yield
    finally:
        SourceFileLoader.path_stats = original  # type: ignore[method-assign]
        _note(read)


def _note(read: dict[str, Stats]) -> None:
    for name, module in list(sys.modules.items()):
        if name in _seen:
            continue
        _seen.add(name)
        path = _path_of(module)
        if path is None or path in files or not _is_theirs(path):
            continue
        try:
            files[path] = read.get(path) or _stats(path)
        except OSError:
            continue  # it came from somewhere else


def _stats(path: str) -> Stats:
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


def changed_variables() -> list[str]:
    """What the imports have set, "NAME=value", and taken out, "NAME"."""
    now = dict(os.environ)
    changed = [f"{n}={value}" for n, value in now.items() if _environ.get(n) != value]
    return changed + [name for name in _environ if name not in now]
