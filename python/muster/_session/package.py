"""A folder of code that goes to other nodes, once, by what is in it."""

# `init(working_dir=DIR)` names the folder by a sha256 over the names, modes and
# contents of its files, puts it into the head's store if that has not got it, and tells
# the hash to all workers. The first worker of a node that has not got it unpacks it
# into the folder of this user's sessions, where it stays for later jobs; each worker
# then has it as its current folder and first on sys.path, in place of the driver's own
# folder.

from __future__ import annotations

import os
import sys

from muster.errors import MusterError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    Entry = tuple[str, int, str, bytes]  # path, mode, target of a link, contents

VARIABLE = "MUSTER_PACKAGE"  # "HASH:DIR", in the environment of all workers
EXCLUDES = (".git", ".hg", ".svn", "__pycache__", "*.pyc", ".venv", ".mypy_cache")
SIZE_MAX = 64 << 20  # bytes of all files
FILES_MAX = 20_000
STORE_MAX = 192 << 20  # of packed packages in a head's store: older ones give way
KEPT_MAX = 8  # unpacked ones on a node, besides those that are in use
FETCH_S = 60.0
_KEY = "muster/package/"


class Package:
    """What is in a folder."""

    def __init__(self, folder: str, entries: list[Entry]) -> None:
        self.folder = folder
        self.entries = entries
        self.hash = digest(entries)
        self.sent = 0  # bytes that went to the head

    @property
    def variable(self) -> str:
        return f"{self.hash}:{self.folder}"


def digest(entries: Iterable[Entry]) -> str:
    import hashlib

    found = hashlib.sha256()
    for path, mode, target, data in entries:
        head = f"{path}\0{mode:o}\0{target}\0{len(data)}\0"
        found.update(head.encode("utf-8", "surrogateescape") + data)
    return found.hexdigest()


# ---- reading --------------------------------------------------------------------------


def read(folder: str, excludes: Sequence[str] = ()) -> Package:
    folder = os.path.realpath(folder)
    if not os.path.isdir(folder):
        raise MusterError(f"working_dir={folder!r}: there is no such folder")
    entries: list[Entry] = []
    size = 0
    for path in _walk(folder, (*EXCLUDES, *excludes)):
        entry = _entry(folder, path)
        entries.append(entry)
        size += len(entry[3])
        if size > SIZE_MAX or len(entries) > FILES_MAX:
            raise _too_big(folder, entries)
    return Package(folder, sorted(entries))


def _walk(folder: str, excludes: Sequence[str]) -> Iterator[str]:
    """Files, links and folders below, without what is excluded by its name or path."""
    from fnmatch import fnmatch

    def is_excluded(path: str) -> bool:
        name = os.path.basename(path)
        return any(fnmatch(name, e) or fnmatch(path, e) for e in excludes)

    for root, folders, files in os.walk(folder):
        here = os.path.relpath(root, folder)
        paths = {n: os.path.normpath(os.path.join(here, n)) for n in folders + files}
        kept = {n: path for n, path in paths.items() if not is_excluded(path)}
        folders[:] = [name for name in folders if name in kept]
        yield from kept.values()


def _entry(folder: str, path: str) -> Entry:
    full = os.path.join(folder, path)
    mode = os.lstat(full).st_mode
    if os.path.islink(full):
        target = os.readlink(full)
        end = os.path.normpath(os.path.join(os.path.dirname(path), target))
        if os.path.isabs(target) or end.startswith(".."):
            raise MusterError(
                f"working_dir: {path!r} is a link to {target!r}, which is not in the "
                "folder: exclude it (excludes=[...]), or put the file there"
            )
        return path, 0o777, target, b""
    if os.path.isdir(full):
        return path + os.sep, mode & 0o777, "", b""
    if not os.path.isfile(full):
        raise MusterError(f"working_dir: {path!r} is neither a file nor a folder")
    if os.path.getsize(full) > SIZE_MAX:
        raise _too_big(folder, [(path, 0, "", b"")], os.path.getsize(full))
    with open(full, "rb") as file:
        return path, mode & 0o777, "", file.read()


def _too_big(folder: str, entries: list[Entry], size: int = 0) -> MusterError:
    big = sorted(entries, key=lambda e: len(e[3]), reverse=True)[:3]
    names = ", ".join(f"{e[0]} ({max(len(e[3]), size) >> 10} KiB)" for e in big)
    return MusterError(
        f"working_dir={folder!r} has more than {SIZE_MAX >> 20} MiB or {FILES_MAX} files "
        f"(among them {names}): leave data out with excludes=[...]; it is for code"
    )


# ---- to the head ----------------------------------------------------------------------


def send(package: Package) -> None:
    """Into the head's store, if it is not there."""
    import pickle
    import zlib
    from time import time

    from muster import _core, kv

    key = _KEY + package.hash
    known = kv.get(key)
    if known is None:
        data = zlib.compress(pickle.dumps(package.entries, 5), 1)
        size = _core.KV_VALUE_MAX
        pieces = [data[i : i + size] for i in range(0, len(data), size)]
        _make_room(len(data))
        for i, piece in enumerate(pieces):
            kv.put(f"{key}/{i}", piece, owner="none")
        package.sent = len(data)
        known = {"pieces": len(pieces), "bytes": len(data)}
    kv.put(key, known | {"used": time()}, owner="none")  # last: now it is whole


