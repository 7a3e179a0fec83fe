"""Machines that an orchestrator lends to this driver: reservations, and init's own."""

from __future__ import annotations

from muster import _core, api
from muster._arguments import check_count
from muster._session.addresses import join_host, own_address
from muster.errors import MusterError, PlacementError, refused
from muster.groups import Bundle, bundle_messages
from muster.resources import ResourceManager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OWN = "init"  # the reservation that `init` makes
LENT_S = 120.0  # for machines to be lent and to join
_SETTLE_S = 30.0  # beyond a deadline, for what has failed to be undone
_NAMES = ("local", "ray")


class LentPiece:
    """A piece of a reservation: what was lent on one node, which the orchestrator calls
    machine. phase: "pending", "starting", "running" or "ended"; then cause, code and
    detail say why."""

    def __init__(self, piece: _core.Message) -> None:
        self.number: int = piece["number"]
        self.node: str = piece["node"]
        self.devices: list[int] = piece["devices"]
        self.phase: str = piece["phase"]
        self.cause: str = piece["cause"]
        self.code: int = piece["code"]
        self.detail: str = piece["detail"]
        self.machine: str = piece["machine"]

    def __repr__(self) -> str:
        why = f" ({self.cause}: {self.detail})" if self.cause else ""
        return f"<muster.LentPiece {self.number} on {self.node}: {self.phase}{why}>"


class Reservation:
    """Machines that were lent under one name, as `muster.reserve` gives it."""

    def __init__(
        self, name: str, bundle: _core.Message | None, strategy: str, same: str
    ) -> None:
        self.name = name
        self._bundle = bundle  # of each piece; None: they are whole nodes
        self._strategy = strategy
        self._same = same
        self._session = api.session()

    @property
    def pieces(self) -> list[LentPiece]:
        """As they are now."""
        found = self._session.ask("reservation", {"key": self.name}, MusterError)
        return [LentPiece(piece) for piece in found["pieces"]]

    @property
    def nodes(self) -> list[str]:
        """The names of its nodes that are there, in the order of its pieces."""
        running = (piece.node for piece in self.pieces if piece.phase == "running")
        return list(dict.fromkeys(running))

    def resource_manager(self) -> ResourceManager:
        """Over its nodes alone."""
        return ResourceManager(nodes=self.nodes)

    def grow(self, n: int = 1, *, timeout: float = LENT_S) -> list[str]:
        """`n` more pieces like the others, all or none; the names of their nodes."""
        if self._bundle is None:
            raise PlacementError(
                f"{self.name!r} has all nodes that were described: reserve() others"
            )
        before = {piece.number for piece in self.pieces}
        after = self._ask(check_count(n, "n", 1), timeout, more=True)
        return list(dict.fromkeys(p.node for p in after if p.number not in before))

    def shrink(self, which: int | Iterable[str] = 1) -> None:
        """Give back the pieces on these nodes, or so many of the last ones. Workers there
        are ended first."""
        pieces = self.pieces
        if isinstance(which, int):
            chosen = pieces[-check_count(which, "which", 1) :]
        else:
            names = set(which)
            if missing := names - {piece.node for piece in pieces}:
                raise PlacementError(
                    f"{self.name!r} has no node {', '.join(sorted(missing))}"
                )
            chosen = [piece for piece in pieces if piece.node in names]
        if chosen:
            self._give_back([piece.number for piece in chosen])

    def release(self) -> None:
        """Give back all of it. Workers there are ended first."""
        self._give_back([])
        self._session.reservations.pop(self.name, None)

    def _give_back(self, numbers: list[int]) -> None:
        asked = {"key": self.name, "numbers": numbers}
        self._session.ask("release_pieces", asked, MusterError, _SETTLE_S)

    def _ask(self, count: int, timeout: float, more: bool = False) -> list[LentPiece]:
        one = self._bundle
        pieces = {
            "name": self.name,
            "bundles": [] if one is None else [one | {"count": count}],
            "strategy": self._strategy,
            "same": self._same,
            "timeout_ns": _core.ns(timeout),
        }
        asked = {"pieces": pieces, "more": more, "whole": one is None}
        head = self._session.head
        try:
            found = head.ask("reserve", asked).result(timeout + _SETTLE_S)
        except LookupError as e:
            raise refused(e, MusterError) from None
        except BaseException:
            if not more:  # Ctrl-C: nothing of it may come later
                self._give_back([])
            raise
        self._session.open_store()
        self._session.reservations[self.name] = self
        return [LentPiece(piece) for piece in found["pieces"]]

    def __repr__(self) -> str:
        return f"<muster.Reservation {self.name!r}>"


