"""What the drivers of a cluster tell each other of it, beside what the head knows.

The outer part is made of plain values alone; classes and functions are in a part that is
read only by who needs it, and may be missing there.
"""

from __future__ import annotations

from _pickle import dumps as plain_dumps
from _pickle import loads as plain_loads

from muster._cluster.binding import UNKNOWN, Binding
from muster._data.serialize import PROTOCOL, dumps_inline
from muster.config import mesh_sizes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from muster.dispatch import Method

META_MAX = 4 << 20  # base/limits.h, MS_META_MAX


class Known:
    """How a cluster is called."""

    def __init__(
        self,
        codec: int,
        native: bool,
        timeout: float | None,
        methods: Mapping[str, Method] | None,
        mesh: Mapping[str, int] | None,
    ) -> None:
        self.codec = codec
        self.native = native
        self.timeout = timeout
        self.methods = methods  # registered ones; None: a worker has to be asked
        self.mesh = mesh  # as it was given
        self.bound: Binding | None = None

    @classmethod
    def read(cls, name: str, size: int, meta: bytes, native: bool) -> Known:
        """Of what a driver has told; of nothing what is usual."""
        said: dict[str, Any] = plain_loads(meta) if meta else {}
        codec = said.get("codec", 2 if native else 1)
        made = cls(codec, native, said.get("timeout"), None, said.get("mesh"))
        made.bound = _load_bound(said.get("bound", b""))
        if made.bound is None:
            made.bound = Binding(name, "default", size, None, UNKNOWN)
        made.bound.resize(size)
        if made.mesh:
            made.bound.mesh = mesh_sizes(made.mesh, size)
        return made


def meta_of(known: Known, bound: Binding) -> bytes:
    """What others are told. A mesh is fixed only with the number of workers."""
    data = _bound_data(bound)
    meta = {
        "codec": known.codec,
        "timeout": known.timeout,
        "mesh": known.mesh,
        "bound": data if len(data) <= META_MAX else b"",
    }
    return plain_dumps(meta, PROTOCOL)


def _bound_data(bound: Binding) -> bytes:
    try:
        return plain_dumps(bound, PROTOCOL)
    except Exception:
        pass  # a function of its own in it
    try:
        return dumps_inline(bound)
    except Exception:
        return b""  # then its methods are asked for


def _load_bound(data: bytes) -> Any:
    try:
        return plain_loads(data) if data else None
    except Exception:
        return None  # a class of its is not here
