"""Workers that use the key-value store and barriers."""

import os
import signal
import socket
from typing import Any

import muster


class Meeter:
    def __init__(self) -> None:
        self.sockets: list[socket.socket] = []

    def put(self, key: str, value: Any, **options: Any) -> None:
        muster.kv.put(key, value, **options)

    def put_if_absent(self, key: str) -> bool:
        return muster.kv.put_if_absent(key, int(os.environ["RANK"]))

    def get(self, key: str, timeout: float = 0) -> Any:
        return muster.kv.get(key, timeout=timeout)

    def delete(self, key: str) -> bool:
        return muster.kv.delete(key)

    def keys(self, prefix: str) -> list[str]:
        return muster.kv.keys(prefix)

    def barrier(self, name: str, timeout: float) -> int:
        muster.barrier(name, timeout=timeout)
        return int(os.environ["RANK"])

    def barrier_of(self, cluster: muster.Cluster, timeout: float) -> None:
        cluster.barrier("own", timeout=timeout)

    def barriers(self, name: str, count: int) -> list[int]:
        """After each, all have counted as far as we have."""
        seen = []
        for i in range(count):
            muster.kv.put(f"{name}/{os.environ['RANK']}", i)
            muster.barrier(name, timeout=30)
            seen.append(min(muster.kv.get(k) for k in muster.kv.keys(f"{name}/")))
            muster.barrier(f"{name}-2", timeout=30)
        return seen

    def fork_and_get(self, key: str) -> Any:
        """A forked child has a connection of its own, or none: never ours."""
        muster.kv.get(key)
        child = os.fork()
        if child == 0:
            try:
                muster.kv.get(key)
            except muster.MusterError:
                os._exit(3)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return code, muster.kv.get(key)

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def listen(self, group: muster.CollectiveGroup) -> None:
        group.close()  # which does nothing here
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind((group.master_addr, group.master_port))
        one.listen(8)
        self.sockets.append(one)

    def dial(self, env: dict[str, str]) -> str:
        at = (env["MASTER_ADDR"], int(env["MASTER_PORT"]))
        with socket.create_connection(at, timeout=10):
            return env["RANK"]
