"""Device ids from the Python expressions that ROLL evaluates, without evaluating them."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from muster import _core

_DEVICES_MAX = 1 << 16
_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class _Unknown(Exception):
    """Something that is no part of a device mapping."""


def parse(text: str) -> list[int]:
    """Of "0-7,16", "list(range(0, 8))" or "[i for i in range(4)]"; ValueError says what
    is wrong with it."""
    try:
        return _core.device_ids(text)
    except ValueError as wrong:
        if " for " not in text:
            raise
        try:
            return _comprehension(ast.parse(text.strip(), mode="eval").body)
        except (_Unknown, SyntaxError, TypeError, ZeroDivisionError, RecursionError):
            raise wrong from None


def _comprehension(node: ast.AST) -> list[int]:
    """[expression for name in range(...) if condition], also inside list()."""
    if isinstance(node, ast.Call) and _is_call(node, "list") and len(node.args) == 1:
        node = node.args[0]
    if (
        not isinstance(node, (ast.ListComp, ast.GeneratorExp))
        or len(node.generators) > 1
    ):
        raise _Unknown
    loop = node.generators[0]
    if not isinstance(loop.target, ast.Name) or not isinstance(loop.iter, ast.Call):
        raise _Unknown
    name, found = loop.target.id, []
    for i in _range(loop.iter):
        if all(_value(condition, {name: i}) for condition in loop.ifs):
            found.append(_value(node.elt, {name: i}))
    if not all(type(device) is int and device >= 0 for device in found):
        raise _Unknown
    return found


def _is_call(node: ast.Call, name: str) -> bool:
    called = isinstance(node.func, ast.Name) and node.func.id == name
    return called and not node.keywords


def _range(node: ast.Call) -> range:
    if not _is_call(node, "range") or not 1 <= len(node.args) <= 3:
        raise _Unknown
    found = range(*(_value(argument, {}) for argument in node.args))
    if len(found) > _DEVICES_MAX:
        raise _Unknown
    return found


def _value(node: ast.AST, names: dict[str, int]) -> int:
    """Of whole numbers, names, arithmetic and comparisons."""
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            pass
        case ast.Compare(left=left, ops=[op], comparators=[right]) if (
            type(op) in _OPERATORS
        ):
            pass
        case _:
            raise _Unknown
    result: int = _OPERATORS[type(op)](_value(left, names), _value(right, names))
    return result
