"""Processes meet through the head and become a world with ranks, again and again.

meeting = muster.Rendezvous("train", 2, 4, last_call=10)
world = meeting.join(b"10.0.0.3")    # waits for the others: .rank, .size, .members
while train_a_step(world):
    if meeting.should_rejoin():      # a member has gone, or more could take part
        world = meeting.join(b"10.0.0.3")
meeting.close()                      # no more joins

Ranks of a role that a job's controller has started say no more than `muster.Rendezvous()`.

The rules are those of `doc/jobs.md`, and the head keeps them (src/job/rendezvous.h).
"""

from __future__ import annotations

import os
import socket
from collections import namedtuple
from errno import ECANCELED, ETIMEDOUT
from time import monotonic

from muster import _core, api, kv
from muster.errors import ClusterError, DeadlineExceeded, MusterError, RendezvousClosed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

LAST_CALL_S = 30.0
JOIN_S = 600.0
BARRIER_LOOK_S = 1.0  # until a process at a barrier notices that a member has gone
SHOWN_MAX = 8  # ranks in one error


class World(namedtuple("World", "round rank keys members prefix")):
    """What `join` gives. `keys` and `members` are those of all ranks: their keys, and the
    bytes that they joined with. What they tell each other in `muster.kv` below `prefix` goes
    when the next world is there; `muster.torchrun.Store(world.prefix)` is torch's view of it."""

    @property
    def size(self) -> int:
        return len(self.members)

    def barrier(self, name: str = "", *, timeout: float | None = None) -> None:
        """Wait until every member of this world is at the barrier of this name, as often as
        this member was. DeadlineExceeded names the ranks that have not come in time, and may
        be tried again; ClusterError: a member has gone, or others have met again, so that
        it cannot be passed. timeout: None is two hours."""
        passed: dict[str, int] = self.__dict__.setdefault("_passed", {})
        turn = passed.get(name, 0)
        here = f"{self.prefix}/barrier/{name}/{turn}"
        keys = [f"{here}/{rank}" for rank in range(self.size)]
        kv.put(keys[self.rank], b"", owner="none")
        deadline = monotonic() + (_core.WAIT_S if timeout is None else timeout)
        while not kv.wait(keys, max(0.0, min(BARRIER_LOOK_S, deadline - monotonic()))):
            self._check_whole(name)
            if monotonic() >= deadline:
                came = set(kv.keys(f"{here}/"))
                late = [rank for rank in range(self.size) if keys[rank] not in came]
                raise DeadlineExceeded(
                    f"barrier {name!r} of {self.prefix}: rank {_some(late)} did not come "
                    f"within {timeout} s"
                )
        passed[name] = turn + 1
        if turn:  # all that are here have passed the one before
            kv.delete(f"{self.prefix}/barrier/{name}/{turn - 1}/{self.rank}")

    def _check_whole(self, barrier: str) -> None:
        name = self.prefix.split("/", 1)[1].rpartition("/")[0]
        now = _ask("rendezvous", {"name": name})
        if now["round"] != self.round or now["lost"] or now["closed"]:
            what = f"{now['lost']} of its members" if now["lost"] else "this world"
            raise ClusterError(
                f"barrier {barrier!r} of {self.prefix}: {what} has gone: join again"
            )


