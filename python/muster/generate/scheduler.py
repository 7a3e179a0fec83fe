"""Scheduler: generation requests on the replicas of a role."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
import weakref
from array import array
from collections import deque
from contextlib import suppress
from functools import partial, wraps
from itertools import groupby
from time import monotonic

from muster._cluster.role import generation
from muster._core import WAIT_S, Rollout
from muster.errors import DeadlineExceeded
from muster.generate.group import Group, Groups, Sample
from muster.generate.lease import Lease
from muster.generate.session import Session
from muster.generate.timeline import events
from muster.generate.weights import MODES, Update

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Mapping
    from typing import Any, Self, TypeVar

    from muster.view import View

    F = TypeVar("F", bound=Callable[..., Any])
    T = TypeVar("T")

FOLLOW_S = 0.5  # until a cluster of another size is noticed without news
DEADLINE_S = 7200.0  # of a group
NEVER_STALE = 2**31
POISON_MAX = 15  # failures of a request that are counted
FAILED_KEPT = 10_000  # groups that failed and that nobody has asked for
_FAILURES = ("poison", "refused", "deadline")


def _with_settings(function: F) -> F:
    """What is not given is as the job's file says."""

    @wraps(function)
    def made(self: Scheduler, cluster: View, **given: Any) -> None:
        function(self, cluster, **generation() | given)

    return made  # type: ignore[return-value]


