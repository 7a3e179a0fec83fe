"""A server that answers as AReaL's `rpc_server` does: a Muster worker at a fixed address.

    python -m muster.areal.rpc_server --experiment-name E --trial-name T --role actor \\
        --worker-index 0 --host 0.0.0.0 --port 8000

AReaL is imported by the engines that need it, not for the start.
"""

# The process that was started only waits: SIGTERM and Ctrl-C end the server in order, and its
# exit code is the server's. The session (head, agent, worker) is no descendant of it, because
# AReaL's schedulers send SIGTERM to every process of a server's tree at once, and an agent
# that is told to end does not wait for the engines. The session ends when the first process
# does, however that ends: it holds the other end of a pipe.

from __future__ import annotations

import argparse
import os
import signal
import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

FAILED = 1


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of AReaL's server; those that are not known mean nothing, as there."""
    parser = argparse.ArgumentParser(
        prog="python -m muster.areal.rpc_server",
        description="Answers as AReaL's rpc_server does, from a Muster worker.",
    )
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--experiment-name", required=True)
    parser.add_argument("--trial-name", required=True)
    parser.add_argument("--role", required=True)
    parser.add_argument("--worker-index", type=int, default=-1)
    parser.add_argument("--name-resolve-type", default="nfs", help="nfs, etcd3, ray")
    parser.add_argument("--nfs-record-root", default="/tmp/areal/name_resolve")
    parser.add_argument("--etcd3-addr", default="localhost:2379")
    parser.add_argument("--fileroot", help="logs of forked workers go below it")
    options, _ = parser.parse_known_args(argv)
    options.worker_index = int(os.environ.get("SLURM_PROCID", options.worker_index))
    if options.worker_index < 0:
        parser.error("--worker-index is missing, and there is no SLURM_PROCID")
    return options


def _leave_tree() -> bool:
    """Go on twice: here, and (True) in a process that is not our descendant."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() > 0:
            os._exit(0)
        return True
    os.waitpid(child, 0)
    return False


def _session(options: argparse.Namespace, stop_fd: int) -> int:
    try:
        from muster.areal.server_session import serve

        return serve(options, stop_fd)
    except Exception as e:
        print(f"muster.areal.rpc_server: {e}", file=sys.stderr, flush=True)
        return FAILED


def _wait(stop_fd: int, code_fd: int) -> int:
    """Until the session has ended; its exit code."""
    open_fds = [stop_fd]

    def stop(signum: int, frame: object) -> None:
        while open_fds:
            os.close(open_fds.pop())

    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
    code = os.read(code_fd, 1)
    if not code:
        print("muster.areal.rpc_server: its session was killed", file=sys.stderr)
    return code[0] if code else FAILED


_STOPS = (signal.SIGTERM, signal.SIGINT)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)  # until it is clear whose they are
    stop_read, stop_write = os.pipe()
    code_read, code_write = os.pipe()
    if _leave_tree():
        os.close(stop_write)
        os.close(code_read)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
        code = _session(options, stop_read)
        with suppress(BrokenPipeError):  # the server was killed
            os.write(code_write, bytes([code]))
        os._exit(code)
    os.close(stop_read)
    os.close(code_write)
    return _wait(stop_write, code_read)


if __name__ == "__main__":
    sys.exit(main())