def send_again(package: Package) -> None:
    """If the head has lost it: it was started anew since."""
    from muster import kv

    if kv.get(_KEY + package.hash) is None:
        send(package)


def _make_room(size: int) -> None:
    from muster import kv

    found = []
    for key in kv.keys(_KEY):
        if key.count("/") == _KEY.count("/") and (known := kv.get(key)):
            found.append((known["used"], key, known))
    found.sort(reverse=True, key=lambda f: f[0])
    for _, key, known in found:
        size += known["bytes"]
        if size > STORE_MAX:
            kv.delete(key)
            for i in range(known["pieces"]):
                kv.delete(f"{key}/{i}")


def fetch(name: str) -> list[Entry]:
    import pickle
    import zlib

    from muster import kv

    key = _KEY + name
    known = kv.get(key, timeout=FETCH_S)
    pieces = [kv.get(f"{key}/{i}") for i in range(known["pieces"])]
    if None in pieces:
        raise MusterError(
            f"the package {name[:12]} has left the head's store: call init() again"
        )
    entries: list[Entry] = pickle.loads(zlib.decompress(b"".join(pieces)))
    if digest(entries) != name:
        raise MusterError(f"what came is not the package {name[:12]}")
    return entries


# ---- in a worker ----------------------------------------------------------------------


def usable_paths(entries: Sequence[str]) -> list[str]:
    """A driver's sys.path as this interpreter can use it."""
    # What belongs to another version of Python (its library, its packages) is replaced
    # by our own.
    import re  # 4 ms that drivers can do without

    version = re.compile(r"(?:^|/)python(\d)\.?(\d+)(?:\.zip)?(?=/|$)")
    ours = (str(sys.version_info.major), str(sys.version_info.minor))
    kept = [p for p in entries if all(v == ours for v in version.findall(p))]
    if len(kept) < len(entries):
        kept += [p for p in sys.path if p not in kept]
    return kept


_lock_fd = -1  # of the package that this process uses: held until its end
entered = ""  # its folder
# sys.path before it was entered, and after
_paths: tuple[list[str], list[str]] = ([], [])


def enter(environ: Mapping[str, str]) -> None:
    """Before any code of the user's: its folder is here, current, and first on sys.path."""
    variable = environ.get(VARIABLE)
    if not variable:
        return
    global entered, _paths
    name, _, origin = variable.partition(":")
    entered = folder = _have(name)
    os.chdir(folder)
    before = sys.path.copy()
    moved = [_moved(path, origin, folder) for path in before]
    sys.path[:] = dict.fromkeys([folder, *moved])
    _paths = (before, sys.path.copy())


def places() -> tuple[list[str], str]:
    """The module path and folder that workers of this process start with."""
    # Those of a worker enter its package by themselves, so they start as it did.
    if entered and sys.path == _paths[1] and os.getcwd() == entered:
        return _paths[0], "/"
    return sys.path, os.getcwd()


def _moved(path: str, origin: str, folder: str) -> str:
    """What was in the driver's folder is in ours."""
    real = os.path.realpath(path)
    if real == origin or real.startswith(origin + os.sep):
        return os.path.normpath(os.path.join(folder, os.path.relpath(real, origin)))
    return path


def _have(name: str) -> str:
    """The unpacked package; the first worker of a node unpacks it, others wait."""
    import fcntl

    from muster import _core

    global _lock_fd
    root = os.path.join(_core.session_root(), "packages")
    os.makedirs(root, mode=0o700, exist_ok=True)
    folder = os.path.join(root, name)
    _lock_fd = _open_lock(f"{folder}.lock")
    fcntl.flock(_lock_fd, fcntl.LOCK_SH)  # until our end: it is not swept
    turn = _open_lock(f"{folder}.turn")
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not os.path.isdir(folder):
            _sweep(root)
            _unpack(fetch(name), folder)
    finally:
        os.close(turn)
    os.utime(folder)
    return folder


def _open_lock(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _unpack(entries: list[Entry], folder: str) -> None:
    import shutil

    part = f"{folder}.{os.getpid()}"
    shutil.rmtree(part, ignore_errors=True)
    os.mkdir(part, 0o700)
    for path, mode, target, data in entries:
        full = os.path.join(part, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        if target:
            os.symlink(target, full)
        elif not path.endswith(os.sep):
            with open(full, "wb") as file:
                file.write(data)
            os.chmod(full, mode)
    os.rename(part, folder)


def _sweep(root: str) -> None:
    """Those that were used last stay, and those that are in use."""
    import fcntl
    import shutil

    found = [os.path.join(root, name) for name in os.listdir(root) if "." not in name]
    found.sort(key=_last_use, reverse=True)
    for folder in found[KEPT_MAX - 1 :]:
        lock = _open_lock(f"{folder}.lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)


def _last_use(folder: str) -> float:
    try:
        return os.path.getmtime(folder)
    except FileNotFoundError:  # another worker sweeps too
        return 0


def is_inside(module: str, folder: str) -> bool:
    """Can a worker import it only from the package? Then its zygote cannot."""
    if not folder:
        return False
    if module in sys.modules:
        file = getattr(sys.modules[module], "__file__", None) or ""
        return os.path.realpath(file).startswith(folder + os.sep)
    top = os.path.join(folder, module.partition(".")[0])
    return os.path.isdir(top) or os.path.isfile(f"{top}.py")
