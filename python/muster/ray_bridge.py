"""The bridge to Ray: carries the verbs of an orchestrator out on a Ray cluster."""

#     PYTHON muster/ray_bridge.py --name NAME --grace SECONDS
#
# It reads and writes lines of JSON (doc/orchestrators.md, "The bridge's lines"), runs with
# the cluster's own Python and Ray, and does not import `muster`, which may want a newer
# Python: of this folder it takes the package _ray alone.
#
#     _ray/lines.py    lines in and out, and what they may ask for
#     _ray/gang.py     one placement group, the actors of its bundles, its pieces
#     _ray/bundle_actor.py  the actor on a node; the agent is its child
#     _ray/package.py  our package on the nodes
#     _ray/record.py   what Ray remembers of our job
#     _ray/nodes.py    the nodes of the cluster, and whether Ray answers
#     _ray/order.py    which piece is which (pure)
#     _ray/causes.py   why a piece ended (pure)
#
# Nothing outlives it: actors and placement groups are its own, and Ray ends them with it.
# But for the watcher of _ray/record.py, which deletes the job's record within seconds.

from __future__ import annotations

import sys
import types
from pathlib import Path

if __name__ == "__main__":
    # a bare package stands for `muster`, and its folder is not looked in for others
    HERE = str(Path(__file__).resolve().parent)
    sys.path[:] = [p for p in sys.path if str(Path(p or ".").resolve()) != HERE]
    bare = types.ModuleType("muster")
    bare.__path__ = [HERE]
    sys.modules["muster"] = bare

import argparse
import asyncio
import errno
import os
import platform
import signal
import time
from collections.abc import Coroutine
from typing import Any

import ray
from ray import cloudpickle

from muster._ray import Refused, bundle_actor
from muster._ray.gang import CAN_LABELS, Gang
from muster._ray.lines import Lines, check_key, check_request, mark_of
from muster._ray.nodes import Nodes
from muster._ray.package import Package
from muster._ray.record import Record

VERBS = ("reserve", "grow", "release", "cancel", "avoid", "list", "end")
OLDEST = (2, 40)
CLOSE_S = 30.0  # for everything to be given back at the end; Ray does the rest
SILENT_CLOSE_S = 8.0  # and when Ray does not answer: for agents to end
FAREWELL_S = 10.0
AGAIN_S = 1.0  # what Ray did not do when it was asked to give back


