"""CompletedFuture: a future of what is known already, such as one that came from another process."""

from __future__ import annotations

from muster._core import Call
from muster._data.store import Ref, resolvable
from muster.future import Future

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


class CompletedFuture(Future):
    """`value` may be a Ref, which is fetched when the result is asked for."""

    __slots__ = ("_error", "_known")

    def __init__(
        self, value: Any, what: str, error: BaseException | None = None
    ) -> None:
        self._known = value
        self._error = error
        self._what = what
        self._noted = None

    def done(self) -> bool:
        return True

    def result(self, timeout: float | None = None) -> Any:
        if self._error is not None:
            raise self._error
        return self._known.get() if isinstance(self._known, Ref) else self._known

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return self._error

    def cancel(self) -> bool:
        return False

    cancelled = cancel

    def add_done_callback(self, fn: Callable[[Future], object]) -> None:
        fn(self)

    def _calls(self) -> Sequence[Any]:
        return ()

    _value = result

    def __reduce__(self) -> tuple[Any, ...]:
        return CompletedFuture, (self._known, self._what, self._error)


def completed(future: Future) -> CompletedFuture:
    """The same, done: it is waited for. What lies in a store stays there."""
    what = future._what
    if type(future) is Future and type(future._call) is Call:
        future._call.wait(None)
        if future._call.is_stream():
            raise TypeError(f"{what} gives a stream, which does not travel")
        stored = future._call.stored()
        if stored is not None:
            return CompletedFuture(Ref(*stored), what)
    try:
        return CompletedFuture(future.result(), what)
    except Exception as e:
        return CompletedFuture(None, what, e)


resolvable[CompletedFuture] = CompletedFuture.result
