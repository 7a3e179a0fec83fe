"""RouterClient and its proxies: requests to a RouterManager, in this process or a worker's."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

from muster._adapters.actor import Handle
from muster._adapters.checks import WrongValue
from muster.roll.protocol import DataProto

__all__ = ["InprocProxy", "RayProxy", "RouterClient", "RouterProxy", "client_of"]


class RouterProxy:
    """What a RouterClient needs of a RouterManager; the `_sync` ones are for threads that
    have no event loop."""

    def __init__(self, router_manager: Any) -> None:
        self.router_manager = router_manager

    async def _ask(self, name: str, *args: Any) -> Any:
        """Call that method of the manager."""
        raise NotImplementedError

    def _ask_sync(self, name: str, *args: Any) -> Any:
        raise NotImplementedError

    async def generate_request(
        self, payload: dict[str, Any], request_id: Any, uid: Any
    ) -> Any:
        return await self._ask("generate_request", payload, request_id, uid)

    async def on_send_request(self, request_id: Any) -> None:
        await self._ask("on_send_request", request_id)

    async def on_request_routed(self, request_id: Any) -> None:
        await self._ask("on_request_routed", request_id)

    def generate_request_sync(
        self, payload: dict[str, Any], request_id: Any, uid: Any
    ) -> Any:
        return self._ask_sync("generate_request", payload, request_id, uid)

    def on_send_request_sync(self, request_id: Any) -> None:
        self._ask_sync("on_send_request", request_id)

    def on_request_routed_sync(self, request_id: Any) -> None:
        self._ask_sync("on_request_routed", request_id)


class InprocProxy(RouterProxy):
    """Of a RouterManager of this process. The `_sync` ones run on its event loop, for other
    threads than that."""

    async def _ask(self, name: str, *args: Any) -> Any:
        return await getattr(self.router_manager, name)(*args)

    def _ask_sync(self, name: str, *args: Any) -> Any:
        loop = self.router_manager.loop
        if loop is None:
            raise WrongValue("await initialize of the RouterManager first")
        return asyncio.run_coroutine_threadsafe(self._ask(name, *args), loop).result()


class RayProxy(RouterProxy):
    """Of a RouterManager that is a worker; `router_manager` is its handle."""

    async def _ask(self, name: str, *args: Any) -> Any:
        return await getattr(self.router_manager, name).remote(*args)

    def _ask_sync(self, name: str, *args: Any) -> Any:
        return getattr(self.router_manager, name).remote(*args).result()


class RouterClient:
    """Requests and responses as DataProtos."""

    def __init__(self, proxy: RouterProxy, meta: dict[str, Any]) -> None:
        self.proxy = proxy
        self.meta = meta

    async def generate_request(
        self, req: DataProto, request_id: Any, uid: Any
    ) -> DataProto | None:
        """One prompt, with input_ids and attention_mask, and generation_config in its
        meta_info. What comes back is in the meta_info of the response."""
        output = await self.proxy.generate_request(_payload(req), request_id, uid)
        return None if output is None else _response(req, output)

    def generate_request_sync(
        self, req: DataProto, request_id: Any, uid: Any
    ) -> DataProto | None:
        """The same for a thread that has no event loop."""
        output = self.proxy.generate_request_sync(_payload(req), request_id, uid)
        return None if output is None else _response(req, output)


def client_of(manager: Any, meta: dict[str, Any]) -> RouterClient:
    proxy = RayProxy if isinstance(manager, Handle) else InprocProxy
    return RouterClient(proxy(manager), meta)


def _payload(req: DataProto) -> dict[str, Any]:
    if len(req) != 1:
        raise WrongValue(f"a request has one prompt, not {len(req)}")
    sampling = dict(req.meta_info["generation_config"])
    sampling["n"] = sampling.pop("num_return_sequences", 1)
    if "max_new_tokens" in req.meta_info:  # of one that goes on
        sampling["max_new_tokens"] = req.meta_info["max_new_tokens"]
    ids = _ids(req)
    return {"input_ids": ids, "sampling_params": sampling, **_resumed(req, ids)}


def _ids(req: DataProto, which: str = "") -> list[int]:
    names = (f"{which}input_ids", f"{which}attention_mask")
    ids, mask = (np.asarray(req.batch[name])[0] for name in names)
    tokens: list[int] = ids[mask != 0].tolist()
    return tokens


def _resumed(req: DataProto, ids: list[int]) -> dict[str, Any]:
    """Of a request that goes on (postprocess_paused_data): how much of its ids is the prompt,
    and what is known of the tokens behind it."""
    before = req.meta_info.get("pre_output_token_ids")
    if before is None or "init_input_ids" not in req.batch:
        return {}
    prompt = _ids(req, "init_")
    if ids != prompt + list(before[0]):
        return {}  # a loop of one's own has made another prompt of it
    known = {"prompt_tokens": len(prompt)}
    for name in ("output_logprobs", "output_versions"):
        if (rows := req.meta_info.get(f"pre_{name}")) is not None:
            known[name] = rows[0]
    return known


def _response(req: DataProto, output: dict[str, Any]) -> DataProto:
    config = req.meta_info["generation_config"]
    for name in ("eos_token_id", "pad_token_id"):
        output[name] = config.get(name)
    return DataProto(meta_info={**req.meta_info, **output})
