"""Workers of test_hosts_cluster.py, which run on hosts of their own."""

import os
import signal
import socket

import muster
from muster import Dispatch, register


class Rank:
    """Knows where it is, and meets others."""

    def where(self) -> tuple[str, str, str]:
        """What the driver says, when it has said it."""
        return muster.kv.get("test/ready", timeout=30), os.environ["RANK"], node()

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def double(self, rows: list[int]) -> list[int]:
        return [2 * row for row in rows]

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def meet(self, name: str) -> str:
        muster.barrier(name, timeout=30)
        return node()

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def pid(self) -> int:
        return os.getpid()

    # ---- a rendezvous as torch makes it -------------------------------------------------

    def listen(self, host: str, port: int) -> None:
        self.server = socket.socket()
        self.server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.server.bind((host, port))
        self.server.listen()

    def accept(self) -> bytes:
        self.server.settimeout(30)
        with self.server.accept()[0] as stream:
            return stream.recv(100)

    def connect(self, host: str, port: int) -> str:
        with socket.create_connection((host, port), timeout=30) as stream:
            stream.sendall(b"weights")
        return node()

    # ---- helpers and clusters of its own --------------------------------------------------

    def devices_of_helpers(self) -> list[str]:
        helpers = muster.helpers()
        view = helpers.create_engine("helper", Helper)
        return view.execute_all_sync("devices")

    def make_cluster(self) -> list[int]:
        inner = muster.Cluster("inner", Rank, world_size=2)
        return inner.double([1, 2, 3])


class Helper:
    def devices(self) -> str:
        return f"{node()} {os.environ['MUSTER_HELPER']} {os.environ.get('RANK')}"


def node() -> str:
    """Which host this is."""
    return os.readlink("/proc/self/ns/net")
