"""A column as it is sent: big parts stay in the store, and their names travel."""

# What lies in a store already goes by its name, with the list of rows that are meant.
# Of other memory those rows alone are copied, once, each column into an object of its
# own: so a later reader of the column fetches this column and no other.

from __future__ import annotations

from typing import Any

import numpy as np

from muster import _core
from muster._core import Rows
from muster._data import column as _column
from muster._data import remote_array
from muster._data.column import Column, Memo, Part
from muster._data.remote_array import RemoteArray, RemoteObjects
from muster._data.store import empty, put
from muster.ragged import Ragged

Span = tuple[int, int, int, int]  # block, first, end, rows

PARTS_MAX = 256  # of one column; more are put together first


def sendable(column: Column, memo: Memo) -> Column:
    """The same rows, of parts that can be pickled beside their bytes."""
    # `memo` lets columns with the same rows share them.
    spans = column.rows.spans(len(column.parts))
    if not spans:
        return Column.of(_empty(column.parts[0]))
    if len(spans) > PARTS_MAX:
        return Column.of(_gathered(column))
    if column.kind == "objects":
        return _sendable_objects(column, spans, memo)
    parts: list[Part] = []
    to = [(0, 0)] * len(column.parts)
    for span in spans:
        found = _part(column.parts[span[0]], span)
        if found is None:
            return Column.of(_gathered(column))
        part, first = found
        to[span[0]] = (len(parts), first)
        parts.append(part)
    return Column(parts, _moved(column.rows, to, memo))


def is_worth(column: Column, chunks: int) -> bool:
    """Would a chunk of it go by name anyway?"""
    return (
        column.kind != "objects" and column.nbytes // chunks >= remote_array.REMOTE_MIN
    )


def _moved(rows: Rows, to: list[tuple[int, int]], memo: Memo) -> Rows:
    key = (id(rows), *to)
    if key not in memo:
        memo[key] = (rows.moved(to), rows)  # held, so that no other has its id
    return memo[key][0]


def _empty(part: Part) -> Part:
    if isinstance(part, Ragged):
        none: Any = np.empty((0, *part.element_shape), dtype=part.dtype)
        return Ragged._view(none, np.zeros(1, dtype=np.int64))
    return np.empty((0, *part.shape[1:]), dtype=part.dtype)


def _part(part: Part, span: Span) -> tuple[Part, int] | None:
    """(what is sent of it, which of its rows is the first there)."""
    # None: so few of its rows are meant that they are better put together.
    _, first, end, count = span
    if isinstance(part, RemoteArray):
        return part, 0
    if isinstance(part, Ragged):
        return _ragged_part(part, span)
    assert isinstance(part, np.ndarray)
    rows = part[first:end]
    if end - first <= count or remote_array.is_stored(rows):
        return remote_array.sent(rows), first
    return None


def _ragged_part(part: Ragged, span: Span) -> tuple[Part, int] | None:
    _, first, end, count = span
    offsets = part.offsets[first : end + 1]
    if isinstance(part._values, RemoteArray):
        return Ragged._view(part._values, offsets), first
    values = part.values[offsets[0] : offsets[-1]]
    if end - first <= count or remote_array.is_stored(values):
        return Ragged._view(remote_array.sent(values), offsets - offsets[0]), first
    return None


def _gathered(column: Column) -> Part:
    """All rows in one part, which is in the store if it is big."""
    if column.nbytes < remote_array.REMOTE_MIN or column._whole is not None:
        return _whole(column)
    if column.kind == "fixed":
        part: Any = column.parts[0]
        return _in_store(column, (len(column), *part.shape[1:]), part.dtype)
    part = column.parts[0]
    sums = np.zeros(len(column) + 1, dtype=np.int64)
    np.cumsum(column.lengths(), out=sums[1:])
    shape = (int(sums[-1]), *part.element_shape)
    return Ragged._view(_in_store(column, shape, part.dtype), sums)


def _in_store(column: Column, shape: tuple[int, ...], dtype: Any) -> RemoteArray:
    out = empty(shape, dtype)
    fill = _column.gather_fixed if column.kind == "fixed" else _column.gather_ragged
    fill(_column.fetched(column), out)
    _core.piece_count(out.nbytes)
    return RemoteArray.of(out)


def _whole(column: Column) -> Part:
    whole = column.read()
    if isinstance(whole, Ragged):
        return Ragged._view(
            remote_array.sent(whole._used()), whole.offsets - whole.offsets[0]
        )
    if whole.dtype == object:
        return RemoteObjects(put(whole), len(whole))
    return remote_array.sent(whole)


def _sendable_objects(column: Column, spans: list[Span], memo: Memo) -> Column:
    parts: list[Any] = [column.parts[block] for block, *_ in spans]
    if not all(isinstance(part, RemoteObjects) for part in parts):
        return Column.of(_whole(column))
    to = [(0, 0)] * len(column.parts)
    for i, (block, *_) in enumerate(spans):
        to[block] = (i, 0)
    return Column(parts, _moved(column.rows, to, memo))
