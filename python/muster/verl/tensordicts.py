"""TensorDicts, divided and put together; their jagged tensors row by row."""

from __future__ import annotations

from typing import Any

from muster._adapters.checks import WrongValue
from muster._data.torch_arrays import is_tensor, the_torch


def _jagged(data: Any) -> list[str]:
    """The names of tensors whose rows have unequal lengths."""
    return [name for name, v in data.items() if is_tensor(v) and v.is_nested]


def _rest(data: Any, names: list[str]) -> Any:
    return data.exclude(*names) if names else data


def chunk(data: Any, chunks: int) -> list[Any]:
    """That many parts of equally many rows."""
    names = _jagged(data)
    if not names:
        return list(data.chunk(chunks))
    size = len(data) // chunks
    parts = [_rest(data, names)[i * size : (i + 1) * size] for i in range(chunks)]
    for name in names:
        rows = _rows_of(data[name])
        for i, part in enumerate(parts):
            part[name] = _of_rows(rows[i * size : (i + 1) * size], data[name])
    return parts


def concat(parts: list[Any]) -> Any:
    """One after another; of those without rows the first."""
    first = parts[0]
    names = _jagged(first)
    if len(first.batch_size) == 0:
        return first
    for part in parts:
        if odd := set(_jagged(part)) ^ set(names):
            raise WrongValue(f"concat: only some of {sorted(odd)} are jagged")
    if not names:
        return type(first).cat(parts)
    whole = type(first).cat([_rest(part, names) for part in parts])
    for name in names:
        rows = [row for part in parts for row in _rows_of(part[name])]
        whole[name] = _of_rows(rows, first[name])
    return whole


def _ragged_dim(nested: Any) -> int:
    """The dimension with unequal lengths; dimension 0 is that of rows."""
    found: int = nested._ragged_idx
    return found


def _rows_of(nested: Any) -> list[Any]:
    # unbind() divides the wrong dimension of some that are not contiguous or 3-D
    dim = _ragged_dim(nested) - 1
    offsets = nested.offsets().tolist()
    lengths = nested.lengths()
    ends = offsets[1:]
    if lengths is not None:
        ends = [a + n for a, n in zip(offsets, lengths.tolist(), strict=False)]
    values = nested.values()
    starts = offsets[: len(ends)]
    return [values.narrow(dim, a, b - a) for a, b in zip(starts, ends, strict=True)]


def _of_rows(rows: list[Any], like: Any) -> Any:
    """A jagged tensor of these rows, ragged where `like` is."""
    torch = the_torch()
    dim = _ragged_dim(like)
    lengths = torch.tensor([0, *(row.shape[dim - 1] for row in rows)])
    offsets = lengths.cumsum(0).to(like.device)
    values = torch.cat(rows, dim=dim - 1)
    return torch.nested.nested_tensor_from_jagged(values, offsets, jagged_dim=dim)
