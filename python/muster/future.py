"""Future: a call under way, for threads and for asyncio; wait and get."""

from __future__ import annotations

import itertools
import os
import select
import threading
import weakref
from time import monotonic

from muster._core import Call, Inbox, wait_all
from muster._data.store import Ref, Resolved, resolvable
from muster.errors import Cancelled, DeadlineExceeded, copy_of, together

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from typing import Any

PATIENCE_S = 0.005  # in which answers are taken in order, by the thread that waits
TOGETHER_S = 0.5  # after a failure, for those of the others


class Future:
    """The result of a call, once it is there. Made by `execute_*_async`.

    May be waited for from any thread and awaited in any event loop, by several at once.
    Dropping it does not cancel the call. Inside of a container it travels when it is done. Of a generator it is a Stream, and the future is
    done with the first item.
    """

    __slots__ = ("__weakref__", "_call", "_noted", "_stream", "_what")

    def __init__(self, call: Call, what: str) -> None:
        self._call = call
        self._what = what
        self._stream: Any = None
        self._noted: dict[Inbox, int] | None = None  # tags under which it was noted

    def done(self) -> bool:
        """The result or the failure is there."""
        return self._call.done() or self._call.is_stream()

    def result(self, timeout: float | None = None) -> Any:
        """The result, or its failure raised. DeadlineExceeded after `timeout` seconds:
        the call itself then goes on."""
        if not self._call.wait(timeout):
            raise DeadlineExceeded(
                f"{self._what} has not answered within {timeout} s; it goes on "
                "(cancel() would give it up)"
            )
        return self._value()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The failure, or None if it succeeded. Waits as `result` does. Each time it is
        another object."""
        if not self._call.wait(timeout):
            self.result(0)
        return self._failure()

    def _calls(self) -> Sequence[Call]:
        return (self._call,)

    def _value(self) -> Any:
        """Of a future that is done."""
        if self._stream is not None:
            return self._stream
        value = self._call.result()
        if self._call.is_stream():
            self._stream = value
        return value

    def _failure(self) -> BaseException | None:
        try:
            self._value()
        except BaseException as e:
            return e.with_traceback(None)  # whose frames lead to the caller's
        return None

    def cancel(self) -> bool:
        """Give the call up; False if it was done already. One that has not begun never
        runs, an `async` method is cancelled, another goes on and its result is lost."""
        if self._call.done():
            return False
        self._call.cancel()
        return True

    def cancelled(self) -> bool:
        return self._call.done() and isinstance(self._failure(), Cancelled)

    def add_done_callback(self, fn: Callable[[Future], object]) -> None:
        """Call fn(self) when it is done, on a thread that all callbacks share."""
        _callbacks.add(self, fn)

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.done():
            import asyncio

            listener = Listener(*self._calls())
            try:
                yield from listener
                while not self.done():
                    yield from listener
            except asyncio.CancelledError:
                self.cancel()
                raise
            finally:
                listener.close()
        return self._value()

    def __reduce__(self) -> tuple[Any, ...]:
        """It is waited for, and arrives as one that is done."""
        return completed(self).__reduce__()

    def __repr__(self) -> str:
        if not self.done():
            state = "pending"
        else:
            failure = self._failure()
            state = type(failure).__name__ if failure else "done"
        return f"<muster.Future {self._what}: {state}>"


class Joined(Future):
    """Of calls to several workers: one result, made of theirs. It fails with the first
    failure of one of them, whatever is pending."""

    __slots__ = ("_finish", "_made", "_parts")

    def __init__(
        self, calls: Sequence[Call], what: str, finish: Callable[[list[Any]], Any]
    ) -> None:
        super().__init__(calls[0], what)
        self._parts = [Future(call, what) for call in calls]
        self._finish = finish
        self._made: tuple[Any] | None = None

    def _calls(self) -> Sequence[Call]:
        return [part._call for part in self._parts]

    def done(self) -> bool:
        if any(part._call.failed() for part in self._parts):
            return True
        return all(part.done() for part in self._parts)

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            try:
                gather(self._parts, timeout)
            except DeadlineExceeded:
                if not self.done():
                    raise
        return self._value()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        try:
            self.result(timeout)
        except BaseException as e:
            if not self.done():
                raise
            return e.with_traceback(None)
        return None

    def _value(self) -> Any:
        for part in self._parts:
            if part._call.failed():
                part._value()
        if self._made is None:
            self._made = (self._finish([part._value() for part in self._parts]),)
        return self._made[0]

    def cancel(self) -> bool:
        """Give all of the calls up."""
        gave_up = [part.cancel() for part in self._parts]
        return any(gave_up)

    def cancelled(self) -> bool:
        return self.done() and isinstance(self._failure(), Cancelled)


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
            raise copy_of(self._error)
        return self._known.get() if isinstance(self._known, Ref) else self._known

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return None if self._error is None else copy_of(self._error)

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
        return CompletedFuture(None, what, copy_of(e))


# ---- asyncio --------------------------------------------------------------------------


class _LoopInbox:
    """The completions for one event loop. Must not refer to the loop itself."""

    def __init__(self) -> None:
        self.inbox = Inbox()
        self.tags = itertools.count(1)
        self.listeners: dict[int, Listener] = {}

    def on_readable(self) -> None:
        for tag in self.inbox.take():
            listener = self.listeners.get(tag)
            if listener is not None:
                listener.hear()


_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopInbox]
_loops = weakref.WeakKeyDictionary()


class Listener:
    """Hears of a call's end, and of each item of its stream, in the running loop."""

    __slots__ = ("_here", "_new", "_tag", "_waiter", "loop")

    def __init__(self, *calls: Call) -> None:
        import asyncio

        self.loop = loop = asyncio.get_running_loop()
        here = _loops.get(loop)
        if here is None:
            here = _loops[loop] = _LoopInbox()
            loop.add_reader(here.inbox.fileno(), here.on_readable)
        self._here = here
        self._new = False
        self._waiter: asyncio.Future[None] | None = None
        self._tag = next(here.tags)
        here.listeners[self._tag] = self
        for call in calls:
            call.notify(here.inbox, self._tag)

    def hear(self) -> None:
        self._new = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __await__(self) -> Generator[Any, None, None]:
        """Return when there has been news since the last time."""
        if not self._new:
            self._waiter = self.loop.create_future()
            yield from self._waiter
        self._new = False

    __iter__ = __await__

    def close(self) -> None:
        self._here.listeners.pop(self._tag, None)


