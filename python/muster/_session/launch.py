"""The same script on every node, as torchrun and ROLL start it."""

# RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say who a process is, where WORLD_SIZE
# counts nodes: one process on each. Rank 0 hosts the head at MASTER_ADDR:MASTER_PORT;
# the others lend their machine to it and end with the job. torchrun also says which node
# a process is on and has a store of its own at that port: see under_torchrun.py.

from __future__ import annotations

import math
import os
import sys
from collections import namedtuple
from time import monotonic

from muster import _core
from muster._session import under_torchrun
from muster._session.addresses import is_loopback, join_host
from muster.errors import MusterError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

NODES_S = 600.0  # for machines to come, unless `timeout` says otherwise
STOP_S = 10.0  # an agent that was told to end
RANK_LABEL = "rank"
_NAMES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_INSIDE = "MUSTER_WORKER_UID"  # in all that runs below a worker
_HOW = (
    "every node needs the same secret. Make one with\n"
    "  (umask 077; python3 -c 'import secrets; print(secrets.token_hex(32))' > FILE)\n"
    "on one of them, copy it to the others (mode 600), and set MUSTER_SECRET_FILE=FILE "
    "everywhere; or set MUSTER_SECRET to its 64 digits"
)


class Launch(namedtuple("Launch", "rank world_size host port name local_rank store")):
    """Who this process is among those that were started together. Ranks are those of
    nodes; `name`: of its node; `local_rank`: above 0 beside the one that speaks for the
    node; `store`: torchrun's is at the port."""

    @property
    def address(self) -> str:
        return join_host(self.host, self.port)


def find(environ: Mapping[str, str]) -> Launch | None:
    """What the environment says; None: this process was started alone."""
    if _INSIDE in environ or not all(environ.get(name) for name in _NAMES):
        return None
    by_torchrun = under_torchrun.has_started(environ)
    names = ("GROUP_RANK", "GROUP_WORLD_SIZE") if by_torchrun else _NAMES[:2]
    rank, world_size = (_number(environ, name) for name in names)
    port = _number(environ, "MASTER_PORT")
    local_rank = _number(environ, "LOCAL_RANK") if by_torchrun else 0
    if world_size == 1 and rank == 0 and local_rank == 0:
        return None
    if not 0 <= rank < world_size:
        raise MusterError(f"{names[0]}={rank} is not below {names[1]}={world_size}")
    if not 0 < port < 65536:
        raise MusterError(f"MASTER_PORT={port} is no port")
    if _number(environ, "LOCAL_WORLD_SIZE", 1) != 1 and not by_torchrun:
        raise MusterError(
            f"LOCAL_WORLD_SIZE={environ['LOCAL_WORLD_SIZE']}: start one process on each "
            "node; Muster starts the workers"
        )
    name = "".join(
        c if c.isascii() and (c.isalnum() or c in "_.-") else "-"
        for c in environ.get("WORKER_ID") or f"node{rank}"
    )
    where = (environ["MASTER_ADDR"], port, name[: _core.NAME_MAX], local_rank)
    return Launch(rank, world_size, *where, under_torchrun.has_store(environ))


def _number(environ: Mapping[str, str], name: str, default: int = 0) -> int:
    text = environ.get(name) or str(default)
    if not text.isdecimal():
        raise MusterError(f"{name}={text!r} is no number")
    return int(text)


def listen_at(launch: Launch) -> str:
    """Where rank 0 listens: at MASTER_ADDR, or on all interfaces."""
    # The latter if that is an address of a service in front of this machine.
    import socket

    listen_port = 0 if launch.store else launch.port

    try:
        found = socket.getaddrinfo(launch.host, launch.port, type=socket.SOCK_STREAM)
    except OSError as e:
        raise MusterError(f"MASTER_ADDR={launch.host!r}: {e}") from None
    for family, kind, _, _, at in found:
        with socket.socket(family, kind) as probe:
            try:
                probe.bind((at[0], 0))
            except OSError:
                continue
            return join_host(str(at[0]), listen_port)
    return f"*:{listen_port}"


# ---- the secret -----------------------------------------------------------------------

_FD = "/proc/self/fd/"
# MUSTER_SECRET, and a file in memory that holds it
_kept: tuple[str, int] | None = None


def find_secret(secret_file: str | None, host: str) -> str:
    """A file with the secret that all nodes have."""
    path = secret_file or os.environ.get("MUSTER_SECRET_FILE")
    if path:
        return path
    if os.environ.get("MUSTER_SECRET") or _kept:
        return f"{_FD}{_secret_in_memory()}"
    if is_loopback(host):
        return _secret_of_user()
    raise MusterError(_HOW)


def _secret_in_memory() -> int:
    """And no longer in the environment, where other processes could read it."""
    global _kept
    text = os.environ.pop("MUSTER_SECRET", "")
    if _kept and text in ("", _kept[0]):
        return _kept[1]
    if len(text) != 64 or set(text.lower()) - set("0123456789abcdef"):
        raise MusterError(f"MUSTER_SECRET: not 64 hexadecimal digits; {_HOW}")
    fd = os.memfd_create("muster-secret")
    os.fchmod(fd, 0o600)
    os.write(fd, text.encode())
    _kept = text, fd
    return fd


def _secret_of_user() -> str:
    """On one machine those of one user share a file in the folder of their sessions."""
    import secrets

    path = os.path.join(_core.session_root(), "secret")
    part = f"{path}.{os.getpid()}"
    if not os.path.exists(path):
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(fd, "w") as file:
            file.write(secrets.token_hex(32))
        try:
            os.link(part, path)  # whole, or one that another process has made
        except FileExistsError:
            pass
        finally:
            os.unlink(part)
    return path


# ---- the other ranks ------------------------------------------------------------------


def lend(
    launch: Launch,
    agent: str,
    secret_file: str,
    options: dict[str, Any],
    timeout: float,
) -> int:
    """Lend this machine until the job ends; the exit code for this process."""
    import subprocess  # 10 ms that others can do without

    head = launch.address
    if launch.store:
        begun = monotonic()
        head = under_torchrun.find_head(launch.host, launch.port, timeout)
        timeout -= monotonic() - begun
    command = [agent, "agent", "--head", head]
    command += ["--secret-file", secret_file, "--node-name", launch.name]
    command += ["--label", f"{RANK_LABEL}={launch.rank}", "--tls", options["tls"]]
    command += ["--end-with", str(os.getpid())]
    command += ["--join-within", str(max(1, math.ceil(timeout)))]
    if is_loopback(launch.host):
        command += ["--bind", "127.0.0.1"]
    for name in ("num_gpus", "num_cpus"):
        if options[name] >= 0:
            command += [f"--{name.replace('_', '-')}", str(options[name])]
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    keep = [int(secret_file[len(_FD) :])] if secret_file.startswith(_FD) else []
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=keep)
    try:
        code = child.wait()
    except BaseException:  # Ctrl-C, or a handler of the user's that raises
        child.terminate()
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        raise
    if code:
        print(
            f"muster: rank {launch.rank} (node {launch.name}) ends with exit code 1: its "
            f"agent said why above (head {head})",
            file=sys.stderr,
        )
    return 1 if code else 0
