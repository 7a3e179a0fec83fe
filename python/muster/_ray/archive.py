"""Muster as a zip that a machine can run which has nothing of it."""

#     bin/muster   the program
#     lib/         the shared libraries that it and the extension need
#     muster/      the Python package, with its extension
#     job/         what belongs to one job
#
# Its name is a hash of what is in it. It is made once: the user's cache keeps it.

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import stat
import subprocess
import zipfile
from contextlib import suppress
from pathlib import Path

from muster._ray import Refused

PACKAGE_MAX = 100 << 20  # what Ray takes by HTTP
FILE_MAX = 256 << 20
FILES_MAX = 20000
DEPTH_MAX = 16
KEPT = 4  # packages in the cache
PREFIX = "muster_"
ASK_S = 30.0
# Of the C library, and of the compiler beside it: they belong to the machine, together.
SYSTEM = re.compile(
    r"linux-(vdso|gate)\.so|ld-(linux|musl)|lib(c|m|dl|pthread|rt|resolv|util|anl|nsl"
    r"|mvec|c_malloc_debug|thread_db|BrokenLocale)\.so|libnss_"
)


def _no_file(e: OSError, path: str) -> Refused:
    return Refused(e.errno or errno.EIO, f"the package needs {path}: {e.strerror}")


class Files:
    """What goes into a package: name there, mode, bytes."""

    def __init__(self) -> None:
        self.all: dict[str, tuple[int, bytes]] = {}

    def add(self, name: str, path: str) -> None:
        """One file, or a folder with all that is in it, but what Python has compiled;
        both follow links."""
        if os.path.isdir(path):
            self._add_tree(name, path)
            return
        try:
            info = os.stat(path)
            if not stat.S_ISREG(info.st_mode):
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            if info.st_size > FILE_MAX or len(self.all) >= FILES_MAX:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
            mode = 0o755 if info.st_mode & 0o100 else 0o644
            self.all[name] = mode, Path(path).read_bytes()
        except OSError as e:
            raise _no_file(e, path) from None

    def _add_tree(self, name: str, path: str, depth: int = 0) -> None:
        try:
            if depth > DEPTH_MAX:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            entries = list(os.scandir(path))
        except OSError as e:
            raise _no_file(e, f"the folder {path}") from None
        for one in entries:
            is_python = one.name == "__pycache__" or one.name.endswith(".pyc")
            if is_python or one.name.startswith("."):
                continue
            if one.is_dir():
                self._add_tree(f"{name}/{one.name}", one.path, depth + 1)
            elif one.is_file():
                self.add(f"{name}/{one.name}", one.path)

    def hash(self) -> str:
        out = hashlib.sha256()
        for name, (mode, data) in sorted(self.all.items()):
            out.update(
                f"{len(name)} {name} {mode} {len(data)} ".encode(
                    "utf-8", "surrogateescape"
                )
            )
            out.update(data)
        return out.hexdigest()[:32]

    def pack(self) -> bytes:
        """The same files give the same bytes: no times, no owners."""
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as z:
            for name, (mode, data) in sorted(self.all.items()):
                entry = zipfile.ZipInfo(name)
                entry.create_system, entry.external_attr = (
                    3,
                    (stat.S_IFREG | mode) << 16,
                )
                z.writestr(entry, data, zipfile.ZIP_DEFLATED)
        if len(out.getbuffer()) > PACKAGE_MAX:
            raise Refused(
                errno.EFBIG,
                f"the package is bigger than the {PACKAGE_MAX >> 20} MiB that Ray takes: are "
                "there big files in what goes with the job?",
            )
        return out.getvalue()


def parse_libraries(said: str) -> dict[str, str]:
    """Name and path of what another machine may not have, from the loader's list:
    "libssl.so.3 => /lib/libssl.so.3 (0x7f...)", "libx.so => not found"."""
    out: dict[str, str] = {}
    for name, path in re.findall(r"^\s*(\S+) => (not found|\S+)", said, re.MULTILINE):
        if path == "not found":
            raise Refused(errno.ENOENT, f"the library {name} is not found")
        if path[0] == "/" and not SYSTEM.match(name):
            out.setdefault(name, path)
    return out


def libraries(program: str) -> dict[str, str]:
    """The program's own loader is asked, so that these are the files that it runs with."""
    env = {**os.environ, "LD_TRACE_LOADED_OBJECTS": "1"}
    try:
        ran = subprocess.run([program], env=env, stdout=subprocess.PIPE, timeout=ASK_S)
        return parse_libraries(ran.stdout.decode(errors="surrogateescape"))
    except OSError as e:
        raise Refused(e.errno or errno.EIO, f"{program}: {e.strerror}") from None
    except subprocess.TimeoutExpired:
        raise Refused(errno.ETIMEDOUT, f"{program}: its loader does not end") from None
    except Refused as e:
        raise Refused(e.code, f"{program}: {e.why}") from None


def collect(program: str, python_dir: str, files: list[tuple[str, str]]) -> Files:
    out = Files()
    out.add("bin/muster", program)
    out.add("muster", python_dir)
    # The one module that `muster` needs: a plain Ray does not have it. Where it is not
    # beside `muster`, the Python of the cluster has to bring it.
    pickler = os.path.join(python_dir, "..", "cloudpickle")
    if os.path.isdir(pickler):
        out.add("cloudpickle", pickler)
    # the extension needs what the program does
    for name, path in libraries(program).items():
        out.add(f"lib/{name}", path)
    for name, path in files:
        out.add(f"job/{name}", path)
    return out


def _open_cache(cache_dir: str) -> Path | None:
    """The folder of packages, made if it is not there; None: nothing is kept."""
    xdg, home = os.environ.get("XDG_CACHE_HOME", ""), os.environ.get("HOME", "")
    if not cache_dir and xdg.startswith("/"):
        cache_dir = f"{xdg}/muster"
    elif not cache_dir and home.startswith("/"):
        cache_dir = f"{home}/.cache/muster"
    if not cache_dir:
        return None
    with suppress(OSError):
        os.makedirs(cache_dir, 0o755, exist_ok=True)
        packages = Path(cache_dir, "packages")
        packages.mkdir(0o700, exist_ok=True)
        return packages
    return None


def _keep(cache: Path, name: str, data: bytes) -> None:
    """Written under another name and then renamed, so that readers find it whole."""
    part = cache / f".{name}.{os.getpid()}"
    try:
        part.write_bytes(data)
        part.rename(cache / name)
        kept = sorted(cache.glob(f"{PREFIX}*"), key=lambda p: p.stat().st_mtime_ns)
        if len(kept) > KEPT and kept[0].name != name:
            kept[0].unlink()
    except OSError:
        part.unlink(missing_ok=True)


def make(
    program: str, python_dir: str, cache_dir: str, files: list[tuple[str, str]]
) -> tuple[str, bytes]:
    """Its name, and the zip. Reads, and the first time packs, some 20 MB."""
    found = collect(program, python_dir, files)
    name, cache = f"{PREFIX}{found.hash()}.zip", _open_cache(cache_dir)
    if cache:
        with suppress(OSError):
            data = (cache / name).read_bytes()
            os.utime(cache / name)  # it is in use
            return name, data
    data = found.pack()
    if cache:
        _keep(cache, name, data)
    return name, data
