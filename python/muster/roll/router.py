"""RouterManager and RouterClient as ROLL has them, over muster.generate.Scheduler.

The scheduler places requests; `uid` only names the prompt in its history of lengths. All
of it belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

from muster._adapters.checks import WrongValue
from muster._adapters.refused import refuse_members
from muster.errors import DeadlineExceeded
from muster.generate import Group, GroupCancelled, Scheduler
from muster.generate.scheduler import WAIT_S
from muster.roll.changes import Changes
from muster.roll.protocol import DataProto
from muster.roll.rollout_data import ABORT

__all__ = ["WAIT_S", "RouterClient", "RouterManager"]

_SLOTS = 128  # requests at once on each replica, unless router_args says otherwise


class RouterManager:
    """Sends requests to the replicas of `actor_cluster` until `suspend`."""

    def __init__(
        self, actor_cluster: Any, router_args: Any, num_gpus_per_node: int
    ) -> None:
        config = getattr(router_args, "router_config", None) or {}
        self.actor_cluster = actor_cluster
        self.scheduler = Scheduler(
            actor_cluster,
            slots=int(config.get("max_running_requests", _SLOTS)),
            failed="skip",  # each is awaited, and raises itself
        )
        self._groups: dict[Any, Group] = {}  # by request id
        self._running: set[Any] = set()
        self._is_suspended = False
        self._is_shut_down = False
        self._changes = Changes()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def initialize(self) -> None:
        """The replicas are there since the cluster is. Threads send their requests by the
        event loop that calls this."""
        self._loop = asyncio.get_running_loop()

    def router_meta(self) -> dict[str, Any]:
        return {"router_name": type(self).__name__}

    def create_client_sync(self) -> RouterClient:
        return RouterClient(self, self.router_meta())

    async def create_client(self) -> RouterClient:
        return self.create_client_sync()

    # ---- requests ---------------------------------------------------------------------

    async def generate_request(
        self, payload: dict[str, Any], request_id: Any, uid: Any
    ) -> dict[str, Any] | None:
        """`input_ids` and `sampling_params` (of which `n` and `max_new_tokens` are for the
        scheduler) give `output_token_ids`, `output_logprobs` and `finish_reasons`, of each
        sample one. What was aborted has "abort" as its reason and the tokens that there
        were. None after `shutdown`. Waits while requests are suspended."""
        await self.on_send_request(request_id)
        try:
            if self._is_shut_down:
                return None
            group = self._groups[request_id] = self._submit(payload, uid)
            try:
                await group
            except GroupCancelled:
                if self._is_shut_down:
                    return None
            return _output(group)
        finally:
            if (left := self._groups.pop(request_id, None)) is not None:
                left.cancel()  # its task was cancelled
            await self.on_request_routed(request_id)

    def generate_request_sync(
        self, payload: dict[str, Any], request_id: Any, uid: Any
    ) -> dict[str, Any] | None:
        """The same for other threads than that of the event loop."""
        if self._loop is None:
            raise WrongValue("call initialize first")
        asked = self.generate_request(payload, request_id, uid)
        return asyncio.run_coroutine_threadsafe(asked, self._loop).result()

    def _submit(self, payload: dict[str, Any], uid: Any) -> Group:
        sampling = dict(payload.get("sampling_params") or {})
        if "max_new_tokens" not in sampling:
            raise WrongValue("sampling_params has no max_new_tokens")
        n, most = sampling.pop("n", 1), sampling.pop("max_new_tokens")
        prompt = [int(token) for token in payload["input_ids"]]
        return self.scheduler.submit(
            prompt, n, uid, max_new_tokens=most, sampling=sampling
        )

    async def on_send_request(self, request_id: Any, timeout: float = WAIT_S) -> None:
        """Waits until requests may be sent, and counts this one. DeadlineExceeded after
        `timeout` seconds."""
        if request_id in self._running:
            raise WrongValue(f"request {request_id!r} runs already")
        try:
            async with asyncio.timeout(timeout):
                while self._is_suspended and not self._is_shut_down:
                    await self._changes.wait()
        except TimeoutError:
            raise DeadlineExceeded(
                f"request {request_id!r}: requests were suspended for {timeout} s"
            ) from None
        self._running.add(request_id)

    async def on_request_routed(self, request_id: Any) -> None:
        """It is over."""
        self._running.discard(request_id)
        self._changes.tell()

    async def abort_requests(self, request_ids: Any, uid: Any) -> None:
        """Those that run; others are nothing."""
        for request_id in request_ids:
            if (group := self._groups.get(request_id)) is not None:
                group.cancel()

    async def abort_all(self) -> None:
        await self.abort_requests(list(self._groups), None)

    # ---- all of them ------------------------------------------------------------------

    def suspend(self) -> None:
        """New requests wait; those that run go on."""
        self._is_suspended = True

    def resume(self) -> None:
        self._is_suspended = False
        self._changes.tell()

    async def wait_complete(self, timeout: float = WAIT_S) -> None:
        """Until no request runs. DeadlineExceeded after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                while self._running:
                    await self._changes.wait()
        except TimeoutError:
            raise DeadlineExceeded(
                f"requests still ran after {timeout} s: {self.info()}"
            ) from None

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


def _output(group: Group) -> dict[str, Any]:
    is_whole = group.error is None
    samples = sorted(group.samples, key=lambda one: one.seq)
    out: dict[str, Any] = {
        "output_token_ids": [one.tokens for one in samples],
        "output_versions": [one.versions for one in samples],
        "finish_reasons": [one.finish_reason if is_whole else ABORT for one in samples],
    }
    if samples and all(one.logprobs is not None for one in samples):
        out["output_logprobs"] = [one.logprobs for one in samples]
    return out


class RouterClient:
    """Requests and responses as DataProtos; `proxy` is a RouterManager."""

    def __init__(self, proxy: RouterManager, meta: dict[str, Any]) -> None:
        self.proxy = proxy
        self.meta = meta

    async def generate_request(
        self, req: DataProto, request_id: Any, uid: Any
    ) -> DataProto | None:
        """One prompt, with input_ids and attention_mask, and generation_config in its
        meta_info. What comes back is in the meta_info of the response."""
        output = await self.proxy.generate_request(_payload(req), request_id, uid)
        return None if output is None else self._response(req, output)

    def generate_request_sync(
        self, req: DataProto, request_id: Any, uid: Any
    ) -> DataProto | None:
        """The same for a thread other than that of the manager's event loop."""
        output = self.proxy.generate_request_sync(_payload(req), request_id, uid)
        return None if output is None else self._response(req, output)

    def _response(self, req: DataProto, output: dict[str, Any]) -> DataProto:
        config = req.meta_info["generation_config"]
        for name in ("eos_token_id", "pad_token_id"):
            output[name] = config.get(name)
        return DataProto(meta_info={**req.meta_info, **output})


def _payload(req: DataProto) -> dict[str, Any]:
    if len(req) != 1:
        raise WrongValue(f"a request has one prompt, not {len(req)}")
    sampling = dict(req.meta_info["generation_config"])
    sampling["n"] = sampling.pop("num_return_sequences", 1)
    if "max_new_tokens" in req.meta_info:  # of one that goes on
        sampling["max_new_tokens"] = req.meta_info["max_new_tokens"]
    ids, mask = (np.asarray(req.batch[k])[0] for k in ("input_ids", "attention_mask"))
    return {"input_ids": ids[mask != 0].tolist(), "sampling_params": sampling}


refuse_members("roll", RouterClient, RouterManager)
