"""Dispatch and Execute: names of modes, to which users may add their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self


class _Names(type):
    _registry: dict[str, Any]

    def __iter__(cls) -> Iterator[Any]:
        return iter(cls._registry.values())

    def __contains__(cls, item: Any) -> bool:
        return item in (cls._registry if isinstance(item, str) else cls.values())

    def __getitem__(cls, name: str) -> Any:
        return cls._registry[name]

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_") or name not in cls._registry:
            raise AttributeError(f"{cls.__name__} has no mode {name!r}")
        return cls._registry[name]

    def names(cls) -> list[str]:
        return list(cls._registry)

    def values(cls) -> list[Any]:
        return list(cls._registry.values())


class Mode(metaclass=_Names):
    _registry: dict[str, Any] = {}
    _next_value = 0

    def __init_subclass__(cls) -> None:
        cls._registry = {}
        cls._next_value = 0

    def __init__(self, name: str, value: int) -> None:
        self.name = name
        self.value = value

    @classmethod
    def register(cls, name: str) -> Self:
        """A new one, in capitals. ValueError if it is there."""
        name = name.upper()
        if name in cls._registry:
            raise ValueError(f"{cls.__name__}.{name} is there already")
        made: Self = cls(name, cls._next_value)
        cls._registry[name] = made
        cls._next_value += 1
        return made

    @classmethod
    def remove(cls, name: str) -> Self:
        gone: Self = cls._registry.pop(name.upper())
        return gone

    @classmethod
    def from_name(cls, name: str) -> Self | None:
        return cls._registry.get(name.upper())

    @classmethod
    def _of(cls, name: str) -> Self:
        """The one of that name in this process."""
        return cls.from_name(name) or cls.register(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._of, (self.name,)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}.{self.name}: {self.value}>"


class Dispatch(Mode):
    """Who gets which part of a call's arguments."""


class Execute(Mode):
    """Who is called."""


for _name in (
    "RANK_ZERO",
    "ONE_TO_ALL",
    "ALL_TO_ALL",
    "DP_COMPUTE",
    "DP_COMPUTE_PROTO",
    "DP_COMPUTE_PROTO_WITH_FUNC",
    "DP_COMPUTE_METRIC",
    "DIRECT_ROLLOUT_METHOD",
):
    Dispatch.register(_name)
for _name in ("ALL", "RANK_ZERO"):
    Execute.register(_name)
