"""AReaL's tensor handles (RTensor) over the node's store."""

# What a call gives back stays in the store of the node that made it; the driver has
# handles, and whoever is called with them maps the bytes, or fetches them once to its
# node. A handle counts: when the last one is dropped the tensors are freed, whether or
# not anybody has cleared them. The tensors of one trajectory are one object.

from __future__ import annotations

import threading
import uuid
from collections import defaultdict
from contextlib import contextmanager

from muster._data.store import Ref, put

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Self


class ShardId(str):
    """Names a tensor, as AReaL's ids do, and holds it: element `number` of what `ref` is."""

    __slots__ = ("number", "ref")

    number: int
    ref: Ref | None  # None: it was cleared here

    def __new__(cls, text: str, ref: Ref | None, number: int) -> Self:
        made = super().__new__(cls, text)
        made.ref = ref
        made.number = number
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return ShardId, (str(self), self.ref, self.number)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


class _Writing(threading.local):
    """The tensors that go into the store together, and the ids that they were given."""

    tensors: list[Any] | None = None
    ids: list[ShardId]


_writing = _Writing()


@contextmanager
def _together() -> Iterator[None]:
    _writing.tensors, _writing.ids = [], []
    try:
        yield
        if _writing.tensors:
            ref = put(_writing.tensors)
            for one in _writing.ids:
                one.ref = ref
    finally:
        _writing.tensors, _writing.ids = None, []


class StoreBackend:
    """What RTensor fetches from and is cleared in. Shards that are not Muster's are those
    of another backend."""

    def __init__(self, other: Any) -> None:
        self.other = other

    def store(self, tensor: Any) -> Any:
        if _writing.tensors is None:
            return self.other.store(tensor)
        made = ShardId(str(uuid.uuid4()), None, len(_writing.tensors))
        _writing.tensors.append(tensor)
        _writing.ids.append(made)
        return made

    def fetch(self, shards: list[Any]) -> list[Any]:
        found: list[Any] = [None] * len(shards)
        refs: dict[int, Ref] = {}
        wanted = defaultdict(list)  # of each object, the places of its tensors
        others = []
        for place, shard in enumerate(shards):
            name = shard.shard_id
            if not isinstance(name, ShardId):
                others.append(place)
                continue
            if name.ref is None:
                raise KeyError(f"shard {name} was cleared in this process")
            refs[id(name.ref)] = name.ref
            wanted[id(name.ref)].append(place)
        for key, places in wanted.items():
            tensors = refs[key].get()
            for place in places:
                found[place] = tensors[shards[place].shard_id.number]
        if others:
            fetched = self.other.fetch([shards[place] for place in others])
            for place, tensor in zip(others, fetched, strict=True):
                found[place] = tensor
        return found

    async def delete(self, node_addr: str, shard_ids: list[Any]) -> None:
        """Ours go with their last handle; this drops those of this process."""
        others = []
        for name in shard_ids:
            if isinstance(name, ShardId):
                name.ref = None
            else:
                others.append(name)
        if others:
            await self.other.delete(node_addr, others)


def use_store() -> Any:
    """AReaL's RTensor, with handles over the store in this process."""
    from areal.infra.rpc import rtensor  # type: ignore[import-not-found]

    backend = rtensor.get_backend()
    if not isinstance(backend, StoreBackend):
        rtensor.set_backend(StoreBackend(backend))
    return rtensor.RTensor


def remotize(value: Any, node_addr: str, tensor_class: Any) -> Any:
    """With handles in place of its tensors; each element of a list is one object."""
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(remotize(one, node_addr, tensor_class) for one in value)
    with _together():
        return tensor_class.remotize(value, node_addr)


def localize(value: Any, tensor_class: Any) -> Any:
    """With tensors in place of its handles. Nothing is kept but what is used."""
    handles: list[Any] = []
    tensor_class._collect_all(value, handles)
    missing = [one for one in handles if one.data.is_meta]
    if missing:
        backend = use_backend()
        tensors = backend.fetch([one.shard for one in missing])
        found = {id(one): t for one, t in zip(missing, tensors, strict=True)}
    else:
        found = {}
    return _replaced(value, found, tensor_class) if handles else value


def use_backend() -> Any:
    from areal.infra.rpc import rtensor

    return rtensor.get_backend()


def _replaced(value: Any, found: dict[int, Any], tensor_class: Any) -> Any:
    if isinstance(value, tensor_class):
        return found.get(id(value), value.data)
    if isinstance(value, dict):
        return {k: _replaced(v, found, tensor_class) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(_replaced(one, found, tensor_class) for one in value)
    return value