class Op:
    """One verb that is under way. It may be told to stop, once."""

    def __init__(self, number: int) -> None:
        self.number, self.begun = number, time.monotonic()
        self.first: int | None = None  # the number of its first piece
        self.stopped: asyncio.Future[Refused] = (
            asyncio.get_running_loop().create_future()
        )

    def stop(self, code: int, why: str) -> None:
        if not self.stopped.done():
            self.stopped.set_result(Refused(code, why))

    async def wait_for(
        self, what: asyncio.Future[Any], timeout: float, late: str
    ) -> None:
        """Until that is done; raises when it is told to stop, or at its deadline."""
        left = max(0.0, self.begun + timeout - time.monotonic())
        waits: set[asyncio.Future[Any]] = {what, self.stopped}
        await asyncio.wait(waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if self.stopped.done():
            raise self.stopped.result()
        if not what.done():
            raise Refused(errno.ETIMEDOUT, late)


class Reservation:
    """What is held, or being lent, under one key."""

    def __init__(self, key: str, mark: str, op: Op) -> None:
        self.key, self.mark, self.op = key, mark, op
        self.next = 0  # number of the next piece
        self.gangs: list[Gang] = []
        self.growing: set[Op] = set()
        loop = asyncio.get_running_loop()
        self.lent: asyncio.Future[None] = loop.create_future()  # or why not
        self.lent.add_done_callback(lambda f: f.cancelled() or f.exception())
        self.is_leaving = False
        self.gone: asyncio.Future[None] = loop.create_future()


class Bridge:
    def __init__(self, lines: Lines, package: Package, muster: str) -> None:
        self.lines, self.package, self.muster = lines, package, muster
        self.held: dict[str, Reservation] = {}
        self.ops: dict[int, Op] = {}
        self.agent_names: set[str] = set()
        self.nodes = Nodes(lines.say)
        self.tasks: set[asyncio.Task[None]] = set()
        self.ending = asyncio.Event()
        self.is_told = False  # to end, by the controller

    # ---- verbs -------------------------------------------------------------------------

    def on_line(self, m: dict[str, Any]) -> None:
        self._begin(self._answer(m))

    def _begin(self, what: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(what)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _answer(self, m: dict[str, Any]) -> None:
        """Every verb is answered exactly once."""
        number, verb = int(m.get("id") or 0), m.get("verb")
        op = self.ops[number] = Op(number)
        try:
            await self._do(str(verb), m, op)
            answer: dict[str, Any] = {"id": number, "rc": 0}
            if op.first is not None:
                answer["first"] = op.first
        except Refused as e:
            answer = {"id": number, "rc": -e.code, "why": e.why}
        except Exception as e:
            print(f"{verb}: {e!r}", file=sys.stderr)
            why = f"{verb}: {' '.join(str(e).split())[:200]}"
            code = errno.EAGAIN if self.nodes.silent else errno.EIO
            answer = {"id": number, "rc": -code, "why": why}
        self.ops.pop(number, None)
        self.lines.say(answer)
        if verb == "end":
            self.ending.set()

    async def _do(self, verb: str, m: dict[str, Any], op: Op) -> None:
        if verb not in VERBS:
            raise Refused(errno.EINVAL, f"there is no verb {verb!r}")
        if self.nodes.silent and verb not in ("cancel", "end"):
            raise Refused(errno.EAGAIN, self.nodes.silent)
        await getattr(self, verb)(m, op)

    async def reserve(self, m: dict[str, Any], op: Op) -> None:
        check_request(m)
        key, mark = m["key"], mark_of(m)
        late = f"{key}: not lent in time: what had this key before is being given back"
        while key in self.held and self.held[key].is_leaving:
            await op.wait_for(self.held[key].gone, m["timeout_s"], late)
        held = self.held.get(key)
        if held is not None and held.mark != mark:
            raise Refused(errno.EEXIST, f"{key}: another one has this key")
        if held is not None:  # the same again: it ends as that one does
            await op.wait_for(held.lent, m["timeout_s"], f"{key}: not lent in time")
            held.lent.result()
            return
        held = self.held[key] = Reservation(key, mark, op)
        try:
            await self._launch(held, m, op)
        except Exception as e:
            await self._leave(held)
            held.lent.set_exception(e)
            raise
        held.lent.set_result(None)

    async def grow(self, m: dict[str, Any], op: Op) -> None:
        check_request(m)
        held = self.held.get(m["key"])
        if held is None or held.is_leaving:
            raise Refused(errno.ENOENT, f"{m['key']}: no such reservation")
        held.growing.add(op)
        try:
            await self._launch(held, m, op)
        finally:
            held.growing.discard(op)

    async def _launch(self, held: Reservation, m: dict[str, Any], op: Op) -> None:
        """All of it, or nothing of it is left."""
        op.first = held.next
        gang = Gang(m, held.next, self, op)
        held.next += len(gang.pieces)
        held.gangs.append(gang)
        for piece in gang.pieces:
            self.lines.say(piece.event())
        launch = asyncio.ensure_future(gang.launch())
        try:
            await op.wait_for(launch, m["timeout_s"], "")
            launch.result()
        except Exception as e:
            why = e
            if not launch.done() and not op.stopped.done():
                why = Refused(errno.ETIMEDOUT, await gang.why_not())
            launch.cancel()
            await self._give_back(held, gang)
            raise why from None
        self._begin(self.package.keep())

    async def _give_back(self, held: Reservation, gang: Gang) -> None:
        """All of it, and if Ray does not answer when it does again."""
        while True:
            try:
                await gang.close()
                break
            except Exception as e:
                print(f"{held.key}: cannot be given back: {e!r}", file=sys.stderr)
                await asyncio.sleep(AGAIN_S)
        self._forget(held, gang, set(gang.pieces_told))

    def _forget(self, held: Reservation, gang: Gang, numbers: set[int]) -> None:
        for piece in gang.pieces:
            if piece.number in numbers:
                gone = {"event": "gone", "key": held.key, "number": piece.number}
                self.lines.say(gone)
        gang.pieces_told -= numbers
        if not gang.pieces_told and gang in held.gangs:
            held.gangs.remove(gang)

    async def release(self, m: dict[str, Any], op: Op) -> None:
        check_key(m)
        held = self.held.get(m["key"])
        numbers = m.get("pieces")
        if held is None:
            return  # what is not there is released
        if not numbers:
            await self._leave(held)
            return
        for gang in list(held.gangs):
            mine = set(numbers) & gang.pieces_told
            if mine and gang.is_lent:
                await gang.release(mine)
                self._forget(held, gang, mine & gang.pieces_told)
            elif mine:  # all of it or none
                gang.op.stop(errno.ECHILD, f"{held.key}: a piece of it was released")
                await asyncio.wait({gang.closed})
        if not held.gangs and held.lent.done():
            await self._leave(held)

    async def _leave(self, held: Reservation) -> None:
        """The whole of it, also when its waiter was cancelled."""
        if held.is_leaving:
            await asyncio.wait({held.gone})
            return
        held.is_leaving = True
        for op in [held.op, *held.growing]:
            op.stop(errno.ECHILD, f"{held.key}: it was released")
        lent = [g for g in held.gangs if g.is_lent]
        await asyncio.gather(*(self._give_back(held, g) for g in lent))
        while held.gangs:  # those on their way are closed by who asked for them
            await asyncio.wait({g.closed for g in held.gangs})
        self.lines.say({"event": "gone", "key": held.key})
        self.held.pop(held.key, None)
        held.gone.set_result(None)

    async def cancel(self, m: dict[str, Any], op: Op) -> None:
        number = int(m.get("of") or 0)
        other = self.ops.get(number)
        if other is not None and other is not op:
            other.stop(errno.ECANCELED, "it was cancelled")
        elif m.get("undo"):
            await self._undo(number)

    async def _undo(self, number: int) -> None:
        """What this operation has lent: its answer was not heard."""
        for held in list(self.held.values()):
            if held.op.number == number:
                await self._leave(held)
                return
            for gang in list(held.gangs):
                if gang.op.number == number:
                    await self._give_back(held, gang)

    async def avoid(self, m: dict[str, Any], op: Op) -> None:
        name = m.get("node")
        if not CAN_LABELS:
            raise Refused(
                errno.ENOTSUP,
                f"Ray {ray.__version__} cannot avoid nodes: 2.49 and later can",
            )
        if name not in self.nodes.names.values():
            raise Refused(errno.ENOENT, f"there is no node {name!r}")
        self.nodes.avoided[str(name)] = str(m.get("reason") or "no reason was given")

    async def list(self, m: dict[str, Any], op: Op) -> None:
        for held in self.held.values():
            for gang in held.gangs:
                for piece in gang.pieces:
                    if piece.number in gang.pieces_told:
                        self.lines.say(piece.event())

    async def end(self, m: dict[str, Any], op: Op) -> None:
        self.is_told = True
        await self.close(op)

    # ---- life --------------------------------------------------------------------------

    async def close(self, but: Op | None = None) -> None:
        """Everything is given back, for as long as that may take."""
        for op in list(self.ops.values()):
            if op is not but:
                op.stop(errno.ECANCELED, "the bridge ends")
        leaving = [asyncio.ensure_future(self._leave(h)) for h in self.held.values()]
        if leaving:
            within = SILENT_CLOSE_S if self.nodes.silent else CLOSE_S
            await asyncio.wait(leaving, timeout=within)

    async def run(self, grace_s: float) -> None:
        await self.nodes.refresh()
        self.lines.say(
            {
                "event": "hello",
                "ray": ray.__version__,
                "python": platform.python_version(),
                "grace_s": grace_s,
                "nodes": self.nodes.described(),
            }
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self.ending.set)
        self.lines.read(self.on_line, self.ending.set)
        watch = asyncio.ensure_future(self.nodes.watch())
        await self.ending.wait()
        await self.close()
        watch.cancel()


def check_version() -> None:
    version = tuple(int(part) for part in ray.__version__.split(".")[:2])
    if version < OLDEST:
        sys.exit(f"Ray {ray.__version__} is too old: 2.40 and later will do")


def leave(package: Package) -> None:
    """Ray ends what may be left; threads that wait for it are not waited for."""
    signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    signal.alarm(int(FAREWELL_S))
    package.let_go()
    ray.shutdown()
    package.close()
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="muster")
    parser.add_argument("--grace", type=float, default=0.0)
    parser.add_argument("--muster", default=os.environ.get("MUSTER_CLI", ""))
    options = parser.parse_args()
    lines, package = Lines(), Package()
    check_version()
    cloudpickle.register_pickle_by_value(bundle_actor)
    connected = ray.init(
        address=os.environ.get("RAY_ADDRESS", "auto"),
        namespace=f"muster-{options.name}",
        log_to_driver=False,
        logging_level="warning",
    )
    record = Record(package.config, connected.address_info["webui_url"])

    async def serve() -> None:
        bridge = Bridge(lines, package, options.muster)
        await bridge.run(options.grace)
        if bridge.is_told:
            record.leave()

    asyncio.run(serve())
    leave(package)


if __name__ == "__main__":
    main()
