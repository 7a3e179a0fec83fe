"""A cable in user space, for kernels without netem: two TAP devices, and every frame
passes through here, late or never. Run by hosts.py.

    cable.py HOST_NAMESPACE SWITCH_NAMESPACE PORT      "MILLISECONDS LOSS" on stdin
    cable.py --listen-in PORT FILE                     in the switch's namespace
"""

import ctypes
import fcntl
import heapq
import os
import random
import select
import socket
import struct
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
ETH_P_ALL = 0x0003
FRAME_MAX = 65536
CLONE_NEWNET = 0x40000000


def enter(namespace: str) -> None:
    fd = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(fd, CLONE_NEWNET) < 0:
        raise OSError(ctypes.get_errno(), "setns")
    os.close(fd)


def open_tap(namespace: str, name: str) -> int:
    enter(namespace)
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(
        fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI)
    )
    return fd


def carry(host: str, switch: str, port: str) -> None:
    host_fd, switch_fd = open_tap(host, "eth0"), open_tap(switch, port)
    other = {host_fd: switch_fd, switch_fd: host_fd}
    waiting: list[tuple[float, int, int, bytes]] = []  # when, order, where, what
    delay, loss, order = 0.0, 0.0, 0
    chance = random.Random(7)
    print("ready", flush=True)
    while True:
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, _, to, frame = heapq.heappop(waiting)
            try:
                os.write(to, frame)
            except OSError:
                pass  # the device is down, or its queue is full: so is a switch's
        timeout = max(0.0, waiting[0][0] - now) if waiting else None
        ready, _, _ = select.select([host_fd, switch_fd, 0], [], [], timeout)
        for fd in ready:
            if fd == 0:
                line = os.read(0, 4096).decode().splitlines()
                if not line:
                    return  # whoever held it is gone
                ms, part = line[-1].split()
                delay, loss = float(ms) / 1000, float(part)
                continue
            frame = os.read(fd, FRAME_MAX)
            if chance.random() >= loss:
                order += 1
                when = time.monotonic() + delay
                heapq.heappush(waiting, (when, order, other[fd], frame))


def listen_in(port: str, path: str) -> None:
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    raw.bind((port, 0))
    with open(path, "wb", buffering=0) as out:
        print("ready", flush=True)
        while True:
            frame = raw.recv(FRAME_MAX)
            out.write(struct.pack("<I", len(frame)) + frame)


if __name__ == "__main__":
    if sys.argv[1] == "--listen-in":
        listen_in(*sys.argv[2:])
    else:
        carry(*sys.argv[1:])
