"""Scheduler: generation requests on the replicas of a role."""

from __future__ import annotations

import os
import threading
import weakref
from functools import wraps

from muster._cluster.binding import UNKNOWN
from muster._cluster.role import generation
from muster._core import SESSION_TTL_S, WAIT_S, Rollout
from muster.generate.delivery import Delivery
from muster.generate.group import Group, Groups, Sample
from muster.generate.lease import Lease
from muster.generate.prompt import behind, contents, number
from muster.generate.session import Session
from muster.generate.timeline import events
from muster.generate.waiter import Waiter
from muster.generate.weights import MODES, Update

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Mapping
    from typing import Any, Self, TypeVar

    from muster.view import View

    F = TypeVar("F", bound=Callable[..., Any])

DEADLINE_S = 7200.0  # of a group
NEVER_STALE = 2**31
POISON_MAX = 15  # failures of a request that are counted


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
    session_ttl: seconds without a turn after which a session is forgotten.
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
        session_ttl: float = SESSION_TTL_S,
    ) -> None:
        if failed not in ("raise", "skip"):
            raise ValueError(f'failed: "raise" or "skip": {failed!r}')
        if slots < 1:
            raise ValueError(f"slots: at least 1: {slots!r}")
        if not 1 <= poison <= POISON_MAX:
            raise ValueError(f"poison: from 1 to {POISON_MAX}: {poison!r}")
        self._cluster = cluster
        self._lock = threading.RLock()
        self._followed: list[Any] | None = None  # peers that the core knows
        self._closed = False
        mesh = _mesh(cluster)
        self._width = mesh[0] * mesh[1] * mesh[2]  # ranks of one replica
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
            slots=slots,
            kv_tokens=kv_tokens or 0,
            mesh=mesh,
            session_ttl=session_ttl,
        )
        self._waiter = Waiter(self._core, self._state)
        self._delivery = Delivery(
            self, self._core, filter=filter, refill=refill, skips=failed == "skip"
        )
        try:
            self._follow()
        except BaseException:
            self._core.close()
            raise
        _schedulers.add(self)

    # ---- replicas ---------------------------------------------------------------------

    def _follow(self) -> None:
        """The replicas are those of the cluster: other ranks, or other workers of them if it
        has shrunk and grown since."""
        peers = self._cluster._peers
        if peers and peers is not self._followed:
            self._core.follow(peers)
            self._followed = peers

    def resize(self, replicas: int, *, timeout: float = WAIT_S) -> None:
        """Another number of replicas, and of the cluster's workers. Those that go are drained
        first: their requests go on elsewhere from the tokens that they have. After an update
        of the weights those that come wait for the next one, or for `restored`."""
        try:
            self._waiter.until(
                lambda: self._core.limit(replicas),
                timeout,
                "replicas that go did not let go of their requests",
            )
            self._cluster.resize(replicas * self._width)
        finally:
            with self._lock:
                self._follow()
                self._core.limit(None)

    def drain(self, ranks: Iterable[int], *, timeout: float = WAIT_S) -> None:
        """Use the replicas of these ranks no more until `undrain`, and wait until they have
        no requests: those go on elsewhere from the tokens that they have. One must stay."""
        going = list(ranks)
        self._waiter.until(
            lambda: self._core.drain(going),
            timeout,
            f"the replicas of ranks {going} did not let go of their requests",
        )

    def undrain(self, ranks: Iterable[int]) -> None:
        """Use them again; one that has missed an update of the weights waits for the next
        one, or for `restored`."""
        self._core.undrain(list(ranks))

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
        name = contents(prompt) if key is None else key
        of = 0
        if session is not None:
            of, name = session._id, session.key if key is None else key
        with self._lock:
            self._delivery.serve_dropped()
            self._follow()
            id = self._core.submit(
                0 if session is not None and key is None else number(name),
                prompt,
                None if sampling is None else dict(sampling),
                n,
                surplus,
                prompt_tokens,
                max_new_tokens,
                hint,
                of,
                deadline,
                None if resume is None else behind(resume),
            )
            group = self._delivery.open[id] = Group(self, id, name, prompt, n)
        return group

    def session(self, key: Hashable = None) -> Session:
        """Turns of one conversation. `with sched.session() as talk:`, or finish() it."""
        return Session(self, key)

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
        return self._waiter.until(lambda: self._take(groups), timeout, what)

    async def get_batch_async(
        self, groups: int = 1, *, timeout: float = WAIT_S
    ) -> Groups:
        """The same for asyncio."""
        what = f"{groups} finished groups were not there"
        return await self._waiter.until_async(lambda: self._take(groups), timeout, what)

    def _take(self, groups: int) -> Groups | None:
        with self._lock:
            return self._delivery.take(groups)

    def lease(self, groups: int = 1, *, timeout: float = WAIT_S) -> Lease:
        """`with sched.lease(32) as batch:` as get_batch, but if the body raises the groups are
        ready again, and are handed out to whoever asks next."""
        return Lease(self, groups, timeout)

    def _lease(self, groups: int) -> tuple[int, Groups] | None:
        with self._lock:
            return self._delivery.lease(groups)

    def _end_lease(self, batch: int, back: bool) -> None:
        with self._lock:
            self._delivery.end_lease(batch, back)

    def _look(self, group: Group) -> bool:
        with self._lock:
            return self._delivery.look(group)

    def _wait_for(self, group: Group, timeout: float | None) -> None:
        self._waiter.until(
            lambda: True if self._look(group) else None,
            WAIT_S if timeout is None else timeout,
            f"the group of prompt {group.key!r} was not whole",
        )

    async def _await_for(self, group: Group) -> None:
        await self._waiter.until_async(
            lambda: True if self._look(group) else None,
            WAIT_S,
            f"the group of prompt {group.key!r} was not whole",
        )

    async def __aiter__(self) -> AsyncIterator[Group]:
        """Groups as they finish, until none is open. DeadlineExceeded after 2 hours without
        one."""
        what = "no group finished"
        while taken := await self._waiter.until_async(self._next, WAIT_S, what):
            yield taken[0]

    def _next(self) -> Groups | None:
        with self._lock:
            return self._delivery.take_next()

    def __iter__(self) -> Any:
        """Groups as they finish, until none is open."""
        while taken := self._waiter.until(self._next, WAIT_S, "no group finished"):
            yield taken[0]

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
        self._waiter.until(
            lambda: self._core.restored(rank),
            timeout,
            f"rank {rank} was not found again",
        )

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
        self._waiter.until(
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

    def _state(self) -> str:
        """Why there is not what is waited for."""
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
            self._core.rank(one["replica"])
            for one in s["replicas"]
            if one["state"] == "waits for weights"
        ]
        if waiting:
            text += (
                f"; rank {waiting[0]} has not got the weights: give them to it, and call "
                f"restored({waiting[0]})"
            )
        return text

    # ---- the end ----------------------------------------------------------------------

    def close(self) -> None:
        """Cancel what runs, save the history. What waits fails. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._waiter.close()
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<muster.generate.Scheduler of {self._cluster._name!r}>"


def _mesh(cluster: View) -> tuple[int, int, int]:
    """tp, cp and pp: the ranks of one replica."""
    mesh = cluster._bound.mesh
    if mesh == UNKNOWN and cluster._peers:
        mesh = cluster._bound.sizes(cluster)
    if not isinstance(mesh, dict):
        return 1, 1, 1
    tp, cp, pp = (int(mesh.get(name, 1)) for name in ("tp", "cp", "pp"))
    return tp, cp, pp


def _forked() -> None:
    """In the child a thread that is not there may have held a lock."""
    for one in list(_schedulers):
        one._lock = threading.RLock()
        one._waiter.forked()


_schedulers: weakref.WeakSet[Scheduler] = weakref.WeakSet()
os.register_at_fork(after_in_child=_forked)
