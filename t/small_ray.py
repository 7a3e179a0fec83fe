"""As much of Ray as the bridge asks of it, in this process, and as unwilling as a test
wants it: actors are objects with threads, and a call fails when it is told to.

What Ray itself does is shown with a real one (against_ray); here it does what a real one
does once in a while.
"""

import socket
import sys
import threading
import types
from concurrent.futures import Future
from typing import Any


class RayError(Exception):
    pass


class ActorDiedError(RayError):
    pass


class ActorUnavailableError(RayError):
    pass


class Ref:
    def __init__(self) -> None:
        self._future: Future[Any] = Future()

    def future(self) -> "Future[Any]":
        return self._future

    def set(self, value: Any, error: BaseException | None = None) -> None:
        if self._future.done():
            return
        if error is not None:
            self._future.set_exception(error)
        else:
            self._future.set_result(value)


class Method:
    def __init__(self, actor: "Actor", name: str) -> None:
        self.actor, self.name = actor, name

    def remote(self, *args: Any) -> Ref:
        return self.actor.call(self.name, args)


class Actor:
    """Of the bundle's actor: its agent joins at once, and lives until it is told to end."""

    def __init__(self, ray: "SmallRay") -> None:
        self.ray, self.refs = ray, dict[str, list[Ref]]()
        self.is_dead = False
        self.is_asked = (
            threading.Event()
        )  # for the end of its agent, since the last break

    def __getattr__(self, name: str) -> Method:
        return Method(self, name)

    def call(self, name: str, args: tuple[Any, ...]) -> Ref:
        ref = Ref()
        if self.is_dead:
            ref.set(None, ActorDiedError("killed"))
        elif name == "devices":
            ref.set([])
        elif name == "start":
            self.ray.started += 1
            ref.set({"devices": [], "folder": "/"})
        elif name == "joined" and self.ray.agents_join:
            ref.set(True)
        else:
            self.refs.setdefault(name, []).append(ref)
        if name == "ended":
            self.is_asked.set()
        if name == "stop":
            ref.set(None)
            self.end_agent(0)
        return ref

    def end_agent(self, code: int) -> None:
        end = {
            "code": code,
            "signaled": False,
            "joined": True,
            "oom": False,
            "said": "",
        }
        for ref in self.refs.get("ended", []):
            ref.set(end)

    def break_calls(self, error: RayError) -> None:
        waiting, self.refs = self.refs, {}
        self.is_asked.clear()
        for refs in waiting.values():
            for ref in refs:
                ref.set(None, error)

    def die(self) -> None:
        self.is_dead = True
        self.break_calls(ActorDiedError("killed"))


class Options:
    def __init__(self, ray: "SmallRay") -> None:
        self.ray = ray

    def options(self, **_: Any) -> "Options":
        return self

    def remote(self, *_: Any) -> Actor:
        actor = Actor(self.ray)
        self.ray.actors.append(actor)
        return actor


class Group:
    def __init__(self, ray: "SmallRay", bundles: list[Any]) -> None:
        self.ray, self.bundles = ray, bundles

    def wait(self, _timeout: float) -> bool:
        self.ray.can_place.wait(10)
        return True


class SmallRay:
    """One node. `fails` has how often a call fails before it does its work."""

    def __init__(self) -> None:
        self.actors: list[Actor] = []
        self.groups: set[Group] = set()
        self.fails: dict[str, int] = {}
        self.can_place = threading.Event()
        self.can_place.set()
        self.agents_join = True
        self.started = 0
        self.raylet = socket.create_server(("127.0.0.1", 0))

    def _may_fail(self, what: str) -> None:
        if self.fails.get(what, 0) > 0:
            self.fails[what] -= 1
            raise RayError(f"{what}: Ray has not answered")

    def close(self) -> None:
        self.can_place.set()
        self.raylet.close()

    def living(self) -> list[Actor]:
        return [a for a in self.actors if not a.is_dead]

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {
                "NodeID": "a" * 56,
                "NodeName": "n0",
                "Alive": True,
                "NodeManagerAddress": "127.0.0.1",
                "NodeManagerPort": self.raylet.getsockname()[1],
                "Resources": {"CPU": 8.0},
                "Labels": {},
            }
        ]

    def kill(self, actor: Actor, no_restart: bool = True) -> None:
        self._may_fail("kill")
        actor.die()

    def placement_group(
        self, bundles: list[Any], strategy: str = "PACK", name: str = ""
    ) -> Group:
        group = Group(self, bundles)
        self.groups.add(group)
        return group

    def table(self, group: Group) -> dict[str, Any]:
        return {
            "bundles_to_node_id": dict.fromkeys(range(len(group.bundles)), "a" * 56)
        }

    def remove_placement_group(self, group: Group) -> None:
        self._may_fail("remove")
        self.groups.discard(group)

    def modules(self) -> dict[str, types.ModuleType]:
        """To be imported as Ray."""
        ray: Any = types.ModuleType("ray")
        exceptions: Any = types.ModuleType("ray.exceptions")
        for name in ("OutOfMemoryError", "RuntimeEnvSetupError", "RayTaskError"):
            setattr(exceptions, name, type(name, (RayError,), {}))
        exceptions.ActorUnschedulableError = type("Unschedulable", (RayError,), {})
        exceptions.RayError = RayError
        exceptions.ActorDiedError = ActorDiedError
        exceptions.ActorUnavailableError = ActorUnavailableError
        ray.__version__ = "2.60.0"
        ray.__path__ = []
        ray.exceptions, ray.nodes, ray.kill = exceptions, self.nodes, self.kill
        ray.remote = lambda **_: lambda _cls: Options(self)
        ray.cloudpickle = types.ModuleType("ray.cloudpickle")
        util: Any = types.ModuleType("ray.util")
        util.__path__ = []
        groups: Any = types.ModuleType("ray.util.placement_group")
        groups.PlacementGroup = Group
        groups.placement_group = self.placement_group
        groups.placement_group_table = self.table
        groups.remove_placement_group = self.remove_placement_group
        strategies: Any = types.ModuleType("ray.util.scheduling_strategies")
        strategies.PlacementGroupSchedulingStrategy = lambda *_: None
        all_of_them = (ray, exceptions, ray.cloudpickle, util, groups, strategies)
        return {m.__name__: m for m in all_of_them}


def forget_bridge() -> None:
    """So that the next import of it takes the Ray that is there then."""
    for name in list(sys.modules):
        if name.startswith("muster._ray") or name == "muster.ray_bridge":
            del sys.modules[name]
            vars(sys.modules["muster"]).pop(name.partition(".")[2], None)
