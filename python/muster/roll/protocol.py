"""DataProto as ROLL has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from muster._adapters import dataproto
from muster._adapters.checks import WrongType, WrongValue
from muster._adapters.columns import Columns, cells_of
from muster._adapters.dataproto import pad_dataproto_to_divisor, unpad_dataproto
from muster._adapters.dataproto_parts import (
    names_of,
    union_numpy_dict,
    union_tensor_dict,
)
from muster._adapters.lazy_column import join
from muster._adapters.refused import refuse_members
from muster._data.batch_parts import METRICS
from muster._data.remote_array import object_array
from muster._data.torch_arrays import is_tensor
from muster.roll import decorator

__all__ = [
    "DataProto",
    "collate_fn",
    "custom_np_concatenate",
    "list_of_dict_to_dict_of_list",
    "move_tensors_to_device",
    "pad_dataproto_to_divisor",
    "union_numpy_dict",
    "union_tensor_dict",
    "unpad_dataproto",
]


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
            raise WrongType("remote_batch: there is none: muster's store has the data")
        super().__init__(batch, non_tensor_batch, meta_info)

    @property
    def batch(self) -> Columns:
        """Never None: one without columns takes the first that is set."""
        if self._batch is None:
            count = len(self) if self.non_tensor_batch else -1
            self._batch = Columns.open() if count < 0 else Columns({}, count)
        return self._batch

    @batch.setter
    def batch(self, value: Any) -> None:
        dataproto.DataProto.batch.fset(self, value)  # type: ignore[attr-defined]

    @staticmethod
    def _objects(values: Any) -> NDArray[Any]:
        return object_array(values)

    def check_consistency(self) -> None:
        super().check_consistency()
        for name, value in self.non_tensor_batch.items():
            if value.dtype != object:
                raise WrongType(
                    f"non_tensor_batch[{name!r}] is of {value.dtype}, not of objects: "
                    "from_dict makes it so"
                )
            if name in cells_of(self._batch):
                raise WrongValue(f"a tensor and an array are called {name!r}")

    def _item(self, index: int) -> Self:
        return self.slice(index, index + 1)

    # ---- columns ----------------------------------------------------------------------

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        self._read(name)
        if name in self.batch:
            del self.batch[name]
        else:
            del self.non_tensor_batch[name]

    def update(self, other: dict[str, Any]) -> None:
        """Put these columns in the place of those with the same name, or beside them:
        tensors and arrays of numbers, or arrays of objects."""
        for name, value in other.items():
            if not is_tensor(value) and not isinstance(value, np.ndarray):
                raise WrongType(
                    f"{name!r}: a tensor or an array is needed, not "
                    f"{type(value).__name__}"
                )
            if self.has_columns() and len(value) != len(self):
                raise WrongValue(f"{name!r} has {len(value)} rows, not {len(self)}")
            if isinstance(value, np.ndarray):
                if name in self.batch:
                    del self.batch[name]
                self.non_tensor_batch[name] = value
                continue
            self.non_tensor_batch.pop(name, None)
            self.batch[name] = value

    def pop(
        self,
        batch_keys: Sequence[str] | None = None,
        non_tensor_batch_keys: Sequence[str] | None = None,
        meta_info_keys: Sequence[str] | None = None,
    ) -> Self:
        count = len(self)
        taken = super().pop(batch_keys, non_tensor_batch_keys, meta_info_keys)
        if taken._batch is None:
            taken.batch = Columns({}, count)
        return taken

    @staticmethod
    def validate_input(keys: Any) -> list[str] | None:
        """A name as a list of it."""
        return None if keys is None else names_of(keys)

    def rename(
        self,
        old_keys: list[str] | str | None = None,
        new_keys: list[str] | str | None = None,
    ) -> Self:
        for name in names_of(new_keys):
            if name in self.non_tensor_batch:
                raise WrongValue(f"there is an array {name!r} already")
        return super().rename(old_keys, new_keys)

    def to(self, device: Any) -> Self:
        """Tensors in the meta information too."""
        self.meta_info = move_tensors_to_device(self.meta_info, device)
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
            given = [value for value in values if value is not None]
            if given:
                out[key] = _entries(given) if isinstance(given[0], dict) else values
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


# ---- functions ------------------------------------------------------------------------


def move_tensors_to_device(data: Any, device: Any) -> Any:
    """Those in dicts and lists too, of which it makes new ones."""
    if isinstance(data, dict):
        return {k: move_tensors_to_device(v, device) for k, v in data.items()}
    if isinstance(data, list):
        return [move_tensors_to_device(entry, device) for entry in data]
    return data.to(device) if is_tensor(data) else data


def list_of_dict_to_dict_of_list(
    list_of_dict: Sequence[dict[str, Any] | None],
) -> dict[str, list[Any]]:
    """Of each key the values of those that have it."""
    out: dict[str, list[Any]] = {}
    for one in list_of_dict or ():
        if one is not None and not isinstance(one, dict):
            raise WrongType(f"a dict is needed: {one!r}")
        for key, value in (one or {}).items():
            out.setdefault(key, []).append(value)
    return out


def collate_fn(x: Sequence[DataProto]) -> DataProto:
    """One after another, with the meta information of the last."""
    joined = DataProto.concat(x)
    joined.meta_info = x[-1].meta_info
    return joined


def custom_np_concatenate(val: Sequence[Any]) -> NDArray[Any]:
    """The elements of all of them, as objects."""
    return object_array([element for array in val for element in array])


refuse_members("roll", DataProto)
