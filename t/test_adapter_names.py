"""Each public name of ROLL and verl (adapters_names.txt) is in muster.roll or muster.verl
with the same parameters, or is refused with a sentence that says what to use."""

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from muster._adapters.refused import REFUSED

HERE = Path(__file__).parent
DOC = (HERE.parent / "doc" / "adapters.md").read_text()

# what has other parameters here, and the row of doc/adapters.md that says so
DIFFERENT = {
    ("roll", "register"): "`register(clear_cache=)`",
    ("verl", "ResourcePool"): "`ResourcePool`",
}


def listed() -> Iterator[tuple[str, str, str]]:
    """(adapter, name, its parameters in parentheses, or nothing)."""
    adapter = prefix = ""
    for line in (HERE / "adapters_names.txt").read_text().splitlines():
        if line.startswith("["):
            adapter = line[1:].partition("/")[0]
            module = Path(line[1:-1]).stem
            prefix = f"{module}." if module == "tensordict_utils" else ""
        elif line and not line.startswith("#"):
            name, parenthesis, rest = line.partition("(")
            yield adapter, prefix + name, parenthesis + rest


NAMES = list(listed())


def refused_as(adapter: str, name: str) -> str | None:
    """The name in the table: its own, or that of what it is a member of."""
    owner = name.partition(".")[0]
    return next((n for n in (name, owner) if n in REFUSED[adapter]), None)


def find(adapter: str, name: str) -> Any:
    """What is there; an attribute of instances as None."""
    module = importlib.import_module(f"muster.{adapter}")
    owner, _, member = name.partition(".")
    found = getattr(module, owner)
    if not member:
        return found
    told = {*inspect.signature(found).parameters}
    for cls in found.__mro__:
        told |= {*getattr(cls, "__annotations__", {})}
    if member in told:
        return None
    return inspect.getattr_static(found, member)


def given(thing: Any) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(getattr(thing, "__func__", thing)).parameters
    return {n: p for n, p in parameters.items() if n not in ("self", "cls")}


def wanted(adapter: str, text: str) -> dict[str, inspect.Parameter]:
    module = importlib.import_module(f"muster.{adapter}")
    scope: dict[str, Any] = {n: getattr(module, n) for n in ("Dispatch", "Execute")}
    exec(f"def function{text}: pass", scope)
    return dict(inspect.signature(scope["function"]).parameters)


def difference(adapter: str, thing: Any, text: str) -> str | None:
    """Why a call of theirs would fail here, or mean something else. Further parameters
    may be there if they have defaults."""
    mine, theirs = given(thing), wanted(adapter, text)
    kinds = [p.kind for p in mine.values()]
    for at, (name, p) in enumerate(theirs.items()):
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            if p.kind not in kinds:
                return f"it takes no {p}"
        elif name not in mine:
            return f"it has no {name}"
        elif p.kind != p.KEYWORD_ONLY and list(mine).index(name) != at:
            return f"{name} is at another place"
        elif p.default not in (p.empty, mine[name].default):
            return f"the default of {name} is {mine[name].default!r}"
    for name in mine.keys() - theirs.keys():
        p = mine[name]
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            return f"it needs {name}"
    return None


def test_each_name_is_there_or_refused() -> None:
    wrong = []
    for adapter, name, parameters in NAMES:
        if refused_as(adapter, name):
            continue
        try:
            thing = find(adapter, name)
        except (AttributeError, ImportError) as e:
            wrong.append(f"{adapter} {name}: {e}")
            continue
        if thing is None or not parameters or (adapter, name) in DIFFERENT:
            continue
        if why := difference(adapter, thing, parameters):
            wrong.append(f"{adapter} {name}{parameters}: {why}")
    assert not wrong, "\n".join(wrong)


def test_what_differs_is_said_so() -> None:
    things = {(adapter, name): text for adapter, name, text in NAMES}
    for (adapter, name), row in DIFFERENT.items():
        assert difference(adapter, find(adapter, name), things[adapter, name])
        assert f"\n| {row}" in DOC


@pytest.mark.parametrize("adapter", ["roll", "verl"])
def test_what_is_refused_says_what_to_use(adapter: str) -> None:
    module = importlib.import_module(f"muster.{adapter}")
    used = {refused_as(a, name) for a, name, _ in NAMES if a == adapter}
    assert used - {None} == REFUSED[adapter].keys()  # nothing that they do not have
    for name, sentence in REFUSED[adapter].items():
        owner, _, member = name.partition(".")
        if member:
            with pytest.raises(AttributeError, match=re.escape(sentence)):
                getattr(getattr(module, owner), member)
        else:
            with pytest.raises(ImportError, match=re.escape(sentence)):
                exec(f"from muster.{adapter} import {owner}")


def test_the_table_of_the_documentation() -> None:
    rows = re.search(r"## What is refused\n(.*?)(\n## |$)", DOC, re.DOTALL)
    assert rows
    documented: dict[str, dict[str, str]] = {"roll": {}, "verl": {}}
    for line in rows[1].splitlines():
        if not line.startswith("| ROLL") and not line.startswith("| verl"):
            continue
        library, names, use = (cell.strip() for cell in line.strip("|").split(" | "))
        for name in re.findall(r"`([^`]+)`", names):
            documented[library.lower()][name] = f"{name} {use}"
    assert documented == REFUSED
