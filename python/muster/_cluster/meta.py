"""What the drivers of a cluster tell each other of it, beside what the head knows.

The outer part is made of plain values alone; classes and functions are in a part that is
read only where it is needed, and may be missing there.
"""

from __future__ import annotations

from _pickle import dumps as plain_dumps
from _pickle import loads as plain_loads

from muster import _core
from muster._cluster.binding import UNKNOWN, Binding
from muster._data.serialize import PROTOCOL, dumps_inline
from muster.config import mesh_sizes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Self

    from muster.dispatch import Method


class ClusterMeta:
    """How a cluster is called."""

    def __init__(
        self,
        native: bool,
        timeout: float | None = None,
        methods: Mapping[str, Method] | None = None,
        mesh: Mapping[str, int] | None = None,
        codec: int | None = None,
    ) -> None:
        usual = _core.CODEC_PLAIN if native else _core.CODEC_PICKLE
        self.codec = usual if codec is None else codec
        self.native = native
        self.timeout = timeout
        self.methods = methods  # registered ones; None: a worker has to be asked
        self.mesh = mesh  # as it was given

    def encode(self, bound: Binding) -> bytes:
        """What others are told. A mesh is fixed only with the number of workers."""
        data = _dump_binding(bound)
        meta = {
            "codec": self.codec,
            "timeout": self.timeout,
            "mesh": self.mesh,
            "bound": data if len(data) <= _core.META_MAX else b"",
        }
        return plain_dumps(meta, PROTOCOL)

    @classmethod
    def decode(
        cls, name: str, size: int, meta: bytes, native: bool
    ) -> tuple[Self, Binding]:
        """Of what a driver has told; of nothing what is usual."""
        told: dict[str, Any] = plain_loads(meta) if meta else {}
        made = cls(
            native, told.get("timeout"), mesh=told.get("mesh"), codec=told.get("codec")
        )
        bound = _load_binding(told.get("bound", b""))
        if bound is None:
            bound = Binding(name, "default", size, None, UNKNOWN)
        bound.resize(size)
        if made.mesh:
            bound.mesh = mesh_sizes(made.mesh, size)
        return made, bound


def _dump_binding(bound: Binding) -> bytes:
    try:
        return plain_dumps(bound, PROTOCOL)
    except Exception:
        pass  # a function of its own in it
    try:
        return dumps_inline(bound)
    except Exception:
        return b""  # then its methods are asked for


def _load_binding(data: bytes) -> Any:
    try:
        return plain_loads(data) if data else None
    except Exception:
        return None  # a class of its is not here