class Rendezvous:
    """A member of the rendezvous `name`, which is made by the first that joins.

    A world has `min` to `max` members (None: `min`), and a multiple of `unit`. A round
    completes when `max` have come, or when `last_call` seconds have passed since the last
    of at least `min` came; `timeout` seconds after its first member at the latest, with
    what has come, or not at all. All members say the same.

    name, min, max, unit: None: those of this process's role in a submitted job. Its members
        are the role's ranks: a round completes when all of them have come.
    key: the same over the incarnations of a member, which keeps its rank by it. None: of a
        rank its cluster and rank, and it gets that rank if it can; else this host and process.
    """

    def __init__(
        self,
        name: str | None = None,
        min: int | None = None,
        max: int | None = None,
        *,
        unit: int | None = None,
        last_call: float = LAST_CALL_S,
        timeout: float = JOIN_S,
        key: str | None = None,
    ) -> None:
        role = role_of(os.environ)
        is_own = role is not None and name in (None, role.name)
        if role is not None and is_own:
            name = role.name
            max = role.max if max is None and min is None else max
            min = role.min if min is None else min
            unit = role.unit if unit is None else unit
        if name is None or min is None:
            raise ValueError(
                "Rendezvous: give a name and the number of members; only ranks of a role that "
                "a job's controller has started (MUSTER_RENDEZVOUS) can leave them out"
            )
        rank = _own_rank() if key is None else None
        self.name = name
        self.key = key or (f"{rank[0]}/{rank[1]}" if rank else _process_key())
        self.round = 0  # of the last world that this member was in
        self._timeout = timeout
        self._asked = {
            "name": name,
            "key": self.key,
            "min": min,
            "max": min if max is None else max,
            "unit": 1 if unit is None else unit,
            "place": rank[1] + 1 if rank else 0,
            "of_cluster": is_own,
            "last_call_ns": _core.ns(last_call),
            "join_ns": _core.ns(timeout),
        }

    def join(self, data: bytes = b"") -> World:
        """Wait for the next world, and be in it. `data` (at most 4 KiB) is for the others.
        DeadlineExceeded: too few came in time; RendezvousClosed."""
        try:
            found = _ask("join_rendezvous", self._asked | {"data": data})
        except BaseException:  # Ctrl-C too: the others are not to wait for this process
            if api.is_initialized() and api.session().head.alive:
                self.leave()
            raise
        members = found["members"]
        self.round = found["round"]
        return World(
            self.round,
            found["rank"],
            [member["key"] for member in members],
            [member["data"] for member in members],
            f"rendezvous/{self.name}/{self.round}",
        )

    def should_rejoin(self, wait: float = 0.0) -> bool:
        """Should the world that this member is in meet again? A member has gone or has
        joined again, or with those that wait it could be larger. Waits so many seconds for
        that to be true. RendezvousClosed."""
        status = self.status(wait)
        if status["closed"]:
            raise RendezvousClosed(f"rendezvous {self.name!r} is closed")
        return bool(status["wanted"] or status["round"] != self.round)

    def status(self, wait: float = 0.0) -> _core.Message:
        """`round`, and how many are in its `world`, are `lost` of it, are `waiting`; whether it
        is `wanted` that the world meets again; `closed`. Waits for news so long."""
        asked = {"name": self.name, "round": self.round}
        status: _core.Message = {}
        for hold in api.holds(wait):
            status = _ask("rendezvous", asked | {"wait_ns": _core.ns(hold)}, hold)
            news = status["wanted"] or status["closed"]
            if news or status["round"] != self.round:
                break
        return status

    def leave(self) -> None:
        """Not to be in the next world; of the last one this member is gone."""
        _ask("leave_rendezvous", {"name": self.name, "key": self.key})

    def close(self) -> None:
        """There are no more rounds, and joining fails."""
        _ask("close_rendezvous", {"name": self.name})

    def __repr__(self) -> str:
        return f"<muster.Rendezvous {self.name!r}: {self.key!r} in round {self.round}>"


class Role(namedtuple("Role", "name min max unit")):
    """What the controller of a job says of the rendezvous of a role."""


def role_of(environ: Mapping[str, str]) -> Role | None:
    """None: this process is no rank of a role that a controller has started."""
    name = environ.get("MUSTER_RENDEZVOUS")
    parts = environ.get("MUSTER_RENDEZVOUS_SIZE", "").split(":")
    if not name or len(parts) != 3 or not all(part.isdecimal() for part in parts):
        return None
    return Role(name, *map(int, parts))


def _own_rank() -> tuple[str, int] | None:
    """The cluster and rank of this process; None: it has none."""
    host = _core.in_worker()
    role = role_of(os.environ)
    cluster = host.cluster if host is not None else role.name if role else None
    rank = os.environ.get("RANK", "0")
    return (cluster, int(rank)) if cluster and rank.isdecimal() else None


def _some(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:SHOWN_MAX]))
    return (
        shown
        if len(ranks) <= SHOWN_MAX
        else f"{shown} and {len(ranks) - SHOWN_MAX} more"
    )


def _process_key() -> str:
    return f"{socket.gethostname()}/{os.getpid()}"


def _ask(verb: str, fields: _core.Message, wait: float | None = None) -> _core.Message:
    """What joins waits in the head, whose round has a deadline; a question `wait` seconds."""
    timeout = None if verb == "join_rendezvous" else (wait or 0.0) + api.ANSWER_S
    try:
        return api.live_head().ask(verb, fields).result(timeout)
    except _core.Refused as e:
        text, _, code = e.args
        kinds = {ECANCELED: RendezvousClosed, ETIMEDOUT: DeadlineExceeded}
        raise kinds.get(code, MusterError)(text) from None
