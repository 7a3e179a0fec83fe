"""The arrays of a DataProto by name, some of which may not have been read yet."""

from __future__ import annotations

from muster._adapters.lazy_column import Late, packed, ready
from muster._data.remote_array import together

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Self


class Arrays(dict[str, "Any"]):
    """A dict whose values are read when they are asked for."""

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if isinstance(value, Late):
            value = ready(value)
            self[name] = value
        return value

    def __iter__(self) -> Iterator[str]:
        """Its own, so that dict(x) and {**x} ask for the values, as all others do."""
        return iter(self.keys())

    def cells(self) -> dict[str, Any]:
        """As they are."""
        return {name: super(Arrays, self).__getitem__(name) for name in self.keys()}

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default

    def values(self) -> Any:
        return [self[name] for name in self.keys()]

    def items(self) -> Any:
        return [(name, self[name]) for name in self.keys()]

    def pop(self, name: str, *default: Any) -> Any:
        if name in self:
            value = self[name]
            del self[name]
            return value
        return super().pop(name, *default)

    def popitem(self) -> tuple[str, Any]:
        name, value = super().popitem()
        return name, ready(value)

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def copy(self) -> Self:
        return type(self)(self.cells())

    def __or__(self, other: Any) -> Any:
        return dict(self.items()) | other

    def __ror__(self, other: Any) -> Any:
        return other | dict(self.items())

    def __eq__(self, other: object) -> bool:
        return dict(self.items()) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __repr__(self) -> str:
        return repr(dict(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return of, (sent(self),)


def of(cells: dict[str, Any]) -> dict[str, Any]:
    if any(isinstance(cell, Late) for cell in cells.values()):
        return Arrays(cells)
    return cells


def cells_of(arrays: dict[str, Any]) -> dict[str, Any]:
    """As they are, read or not."""
    return arrays.cells() if isinstance(arrays, Arrays) else arrays


def each(arrays: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Of the same names, without reading what was not."""
    return of({name: change(cell) for name, cell in cells_of(arrays).items()})


def chosen(arrays: dict[str, Any], names: list[str] | None) -> dict[str, Any]:
    """Some of them; None: all."""
    cells = cells_of(arrays)
    return of({n: c for n, c in cells.items() if names is None or n in names})


def sent(arrays: dict[str, Any]) -> dict[str, Any]:
    """As they are pickled."""
    memo: dict[Any, Any] = {}
    with together():
        return {name: packed(cell, memo) for name, cell in cells_of(arrays).items()}


def taken(arrays: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Some of them, which are then no longer there."""
    cells = cells_of(arrays)
    found = of({name: cells[name] for name in names})
    for name in names:
        del arrays[name]
    return found
