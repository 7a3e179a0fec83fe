"""The nodes of a session: what they are, hearing of them, and waiting for them."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from time import monotonic

from muster._session.launch import RANK_LABEL
from muster.errors import DeadlineExceeded, MusterError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from muster import _core
    from muster.api import Session

JOIN_S = 5.0
_LAST_ANSWER_S = 1.0  # to hear which nodes there are when the time is over
_SHOWN_MAX = 16  # names in a message
_GIVEN_BACK = "was given back"  # by us


class Device:
    """A device of a node. `id` is how the variable `variable` names it to a process;
    vendor is "" where it is only described, memory is in bytes (0: not known), devices
    with the same domain are joined closely, numa is -1 where that is not known."""

    def __init__(self, device: _core.Message) -> None:
        self.kind: str = device["kind"]
        self.vendor: str = device["vendor"]
        self.id: str = device["id"]
        self.variable: str = device["variable"]
        self.memory: int = device["memory"]
        self.domain: int = device["domain"]
        self.numa: int = device["numa"]
        self.pci: str = device["pci"]
        self.model: str = device["model"]

    def __repr__(self) -> str:
        what = self.model or f"{self.vendor} {self.kind}".lstrip()
        return f"<muster.Device {self.id}: {what}, {self.memory >> 20} MiB>"


class Node:
    """A machine that lends itself, or a part of one, as `muster.nodes()` gives it.

    memory is in bytes; suspect: silent for longer than it should be; detail: why it is
    not alive; devices: in the order of the topology; resources: those that only have a
    name.
    """

    def __init__(self, status: _core.Message) -> None:
        """Of a NodeStatus; one whose agent has not yet said what it has has no shape."""
        shape = status["shape"] or {"devices": [], "resources": []}
        self.name: str = status["name"]
        self.cpus: int = status["cpus"]
        self.memory: int = status["memory"]
        self.gpus: int = status["gpus"]
        self.alive: bool = status["alive"]
        self.suspect: bool = status["suspect"]
        self.labels = dict(label.partition("=")[::2] for label in status["labels"])
        self.addresses: list[str] = status["addresses"]
        self.detail: str = status["detail"]
        self.agent_pid: int = status["agent_pid"]
        self.devices = [Device(device) for device in shape["devices"]]
        self.resources: dict[str, int] = {
            one["name"]: one["amount"] for one in shape["resources"]
        }

    def __repr__(self) -> str:
        state = "suspect" if self.suspect else "alive" if self.alive else "gone"
        return (
            f"<muster.Node {self.name!r}: {self.cpus} CPUs, {self.memory >> 20} MiB, "
            f"{self.gpus} devices, {state}>"
        )


def by_name(node: Node) -> list[tuple[int, str]]:
    """Numbers in names count as numbers."""
    parts: list[tuple[int, str]] = []
    for char in node.name:
        if char.isdigit() and parts and parts[-1][1] == "":
            parts[-1] = (parts[-1][0] * 10 + int(char), "")
        else:
            parts.append((int(char), "") if char.isdigit() else (-1, char))
    return parts


# ---- hearing of them ------------------------------------------------------------------


class NodeWatch:
    """A daemon thread that hears of the nodes of a head until its end."""

    def __init__(self, head: _core.Head) -> None:
        self._head = head
        self._changed = threading.Condition()
        self._changes = 0
        self._callbacks: list[Callable[[Node], object]] = []
        self.is_waiting = False  # those that come are expected
        self._thread = threading.Thread(
            target=self._run, name="muster-nodes", daemon=True
        )
        self._thread.start()

    def add(self, callback: Callable[[Node], object]) -> None:
        with self._changed:
            self._callbacks.append(callback)

    def join(self) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(JOIN_S)

    def wait(self, before: int, timeout: float) -> int:
        """Until something has changed since `before`, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._changes != before, timeout)
            return self._changes

    def _run(self) -> None:
        while (events := self._head.next_nodes(None)) is not None:
            nodes = [Node(event) for event in events]
            with self._changed:
                self._changes += len(nodes)
                self._changed.notify_all()
                callbacks = list(self._callbacks)
            for node in nodes:
                _say(describe(node, self.is_waiting))
                for callback in callbacks:
                    _call(callback, node)


def describe(node: Node, is_expected: bool) -> str:
    """A line for people; empty: nothing worth one."""
    where = f" ({node.addresses[0]})" if node.addresses else ""
    if not node.alive and node.detail.endswith(_GIVEN_BACK):
        return ""
    if not node.alive:
        return f"node {node.name}{where} has gone: {node.detail or 'its agent ended'}"
    if node.suspect:
        return f"node {node.name}{where} is silent"
    if is_expected:
        return ""
    return f"node {node.name}{where} is here: {node.cpus} CPUs, {node.gpus} devices"


def _say(text: str) -> None:
    # stderr may be closed, full, or replaced by something odd: not worth a job
    with suppress(Exception):
        sys.stderr.write(f"muster: {text}\n" if text else "")
        sys.stderr.flush()


def _call(callback: Callable[[Node], object], node: Node) -> None:
    try:
        callback(node)
    except Exception:
        import traceback

        _say(f"a callback of on_node failed:\n{traceback.format_exc()}")


# ---- waiting --------------------------------------------------------------------------


def wait_for(session: Session, count: int, ranks: bool, timeout: float) -> None:
    """Until `count` nodes are there. `ranks`: they were started with a rank each."""
    watch = session.watch
    deadline = monotonic() + timeout
    changes = watch.wait(-1, 0)
    while True:
        known = session.nodes(max(deadline - monotonic(), _LAST_ANSWER_S))
        _check_own(session, known)
        here = [node for node in known if node.alive]
        if len(here) >= count:
            return
        left = deadline - monotonic()
        if left <= 0:
            raise DeadlineExceeded(_too_few(here, count, ranks, timeout))
        changes = watch.wait(changes, left)


def _check_own(session: Session, known: list[Node]) -> None:
    """A node of this process's head that is gone does not come back."""
    if session.head.joined:
        return
    for node in known:
        if not node.alive:
            raise MusterError(f"init: {node.detail or f'node {node.name} is gone'}")


def _too_few(here: list[Node], count: int, ranks: bool, timeout: float) -> str:
    names = [f"{n.name} ({n.addresses[0]})" if n.addresses else n.name for n in here]
    shown = ", ".join(names[:_SHOWN_MAX]) + (", ..." if len(names) > _SHOWN_MAX else "")
    text = f"init: {len(here)} of {count} nodes came within {timeout:.3g} s: {shown or '-'}"
    if ranks:
        missing = sorted(set(range(1, count)) - _ranks_of(here))
        some = ", ".join(map(str, missing[:_SHOWN_MAX]))
        more = ", ..." if len(missing) > _SHOWN_MAX else ""
        text += (
            f"; missing: rank {some}{more}. Does the script run there, with the same "
            "MASTER_ADDR, MASTER_PORT and secret, and can it reach "
            f"{os.environ.get('MASTER_ADDR', 'rank 0')}?"
        )
    else:
        text += f"; {count - len(here)} missing (`muster agent --head` starts one)"
    return text


def _ranks_of(nodes: list[Node]) -> set[int]:
    ranks = (node.labels.get(RANK_LABEL, "") for node in nodes)
    return {int(rank) for rank in ranks if rank.isdecimal()}
