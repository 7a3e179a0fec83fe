"""How many times a second a worker answers GET /health while its engine holds the
interpreter's lock: one keep-alive connection that waits for each answer, and the same with
requests sent together.

    .venv/bin/python bench/health.py [SECONDS]
"""

import os
import socket
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import muster

REQUEST = b"GET /health HTTP/1.1\r\nHost: worker\r\n\r\n"
TOGETHER = 64


class Busy:
    """Computes without ever letting go of the lock for long."""

    def spin(self, fifo: str, seconds: float) -> int:
        sys.setswitchinterval(seconds)
        with open(fifo, "wb") as told:
            told.write(b"!")
        end, n = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            n += sum(range(1000))
        return n


def rate(address: tuple[str, int], together: int, seconds: float) -> float:
    with socket.create_connection(address) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.sendall(REQUEST)
        size = len(s.recv(65536))  # all answers are the same
        begun, count = time.perf_counter(), 0
        while (passed := time.perf_counter() - begun) < seconds:
            s.sendall(REQUEST * together)
            left = size * together
            while left:
                got = len(s.recv(65536))
                assert got, "the worker has closed"
                left -= got
            count += together
    return count / passed


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    muster.init(num_gpus=0, log_to_driver=False)
    cluster = muster.Cluster("busy", Busy, world_size=1)
    url = urlsplit(cluster.http_urls[0])
    assert url.hostname and url.port
    with tempfile.TemporaryDirectory() as folder:
        fifo = str(Path(folder) / "begun")
        os.mkfifo(fifo)
        spinning = cluster.execute_rank_zero("spin", fifo, 2 * seconds + 1)
        Path(fifo).read_bytes()  # it holds the lock from here on
        for together in (1, TOGETHER):
            n = rate((url.hostname, url.port), together, seconds)
            print(f"/health, {together:2} at a time, engine busy: {n:,.0f}/s")
        assert not spinning.done(), "the engine was not busy all the time"
    muster.shutdown()


if __name__ == "__main__":
    main()
