"""What is divided among ranks and put together again, whatever its type is."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

from muster._adapters.checks import WrongValue
from muster._data import rows as _rows
from muster._data.store import resolvable
from muster.future import Future, as_argument, get
from muster.verl import tensordicts

# the key under which a dispatch function tells how many rows it has added
PADDING = "_padding_size_key_x123d"


def chunk(value: Any, chunks: int) -> list[Any]:
    """That many equal parts. Those of a value that asks for padding, which some modes do
    not do, may differ by one row."""
    rows = _rows.rows_of(value)
    if rows is None:
        raise TypeError(
            f"a {type(value).__name__} cannot be divided among ranks: it has neither "
            "chunk() nor rows"
        )
    if rows % chunks and rows != _rows.UNKNOWN and not _asks_for_padding(value):
        raise WrongValue(
            f"only equal chunks are supported: {rows} rows of a {type(value).__name__} "
            f"cannot be divided by {chunks}; pad them (pad_dataproto_to_divisor, "
            "auto_padding)"
        )
    if _is_tensordict(value):
        return tensordicts.chunk(value, chunks)
    return list(_rows.divide(value, rows, chunks))


def _asks_for_padding(value: Any) -> bool:
    asked = getattr(value, "is_padding_enabled", None)
    return asked is not None and bool(asked())


def send_chunks(value: Any, chunks: int) -> list[Any]:
    """The same, to be sent: of a DataProto that is in the store already."""
    return chunk(_rows.stored(value, chunks), chunks)


def concat(parts: list[Any]) -> Any:
    """One of several; of futures a DataProtoFuture."""
    first = parts[0]
    if isinstance(first, Future):
        return DataProtoFuture.concat(parts)
    if _is_tensordict(first):
        return tensordicts.concat(parts)
    return _rows.join(parts)


def pad(value: Any, chunks: int, rows: int | None) -> tuple[Any, int]:
    """(it with as many rows as `chunks` divides, how many were added), if it asks for
    that. `rows`: how many it must have, as others of the same call have."""
    if not _asks_for_padding(value):
        return value, -1
    if rows is not None and len(value) != rows:
        raise WrongValue(
            f"all arguments must have the same rows to be padded: {len(value)}, {rows}"
        )
    padded = copy.copy(value)  # the caller's stays as it is
    more = -len(value) % chunks
    padded.padding(padding_size=more)
    return padded, more


class Padding:
    """How many rows were added to what was sent, whose parts by rank are given."""

    def __init__(
        self, added: int = 0, args: Sequence[Any] = (), kwargs: Any = None
    ) -> None:
        self.added = added
        values = [*args, *(kwargs or {}).values()] if added > 0 else []
        padded = [v for v in values if hasattr(v[0], "is_padding_enabled")]
        self.rows = sum(map(len, padded[0])) if padded else added

    def strip(self, result: Any) -> Any:
        """Without the rows that were added, where it has a row for each that was sent."""
        if self.added <= 0:
            return result
        if _is_tensordict(result):
            kept = self.rows - self.added
            return result[:kept] if len(result) == self.rows else result
        return _rows.strip(result, self.rows, self.added)


def _is_tensordict(value: Any) -> bool:
    return hasattr(type(value), "batch_size") and hasattr(type(value), "cat")


class BatchData:
    """A value that is divided, or a list of values that are put together."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def is_chunkable(self) -> bool:
        return _rows.rows_of(self._data) is not None

    def is_concatable(self) -> bool:
        listed = isinstance(self._data, (list, tuple)) and len(self._data) > 0
        return listed and _rows.rows_of(self._data[0]) is not None

    def chunk(self, chunks: int) -> list[Any]:
        return chunk(self._data, chunks)

    def concat(self) -> Any:
        if not self._data:
            raise WrongValue("concat: nothing to put together")
        return concat(list(self._data))


class DataProtoFuture:
    """The joined result of a call that was not waited for.

    `get()` waits. As an argument of another call it is resolved by the worker that gets
    it, which fetches what it needs from where it is: the call is made when the results are
    there, and they do not pass through the driver.
    """

    def __init__(
        self,
        collect_fn: Callable[[list[Any]], Any],
        futures: list[Future],
        dispatch_fn: Callable[[Any], Any] | None = None,
    ) -> None:
        self.collect_fn = collect_fn
        self.futures = futures
        self.dispatch_fn = dispatch_fn
        self.padding = Padding()

    @staticmethod
    def concat(data: list[Future]) -> DataProtoFuture:
        return DataProtoFuture(concat, data)

    def chunk(self, chunks: int) -> list[DataProtoFuture]:
        """One future of each part."""
        parts = [functools.partial(_part, i, chunks) for i in range(chunks)]
        made = [DataProtoFuture(self.collect_fn, self.futures, part) for part in parts]
        for one in made:
            one.padding = self.padding
        return made

    def get(self, timeout: float | None = None) -> Any:
        return self._made(get(self.futures, timeout))

    def _made(self, results: list[Any]) -> Any:
        whole = self.padding.strip(self.collect_fn(results))
        return whole if self.dispatch_fn is None else self.dispatch_fn(whole)

    def resolved(self) -> _Resolved:
        """What is sent in its place, when the results are there."""
        how = (self.collect_fn, self.dispatch_fn, self.padding)
        return _Resolved(*how, [as_argument(future) for future in self.futures])

    def __reduce__(self) -> tuple[Any, ...]:
        return self.resolved().__reduce__()


class _Resolved:
    """Pickles to the value of a DataProtoFuture."""

    def __init__(self, *how: Any) -> None:
        self._how = how

    def __reduce__(self) -> tuple[Any, ...]:
        return _value, self._how


resolvable[DataProtoFuture] = DataProtoFuture.resolved


def _part(index: int, chunks: int, whole: Any) -> Any:
    return chunk(whole, chunks)[index]


def _value(
    collect_fn: Callable[[list[Any]], Any],
    dispatch_fn: Callable[[Any], Any] | None,
    padding: Padding,
    results: list[Any],
) -> Any:
    future = DataProtoFuture(collect_fn, [], dispatch_fn)
    future.padding = padding
    return future._made(results)
