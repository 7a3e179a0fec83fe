"""The floor: a blocking ping-pong with pickle at both ends, over a unix socket.

A message is a length and a pickle, sent with one system call and mostly received with
one, so that nothing but pickle, the socket and the scheduler is measured.
"""

import os
import pickle
import platform
import socket
import struct
from typing import Any

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

    def version(self) -> dict[str, str]:
        return {"python": platform.python_version()}

    def call(self) -> None:
        send(self.sock, ((), {}))
        receive(self.sock)

    def latency(self, count: int, warm_up: int) -> list[float]:
        return time_each(self.call, count, warm_up)

    def close(self) -> None:
        self.sock.close()
        os.waitpid(self.child, 0)


if __name__ == "__main__":
    serve(Bare())