class Scheduler:
    """Sends requests to the replicas of a cluster, and follows each to its end.

    cluster: its engines have `generate(request)`, a generator or an async one of
    {"tokens": [...], "logprobs": [...]}; and, where they can, `abort(rid)`, `pause()` and
    `resume()`. A rank is a replica; with a mesh a data-parallel group, whose first rank is asked.
    slots: requests that run at once on each; kv_tokens: tokens that fit into its cache.
    policy: "auto", "longest" or "fifo". history: a file of lengths, kept across restarts; None:
    in a job lengths-<role> in its checkpoint folder, else none; "": none.
    max_staleness: versions that the oldest token of a delivered group may be behind; with
    `batch` (groups of one update) groups only begin if they can be consumed in time.
    chunk: tokens after which a request may move. filter: called with each finished group; one
    for which it is false is dropped, and `refill()`, which gives the arguments of another
    submit or None, is asked for another.
    silence: seconds without a token after which a request is sent elsewhere, and a replica is
    asked whether it lives (0: never); probe: seconds that it has to answer.
    failed: "raise" (groups that failed are raised by get_batch and by iteration, once) or
    "skip" (they are only counted).

    What is not given is as `generation` in the job's file says (`muster.generate.settings`),
    else as below. A context manager; `close()` cancels what runs. All methods may be called by any thread.
    """

    @_with_settings
    def __init__(
        self,
        cluster: View,
        *,
        slots: int = 64,
        kv_tokens: int | None = None,
        policy: str = "auto",
        history: str | os.PathLike[str] | None = None,
        history_prompts: int = 1_000_000,
        max_staleness: int | None = None,
        batch: int = 0,
        chunk: int = 0,
        filter: Callable[[Group], object] | None = None,
        refill: Callable[[], Mapping[str, Any] | None] | None = None,
        failed: str = "raise",
        silence: float = 60.0,
        probe: float = 10.0,
        poison: int = 3,
        rebalance: float = 2.0,
        ageing: float = 0.0,
        seed: int = 0,
        version: int = 0,
    ) -> None:
        if failed not in ("raise", "skip"):
            raise ValueError(f'failed: "raise" or "skip": {failed!r}')
        if slots < 1:
            raise ValueError(f"slots: at least 1: {slots!r}")
        if not 1 <= poison <= POISON_MAX:
            raise ValueError(f"poison: from 1 to {POISON_MAX}: {poison!r}")
        self._cluster = cluster
        self._slots = slots
        self._kv_tokens = kv_tokens or 0
        self._filter = filter
        self._refill = refill
        self._skips = failed == "skip"
        self._open: dict[int, Group] = {}
        self._leased: dict[int, dict[int, Group]] = {}  # by batch
        self._failed: deque[Group] = deque(maxlen=FAILED_KEPT)
        self._missing = 0  # groups that `refill` is still to be asked for
        self._lock = threading.RLock()
        self._stride, self._width = _shape(cluster)
        self._count = 0  # replicas
        self._followed: list[Any] | None = None  # peers that they are
        self._listeners: dict[int, _Listener] = {}
        self._closed = False
        self._core = Rollout(
            engine=cluster._engine,
            role=cluster._name,
            policy=policy,
            seed=seed,
            chunk=chunk,
            max_staleness=NEVER_STALE if max_staleness is None else max_staleness,
            batch=batch,
            filter=filter is not None,
            poison=poison,
            silence=silence,
            probe=probe,
            rebalance=rebalance,
            ageing=ageing,
            history=None if history is None else os.fspath(history),
            history_prompts=history_prompts,
            version=version,
        )
        try:
            self._follow()
        except BaseException:
            self._core.close()
            raise
        _schedulers.add(self)

    # ---- replicas ---------------------------------------------------------------------

    def _rank(self, replica: int) -> int:
        return replica * self._stride

    def _replica(self, rank: int) -> int:
        """Of this rank, whichever it is of its group: stages of a pipeline are the slowest
        of a mesh, so those of one group are not next to each other."""
        return rank // self._stride % (len(self._cluster) // self._width)

    def _follow(self) -> None:
        """The replicas are those of the cluster: other ranks, or other workers of them if it
        has shrunk and grown since. Where that cannot be done yet, the next time."""
        wanted = len(self._cluster) // self._width
        peers = self._cluster._peers
        if peers is self._followed and self._count == wanted:
            return
        while self._count > wanted:
            self._count -= 1
            self._let_go(self._count)
        added = [self._add(number) for number in range(wanted)]
        self._followed = peers if all(added) else None

    def _add(self, number: int) -> bool:
        if number < self._count and not self._core.has(number):
            return True  # `drain` was asked for
        peer = self._cluster._peers[self._rank(number)]
        try:
            self._core.add(number, peer, self._slots, self._kv_tokens)
        except FileExistsError:
            return False  # it is still being drained
        self._count = max(self._count, number + 1)
        return True

    def resize(self, replicas: int, *, timeout: float = WAIT_S) -> None:
        """Another number of replicas, and of the cluster's workers. Those that go are drained
        first: their requests go on elsewhere from the tokens that they have. After an update
        of the weights those that come wait for the next one, or for `restored`."""
        with self._lock:
            going = list(range(replicas, self._count))
            for number in going:
                self._let_go(number)
            self._count = min(self._count, replicas)
        for number in going:
            self._until(
                partial(self._is_gone, number),
                timeout,
                f"replica {number} did not let go of its requests",
            )
        self._cluster.resize(replicas * self._width)
        with self._lock:
            self._follow()

    def drain(self, ranks: Iterable[int], *, timeout: float = WAIT_S) -> None:
        """Use the replicas of these ranks no more until `undrain`, and wait until they have
        no requests: those go on elsewhere from the tokens that they have. One must stay."""
        going = {self._replica(rank) for rank in ranks}
        with self._lock:
            kept = [n for n in range(self._count) if self._core.has(n)]
            if going and going.issuperset(kept):
                raise ValueError("drain: at least one replica must stay")
            for number in going.intersection(kept):
                self._core.drain(number)
        for number in going:
            self._until(
                partial(self._is_gone, number),
                timeout,
                f"replica {number} did not let go of its requests",
            )

    def undrain(self, ranks: Iterable[int]) -> None:
        """Use them again; one that has missed an update of the weights waits for the next
        one, or for `restored`."""
        with self._lock:
            for number in sorted({self._replica(rank) for rank in ranks}):
                if number < self._count and not self._core.has(number):
                    peer = self._cluster._peers[self._rank(number)]
                    self._core.add(number, peer, self._slots, self._kv_tokens)

    def _let_go(self, replica: int) -> None:
        with suppress(LookupError):  # `drain` was asked for
            self._core.drain(replica)

    def _is_gone(self, replica: int) -> bool | None:
        return None if self._core.has(replica) else True

    # ---- requests ---------------------------------------------------------------------

    def submit(
        self,
        prompt: Any,
        n: int = 1,
        key: Hashable = None,
        *,
        max_new_tokens: int,
        sampling: Mapping[str, Any] | None = None,
        deadline: float | None = DEADLINE_S,
        surplus: int = 0,
        hint: int = 0,
        prompt_tokens: int = 0,
        session: Session | None = None,
        resume: Sample | None = None,
    ) -> Group:
        """n samples of a prompt: a list of tokens, a text, or other plain data.

        key: names the prompt in the history of lengths; by default its contents do.
        surplus: so many more are begun, and the first n that end are taken. deadline: seconds
        until the group is whole. hint: the length that is expected. prompt_tokens: how long
        it is, where its length does not say so. resume: a sample of a group that was
        cancelled, to go on behind its tokens, which count in max_new_tokens; n is 1.
        """
        warm = -1 if session is None or session.replica is None else session.replica
        name = _contents(prompt) if key is None else key
        with self._lock:
            self._serve_dropped()
            self._follow()
            id = self._core.submit(
                _number(name),
                prompt,
                None if sampling is None else dict(sampling),
                n,
                surplus,
                prompt_tokens,
                max_new_tokens,
                hint,
                warm,
                *((0, 0) if session is None else session._cache),
                0 if session is None else max(session.turns - 1, 0),
                deadline,
                None if resume is None else _behind(resume),
            )
            group = self._open[id] = Group(self, id, name, prompt, n)
            group.session = session
        return group

    def session(self, key: Hashable = None) -> Session:
        """Turns of one conversation."""
        return Session(self, object() if key is None else key)

    def cancel(self, what: Group | str | None = None) -> None:
        """A group, one request by its rid (its group then wants one less), or all."""
        if what is None:
            self._core.cancel_all()
        elif isinstance(what, Group):
            try:
                self._core.cancel(what.id)
            except LookupError:
                return  # it is over
        else:
            self._core.cancel_rid(what)

    def _rids(self, group: Group) -> list[str]:
        return [self._core.rid(group.id, seq) for seq in range(group.n)]

    # ---- what comes of them -----------------------------------------------------------

    def get_batch(self, groups: int = 1, *, timeout: float = WAIT_S) -> Groups:
        """So many finished groups, oldest version first. DeadlineExceeded after `timeout`
        seconds: then none was taken."""
        what = f"{groups} finished groups were not there"
        return self._until(lambda: self._take(groups), timeout, what)

    async def get_batch_async(
        self, groups: int = 1, *, timeout: float = WAIT_S
    ) -> Groups:
        """The same for asyncio."""
        what = f"{groups} finished groups were not there"
        return await self._until_async(lambda: self._take(groups), timeout, what)

    def _take(self, groups: int) -> Groups | None:
        with self._lock:
            self._serve()
            told = self._core.pull(groups)
            if told is None:
                return None
            return Groups(self._open.pop(one.id)._fill(one) for one in told)

    def lease(self, groups: int = 1, *, timeout: float = WAIT_S) -> Lease:
        """`with sched.lease(32) as batch:` as get_batch, but if the body raises the groups are
        ready again, and are handed out to whoever asks next."""
        return Lease(self, groups, timeout)

    def _lease(self, groups: int) -> tuple[int, Groups] | None:
        with self._lock:
            self._serve()
            told = self._core.lease(groups)
            if told is None:
                return None
            batch, filled = told
            out = Groups(self._open.pop(one.id)._fill(one) for one in filled)
            self._leased[batch] = {group.id: group for group in out}
            return batch, out

    def _end_lease(self, batch: int, back: bool) -> None:
        with self._lock:
            self._serve_dropped()  # what was cancelled meanwhile does not come back
            groups = self._leased.pop(batch)
            if not back:
                self._core.consumed(batch)
                return
            for group in groups.values():
                group._is_over = False
            self._open |= groups
            self._core.give_back(batch)

    def _serve(self) -> None:
        """What only Python can do: judge groups, find others, raise what failed."""
        self._judge()
        self._serve_dropped()
        while self._failed:
            group = self._failed.popleft()
            if not group._was_raised:
                group._value()

    def _judge(self) -> None:
        self._follow()
        while self._filter is not None and (told := self._core.judge()) is not None:
            of = self._open[told.id]
            shown = Group(self, of.id, of.key, of.prompt, of.n)._fill(told)
            keep = False
            try:
                keep = bool(self._filter(shown))
            finally:
                self._core.verdict(of.id, keep)
        if self._refill is not None:
            self._missing += self._core.take_refill()
            while self._missing > 0:  # one that raises is asked for again
                if (options := self._refill()) is not None:
                    self.submit(**options)
                self._missing -= 1

    def _serve_dropped(self) -> None:
        while (told := self._core.take_dropped()) is not None:
            if (group := self._open.pop(told.id, None)) is not None:
                self._note_dropped(group._fill(told))
            for leased in self._leased.values():
                leased.pop(told.id, None)

    def _note_dropped(self, group: Group) -> None:
        failed = group.error is not None and group.error.reason in _FAILURES
        if failed and not self._skips:
            self._failed.append(group)

    def _look(self, group: Group) -> bool:
        """Is it over? Then it is handed out."""
        with self._lock:
            if group._is_over:
                return True
            if self._filter is not None:
                self._judge()
            try:
                told = self._core.take(group.id)
            except LookupError:
                return group._is_over
            if told is None:
                return False
            self._open.pop(group.id, None)
            group._fill(told)
            return True

    def _wait_for(self, group: Group, timeout: float | None) -> None:
        self._until(
            lambda: True if self._look(group) else None,
            WAIT_S if timeout is None else timeout,
            f"the group of prompt {group.key!r} was not whole",
        )

    async def _await_for(self, group: Group) -> None:
        await self._until_async(
            lambda: True if self._look(group) else None,
            WAIT_S,
            f"the group of prompt {group.key!r} was not whole",
        )

    async def __aiter__(self) -> AsyncIterator[Group]:
        """Groups as they finish, until none is open. DeadlineExceeded after 2 hours without
        one."""
        while taken := await self._until_async(self._next, WAIT_S, "no group finished"):
            yield taken[0]

    def _next(self) -> Groups | None:
        with self._lock:
            taken = self._take(1)
            if taken is None and not self._open:
                return Groups()
            return taken

    def __iter__(self) -> Any:
        """Groups as they finish, until none is open."""
        while taken := self._until(self._next, WAIT_S, "no group finished"):
            yield taken[0]

    # ---- waiting ----------------------------------------------------------------------

    def _until(self, attempt: Callable[[], T | None], timeout: float, what: str) -> T:
        """What `attempt` gives, tried again whenever there is news."""
        end = monotonic() + timeout
        while True:
            seen = self._core.wait(0, 0)
            if (result := attempt()) is not None:
                return result
            left = end - monotonic()
            if left <= 0:
                raise DeadlineExceeded(f"{what} within {timeout} s: {self._state()}")
            self._core.wait(seen, min(left, FOLLOW_S))

    async def _until_async(
        self, attempt: Callable[[], T | None], timeout: float, what: str
    ) -> T:
        end = monotonic() + timeout
        while True:
            news = self._listener().news()
            if (result := attempt()) is not None:
                return result
            left = end - monotonic()
            if left <= 0:
                raise DeadlineExceeded(f"{what} within {timeout} s: {self._state()}")
            try:
                await asyncio.wait((news,), timeout=min(left, FOLLOW_S))
            finally:
                news.cancel()

    def _listener(self) -> _Listener:
        loop = asyncio.get_running_loop()
        with self._lock:
            found = self._listeners.get(id(loop))
            if found is None or found.loop is not loop:
                for key, one in list(self._listeners.items()):
                    if one.loop.is_closed():  # one of an `asyncio.run` that is over
                        self._listeners.pop(key).close()
                found = self._listeners[id(loop)] = _Listener(self._core, loop)
            return found

    def _state(self) -> str:
        s = self._core.stats()
        up = sum(one["state"] == "up" for one in s["replicas"])
        text = (
            f"{s['ready']} are finished, {s['queued']} requests wait and {s['running']} "
            f"run, {up} of {len(s['replicas'])} replicas are up"
        )
        down = [one["failure"] for one in s["replicas"] if one["failure"]]
        if down:
            text += f"; {down[0]}"
        waiting = [
            self._rank(one["replica"])
            for one in s["replicas"]
            if one["state"] == "waits for weights"
        ]
        if waiting:
            text += (
                f"; rank {waiting[0]} has not got the weights: give them to it, and call "
                f"restored({waiting[0]})"
            )
        return text

    # ---- weights ----------------------------------------------------------------------

    def weights(
        self,
        version: int,
        *,
        mode: str = "abort",
        rolling: bool = False,
        timeout: float = WAIT_S,
        drain: float | None = None,
    ) -> Update:
        """New weights: `with` at one barrier, or `rolling`, a `for` loop over the replicas.

        mode: what becomes of requests that run: "abort" (they resume afterwards from their
        tokens), "wait" (they end first; aborted after `drain` seconds, if given) or "keep"
        (they go on under the new weights). If the body raises, the replicas go on with what
        they have, under the old version's number.
        """
        return Update(self, version, mode, rolling, timeout, drain)

    def restored(self, rank: int, *, timeout: float = WAIT_S) -> None:
        """The new worker of this rank, which waits for the next update (`replace` or
        `restart` made it), was given the present weights: use it from now on."""
        replica = self._replica(rank)

        def restore() -> bool | None:
            state = {one["replica"]: one["state"] for one in self.stats()["replicas"]}
            if state.get(replica) == "waits for weights":
                self._core.restored(replica)
                return True
            return True if state.get(replica) == "up" else None

        self._until(restore, timeout, f"rank {rank} was not found again")

    @property
    def version(self) -> int:
        """Of the weights that the replicas have."""
        return self._core.version

    def pause(self, mode: str = "abort", *, timeout: float = WAIT_S) -> None:
        """Send nothing until `resume()`; returns when nothing runs any more, or, with "keep",
        when the engines stand still."""
        if mode not in MODES:
            raise ValueError(f'mode: "abort", "wait" or "keep": {mode!r}')
        self._core.pause(MODES[mode])
        self._until(
            lambda: True if self._core.is_paused() else None,
            timeout,
            "requests did not end",
        )

    def resume(self) -> None:
        self._core.resume()

    # ---- looking ----------------------------------------------------------------------

    def explain(self, rid: str) -> dict[str, Any]:
        """Why a request is where it is; ["text"] is a sentence. LookupError: its group is
        over."""
        return self._core.explain(rid)

    def stats(self) -> dict[str, Any]:
        """Counts of groups, requests and tokens; "replicas" has each; "bias" is how far the
        lengths of what was delivered are from those of all that was generated (0 to 1)."""
        return self._core.stats()

    def timeline(self) -> list[dict[str, Any]]:
        """What happened, as events of Chrome's trace format, which Perfetto opens: a span for
        each attempt on its replica's track, marks for the rest. The last 65,536."""
        return events(self._core.marks(0)[0])

    # ---- the end ----------------------------------------------------------------------

    def close(self) -> None:
        """Cancel what runs, save the history. What waits fails. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for listener in self._listeners.values():
                listener.close()
            self._listeners.clear()
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<muster.generate.Scheduler of {self._cluster._name!r}>"


class _Listener:
    """Wakes the tasks of one event loop when there is news."""

    def __init__(self, core: Rollout, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._core = core
        self._fd = core.listen()
        self._waiters: set[asyncio.Future[None]] = set()
        loop.add_reader(self._fd, self._hear)

    def news(self) -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._waiters.add(waiter)
        waiter.add_done_callback(self._waiters.discard)
        return waiter

    def _hear(self) -> None:
        os.read(self._fd, 8)
        self._wake()

    def _wake(self) -> None:
        for waiter in list(self._waiters):
            if not waiter.done():
                waiter.set_result(None)

    def close(self) -> None:
        """The loop forgets the descriptor before it is closed: its number may be another
        file's at once."""
        try:
            is_own = asyncio.get_running_loop() is self.loop
        except RuntimeError:
            is_own = False
        if is_own:
            self._end()
            return
        try:
            self.loop.call_soon_threadsafe(self._end)
        except RuntimeError:  # it is closed
            self._core.unlisten(self._fd)

    def _end(self) -> None:
        self.loop.remove_reader(self._fd)
        self._core.unlisten(self._fd)
        self._wake()


