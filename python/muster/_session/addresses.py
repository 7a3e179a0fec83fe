"""Addresses of this machine, and how one is written."""

from __future__ import annotations

import socket


def join_host(host: str, port: int) -> str:
    """ "HOST:PORT", also of an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    return host == "localhost" or host == "::1" or host.startswith("127.")


def own_address(host: str, port: int) -> str:
    """The address from which this machine reaches another one. OSError: it does not."""
    found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_DGRAM)
    family, kind, _, _, at = found[0]
    with socket.socket(family, kind) as probe:
        probe.connect(at)  # sends nothing
        return str(probe.getsockname()[0])