# ---- callbacks ------------------------------------------------------------------------


class _Callbacks:
    """One daemon thread, started on demand, that runs all callbacks."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.waiting: dict[int, tuple[Future, Callable[[Future], object]]] = {}
        self.inbox: Inbox | None = None
        self.tags = itertools.count(1)

    def add(self, future: Future, fn: Callable[[Future], object]) -> None:
        with self.lock:
            if self.inbox is None:
                self.inbox = Inbox()
                threading.Thread(
                    target=self.run, name="muster-callbacks", daemon=True
                ).start()
            tag = next(self.tags)
            self.waiting[tag] = (future, fn)
            for call in future._calls():
                call.notify(self.inbox, tag)

    def run(self) -> None:
        inbox = self.inbox
        assert inbox is not None
        poll = select.poll()
        poll.register(inbox.fileno(), select.POLLIN)
        while True:
            poll.poll()
            for tag in inbox.take():
                found = self.waiting.get(tag)  # a stream is heard of many times
                if found is not None and found[0].done():
                    del self.waiting[tag]
                    self.call(*found)
                del found

    @staticmethod
    def call(future: Future, fn: Callable[[Future], object]) -> None:
        try:
            fn(future)
        except BaseException as e:
            args = (type(e), e, e.__traceback__, threading.current_thread())
            threading.excepthook(threading.ExceptHookArgs(args))


_callbacks = _Callbacks()
os.register_at_fork(after_in_child=_callbacks.__init__)  # type: ignore[misc]


# ---- many at once ---------------------------------------------------------------------


class _Waiting(threading.local):
    """What a thread waits with when it waits for many."""

    # Kept, because a call remembers every inbox that it was told of.

    def __init__(self) -> None:
        self.inbox: Inbox | None = None
        self.tags = itertools.count(1)
        self.busy = False


_waiting = _Waiting()
os.register_at_fork(after_in_child=_waiting.__init__)  # type: ignore[misc]


def _arrivals(futures: list[Future], deadline: float | None) -> Iterator[int]:
    """The indexes of futures as they are done; ends with the last, or at the deadline."""
    mine = _waiting
    if mine.busy:  # in a signal handler, or a generator that was left alone
        mine = _Waiting()
    if mine.inbox is None:
        mine.inbox = Inbox()
    mine.busy = True
    try:
        yield from _arrivals_in(mine.inbox, mine.tags, futures, deadline)
    finally:
        mine.busy = False
        mine.inbox.rest()


def _arrivals_in(
    inbox: Inbox, tags: Iterator[int], futures: list[Future], deadline: float | None
) -> Iterator[int]:
    poll = select.poll()
    poll.register(inbox.fileno(), select.POLLIN)
    left = {_note(future, inbox, tags): i for i, future in enumerate(futures)}
    for tag, i in list(left.items()):
        for call in futures[i]._calls():
            call.wait(0)  # finds out whether we would wait for ourselves
        if futures[i].done():
            del left[tag]
            yield i
    while left:
        wait_ms = None
        if deadline is not None:
            wait_ms = max(0.0, deadline - monotonic()) * 1000
        if not poll.poll(wait_ms) and wait_ms == 0:
            return
        for tag in inbox.take():
            if tag in left and futures[left[tag]].done():
                yield left.pop(tag)


def _note(future: Future, inbox: Inbox, tags: Iterator[int]) -> int:
    """The tag under which this inbox hears of the future."""
    if future._noted is None:
        future._noted = {}
    tag = future._noted.get(inbox)
    if tag is None:
        tag = future._noted[inbox] = next(tags)
        for call in future._calls():
            call.notify(inbox, tag)
    return tag


def gather(futures: list[Future], timeout: float | None = None) -> list[Any]:
    """All results. Raises the failure that comes first in time, whatever is pending."""
    deadline = None if timeout is None else monotonic() + timeout
    patience = PATIENCE_S if timeout is None else min(timeout, PATIENCE_S)
    if set(map(type, futures)) == {Future}:
        calls = [future._call for future in futures]
    else:
        calls = [call for future in futures for call in future._calls()]
    if wait_all(calls, patience):
        return [future._value() for future in futures]
    results: list[Any] = []
    for future in futures:
        if not future.done():
            break
        results.append(future._value())
    taken = len(results)
    if taken == len(futures):
        return results
    rest = futures[taken:]
    results += [None] * len(rest)
    arrived = 0
    for i in _arrivals(rest, deadline):
        results[taken + i] = rest[i]._value()
        arrived += 1
    if arrived < len(rest):
        raise DeadlineExceeded(
            f"{len(rest) - arrived} of {len(futures)} calls have not answered within "
            f"{timeout} s; they go on"
        )
    return results


def gather_ranks(futures: list[Future]) -> list[Any]:
    """All results, by rank. A failure is raised with those of the other ranks that come
    soon after it."""
    try:
        return gather(futures)
    except Exception:
        rest = [future for future in futures if not future.done()]
        for _ in _arrivals(rest, monotonic() + TOGETHER_S):
            pass
        raise together(_failures(futures)) from None


def _failures(futures: list[Future]) -> dict[int, BaseException]:
    found = {i: f._failure() for i, f in enumerate(futures) if f._call.failed()}
    return {i: e for i, e in found.items() if e is not None}


def take(calls: list[Call], what: str) -> list[Any]:
    """All results of calls that only this function knows of; the first failure is raised."""
    try:
        if wait_all(calls, PATIENCE_S):
            return [call.result() for call in calls]
        return gather([Future(call, what) for call in calls])
    except Exception:
        raise
    except BaseException:  # Ctrl-C: their results are not wanted any more
        for call in calls:
            call.cancel()
        raise


def get(
    futures: Future | Ref | Iterable[Future | Ref], timeout: float | None = None
) -> Any:
    """The result of a future or the value of a ref, or the list of those of several; the
    first failure in time is raised at once. DeadlineExceeded after `timeout` seconds."""
    if isinstance(futures, (Future, Ref)):
        return futures.get() if isinstance(futures, Ref) else futures.result(timeout)
    all_ = list(futures)
    waited = _futures([f for f in all_ if type(f) is not Ref])
    if len(waited) == len(all_):
        return gather(waited, timeout)
    results = iter(gather(waited, timeout))
    return [one.get() if isinstance(one, Ref) else next(results) for one in all_]


def as_argument(future: Future) -> Any:
    """What is sent in its place: what the callee reads from the store, if it is there."""
    if type(future._call) is not Call:
        return future.result()
    future._call.wait(None)
    stored = future._call.stored()
    return Resolved(*stored) if stored is not None else future.result()


resolvable[Future] = as_argument
resolvable[Joined] = Joined.result
resolvable[CompletedFuture] = CompletedFuture.result


def wait(
    futures: Iterable[Future], num_returns: int = 1, timeout: float | None = None
) -> tuple[list[Future], list[Future]]:
    """(done, pending), in the order given, when `num_returns` are done or `timeout`
    seconds are over. `done` has at most `num_returns`."""
    all_ = _futures(futures)
    if not 0 < num_returns <= len(all_):
        raise ValueError(f"num_returns: {num_returns} of {len(all_)} futures")
    if len(set(map(id, all_))) < len(all_):
        raise ValueError("futures: one is there twice")
    deadline = None if timeout is None else monotonic() + timeout
    done = {i for i, f in enumerate(all_) if f.done()}
    if len(done) < num_returns:
        rest = [i for i in range(len(all_)) if i not in done]
        for i in _arrivals([all_[i] for i in rest], deadline):
            done.add(rest[i])
            if len(done) >= num_returns:
                break
    chosen = set(sorted(done)[:num_returns])
    return (
        [f for i, f in enumerate(all_) if i in chosen],
        [f for i, f in enumerate(all_) if i not in chosen],
    )


def _futures(futures: Iterable[Any]) -> list[Future]:
    all_ = list(futures)
    for f in all_:
        if not isinstance(f, Future):
            raise TypeError(f"not a muster.Future: {f!r}")
    return all_
