"""The nodes of a Ray cluster: their names, what they have, and whether Ray answers."""

from __future__ import annotations

import asyncio
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

import ray

from muster._ray.order import LABEL_NODE, amounts_text, natural

POLL_S = 1.0
SILENCE_S = 5.0  # Ray has not answered for so long: it is silent
PROBE_S = 1.0
THREADS_MAX = 256  # calls that wait for Ray, one thread each

NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]")

_threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="ray")


async def asked(call: Callable[..., Any], *args: Any) -> Any:
    """Ray's calls wait; this loop does not."""
    return await asyncio.get_running_loop().run_in_executor(_threads, call, *args)


def _free() -> dict[str, dict[str, float]]:
    """Of each node, if this Ray can say it."""
    try:
        from ray._private.state import available_resources_per_node

        return dict(available_resources_per_node())
    except Exception:
        return {}


class Nodes:
    """What Ray last said of them. A node has one name for as long as it lives."""

    def __init__(self, say: Callable[[dict[str, Any]], None]) -> None:
        self.all: dict[str, dict[str, Any]] = {}
        self.names: dict[str, str] = {}
        self.avoided: dict[str, str] = {}  # name: reason
        self.silent = ""  # why
        self.say = say  # to the controller: that Ray is silent, and that it is not

    # -- asking

    async def refresh(self) -> None:
        self.take(await asked(ray.nodes))

    def take(self, said: list[dict[str, Any]]) -> None:
        self.all = {n["NodeID"]: n for n in said}
        for node in sorted(self.all):
            if self.is_alive(node) and node not in self.names:
                self.names[node] = self._new_name(node)

    async def watch(self) -> None:
        """Until cancelled: which nodes there are, and whether Ray answers at all."""
        while True:
            await asyncio.sleep(POLL_S)
            call = asyncio.ensure_future(self.refresh())
            done, _ = await asyncio.wait({call}, timeout=SILENCE_S)
            if not done:
                self._fall_silent(f"Ray has not answered for {SILENCE_S:g} s")
                await asyncio.wait({call})
            if call.exception() is not None:
                text = " ".join(str(call.exception()).split())
                self._fall_silent(f"Ray does not answer: {text[:200]}")
            elif self.silent:
                self.silent = ""
                self.say({"event": "heard"})

    def _fall_silent(self, why: str) -> None:
        if not self.silent:
            self.silent = why
            self.say({"event": "silent", "why": why})

    async def refuses(self, node: str) -> bool:
        """Nobody listens where its raylet did: it is dead before Ray has noticed."""
        known = self.all.get(node)
        if known is None:
            return True
        where = (known["NodeManagerAddress"], known["NodeManagerPort"])

        def dial() -> bool:
            try:
                socket.create_connection(where, PROBE_S).close()
            except OSError as e:
                return isinstance(e, ConnectionRefusedError)
            return False

        return bool(await asked(dial))

    # -- what is known

    def _new_name(self, node: str) -> str:
        known = self.all[node]
        wanted = known.get("NodeName") or known["NodeManagerAddress"]
        wanted = NOT_IN_NAMES.sub("-", wanted)[:48]
        taken = {self.names[i] for i in self.names if self.is_alive(i)}
        return wanted if wanted not in taken else f"{wanted}-{node[:8]}"

    def is_alive(self, node: str) -> bool:
        return bool(self.all.get(node, {}).get("Alive"))

    def name(self, node: str) -> str:
        return self.names.get(node, node[:16])

    def labels(self, node: str) -> dict[str, str]:
        labels = self.all.get(node, {}).get("Labels") or {}
        return {k: v for k, v in labels.items() if k != LABEL_NODE and v}

    def avoided_ids(self) -> list[str]:
        return [
            i for i, n in self.names.items() if n in self.avoided and self.is_alive(i)
        ]

    def described(self) -> list[dict[str, Any]]:
        return [
            {
                "name": self.name(node),
                "address": self.all[node]["NodeManagerAddress"],
                "cpus": self.all[node]["Resources"].get("CPU", 0),
                "gpus": self.all[node]["Resources"].get("GPU", 0),
                "labels": self.labels(node),
            }
            for node in self._sorted()
        ]

    def _sorted(self) -> list[str]:
        alive = [i for i in self.all if self.is_alive(i)]
        return sorted(alive, key=lambda i: natural(self.name(i)))

    async def table(self, wanted: set[str]) -> list[str]:
        """What each node has, free and in all, of what is asked for."""
        call = asyncio.ensure_future(asked(_free))
        done, _ = await asyncio.wait({call}, timeout=SILENCE_S)
        free = call.result() if done else {}
        out = []
        for node in self._sorted():
            has = self.all[node]["Resources"]
            total = {k: has.get(k, 0.0) for k in wanted}
            text = amounts_text(total)
            if node in free:
                text = f"{amounts_text({k: free[node].get(k, 0.0) for k in wanted})} of {text}"
            name = self.name(node)
            if name in self.avoided:
                text += f" (avoided: {self.avoided[name]})"
            out.append(f"{name}: {text}")
        return out
