"""Workers and devices that are released with the last reference to them, as in Ray."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from muster import _core, api
from muster.cluster import Cluster
from muster.future import Future, wait
from muster.view import View

PRUNE = 64  # calls that are remembered before those that have gone are forgotten
AT_ONCE_S = 0.2  # workers that are not idle by then end later, on a thread


class WorkersLease:
    """Of the workers of a cluster. All views and handles of them in this process share
    it; when the last has gone the cluster ends, and calls that are open before it."""

    def __init__(self, cluster: Cluster, place: object) -> None:
        """`place`: what the workers stand in, which is held for as long."""
        self._calls: list[weakref.ref[Future]] = []
        ending = _Ending(cluster, self._calls, place)
        _when_unused(self, ending.begin)
        for member in cluster._members:
            member.lease = self

    def note(self, futures: Sequence[Future]) -> None:
        """Their results may still be wanted when the workers are to end."""
        if len(self._calls) > PRUNE:
            self._calls[:] = [ref for ref in self._calls if ref() is not None]
        self._calls += map(weakref.ref, futures)


def noted(view: View, made: Any) -> Any:
    """A future or several, of calls to these workers; itself."""
    lease = view._members[0].lease
    if lease is not None:
        lease.note([made] if isinstance(made, Future) else made)
    return made


class _Ending:
    """All that is needed to end workers without a reference to them."""

    def __init__(
        self, cluster: Cluster, calls: list[weakref.ref[Future]], place: object
    ) -> None:
        self.session = api.session()
        self.name = cluster.name
        self.uid = cluster._members[0].uid
        self.peers = [member.peer for member in cluster._members]
        self.calls = calls
        self.place = place

    def begin(self) -> None:
        """Workers that are idle have ended when this returns."""
        if _is_over(self.session):
            return
        with suppress(Exception):  # no caller could get it
            open_ = self._open_calls()
            if wait(open_, len(open_), AT_ONCE_S)[1]:
                threading.Thread(target=self._end, args=(open_,), daemon=True).start()
            else:
                self._end([])

    def _open_calls(self) -> list[Future]:
        """Those whose results are wanted, and one more to each worker: it is answered
        after all that were sent before, unless the worker runs several at once."""
        last = [
            Future(peer.operation(_core.OP_SET_ENV, {}, None), "set_env")
            for peer in self.peers
        ]
        wanted = [future for ref in self.calls if (future := ref()) is not None]
        return last + [future for future in wanted if not future.done()]

    def _end(self, open_: list[Future]) -> None:
        with suppress(Exception):
            if open_:
                wait(open_, len(open_))
            grace = _core.STOP_GRACE_S
            self.session.destroy_cluster(self.name, True, self.uid, grace)


def _when_unused(held: object, act: Callable[..., None], *args: Any) -> None:
    """Not at exit: the session ends all then."""
    weakref.finalize(held, act, *args).atexit = False  # type: ignore[misc]


def _is_over(session: api.Session) -> bool:
    return session.pid != os.getpid() or not session.head.alive


def lend(group: Any) -> None:
    """Give a placement group back with the last reference to it."""
    _when_unused(group, _remove, api.session(), group.id)


def _remove(session: api.Session, group: int) -> None:
    if _is_over(session):
        return
    with suppress(Exception):
        session.head.ask("remove_group", {"id": group}).result(api.ANSWER_S)
