"""One gang: a placement group, the actors of its bundles, and its pieces."""

from __future__ import annotations

import asyncio
import errno
import inspect
import time
from typing import Any, Callable

import ray
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from muster._ray import Refused, causes, order
from muster._ray.bundle_actor import STOP_GRACE_S, MusterBundle
from muster._ray.nodes import Nodes, asked
from muster._ray.package import Package

READY_STEP_S = 600  # a wait for a placement group that is begun again
RELEASED = ("released", 0, "")
DEATH_S = 10.0  # for an actor to be dead when it was killed
JOIN_LATE_S = 5  # agents give up by themselves so long after the deadline
AGAIN_S = 0.5  # between two questions after an actor of which Ray knows nothing yet

PLACING = inspect.signature(placement_group).parameters
CAN_LABELS = "bundle_label_selector" in PLACING
CAN_SAME = "topology_strategy" in PLACING

BundleActor = ray.remote(
    max_restarts=0, max_task_retries=0, max_concurrency=8, num_cpus=0
)(MusterBundle)


def heard(ref: Any) -> asyncio.Future[Any]:
    """The result of a call to an actor; it completes also when its waiter was cancelled."""
    future = asyncio.wrap_future(ref.future())
    future.add_done_callback(lambda f: f.cancelled() or f.exception())
    return future


class Piece:
    """As it is told."""

    def __init__(self, key: str, number: int) -> None:
        self.key, self.number = key, number
        self.phase, self.cause, self.code = "pending", "none", 0
        self.node: str | None = None
        self.detail: str | None = None
        self.agent: str | None = None  # as the head knows its node
        self.devices: list[int] = []

    def event(self) -> dict[str, Any]:
        return {"event": "piece", "incarnation": 1, **self.__dict__}


class Holder:
    """The actor in one bundle."""

    def __init__(self, bundle: int, actor: Any) -> None:
        self.bundle, self.actor = bundle, actor
        self.hold = heard(actor.hold.remote())  # fails when it dies


class Kept:
    """What a gang holds on one node: a holder for each bundle; the first has the agent."""

    def __init__(self, node: str, bundles: list[int], agent: str) -> None:
        self.node, self.bundles = node, bundles
        self.agent = agent  # its name at the head; taken while it lives
        self.package = ""  # where it is there; "": its holders know it
        self.holders: list[Holder] = []
        self.devices: list[str] = []
        self.joined: asyncio.Future[Any] | None = None
        self.ended: asyncio.Future[Any] | None = None
        self.is_stopping = False
        self.over = asyncio.Event()  # the agent has ended, or never was


