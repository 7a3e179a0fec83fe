"""What `muster.roll` and `muster.verl` share: workers as actor handles look."""

from __future__ import annotations

import os
import socket
from typing import Any

from muster import _core
from muster._adapters import lease
from muster.future import Future
from muster.view import View

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
DEVICE_VARIABLE = "MUSTER_DEVICE_VARIABLE"  # names the variable with a worker's devices


class RemoteMethod:
    """`handle.method`: `remote(...)` calls it and gives a future."""

    __slots__ = ("_name", "_view")

    def __init__(self, view: View, name: str) -> None:
        self._view = view
        self._name = name

    def remote(self, *args: Any, **kwargs: Any) -> Future:
        made = self._view.execute_rank_zero_async(self._name, *args, **kwargs)
        noted: Future = lease.noted(self._view, made)
        return noted

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            f"{self._name} is in another process: {self._name}.remote(...) gives a "
            "future, which muster.get(...) waits for"
        )


class Handle:
    """One worker. `handle.method.remote(...)` calls it, from the driver and from other
    workers. Equal to others of the same worker."""

    __slots__ = ("view",)

    def __init__(self, view: View) -> None:
        self.view = view

    def __getattr__(self, name: str) -> RemoteMethod:
        if name.startswith("__"):
            raise AttributeError(name)
        return RemoteMethod(self.view, name)

    @property
    def _place(self) -> tuple[str, str]:
        """That of a rank: another process has it after a `replace`."""
        return self.view._members[0].label, self.view._engine

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and self._place == other._place

    def __hash__(self) -> int:
        return hash(self._place)

    def __reduce__(self) -> tuple[Any, ...]:
        return Handle, (self.view,)

    def __repr__(self) -> str:
        return f"<worker {self.view._members[0].label}>"


def remote(*classes: Any, **options: Any) -> Any:
    """What `@ray.remote` and `@ray.remote(...)` are here: nothing. Any class can be the
    class of a worker; what a worker needs is told where it is created."""
    return classes[0] if classes else remote


def plain_class(worker_cls: Any) -> Any:
    """The class below `ray.remote`, if it was given."""
    return getattr(worker_cls, "__ray_actor_class__", worker_cls)


def node_ip() -> str:
    """In a worker: the address by which others reach its node."""
    host = _core.in_worker()
    return "127.0.0.1" if host is None else host.address


def visible_devices() -> str | None:
    """What this worker's variable for devices, which depends on their vendor, says."""
    return os.environ.get(os.environ.get(DEVICE_VARIABLE, VISIBLE_DEVICES))


def free_port() -> int:
    """A free port; bind it with SO_REUSEADDR."""
    # A worker holds it until it ends, so that no other process gets it.
    host = _core.in_worker()
    if host is not None:
        return host.hold_port()
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
    return port


def is_port_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
