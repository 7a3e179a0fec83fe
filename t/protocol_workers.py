"""What the plain client calls."""

import threading

from workers import say


class Echo:
    def __init__(self) -> None:
        self.ran = 0

    def upper(self, data: bytes) -> bytes:
        self.ran += 1
        return bytes(data).upper()

    def count(self, data: bytes) -> bytes:
        return str(self.ran).encode()

    def fail(self, data: bytes) -> bytes:
        raise ValueError("no: " + bytes(data).decode())

    def hang(self, fifo: bytes) -> bytes:
        say(bytes(fifo).decode())
        threading.Event().wait()
        return b""
