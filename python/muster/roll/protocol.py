"""DataProto as ROLL has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from muster._adapters import dataproto
from muster._adapters.columns import Columns
from muster._adapters.dataproto import pad_dataproto_to_divisor, unpad_dataproto
from muster._adapters.dataproto_parts import names_of
from muster._adapters.lazy_column import join
from muster._data.batch_parts import METRICS
from muster._data.remote_array import object_array
from muster._data.torch_arrays import is_tensor
from muster.roll import decorator

__all__ = ["DataProto", "pad_dataproto_to_divisor", "unpad_dataproto"]


class DataProto(dataproto.DataProto):
    """Tensors, arrays of objects, and meta information, with the same rows."""

    def __init__(
        self,
        batch: Any = None,
        non_tensor_batch: dict[str, NDArray[Any]] | None = None,
        remote_batch: None = None,
        meta_info: dict[str, Any] | None = None,
    ) -> None:
        if remote_batch is not None:
            raise TypeError("remote_batch: there is none: muster's store has the data")
        super().__init__(batch, non_tensor_batch, meta_info)

    @staticmethod
    def _objects(values: Any) -> NDArray[Any]:
        return object_array(values)

    def check_consistency(self) -> None:
        super().check_consistency()
        for name, value in self.non_tensor_batch.items():
            if value.dtype != object:
                raise TypeError(
                    f"non_tensor_batch[{name!r}] is of {value.dtype}, not of objects: "
                    "from_dict makes it so"
                )
            if self.batch is not None and name in self.batch:
                raise ValueError(f"a tensor and an array are called {name!r}")

    def _item(self, index: int) -> Self:
        return self.slice(index, index + 1)

    # ---- columns ----------------------------------------------------------------------

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        self._read(name)
        if self.batch is not None and name in self.batch:
            del self.batch[name]
        else:
            del self.non_tensor_batch[name]

    def update(self, other: dict[str, Any]) -> None:
        """Put these columns in the place of those with the same name, or beside them:
        tensors and arrays of numbers, or arrays of objects."""
        for name, value in other.items():
            if not is_tensor(value) and not isinstance(value, np.ndarray):
                raise TypeError(
                    f"{name!r}: a tensor or an array is needed, not "
                    f"{type(value).__name__}"
                )
            if self.has_columns() and len(value) != len(self):
                raise ValueError(f"{name!r} has {len(value)} rows, not {len(self)}")
            if isinstance(value, np.ndarray):
                if self.batch is not None and name in self.batch:
                    del self.batch[name]
                self.non_tensor_batch[name] = value
                continue
            self.non_tensor_batch.pop(name, None)
            if self.batch is None:
                self.batch = Columns({}, len(value))
            self.batch[name] = value

    def pop(
        self,
        batch_keys: Sequence[str] | None = None,
        non_tensor_batch_keys: Sequence[str] | None = None,
        meta_info_keys: Sequence[str] | None = None,
    ) -> Self:
        count = len(self)
        taken = super().pop(batch_keys, non_tensor_batch_keys, meta_info_keys)
        if taken.batch is None:
            taken.batch = Columns({}, count)
        return taken

    def rename(self, old_keys: list[str] | str, new_keys: list[str] | str) -> Self:
        for name in names_of(new_keys):
            if name in self.non_tensor_batch:
                raise ValueError(f"there is an array {name!r} already")
        return super().rename(old_keys, new_keys)

    def to(self, device: Any) -> Self:
        """Tensors in the meta information too."""
        self.meta_info = _moved(self.meta_info, device)
        return super().to(device)

    # ---- put together -----------------------------------------------------------------

    @staticmethod
    def concat(
        data: Sequence[DataProto], *, global_keys: set[str] | None = None
    ) -> DataProto:
        """One after another. The meta information is that of the first one, but for
        `global_keys` ("metrics"): of dicts each entry becomes the list of all, others
        become a list. A single one is given back as it is."""
        if len(data) == 1:
            return data[0]
        keys = {METRICS} if global_keys is None else set(global_keys)
        return DataProto._concat(data, keys, join)

    @classmethod
    def join_results(cls, data: Sequence[Self]) -> Self:
        return data[0] if len(data) == 1 else super().join_results(data)

    @staticmethod
    def _merged(metas: list[dict[str, Any]], keys: set[str]) -> dict[str, Any]:
        out = dict(metas[0])
        for key in keys:
            values = [meta.get(key) for meta in metas]
            told = [value for value in values if value is not None]
            if told:
                out[key] = _entries(told) if isinstance(told[0], dict) else values
        return out

    @staticmethod
    def materialize_concat(
        data_refs: Any,
        *,
        global_keys: set[str] | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Wait for all of them, and concat the results that count."""
        if isinstance(data_refs, DataProto):
            return data_refs
        kept = decorator.collected(data_refs, timeout)
        return DataProto.concat(kept, global_keys=global_keys)


def _entries(dicts: list[dict[str, Any]]) -> dict[str, Any]:
    names = dict.fromkeys(name for one in dicts for name in one)
    return {n: _flat([one[n] for one in dicts if n in one]) for n in names}


def _flat(values: list[Any]) -> list[Any]:
    """Numbers stay a list; lists and arrays are put together, if they can be."""
    try:
        whole = np.array(values) if np.isscalar(values[0]) else np.concatenate(values)
    except Exception:
        return values
    flat: list[Any] = whole.tolist()
    return flat


def _moved(value: Any, device: Any) -> Any:
    if isinstance(value, dict):
        return {key: _moved(entry, device) for key, entry in value.items()}
    if isinstance(value, list):
        return [_moved(entry, device) for entry in value]
    return value.to(device) if is_tensor(value) else value
