"""A script that torchrun has started: who it is, and torchrun's store."""

# torchrun's own TCPStore is at MASTER_ADDR:MASTER_PORT. The head has another port, which
# rank 0 writes there for the others to read. The store outlives restarts of the ranks, and
# with it the address of a head that has ended: nothing answers there, and it is read again.

from __future__ import annotations

import os
import socket
from datetime import timedelta
from time import monotonic, sleep

from muster.errors import DeadlineExceeded, MusterError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

ASK_S = 1.0  # of one question to the store, which Ctrl-C does not interrupt
AGAIN_S = 0.2  # between two looks at the address of a head that has ended
DIAL_S = 3.0
_RUN = "TORCHELASTIC_RUN_ID"


def has_started(environ: Mapping[str, str]) -> bool:
    """Whether torchrun has started this process, and says which node it is on."""
    return _RUN in environ and "GROUP_WORLD_SIZE" in environ


def has_store(environ: Mapping[str, str]) -> bool:
    """Whether torchrun itself listens at MASTER_PORT."""
    return environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def publish(host: str, port: int, head: str, timeout: float) -> None:
    """On rank 0: where its head listens."""
    _store(host, port, timeout).set(_key(), head)


def find_head(host: str, port: int, timeout: float) -> str:
    """On the others: where a head listens that rank 0 has written down."""
    deadline = monotonic() + timeout
    store = _store(host, port, timeout)
    import torch.distributed as dist  # type: ignore[import-not-found]

    found = ""
    while (left := deadline - monotonic()) > 0:
        try:
            store.wait([_key()], timedelta(seconds=min(ASK_S, left)))
            found = str(store.get(_key()), "utf-8")
        except dist.DistNetworkError:
            raise MusterError(f"torchrun's store at {host}:{port} has gone") from None
        except dist.DistStoreError:
            continue  # rank 0 is not there yet
        if _answers(found):
            return found
        sleep(AGAIN_S)
    why = f"nothing answers at {found}" if found else "rank 0 has not come to init()"
    raise DeadlineExceeded(f"init: no head within {timeout:.3g} s: {why}")


def _key() -> str:
    return f"muster/head/{os.environ[_RUN]}"


def _store(host: str, port: int, timeout: float) -> Any:
    try:
        from torch.distributed import TCPStore
    except ImportError as e:
        raise MusterError(
            f"torchrun's store is at MASTER_PORT={port}, and torch is not here: {e}"
        ) from None
    try:
        wait = timedelta(seconds=max(timeout, ASK_S))
        return TCPStore(host, port, is_master=False, timeout=wait)
    except RuntimeError as e:
        raise MusterError(
            f"torchrun's store at {host}:{port}: {str(e).splitlines()[0]}"
        ) from None


def _answers(addresses: str) -> bool:
    for address in addresses.split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), DIAL_S).close()
        except OSError:
            continue
        return True
    return False
