"""Inside a worker: its engines, by name."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

engines: dict[str, Any] = {}  # of this process
making: list[str] = []  # those whose constructors run


def of_caller() -> str | None:
    """The engine whose constructor or method runs, as the stack of this thread tells it."""
    if making:
        return making[-1]
    names = {id(engine): name for name, engine in engines.items()}
    frame: Any = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_argcount:
            name = names.get(id(frame.f_locals.get(code.co_varnames[0])))
            if name is not None:
                return name
        frame = frame.f_back
    return None
