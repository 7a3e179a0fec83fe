"""The modules that a class uses which goes to workers by value: worth importing before
they are forked."""

from __future__ import annotations

import sys
from types import CodeType, ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_KNOWN = frozenset({"muster", "cloudpickle", *sys.stdlib_module_names})


def modules_used(cls: type) -> list[str]:
    """By the code of the class, and by what it uses of its own module, in order."""
    found: dict[str, None] = {}
    seen: set[int] = set()
    todo: list[Any] = [cls]
    while todo:
        thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, ModuleType):
            found[thing.__name__] = None
            continue
        module = getattr(thing, "__module__", None)
        if module != cls.__module__:
            if isinstance(module, str):
                found[module] = None
            continue
        todo += _parts(thing)
    return sorted(name for name in found if _is_worth_it(name))


def _is_worth_it(module: str) -> bool:
    return module in sys.modules and module.partition(".")[0] not in _KNOWN


def _parts(thing: Any) -> Iterator[Any]:
    """What a class or a function is made of."""
    if isinstance(thing, type):
        yield from thing.__bases__
        for member in vars(thing).values():
            yield getattr(member, "__func__", None) or getattr(member, "fget", member)
    code = getattr(thing, "__code__", None)
    if isinstance(code, CodeType):
        around = thing.__globals__
        for name in _names(code):
            if name in around:
                yield around[name]
        yield from _contents(thing.__closure__ or ())


def _contents(cells: tuple[Any, ...]) -> Iterator[Any]:
    for cell in cells:
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            continue


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