def _shape(cluster: View) -> tuple[int, int]:
    """Ranks from one replica to the next, and ranks that are one: a data-parallel group. The
    first stage of the groups comes first in a mesh, one group after the other."""
    mesh = cluster._bound.mesh
    if not isinstance(mesh, dict):
        return 1, 1
    stride = int(mesh.get("tp", 1)) * int(mesh.get("cp", 1))
    return stride, stride * int(mesh.get("pp", 1))


def _contents(prompt: Any) -> str:
    return hashlib.blake2b(repr(prompt).encode(), digest_size=8).hexdigest()


def _behind(sample: Sample) -> tuple[bytes, bytes | None, bytes] | None:
    """As the core takes it: with its versions in runs of (version, tokens)."""
    if len(sample.versions) != len(sample.tokens):
        raise ValueError("resume: a version for each token")
    if not sample.tokens:
        return None
    runs = array("I")
    for version, of in groupby(sample.versions):
        runs.extend((version, sum(1 for _ in of)))
    logprobs = sample.logprobs
    return (
        array("i", sample.tokens).tobytes(),
        None if logprobs is None else array("f", logprobs).tobytes(),
        runs.tobytes(),
    )


def _number(key: Hashable) -> int:
    """As the history knows it, in every process; to it 0 is no prompt."""
    if type(key) is int and 0 < key < 2**64:
        return key
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _forked() -> None:
    """In the child a thread that is not there may have held a lock."""
    for one in list(_schedulers):
        one._lock = threading.RLock()


_schedulers: weakref.WeakSet[Scheduler] = weakref.WeakSet()
os.register_at_fork(after_in_child=_forked)
