"""RouterManager as ROLL has it, over muster.generate.Scheduler.

All of it belongs to one event loop; as a worker's class it has one of its own.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from muster._adapters.actor import Handle
from muster._adapters.checks import WrongValue
from muster._cluster.role import generation
from muster._core import WAIT_S, Rollout
from muster.errors import NoSuchMethod
from muster.generate import Scheduler
from muster.roll.changes import Changes, deadline
from muster.roll.router_clients import RouterClient, client_of
from muster.roll.router_types import router_of

__all__ = ["PartialGPUManager", "RouterManager"]

_OPTIONS = {
    *("slots", "kv_tokens", "policy", "history", "history_prompts", "chunk"),
    *("silence", "probe", "poison", "rebalance", "ageing", "max_bias", "seed"),
}
_SLOTS = 128  # requests at once on each replica, unless router_args says otherwise


class RouterManager:
    """Sends requests to the replicas of `actor_cluster` until `suspend`. router_args has
    router_name (PromptAffinityRouter or EnvAffinityRouter) and router_config, with
    max_running_requests and options of muster.generate.Scheduler. `part`: what of a job this one
    is for; its file of history is one of its own."""

    def __init__(
        self,
        actor_cluster: Any,
        router_args: Any,
        num_gpus_per_node: int,
        *,
        part: str = "",
    ) -> None:
        kind = router_of(getattr(router_args, "router_name", None))
        self.actor_cluster = actor_cluster
        self.scheduler = Scheduler(
            actor_cluster,
            failed="skip",  # each is awaited, and raises itself
            **_options(
                getattr(router_args, "router_config", None) or {},
                part,
                generation().get("history") or Rollout.history_of(actor_cluster._name),
            ),
        )
        self.router = kind(self, None, None, router_args)
        self.loop: asyncio.AbstractEventLoop | None = None
        self._gpus = PartialGPUManager(actor_cluster, self.router, num_gpus_per_node)
        self._running: set[Any] = set()
        self._is_suspended = False
        self._is_shut_down = False
        self._changes = Changes()

    async def initialize(self) -> None:
        """Threads send their requests by the event loop that calls this."""
        self.loop = asyncio.get_running_loop()
        await self.router.initialize()

    def router_meta(self) -> dict[str, Any]:
        return {"router_name": type(self.router).__name__}

    def create_client_sync(self: RouterManager | Handle) -> RouterClient:
        """`RouterManager.create_client_sync(handle)` too, of one that is a worker."""
        if isinstance(self, Handle):
            return client_of(self, self.router_meta.remote().result())
        return client_of(self, self.router_meta())

    async def create_client(self: RouterManager | Handle) -> RouterClient:
        """`RouterManager.create_client(handle)` too, of one that is a worker."""
        if isinstance(self, Handle):
            return client_of(self, await self.router_meta.remote())
        return client_of(self, self.router_meta())

    # ---- requests ---------------------------------------------------------------------

    async def generate_request(
        self, payload: dict[str, Any], request_id: Any, uid: Any
    ) -> dict[str, Any] | None:
        """`input_ids` and `sampling_params` (of which `n` and `max_new_tokens` are for the
        scheduler) give `output_token_ids`, `output_logprobs`, `output_versions` and
        `finish_reasons`, of each sample one. What was aborted has "abort" as its reason
        and the tokens that there were. None after `shutdown`. Waits while requests are
        suspended."""
        await self.on_send_request(request_id)
        try:
            if self._is_shut_down:
                return None
            out = await self.router.generate_request(payload, request_id, uid)
            return None if self._is_shut_down else out
        finally:
            await self.on_request_routed(request_id)

    async def on_send_request(self, request_id: Any, timeout: float = WAIT_S) -> None:
        """Waits until requests may be sent, and counts this one. DeadlineExceeded after
        `timeout` seconds."""
        if request_id in self._running:
            raise WrongValue(f"request {request_id!r} runs already")
        what = f"request {request_id!r} waits while suspended: resume was not called"
        async with deadline(timeout, lambda: what):
            while self._is_suspended and not self._is_shut_down:
                await self._changes.wait()
        self._running.add(request_id)

    async def on_request_routed(self, request_id: Any) -> None:
        """It is over."""
        self._running.discard(request_id)
        self._changes.tell()

    async def abort_requests(self, request_ids: Any, uid: Any) -> None:
        """Those that run; others are nothing."""
        await self.router.abort_requests(request_ids, uid)

    async def abort_all(self) -> None:
        await self.router.abort_all(list(self._running))

    # ---- all of them ------------------------------------------------------------------

    def suspend(self) -> None:
        """New requests wait; those that run go on."""
        self._is_suspended = True

    def resume(self) -> None:
        self._is_suspended = False
        self._changes.tell()

    async def wait_complete(self, timeout: float = WAIT_S) -> None:
        """Until no request runs. DeadlineExceeded after `timeout` seconds."""
        async with deadline(timeout, lambda: f"requests did not end: {self.info()}"):
            while self._running:
                await self._changes.wait()

    async def shutdown(self, timeout: float = WAIT_S) -> None:
        """Requests that run or wait give None. Idempotent."""
        self._is_shut_down = True
        self._changes.tell()
        try:
            await self.abort_all()
            await self.wait_complete(timeout)
        finally:
            self.scheduler.close()

    def size(self) -> int:
        """How many run."""
        return len(self._running)

    def info(self) -> str:
        """What the scheduler has, in a sentence."""
        return self.scheduler._state()

    # ---- replicas ---------------------------------------------------------------------

    async def shrink_workers(self, target_gpus: Any) -> dict[str, Any]:
        return await self._gpus.shrink_workers(target_gpus)

    async def expand_workers(
        self, target_gpus: Any, skip_load: bool = False
    ) -> dict[str, Any]:
        return await self._gpus.expand_workers(target_gpus, skip_load)


def _options(
    config: Mapping[str, Any], part: str, of_job: str | None
) -> dict[str, Any]:
    """Of the Scheduler; `of_job` is the history that its role has by itself."""
    options = dict(config)
    options.setdefault("slots", int(options.pop("max_running_requests", _SLOTS)))
    if unknown := options.keys() - _OPTIONS:
        raise WrongValue(
            f"router_config: {', '.join(sorted(unknown))}: there is max_running_requests, "
            f"{', '.join(sorted(_OPTIONS))}"
        )
    history = options.get("history")
    if part and (history or (history is None and of_job)):
        options["history"] = history_of(history or of_job or "", part)
    return options


def history_of(path: str | os.PathLike[str], part: str) -> str:
    """The file of one part of a job: a file belongs to one scheduler."""
    return f"{os.fspath(path)}.{part}"


class PartialGPUManager:
    """Gives the devices of some replicas to others for a while."""

    def __init__(self, actor_cluster: Any, router: Any, num_gpus_per_node: int) -> None:
        self.actor_cluster = actor_cluster
        self.router = router
        self.num_gpus_per_node = num_gpus_per_node
        self.given_away: set[int] = set()  # ranks

    async def shrink_workers(self, target_gpus: Any) -> dict[str, Any]:
        """The replicas that have one of these devices: their requests go on elsewhere from
        the tokens that they have, then `offload_states` is called."""
        wanted = set(target_gpus)
        ranks = [
            rank
            for rank in self._ranks()
            if rank not in self.given_away and self._devices(rank) & wanted
        ]
        scheduler = self.router.router_manager.scheduler
        await asyncio.to_thread(scheduler.drain, ranks)
        try:
            await self._call(ranks, "offload_states")
        except BaseException:
            scheduler.undrain(ranks)  # the same may be asked again
            raise
        self.given_away.update(ranks)
        return {"dp_ranks": ranks}

    async def expand_workers(
        self, target_gpus: Any, skip_load: bool = False
    ) -> dict[str, Any]:
        """The replicas that were given away and have no other device than these are used
        again, after `load_states`."""
        wanted = set(target_gpus)
        ranks = [r for r in sorted(self.given_away) if self._devices(r) <= wanted]
        if not skip_load:
            await self._call(ranks, "load_states")
        self.router.router_manager.scheduler.undrain(ranks)
        self.given_away.difference_update(ranks)
        return {"dp_ranks": ranks}

    def _ranks(self) -> range:
        return range(len(self.actor_cluster))

    def _devices(self, rank: int) -> set[int]:
        role = getattr(self.actor_cluster, "worker_config", None)
        mapping = getattr(role, "device_mapping", None)
        if mapping is None:
            raise WrongValue("the role has no device_mapping: its devices are not told")
        width = len(mapping) // len(self.actor_cluster)
        return set(mapping[rank * width : (rank + 1) * width])

    async def _call(self, ranks: list[int], method: str) -> None:
        with suppress(NoSuchMethod):  # an engine that has nothing to load
            await asyncio.gather(
                *(self.actor_cluster[r].execute_rank_zero_async(method) for r in ranks)
            )