def reserve(
    name: str,
    num_nodes: int = 1,
    *,
    num_gpus: float = 0,
    num_cpus: float = 0,
    memory: int | str | None = None,
    resources: Mapping[str, int] | None = None,
    labels: Mapping[str, str] | None = None,
    strategy: str = "STRICT_SPREAD",
    same: str | None = None,
    timeout: float = LENT_S,
) -> Reservation:
    """Have the orchestrator lend `num_nodes` pieces, all or none, and wait until their
    agents have joined. Each has `num_gpus`, `num_cpus`, `memory` and `resources`; with
    STRICT_SPREAD each is on a node of its own. labels: conditions on the nodes. same: a
    label of which all nodes have the same value.

    DeadlineExceeded: not within `timeout` seconds; it says what was asked and what is
    there, and nothing of it is left. It is given back by `release()`, `shutdown()`, or the
    end of this driver."""
    check_count(num_nodes, "num_nodes", 1)
    bundle = Bundle(
        cpus=num_cpus,
        gpus=num_gpus,
        memory=memory,
        resources=resources,
        labels=labels,
    )
    made = Reservation(name, bundle_messages([bundle], None)[0], strategy, same or "")
    made._ask(num_nodes, timeout)
    return made


def reservation(name: str = OWN) -> Reservation:
    """What this driver has reserved under that name; without one, what `init` has."""
    known = api.session().reservations
    if name not in known:
        names = ", ".join(known) or "none"
        raise PlacementError(f"there is no reservation {name!r} ({names})")
    return known[name]


# ---- init -----------------------------------------------------------------------------


def check(orchestrator: str, address: str | None, num_nodes: int | None) -> None:
    if orchestrator not in _NAMES:
        raise ValueError(f"orchestrator: one of {', '.join(_NAMES)}: {orchestrator!r}")
    if orchestrator == "local" and address not in (None, "local"):
        raise ValueError(f"orchestrator='local' has no address: {address!r}")
    if orchestrator != "local" and not address:
        raise ValueError(
            f"orchestrator={orchestrator!r}: address= says where "
            '("http://HEAD:8265", or "local" to start one here)'
        )
    if num_nodes is not None:
        check_count(num_nodes, "num_nodes", 0)


def listen_at(address: str | None) -> str:
    """The address of this machine that leads to the engine."""
    host = (address or "").partition("://")[2] or address or ""
    host = host.partition("/")[0].rpartition(":")[0] or host
    if host.strip("[]") in ("", "local", "inside", "localhost"):
        return "127.0.0.1:0"
    try:
        return join_host(own_address(host, 9), 0)
    except OSError as e:
        raise MusterError(f"address={address!r}: {e}") from None


def begin(
    num_nodes: int | None,
    num_gpus: int | None,
    num_cpus: int | None,
    whole: bool,
    timeout: float,
) -> None:
    """The gang of `init`."""
    if num_nodes == 0:
        return
    one = Bundle(cpus=num_cpus or 0, gpus=num_gpus or 0)
    bundle = None if whole else bundle_messages([one], None)[0]
    Reservation(OWN, bundle, "STRICT_SPREAD", "")._ask(num_nodes or 1, timeout)
