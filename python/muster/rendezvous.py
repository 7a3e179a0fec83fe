"""Processes meet through the head and become a world with ranks, again and again.

meeting = muster.Rendezvous("train", 2, 4, last_call=10)
world = meeting.join(b"10.0.0.3")    # waits for the others: .rank, .size, .members
while train_a_step(world):
    if meeting.should_rejoin():      # a member has gone, or more could take part
        world = meeting.join(b"10.0.0.3")
meeting.close()                      # nobody joins any more

The rules are those of `doc/jobs.md`, and the head keeps them (src/job/rendezvous.h).
"""

from __future__ import annotations

import os
import socket
from collections import namedtuple
from errno import ECANCELED, ETIMEDOUT

from muster import _core, api
from muster.errors import DeadlineExceeded, MusterError, RendezvousClosed

LAST_CALL_S = 30.0
JOIN_S = 600.0
POLL_S = 60.0  # one question; it is asked again


class World(namedtuple("World", "round rank keys members")):
    """What `join` gives. `keys` and `members` are those of all ranks: their keys, and the
    bytes that they joined with."""

    @property
    def size(self) -> int:
        return len(self.members)


class Rendezvous:
    """A member of the rendezvous `name`, which is made by the first that joins.

    A world has `min` to `max` members (None: `min`), and a multiple of `unit`. A round
    completes when `max` have come, or when `last_call` seconds have passed since the last
    of at least `min` came; `timeout` seconds after its first member at the latest, with
    what has come, or not at all. All members say the same.

    key: the same over the incarnations of a member, which keeps its rank by it. None: of a
        worker its cluster and rank, else this host and process.
    """

    def __init__(
        self,
        name: str,
        min: int,
        max: int | None = None,
        *,
        unit: int = 1,
        last_call: float = LAST_CALL_S,
        timeout: float = JOIN_S,
        key: str | None = None,
    ) -> None:
        self.name = name
        self.key = key or _own_key()
        self.round = 0  # of the last world that this member was in
        self._timeout = timeout
        self._asked = {
            "name": name,
            "key": self.key,
            "min": min,
            "max": min if max is None else max,
            "unit": unit,
            "last_call_ns": _core.ns(last_call),
            "join_ns": _core.ns(timeout),
        }

    def join(self, data: bytes = b"") -> World:
        """Wait for the next world, and be in it. `data` (at most 4 KiB) is for the others.
        DeadlineExceeded: too few came in time; RendezvousClosed."""
        try:
            found = _ask("join_rendezvous", self._asked | {"data": data})
        except BaseException:  # Ctrl-C too: nobody is to wait for us
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
        left = wait
        while True:
            part = min(left, POLL_S)
            status = _ask("rendezvous", asked | {"wait_ns": _core.ns(part)}, part)
            left -= part
            news = status["wanted"] or status["closed"]
            if left <= 0 or news or status["round"] != self.round:
                return status

    def leave(self) -> None:
        """Not to be in the next world; of the last one this member is gone."""
        _ask("leave_rendezvous", {"name": self.name, "key": self.key})

    def close(self) -> None:
        """No world comes any more, and nobody can join."""
        _ask("close_rendezvous", {"name": self.name})

    def __repr__(self) -> str:
        return f"<muster.Rendezvous {self.name!r}: {self.key!r} in round {self.round}>"


def _own_key() -> str:
    host = _core.in_worker()
    if host is not None:
        return f"{host.cluster}/{os.environ.get('RANK', '0')}"
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
