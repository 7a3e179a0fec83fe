"""The floor: a blocking ping-pong with pickle at both ends, over a unix socket; and forks of
an interpreter that has imported what workers have.

A message is a length and a pickle, sent with one system call and mostly received with
one, so that nothing but pickle, the socket and the scheduler is measured.
"""

import os
import pickle
import platform
import socket
import struct
import time
from typing import Any

from bench_worker import NumpyWorker
from serve import serve, time_each

LENGTH = struct.Struct("<I")
CHUNK = 65536


def send(sock: socket.socket, value: object) -> None:
    body = pickle.dumps(value, protocol=5)
    sock.sendall(LENGTH.pack(len(body)) + body)


def receive(sock: socket.socket) -> Any:
    data = sock.recv(CHUNK)
    while (
        len(data) < LENGTH.size or len(data) < LENGTH.size + LENGTH.unpack_from(data)[0]
    ):
        more = sock.recv(CHUNK)
        if not more:
            raise EOFError("the other end has closed")
        data += more
    return pickle.loads(memoryview(data)[LENGTH.size :])


def empty(*args: object, **kwargs: object) -> object:
    return None


def answer(sock: socket.socket) -> None:
    while True:
        args, kwargs = receive(sock)
        send(sock, empty(*args, **kwargs))


def be_child(sock: socket.socket) -> None:
    worker = NumpyWorker()
    receive(sock)
    send(sock, worker.has_numpy())


def start_children(ranks: int) -> float:
    """Seconds until all have answered."""
    children = []
    start = time.perf_counter()
    for _ in range(ranks):
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            try:
                be_child(theirs)
            finally:
                os._exit(0)
        theirs.close()
        send(ours, "has_numpy")
        children.append((pid, ours))
    for _, sock in children:
        assert receive(sock)
    seconds = time.perf_counter() - start
    for pid, sock in children:
        sock.close()
        os.waitpid(pid, 0)
    return seconds


class Bare:
    def __init__(self) -> None:
        self.sock, other = socket.socketpair()
        self.child = os.fork()
        if self.child == 0:
            self.sock.close()
            try:
                answer(other)
            finally:
                os._exit(0)
        other.close()
        self.loops: dict[bool, Any] = {}

    def version(self) -> dict[str, str]:
        return {"python": platform.python_version()}

    def call(self) -> None:
        send(self.sock, ((), {}))
        receive(self.sock)

    def latency(self, count: int, warm_up: int) -> list[float]:
        return time_each(self.call, count, warm_up)

    def warm_start(self, ranks: int, count: int, warm_up: int) -> list[float]:
        """Seconds of `ranks` forks, constructors and first answers, of each time after the
        first few."""
        # what workers have too
        import cloudpickle  # noqa: F401
        import muster._worker.main  # noqa: F401
        import numpy  # noqa: F401

        return [start_children(ranks) for _ in range(warm_up + count)][warm_up:]

    def grpo(self, steps: int, requests: bool) -> list[float]:
        """The work of all ranks, one after the other."""
        if requests not in self.loops:
            from grpo_hosts import Here
            from grpo_loop import Loop
            from grpo_requests import RequestsHere

            hosts = RequestsHere("engine") if requests else Here()
            self.loops[requests] = Loop(hosts)
        times: list[float] = self.loops[requests].run(steps)
        return times

    def close(self) -> None:
        self.sock.close()
        os.waitpid(self.child, 0)


if __name__ == "__main__":
    serve(Bare())
