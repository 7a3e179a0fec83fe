"""AReaL's RTensor in a worker: results stay here, what is elsewhere is fetched."""

# An RTensor names a tensor by the address of a server and an id; others fetch it there
# (/data, src/worker/http/data.c). Its own code runs here, over a backend that keeps
# tensors with the worker's C host: in the node's store, in their own dtype. AReaL is used
# where an engine is AReaL's, or an argument is an RTensor, and never imported otherwise.

from __future__ import annotations

import json
import os
import sys
import uuid
from typing import TYPE_CHECKING, Any

from muster import _core
from muster.errors import StoreFull

if TYPE_CHECKING:
    from collections.abc import Iterator

    from muster._worker.main import Worker

_MODULE = "areal.infra.rpc.rtensor"
NAMES_VARIABLE = "MUSTER_AREAL_NAMES"  # what AReaL's name_resolve is told


class Backend:
    """What AReaL calls an RTensorBackend."""

    def __init__(self, worker: Worker, module: Any) -> None:
        self.host = worker.host
        self.address = worker.http_address
        self._remote = module.HttpRTensorBackend()

    def store(self, tensor: Any) -> str:
        """Keep a tensor of this host's memory; its id."""
        import numpy as np

        from muster._data.torch_arrays import array_of

        shard_id = str(uuid.uuid4())
        array = array_of(tensor.contiguous())
        flat = array.reshape(-1).view(np.uint8)
        names = shard_id, str(tensor.dtype), json.dumps(list(tensor.shape))
        is_big = array.nbytes >= _core.PAYLOAD_ARRAY_MIN and _core.piece_can()
        if not is_big:
            try:
                self.host.shard_add(*names, flat, 0, array.nbytes)
                return shard_id
            except StoreFull:  # there are many small ones in this process already
                if not _core.piece_can():
                    raise
        (place,) = _core.piece_write([flat])
        self.host.shard_add(*names, *place, array.nbytes)
        return shard_id

    def find(self, shard_id: str) -> Any:
        """A tensor that was kept here, to be written by its reader alone; or None."""

        from muster._data.torch_arrays import dtype_of, tensor_of

        found = self.host.shard_find(shard_id)
        if found is None:
            return None
        kind, dtype, shape, pieces, nbytes = found
        numbers = dtype_of(dtype.removeprefix("torch."))
        array = _writable(pieces, nbytes).view(numbers).reshape(json.loads(shape))
        return tensor_of(array) if kind == "tensor" else array

    def fetch(self, shards: list[Any]) -> list[Any]:
        found = {at: self.find(shard.shard_id) for at, shard in enumerate(shards)}
        elsewhere = [at for at, tensor in found.items() if tensor is None]
        fetched = self._remote.fetch([shards[at] for at in elsewhere])
        found.update(zip(elsewhere, fetched, strict=True))
        return [found[at] for at in range(len(shards))]

    async def delete(self, node_addr: str, shard_ids: list[str]) -> None:
        elsewhere = [each for each in shard_ids if not self.host.shard_remove(each)]
        if elsewhere:
            await self._remote.delete(node_addr, elsewhere)


def _writable(pieces: list[tuple[Any, int, int]], nbytes: int) -> Any:
    """Their bytes as one array. A piece that is alone is mapped; more are put together."""
    import numpy as np

    from muster._data.remote_array import private_copy

    if len(pieces) == 1:
        ((memory, offset, _),) = pieces
        return private_copy(np.frombuffer(memory, np.uint8, nbytes, offset))
    whole = np.empty(nbytes, np.uint8)
    at = 0
    for memory, offset, size in pieces:
        whole[at : at + size] = np.frombuffer(memory, np.uint8, size, offset)
        at += size
    return whole


_backend: Backend | None = None  # of this process


def _use(worker: Worker, module: Any) -> Backend:
    global _backend
    if _backend is None:
        _backend = Backend(worker, module)
        known = module.get_backend()
        if hasattr(
            known, "other"
        ):  # muster.areal's keeps handles of its own, the rest there
            known.other = _backend
        else:
            module.set_backend(_backend)
    return _backend


def _is_areals(cls: Any) -> bool:
    api = sys.modules.get("areal.api.engine_api")
    if api is None or not isinstance(cls, type):
        return False
    return issubclass(cls, (api.TrainEngine, api.InferenceEngine))


def prepare(worker: Worker, cls: Any) -> None:
    """An engine of this class is about to be made: its RTensors are kept here."""
    if not _is_areals(cls):
        return
    import importlib

    _use(worker, importlib.import_module(_MODULE))
    names = os.environ.pop(NAMES_VARIABLE, None)
    if names:  # of a server (muster.areal.rpc_server): engines ask AReaL for them
        config = importlib.import_module("areal.api.cli_args").NameResolveConfig
        resolve = importlib.import_module("areal.utils.name_resolve")
        resolve.reconfigure(config(**json.loads(names)))


def _each(cls: type, value: Any) -> Iterator[Any]:
    if isinstance(value, cls):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _each(cls, item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _each(cls, item)


def localize(worker: Worker, value: Any) -> Any:
    """With tensors in place of RTensors, wherever those are."""
    module = sys.modules.get(_MODULE)
    if module is None:
        return value
    backend = _use(worker, module)
    # Those of this worker by themselves: AReaL would remember them, and of what HTTP clears
    # here it would not hear.
    for each in _each(module.RTensor, value):
        if (
            each.data.is_meta
            and (tensor := backend.find(each.shard.shard_id)) is not None
        ):
            each.data = tensor
    return module.RTensor.localize(value)


def _is_wanted(engine: Any) -> bool:
    """A controller reads what data-parallel heads return, and nothing else."""
    api = sys.modules["areal.api.engine_api"]
    if not isinstance(engine, api.TrainEngine) or not engine.initialized:
        return True
    return bool(engine.is_data_parallel_head())


def remotize(worker: Worker, engine: Any, value: Any) -> Any:
    """What an engine of AReaL's has returned, with RTensors in place of tensors."""
    if not _is_areals(type(engine)):
        return value
    if not _is_wanted(engine):
        return None
    import importlib

    module = importlib.import_module(_MODULE)
    return module.RTensor.remotize(value, node_addr=_use(worker, module).address)
