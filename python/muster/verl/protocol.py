"""DataProto as verl has it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from muster._adapters import dataproto
from muster._adapters.checks import WrongType, WrongValue
from muster._adapters.columns import Columns
from muster._adapters.dataproto import pad_dataproto_to_divisor, unpad_dataproto
from muster._adapters.dataproto_parts import (
    copied_meta,
    union_numpy_dict,
    union_tensor_dict,
)
from muster._adapters.lazy_column import join, repeat
from muster._data.batch_parts import METRICS, common_meta
from muster._data.remote_array import object_array
from muster._data.torch_arrays import is_tensor, the_torch

__all__ = [
    "DataProto",
    "DataProtoConfig",
    "DataProtoItem",
    "collate_fn",
    "fold_batch_dim",
    "pad_dataproto_to_divisor",
    "unfold_batch_dim",
    "union_numpy_dict",
    "union_tensor_dict",
    "unpad_dataproto",
]


class _Config(type):
    auto_padding_key = "_verl_auto_padding"  # of meta_info
    _enabled = False

    @property
    def auto_padding(cls) -> bool:
        """Whether every DataProto is padded, where a group divides it."""
        setting = os.environ.get("VERL_AUTO_PADDING", "").upper()
        return cls._enabled or setting in ("TRUE", "1")

    @auto_padding.setter
    def auto_padding(cls, enabled: bool) -> None:
        if not isinstance(enabled, bool):
            raise WrongType(f"auto_padding: must be True or False: {enabled!r}")
        cls._enabled = enabled


class DataProtoConfig(metaclass=_Config):
    pass


@dataclasses.dataclass
class DataProtoItem:
    batch: Any = None  # a dict
    non_tensor_batch: dict[str, Any] = dataclasses.field(default_factory=dict)
    meta_info: dict[str, Any] = dataclasses.field(default_factory=dict)


class DataProto(dataproto.DataProto):
    """Tensors, arrays of anything, and meta information, with the same rows."""

    @staticmethod
    def _objects(values: Any) -> NDArray[Any]:
        if isinstance(values, np.ndarray):
            return values
        return np.array(values, dtype=object)

    @classmethod
    def from_dict(
        cls,
        tensors: dict[str, Any] | None = None,
        non_tensors: dict[str, Any] | None = None,
        meta_info: dict[str, Any] | None = None,
        num_batch_dims: int = 1,
        auto_padding: bool = False,
    ) -> Self:
        """auto_padding: a group pads it, where it divides it."""
        new = super().from_dict(tensors, non_tensors, meta_info, num_batch_dims)
        if auto_padding:
            new.meta_info[DataProtoConfig.auto_padding_key] = True
        return new

    @classmethod
    def from_single_dict(
        cls,
        data: dict[str, Any],
        meta_info: dict[str, Any] | None = None,
        auto_padding: bool = False,
    ) -> Self:
        new = super().from_single_dict(data, meta_info)
        if auto_padding:
            new.meta_info[DataProtoConfig.auto_padding_key] = True
        return new

    @classmethod
    def from_tensordict(
        cls,
        tensor_dict: Any = None,
        meta_info: dict[str, Any] | None = None,
        num_batch_dims: int = 1,
    ) -> Self:
        """Tensors are columns, stacks of anything arrays, single values meta_info."""
        tensors: dict[str, Any] = {}
        arrays: dict[str, Any] = {}
        meta = {} if meta_info is None else meta_info
        for name in () if tensor_dict is None else tensor_dict.keys():
            value = tensor_dict.get(name)
            if is_tensor(value):
                tensors[name] = value
            else:
                _add_non_tensor(name, value, arrays, meta)
        return cls.from_dict(tensors, arrays, meta, num_batch_dims)

    def to_tensordict(self) -> Any:
        """The reverse of from_tensordict."""
        from tensordict import (  # type: ignore[import-not-found]
            NonTensorData,
            NonTensorStack,
            TensorDict,
        )

        entries = {} if self.batch is None else self.batch.to_dict()
        if both := entries.keys() & self.non_tensor_batch.keys():
            raise WrongValue(f"a tensor and an array are called {both.pop()!r}")
        for name, array in self.non_tensor_batch.items():
            rows = [NonTensorData(row) for row in array]
            entries[name] = NonTensorStack.from_list(rows)
        made = TensorDict(entries, batch_size=[len(self)])
        for key, value in copied_meta(self.meta_info).items():
            made.set_non_tensor(key, value)
        return made

    def _item(self, index: int) -> DataProtoItem:
        batch = None if self.batch is None else self.batch[index]
        row = {name: v[index] for name, v in self.non_tensor_batch.items()}
        return DataProtoItem(batch, row, copied_meta(self.meta_info))

    def is_padding_enabled(self) -> bool:
        asked = self.meta_info.get(DataProtoConfig.auto_padding_key, False)
        return bool(asked) or DataProtoConfig.auto_padding

    @staticmethod
    def concat(data: Sequence[DataProto]) -> DataProto:
        """One after another. Meta information must agree, but for "metrics": the dicts
        of all, or the lists of them, become one dict of lists."""
        return DataProto._concat(data, {METRICS}, join)

    @staticmethod
    def _merged(metas: list[dict[str, Any]], keys: set[str]) -> dict[str, Any]:
        try:
            out = common_meta(metas, keys)
        except ValueError as e:
            raise WrongValue(*e.args) from None
        for key in keys:
            values = [m[key] for m in metas if m.get(key) is not None]
            dicts = [d for t in values for d in (t if isinstance(t, list) else [t])]
            if dicts:
                names = dict.fromkeys(name for d in dicts for name in d)
                out[key] = {n: [d[n] for d in dicts if n in d] for n in names}
        return out

    def sample_level_repeat(self, repeat_times: Any) -> DataProto:
        """Row i as many times as number i says."""
        if is_tensor(repeat_times):
            repeat_times = repeat_times.detach().cpu().numpy()
        times = np.asarray(repeat_times, dtype=np.int64)
        if times.shape != (len(self),) or (times < 0).any():
            raise WrongValue(f"repeat_times: a number for each of {len(self)} rows")
        return self._repeated(times, True, int(times.sum()))

    def unfold_column_chunks(
        self, n_split: int, split_keys: Sequence[str] | None = None
    ) -> DataProto:
        """Each row becomes `n_split` rows: of these columns with a part of the second
        dimension each, of the others with the same."""
        keys = list(split_keys or ())

        def unfolded(name: str, value: Any) -> Any:
            if name not in keys:
                return repeat(value, n_split, True, {})
            rows, width, *rest = value.shape
            return value.reshape(rows * n_split, width // n_split, *rest)

        batch = None
        if self.batch is not None:
            tensors = {name: unfolded(name, v) for name, v in self.batch.items()}
            batch = Columns(tensors, len(self) * n_split)
        arrays = {name: unfolded(name, v) for name, v in self.non_tensor_batch.items()}
        return self._like(batch, arrays)

    def print_size(self, prefix: str = "") -> None:
        tensors = [] if self.batch is None else self.batch.values()
        arrays = self.non_tensor_batch.values()
        gb = [sum(v.nbytes for v in values) / 1024**3 for values in (tensors, arrays)]
        text = f"Size of tensordict: {gb[0]} GB, size of non_tensor_batch: {gb[1]} GB"
        print(f"{prefix}, {text}" if prefix else text)

    def get_data_info(self) -> str:
        lines = ["batch"]
        for name, value in [] if self.batch is None else self.batch.items():
            device = getattr(value, "device", "cpu")
            lines.append(f"  {name}: {tuple(value.shape)} ({value.dtype}) {device}")
        lines.append("non_tensor_batch")
        for name, value in self.non_tensor_batch.items():
            lines.append(f"  {name}: ndarray{value.shape} ({value.dtype})")
        lines.append("meta_info")
        lines += [f"  {k}: {type(v).__name__}" for k, v in self.meta_info.items()]
        return "\n".join(lines)


def _add_non_tensor(
    name: str, value: Any, arrays: dict[str, Any], meta: dict[str, Any]
) -> None:
    """Of a TensorDict: a stack of anything, or one thing."""
    from tensordict import NonTensorStack

    if isinstance(value, NonTensorStack):
        arrays[name] = np.array([row.data for row in value], dtype=object)
    else:
        meta[name] = value.data


def collate_fn(x: Sequence[DataProtoItem]) -> DataProto:
    """Items as the rows of one."""

    def stacked(rows: list[Any]) -> Any:
        return the_torch().stack(rows) if is_tensor(rows[0]) else np.stack(rows)

    tensors = {n: stacked([item.batch[n] for item in x]) for n in x[0].batch or ()}
    arrays = {
        name: object_array([item.non_tensor_batch[name] for item in x])
        for name in x[0].non_tensor_batch
    }
    return DataProto(Columns(tensors) if tensors else None, arrays)


# ---- several batch dimensions ---------------------------------------------------------


def fold_batch_dim(data: DataProto, new_batch_size: int) -> DataProto:
    """[rows, ...] to [new_batch_size, rows / new_batch_size, ...]."""
    if new_batch_size < 1 or len(data) % new_batch_size:
        raise WrongValue(f"{len(data)} rows are no multiple of {new_batch_size}")
    return _reshaped(data, 1, (new_batch_size, len(data) // new_batch_size))


def unfold_batch_dim(data: DataProto, batch_dims: int = 2) -> DataProto:
    """The first dimensions as one of rows."""
    return _reshaped(data, batch_dims, (-1,))


def _reshaped(data: DataProto, dims: int, shape: tuple[int, ...]) -> DataProto:
    def one(value: Any) -> Any:
        return value.reshape(*shape, *value.shape[dims:])

    batch = None
    if data.batch is not None:
        batch = Columns({name: one(v) for name, v in data.batch.items()})
    arrays = {name: one(v) for name, v in data.non_tensor_batch.items()}
    return data._like(batch, arrays)
