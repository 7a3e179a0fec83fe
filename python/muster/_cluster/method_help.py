"""The docstring and the signature of a registered method, as its class has them."""

# Where the class is at hand they are those of its function. Pickled, for a process that
# perhaps cannot import the class, they are plain data: a default value or an annotation
# that is more than a constant goes as the text that `help()` shows of it. `inspect` is
# imported only where a signature is asked for: it takes 5 ms, which `Cluster()` can do without.

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import inspect
    from collections.abc import Iterator
    from typing import Any

_CONSTANTS = (type(None), bool, int, float, str, bytes)
_VAR_POSITIONAL, _VAR_KEYWORD = 0x04, 0x08  # flags of a code object
_RETURN = "return"  # in annotations
_TEXT_MAX = 500  # of a default value


class Shown:
    """Stands for a value of which only the text is known."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[Any, ...]:
        return Shown, (self.text,)


class MethodHelp:
    """What `help()` tells of a method whose function is elsewhere."""

    __slots__ = ("doc", "parameters", "returns")

    def __init__(self, doc: str | None, parameters: list[Any], returns: Any) -> None:
        self.doc = doc
        self.parameters = (
            parameters  # (name, kind, () or (default,), () or (annotation,))
        )
        self.returns = returns  # () or (annotation,)

    def __reduce__(self) -> tuple[Any, ...]:
        return MethodHelp, (self.doc, self.parameters, self.returns)

    @property
    def signature(self) -> inspect.Signature:
        from inspect import Parameter, Signature, _ParameterKind

        empty = Parameter.empty
        made = [
            Parameter(
                name,
                _ParameterKind(kind),
                default=default[0] if default else empty,
                annotation=annotation[0] if annotation else empty,
            )
            for name, kind, default, annotation in self.parameters
        ]
        returns = self.returns[0] if self.returns else empty
        return Signature(made, return_annotation=returns)


def describe(function: Any) -> MethodHelp | None:
    """Of a function or a bound method; None: it is another kind of callable."""
    if isinstance(function, MethodHelp):
        return function
    plain = getattr(function, "__func__", function)
    while hasattr(plain, "__wrapped__"):
        plain = plain.__wrapped__
    if not hasattr(plain, "__code__"):
        return None
    parameters = list(_parameters(plain))
    if hasattr(function, "__self__") and parameters and parameters[0][1] < 2:
        del parameters[0]  # self
    return MethodHelp(
        function.__doc__, parameters, _text(plain.__annotations__, _RETURN)
    )


def help_of(function: Any) -> tuple[str | None, inspect.Signature | None]:
    """Docstring and signature; None: there is none, or it is not known."""
    if isinstance(function, MethodHelp):
        return function.doc, function.signature
    from inspect import signature

    try:
        return function.__doc__, signature(function)
    except (TypeError, ValueError):  # a callable of another kind
        return getattr(function, "__doc__", None), None


def _parameters(function: Any) -> Iterator[tuple[str, int, Any, Any]]:
    """Kinds are numbered as in `inspect`."""
    code = function.__code__
    names = code.co_varnames
    count, keywords = code.co_argcount, code.co_kwonlyargcount
    given = function.__defaults__ or ()
    defaults = dict(zip(names[count - len(given) : count], given, strict=True))
    defaults |= function.__kwdefaults__ or {}
    kinds = [0] * code.co_posonlyargcount + [1] * (count - code.co_posonlyargcount)
    order = list(zip(names[:count], kinds, strict=True))
    rest = count + keywords
    if code.co_flags & _VAR_POSITIONAL:
        order.append((names[rest], 2))
        rest += 1
    order += [(name, 3) for name in names[count : count + keywords]]
    if code.co_flags & _VAR_KEYWORD:
        order.append((names[rest], 4))
    for name, kind in order:
        default = _text(defaults, name)
        yield name, kind, default, _text(function.__annotations__, name)


def _text(values: dict[str, Any], name: str) -> tuple[()] | tuple[Any]:
    if name not in values:
        return ()
    value = values[name]
    if type(value) in _CONSTANTS:
        return (value,)
    if isinstance(value, type):
        module = "" if value.__module__ == "builtins" else f"{value.__module__}."
        return (Shown(module + value.__qualname__),)
    try:
        return (Shown(repr(value)[:_TEXT_MAX]),)
    except Exception:
        return (Shown("..."),)
