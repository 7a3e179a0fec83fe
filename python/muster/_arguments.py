"""Checks of arguments. An option that does not exist is refused with the nearest name."""

from __future__ import annotations

import functools

from muster import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

# what the same thing is called elsewhere
_ELSEWHERE = {"num_gpus": "num_gpus_per_worker"}
_LETTERS = 6  # right ones for each mistake, in a name that was certainly misspelt


def check_options(what: str, given: Iterable[str], known: tuple[str, ...]) -> None:
    """TypeError for the first of `given` that is not in `known`."""
    for name in given:
        if name not in known:
            meant = _meant(name, known)
            hint = f"; is {meant!r} meant?" if meant else ""
            raise TypeError(f"{what} has no argument {name!r}{hint}")


def check_misspelt(what: str, given: Iterable[str], known: tuple[str, ...]) -> None:
    """The same where other names are allowed: only what is almost one of `known`."""
    for name in given:
        found = None if name in known else _core.nearest(name, known)
        if found is None or found[0].startswith(name):
            continue
        if found[1] * _LETTERS <= len(name):
            raise TypeError(f"{what}: {name!r} is misspelt: {found[0]!r} is meant")


def check_count(value: Any, field: str, least: int) -> int:
    """ValueError unless it is an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{field}: must be an integer of at least {least}: {value!r}")
    return int(value)


def _meant(name: str, known: tuple[str, ...]) -> str | None:
    if _ELSEWHERE.get(name) in known:
        return _ELSEWHERE[name]
    found = _core.nearest(name, known)
    return found[0] if found else None


def argument_names(function: Callable[..., Any]) -> tuple[str, ...]:
    code = function.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def options_checked(function: F) -> F:
    """A function whose keyword arguments are checked so."""
    known = argument_names(function)
    what = f"{function.__qualname__.removesuffix('.__init__')}()"

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if not kwargs.keys() <= known_set:
            check_options(what, kwargs, known)
        return function(*args, **kwargs)

    known_set = set(known)
    return checked  # type: ignore[return-value]