class Gang:
    """The controller hears every change of a piece."""

    def __init__(
        self, request: dict[str, Any], first: int, bridge: Any, op: Any
    ) -> None:
        key = self.key = request["key"]
        self.nodes: Nodes = bridge.nodes
        self.package: Package = bridge.package
        self.agent_names: set[str] = bridge.agent_names
        self.muster, self.tell = bridge.muster, bridge.lines.say
        self.op, self.begun = op, op.begun  # who asked for it
        self.request = request
        self.wanted: list[dict[str, Any]] = request["pieces"]
        self.bundles = [order.bundle_of(p) for p in self.wanted]
        self.pieces = [Piece(key, first + i) for i in range(len(self.wanted))]
        self.pieces_told = {p.number for p in self.pieces}  # and not told as gone
        self.is_lent = False  # all of it ran once
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.devices: dict[int, list[str]] = {}  # of each bundle, as Ray calls them
        self.numbers: dict[int, int] = {}  # bundle: index of its piece
        self.group: PlacementGroup | None = None
        self.actors: dict[int, Any] = {}  # of each bundle
        self.making: asyncio.Future[Any] | None = None
        self.kept: list[Kept] = []
        self.watches: list[asyncio.Task[None]] = []
        self.closing: asyncio.Future[None] | None = None
        self.stage = "placing"

    # ---- launching ---------------------------------------------------------------------

    async def launch(self) -> None:
        """Returns when every piece runs; raises Refused when one never will."""
        await self._place()
        table = await asked(placement_group_table, self.group)
        places = {int(i): n for i, n in table["bundles_to_node_id"].items()}
        if any(node not in self.nodes.all for node in places.values()):
            await self.nodes.refresh()
        names = {node: self.nodes.name(node) for node in set(places.values())}
        self.numbers = order.number(self.wanted, places, names)
        for node, bundles in order.by_node(places).items():
            kept = Kept(node, bundles, self._agent_name(names[node]))
            kept.package = self.package.path(node)
            self.kept.append(kept)
            for piece in self._pieces_of(kept):
                piece.node, piece.agent = names[node], kept.agent
                piece.phase = "starting"
                self.tell(piece.event())
        self.stage = "starting"
        await self._make(self._hire)
        for kept in self.kept:
            actors = [self.actors[i] for i in kept.bundles]
            kept.holders = [Holder(i, a) for i, a in zip(kept.bundles, actors)]
        await asyncio.gather(*(self._bring(k) for k in self.kept))
        self.is_lent = True

    def _hire(self) -> None:
        """An actor for each bundle."""
        for kept in self.kept:
            more = {} if kept.package else self.package.options(kept.node)
            for bundle in kept.bundles:
                amounts = dict(self.bundles[bundle])
                self.actors[bundle] = BundleActor.options(
                    num_cpus=amounts.pop("CPU", 0),
                    num_gpus=amounts.pop("GPU", 0),
                    memory=amounts.pop("memory", None),
                    resources=amounts,
                    scheduling_strategy=PlacementGroupSchedulingStrategy(
                        self.group, bundle
                    ),
                    **more,
                ).remote()

    async def _place(self) -> None:
        options: dict[str, Any] = {"name": f"muster:{self.key}:{time.time_ns():x}"}
        selectors = order.selectors(self.wanted, self.nodes.avoided_ids())
        if selectors is not None:
            if not CAN_LABELS:
                raise Refused(
                    errno.ENOTSUP,
                    f"{self.key}: Ray {ray.__version__} cannot choose nodes by labels, "
                    "or avoid some: 2.49 and later can",
                )
            options["bundle_label_selector"] = selectors
        strategy = self.request.get("strategy") or "PACK"
        same = self.request.get("same")
        if same and not CAN_SAME:
            raise Refused(
                errno.ENOTSUP,
                f"{self.key}: Ray {ray.__version__} cannot keep a gang within one "
                f"value of '{same}': 2.57 and later can",
            )
        if same:
            options["topology_strategy"] = {
                same: "STRICT_PACK",
                order.LABEL_NODE: strategy,
            }
        else:
            options["strategy"] = strategy
        try:
            await self._make(lambda: self._create_group(options))
        except ValueError as e:
            raise Refused(errno.EINVAL, f"{self.key}: {e}") from None
        assert self.group is not None
        while not await asked(self.group.wait, READY_STEP_S):
            pass

    def _create_group(self, options: dict[str, Any]) -> None:
        self.group = placement_group(self.bundles, **options)

    async def _make(self, what: Callable[[], Any]) -> None:
        """It completes also when its waiter was cancelled: `close` finds what it has made."""
        self.making = asyncio.ensure_future(asked(what))
        await asyncio.shield(self.making)

    def _pieces_of(self, kept: Kept) -> list[Piece]:
        """That are still ours."""
        return [
            self.pieces[self.numbers[i]]
            for i in kept.bundles
            if self.pieces[self.numbers[i]].phase != "ended"
        ]

    async def _bring(self, kept: Kept) -> None:
        """Its holders come, then its agent, and joins."""
        try:
            if len(kept.holders) > 1:  # one alone knows its devices itself
                await self._ask_devices(kept)
            actor = kept.holders[0].actor
            started = heard(actor.start.remote(self._spec(kept)))
            kept.joined = heard(actor.joined.remote())
            kept.ended = heard(actor.ended.remote())
            self._has_started(kept, await started)
            has_joined = await self._has_joined(kept)
        except ray.exceptions.RayError as e:
            end = await self._why_dead(kept, e, kept.holders[0].actor.hold)
            await self._over(kept, end)
            self.package.lost(kept.node)  # whatever it was: Ray is asked for it again
            has_joined = False
        if not has_joined:
            ended = self.pieces[self.numbers[kept.bundles[0]]]
            raise Refused(
                errno.ECHILD,
                f"{self.key}: piece {ended.number} on {ended.node} ended "
                f"({ended.cause}): {ended.detail}",
            )
        for piece in self._pieces_of(kept):
            piece.phase = "running"
            self.tell(piece.event())

    async def _ask_devices(self, kept: Kept) -> None:
        asks = [heard(h.actor.devices.remote()) for h in kept.holders]
        for holder, ids in zip(kept.holders, await asyncio.gather(*asks)):
            self.devices[holder.bundle] = ids
            kept.devices += ids
        kept.devices.sort(key=order.natural)
        self._number(kept)

    def _has_started(self, kept: Kept, said: dict[str, Any]) -> None:
        if len(kept.holders) == 1:
            kept.devices = self.devices[kept.bundles[0]] = said["devices"]
            self._number(kept)
        if not kept.package:
            self.package.found(kept.node, said["folder"])

    async def _has_joined(self, kept: Kept) -> bool:
        """And from here on it is watched."""
        assert kept.joined is not None
        self.watches.append(asyncio.ensure_future(self._watch(kept)))
        for holder in kept.holders[1:]:
            watch = self._watch_holder(kept, holder)
            self.watches.append(asyncio.ensure_future(watch))
        try:
            has_joined = bool(await kept.joined)
        except ray.exceptions.RayError:
            has_joined = False
        if not has_joined:
            await kept.over.wait()  # _watch says why
        return has_joined

    def _number(self, kept: Kept) -> None:
        """The devices are known: pieces of this node are in their order."""
        mine = {i: self.numbers[i] for i in kept.bundles}
        ids = {i: self.devices[i] for i in kept.bundles}
        self.numbers.update(order.number_on_node(self.wanted, mine, ids))
        for index in kept.bundles:
            piece = self.pieces[self.numbers[index]]
            # what has no number is counted
            piece.devices = sorted(
                int(d) if d.isdecimal() else kept.devices.index(d) for d in ids[index]
            )

    def _agent_name(self, node: str) -> str:
        """Its node's, or that with a number if others are there."""
        name, i = node, 2
        while name in self.agent_names:
            name, i = f"{node}.{i}", i + 1
        self.agent_names.add(name)
        return name

    def _spec(self, kept: Kept) -> dict[str, Any]:
        """What is to be started there."""
        agent = self.request.get("agent") or {}
        left = self.request["timeout_s"] - (time.monotonic() - self.begun)
        held = order.total([self.bundles[i] for i in kept.bundles])
        return {
            "name": kept.agent,
            "cpus": order.whole_cpus([self.wanted[i] for i in kept.bundles]),
            "memory": int(held.get("memory", 0)),
            "devices": kept.devices if len(kept.holders) > 1 else None,
            "resources": {
                name: int(amount)
                for name, amount in held.items()
                if name not in ("CPU", "GPU", "memory") and amount >= 1
            },
            "labels": self.nodes.labels(kept.node),
            "head": agent.get("head") or "",
            "secret": agent.get("secret") or "",
            "env": dict(agent.get("env") or {}),
            "muster": self.muster,
            "package": kept.package,
            "join_within_s": max(1, int(left)) + JOIN_LATE_S,
        }

    # ---- ends --------------------------------------------------------------------------

    async def _watch(self, kept: Kept) -> None:
        """Until its agent or its first holder has ended, and says why."""
        assert kept.ended is not None
        try:
            end = causes.of_agent(await kept.ended)
        except ray.exceptions.RayError as e:
            end = await self._why_dead(kept, e, kept.holders[0].actor.ended)
        await self._over(kept, end)

    async def _watch_holder(self, kept: Kept, holder: Holder) -> None:
        """One without the agent: only its own piece ends with it."""
        try:
            await asyncio.shield(holder.hold)
        except ray.exceptions.RayError as e:
            if holder in kept.holders and not kept.is_stopping:
                end = await self._why_dead(kept, e, holder.actor.hold)
                self._tell_end(self.pieces[self.numbers[holder.bundle]], end)

    async def _why_dead(
        self, kept: Kept, error: BaseException, again: Any
    ) -> tuple[str, int, str]:
        """Ray may need a while to know. `again` is the method of the actor to ask then: it
        may live, and tell of the end of its agent later."""
        while True:
            lost = ""
            if not self.nodes.is_alive(kept.node):
                lost = self._lost_text(kept.node)
            elif await self.nodes.refuses(kept.node):
                lost = f"the raylet of {self.nodes.name(kept.node)} does not listen any more"
            if lost or not causes.is_passing(error):
                return causes.of_error(error, lost)
            try:
                return causes.of_agent(await heard(again.remote()))
            except ray.exceptions.RayError as e:
                error = e
            await asyncio.sleep(AGAIN_S)

    def _lost_text(self, node: str) -> str:
        why = self.nodes.all.get(node, {}).get("DeathReasonMessage") or "Ray lost it"
        return f"node {self.nodes.name(node)} is dead: {why}"

    async def _over(self, kept: Kept, end: tuple[str, int, str]) -> None:
        for piece in self._pieces_of(kept):
            self._tell_end(piece, RELEASED if kept.is_stopping else end)
        self.agent_names.discard(kept.agent)
        kept.over.set()
        await self._kill(kept.holders)
        if self.is_lent and all(k.over.is_set() for k in self.kept):
            await self._remove_group()

    def _tell_end(self, piece: Piece, end: tuple[str, int, str]) -> None:
        if piece.phase != "ended":
            piece.phase = "ended"
            piece.cause, piece.code, detail = end
            piece.detail = detail or None
            self.tell(piece.event())

    async def _kill(self, holders: list[Holder]) -> None:
        """They are dead when this returns, if Ray answers."""
        actors = [h.actor for h in holders]
        await asked(lambda: [ray.kill(a, no_restart=True) for a in actors])
        if holders:
            await asyncio.wait({h.hold for h in holders}, timeout=DEATH_S)

    async def _remove_group(self) -> None:
        group = self.group
        if group is not None:
            await asked(remove_placement_group, group)
            self.group = None  # and if Ray did not answer it is asked again

    async def stop(self, kepts: list[Kept]) -> None:
        """Their agents end, then their holders."""
        for kept in kepts:
            kept.is_stopping = True
            if kept.ended is not None and not kept.over.is_set():
                heard(kept.holders[0].actor.stop.remote())
        waits = {k.ended for k in kepts if k.ended is not None}
        if waits:
            await asyncio.wait(waits, timeout=STOP_GRACE_S + 3)
        await asyncio.gather(*(self._kill(k.holders) for k in kepts))

    async def release(self, numbers: set[int]) -> None:
        """Some pieces: an agent that others share goes on for those."""
        idle, spare = [], []
        for kept in self.kept:
            living = self._pieces_of(kept)
            leaving = [p for p in living if p.number in numbers]
            if len(leaving) == len(living):
                idle.append(kept)
                continue
            spare += [self._give_up(kept, p) for p in leaving]
            for piece in leaving:
                self._tell_end(piece, RELEASED)
        await self._kill(spare)
        await self.stop([k for k in idle if not k.over.is_set()])
        for piece in self.pieces:
            if piece.number in numbers:
                self._tell_end(piece, RELEASED)
        if all(p.phase == "ended" for p in self.pieces):
            await self.close()

    def _give_up(self, kept: Kept, piece: Piece) -> Holder:
        """The holder that ends with it. The one with the agent stays: it changes places
        with another, as all bundles are Ray's until the placement group is gone."""
        at = next(
            at
            for at, h in enumerate(kept.holders)
            if self.pieces[self.numbers[h.bundle]] is piece
        )
        if at == 0:
            first, at = kept.holders[0], len(kept.holders) - 1
            last = kept.holders[at]
            first.bundle, last.bundle = last.bundle, first.bundle
        return kept.holders.pop(at)

    async def close(self) -> None:
        """Nothing of it is left, also when several ask for that; raises if Ray does not do it."""
        if self.closing is None or (
            self.closing.done() and self.closing.exception() is not None
        ):
            self.closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self.closing)

    async def _close(self) -> None:
        if self.making is not None:
            await asyncio.wait({self.making})
        await self.stop([k for k in self.kept if not k.over.is_set()])
        actors = list(self.actors.values())
        await asked(lambda: [ray.kill(a, no_restart=True) for a in actors])
        await self._remove_group()
        for watch in self.watches:
            watch.cancel()
        for kept in self.kept:
            self.agent_names.discard(kept.agent)
        for piece in self.pieces:
            self._tell_end(piece, RELEASED)
        if not self.closed.done():
            self.closed.set_result(None)

    # ---- why not -----------------------------------------------------------------------

    async def why_not(self) -> str:
        """At the deadline: what was asked for and what there is."""
        took = f"{self.key}: not lent within {self.request['timeout_s']:g} s"
        late = {k.agent for k in self.kept if k.joined and not k.joined.done()}
        if late:
            head = (self.request.get("agent") or {}).get("head")
            return (
                f"{took}: agents were started and have not joined the head at {head}: "
                f"{', '.join(sorted(late))}"
            )
        asks = ", ".join(
            f"{self.bundles.count(b)} x {{{order.amounts_text(b)}}}"
            for i, b in enumerate(self.bundles)
            if b not in self.bundles[:i]
        )
        if self.stage == "starting":
            return f"{took}: Ray has placed {asks} but not started all actors there in time"
        wanted = {name for b in self.bundles for name in b}
        strategy = self.request.get("strategy") or "PACK"
        has = "; ".join(await self.nodes.table(wanted))
        labels = [s for s in order.selectors(self.wanted, []) or [] if s]
        more = f" with labels {labels[0]}" if labels else ""
        if self.request.get("same"):
            more += f" within one '{self.request['same']}'"
        return f"{took}: asked for {asks} ({strategy}){more}; free: {has}"
