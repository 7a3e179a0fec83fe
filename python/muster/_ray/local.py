"""A Ray of our own on this machine."""

# One node, on the loopback interface alone, with ports that no other process has and a
# folder of its own, below `muster hold`: it ends with this process, however that ends, and
# then nothing of it is left.

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

from muster._ray import Refused
from muster._ray.dashboard import with_log

END_S = 20.0
PREFIX = "muster-ray-"  # `muster hold` removes a folder of this name
TMPDIR_MAX = 32  # sockets are in there: it is short


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        all = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in all:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in all]


class LocalRay:
    def __init__(self, muster: str) -> None:
        """Begins to start it; it answers at `address` in a while. A job on it needs `env`
        to have the caller's folder for temporary files and not Ray's."""
        venv, path = os.environ.get("VIRTUAL_ENV"), os.environ.get("PATH", "")
        ray = shutil.which("ray", path=f"{venv}/bin:{path}" if venv else path)
        if ray is None:
            raise Refused(
                errno.ENOENT,
                "there is no `ray` in the path to start a Ray on this machine with: "
                "pip install 'ray[default]', or give the address of a cluster",
            )
        tmp = os.environ.get("TMPDIR", "")
        fits = tmp.startswith("/") and len(tmp) <= TMPDIR_MAX
        env = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}  # another one
        env["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # else Ray replaces 127.0.0.1
        try:
            port, dashboard, agent = _free_ports(3)
            self.dir = tempfile.mkdtemp(prefix=PREFIX, dir=tmp if fits else "/tmp")
            self.log = Path(self.dir, "start.log")
            self.env = {"TMPDIR": tempfile.gettempdir()}
            env["TMPDIR"] = (
                self.dir
            )  # its dashboard does not remove what it makes there
            command = [
                muster,
                "hold",
                str(os.getpid()),
                self.dir,
                ray,
                "start",
                "--head",
            ]
            command += ["--block", "--disable-usage-stats", "--include-dashboard=true"]
            command += ["--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1"]
            command += ["--min-worker-port=0", "--max-worker-port=0", f"--port={port}"]
            command += [f"--dashboard-port={dashboard}", f"--temp-dir={self.dir}"]
            command += [f"--dashboard-agent-listen-port={agent}"]
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    command,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as e:
            why = f"cannot start a Ray on this machine: {e}"
            raise Refused(e.errno or errno.EIO, why) from None
        self.address = f"http://127.0.0.1:{dashboard}"

    def failure(self, code: int, what: str) -> Refused:
        """With the end of its log."""
        log = ""
        with suppress(OSError):
            log = self.log.read_bytes()[-2048:].decode(errors="replace")
        return Refused(code, with_log(f"the Ray of this machine {what}", log))

    def check(self) -> None:
        """Raises when it has ended."""
        code = self.process.poll()
        if code is not None:
            how = (
                f"was killed by signal {-code}"
                if code < 0
                else f"ended with exit code {code}"
            )
            raise self.failure(errno.ECHILD, how)

    def end(self) -> None:
        """Ends it, and waits for that."""
        for number in (signal.SIGTERM, signal.SIGUSR1):  # the second: by force
            with suppress(subprocess.TimeoutExpired):
                self.process.send_signal(number)
                self.process.wait(END_S)
                break
        shutil.rmtree(self.dir, ignore_errors=True)
