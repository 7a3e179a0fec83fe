"""A client of a worker in plain Python, written from doc/protocol.md and nothing else."""

import hashlib
import hmac
import os
import socket
import struct

CALL, REPLY, ERROR, CANCEL, METHOD, PING, PONG = 1, 2, 3, 5, 8, 10, 11  # kinds
BYTES, PROTOBUF = 0, 3  # codecs
HEALTH, FIRST_METHOD = 1, 256  # operations
MORE_OF = 1  # flag
HEAD = struct.Struct("<BBBBHHIIQQQQ")
CHUNK = 64 << 10
Fields = dict[int, list[int | bytes]]


class Failed(Exception):
    """The call was answered with a failure: kind, type, message."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def parse(message: bytes) -> Fields:
    """A protobuf message: field number -> its values, numbers or bytes."""
    at, found = 0, Fields()
    while at < len(message):
        key, at = varint(message, at)
        if key & 7 == 0:
            value, at = varint(message, at)
            found.setdefault(key >> 3, []).append(value)
        else:
            size = {1: 8, 5: 4}.get(key & 7, 0)
            if not size:
                size, at = varint(message, at)
            found.setdefault(key >> 3, []).append(message[at : at + size])
            at += size
    return found


def prove(secret: bytes, text: bytes) -> bytes:
    return hmac.new(secret, text, hashlib.sha256).digest()


class Client:
    def __init__(
        self, s: socket.socket, secret: bytes, version: bytes = b"\1\0"
    ) -> None:
        self.socket, self.calls, self.methods = s, 0, dict[bytes, int]()
        nonce, lane, session = os.urandom(32), b"\0", os.urandom(16)
        hello = b"MSTR" + version[:1] + lane + version[1:] + b"\0" + nonce + session
        s.sendall(hello)
        answer = self.read(80)
        if answer[:4] != b"MSTR" or answer[5] != 0:
            raise PermissionError(f"refused ({answer[5]}): it speaks {answer[4]}")
        proof = prove(secret, b"server" + hello + answer[:48])
        if not hmac.compare_digest(answer[48:], proof):
            raise PermissionError("the server does not know the secret")
        (self.identity,) = struct.unpack("<Q", answer[40:48])
        s.sendall(prove(secret, b"client" + answer + nonce))

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the server has closed the connection")
            data += more
        return data

    def send(
        self, kind: int, call: int, op: int, body: bytes = b"", codec: int = 0
    ) -> None:
        for at in range(0, len(body) or 1, CHUNK):
            piece, flags = body[at : at + CHUNK], MORE_OF if at else 0
            head = [0xA7, 1, kind, codec, op, flags, len(piece), 0, call]
            self.socket.sendall(HEAD.pack(*head, at or len(body), 0, 0) + piece)

    def receive(self) -> tuple[int, int, bytes]:
        """The next message: kind, call id, body. Only one call is open at a time."""
        body, total = b"", 1
        while len(body) < total:
            head = HEAD.unpack(self.read(HEAD.size))
            _, _, kind, _, _, flags, length, _, call_id, size, _, _ = head
            total = total if flags & MORE_OF else size
            body += self.read(length)
        if kind == PING:
            self.send(PONG, call_id, 0)
        return self.receive() if kind == PING or kind >= 128 else (kind, call_id, body)

    def start(self, op: int, body: bytes = b"", codec: int = PROTOBUF) -> int:
        self.calls += 1
        self.send(CALL, self.calls, op, body, codec)
        return self.calls

    def wait(self, call_id: int) -> bytes:
        kind, answered, body = self.receive()
        assert answered == call_id and kind in (REPLY, ERROR)
        if kind == REPLY:
            return body
        found = parse(body)
        raise Failed(*(found.get(number, [b""])[0] for number in (1, 2, 3)))

    def start_method(self, engine: str, method: str, argument: bytes) -> int:
        name = f"{engine}\0{method}".encode()
        if name not in self.methods:
            self.methods[name] = FIRST_METHOD + len(self.methods)
            self.send(METHOD, 0, self.methods[name], name)
        return self.start(self.methods[name], argument, BYTES)

    def health(self) -> Fields:
        return parse(self.wait(self.start(HEALTH)))

    def ping(self) -> bool:
        self.send(PING, 7, 0)
        return self.receive()[:2] == (PONG, 7)
