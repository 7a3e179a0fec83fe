"""Router and its kinds: what the `uid` of a request means to muster.generate.Scheduler."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from muster._adapters.checks import WrongValue
from muster._adapters.refused import REFUSED, refuse_members
from muster.generate import Group, GroupCancelled, Sample
from muster.generate.session import Session
from muster.roll.rollout_data import ABORT

__all__ = ["EnvAffinityRouter", "PromptAffinityRouter", "Router"]


class Router:
    """The requests of a RouterManager by their ids. The scheduler of the manager decides
    which replica each goes to, whatever the `workers` are."""

    def __init__(
        self, router_manager: Any, workers: Any, model_path: Any, router_args: Any
    ) -> None:
        self.router_manager = router_manager
        self.workers = workers
        self.router_args = router_args
        self._groups: dict[Any, Group] = {}  # by request id
        # what the engines do: an answer without tokens does not say it
        self._gives_logprobs = False

    async def initialize(self) -> None:
        """The replicas are there since the cluster is."""

    async def generate_request(
        self, payload: dict[str, Any], request_id: Any, uid: Any
    ) -> dict[str, Any]:
        """As of RouterManager, without waiting while requests are suspended."""
        before = _before(payload)
        group = self._groups[request_id] = self._submit(payload, uid, before)
        try:
            await group
        except GroupCancelled:
            pass
        finally:
            group.cancel()  # if its task was cancelled
            del self._groups[request_id]
        return self._output(group, 0 if before is None else len(before.tokens))

    def _output(self, group: Group, skipped: int) -> dict[str, Any]:
        """Without the tokens that it had before."""
        is_whole = group.error is None
        samples = [
            replace(
                one,
                tokens=one.tokens[skipped:],
                versions=one.versions[skipped:],
                logprobs=one.logprobs and one.logprobs[skipped:],
            )
            for one in sorted(group.samples, key=lambda one: one.seq)
        ]
        out: dict[str, Any] = {
            "finish_reasons": [s.finish_reason if is_whole else ABORT for s in samples]
        }
        if samples:
            out["output_token_ids"] = [one.tokens for one in samples]
            out["output_versions"] = [one.versions for one in samples]
        said = [one for one in samples if one.tokens]
        has_logprobs = all(one.logprobs is not None for one in said)
        self._gives_logprobs |= bool(said) and has_logprobs
        if self._gives_logprobs and has_logprobs:
            out["output_logprobs"] = [one.logprobs or [] for one in samples]
        return out

    def _submit(
        self, payload: dict[str, Any], uid: Any, before: Sample | None
    ) -> Group:
        sampling = dict(payload.get("sampling_params") or {})
        if "max_new_tokens" not in sampling:
            raise WrongValue("sampling_params has no max_new_tokens")
        options = {"n": sampling.pop("n", 1)}
        options["max_new_tokens"] = sampling.pop("max_new_tokens")
        prompt = [int(token) for token in payload["input_ids"]]
        if before is not None:
            options["max_new_tokens"] += len(before.tokens)
            options["resume"] = before
            prompt = prompt[: len(prompt) - len(before.tokens)]
        return self._send(uid, prompt, sampling=sampling, **options)

    def _send(self, uid: Any, prompt: list[int], **options: Any) -> Group:
        group: Group = self.router_manager.scheduler.submit(prompt, key=uid, **options)
        return group

    async def abort_requests(self, request_ids: Any, uid: Any) -> None:
        """Those that run; others are nothing."""
        for request_id in request_ids:
            if (group := self._groups.get(request_id)) is not None:
                group.cancel()

    async def abort_all(self, request_ids: Any) -> None:
        await self.abort_requests(request_ids, None)


def _before(payload: dict[str, Any]) -> Sample | None:
    """What a request that goes on has behind its prompt."""
    if "prompt_tokens" not in payload:
        return None
    tokens = [int(one) for one in payload["input_ids"][payload["prompt_tokens"] :]]
    if not tokens:
        return None
    versions = payload.get("output_versions") or [0] * len(tokens)
    logprobs = payload.get("output_logprobs")
    return Sample(tokens, logprobs or None, versions, "", -1, 0, 0, "")


class PromptAffinityRouter(Router):
    """`uid` is a prompt: it names it in the history of lengths, and binds it to no
    replica."""


class EnvAffinityRouter(Router):
    """`uid` is an environment: its requests are turns of one session, which prefer the
    replica that has the prefix, and go elsewhere where that is worth it."""

    def __init__(
        self, router_manager: Any, workers: Any, model_path: Any, router_args: Any
    ) -> None:
        super().__init__(router_manager, workers, model_path, router_args)
        self._sessions: dict[Any, Session] = {}  # by environment

    def _send(self, uid: Any, prompt: list[int], **options: Any) -> Group:
        if uid not in self._sessions:
            self._sessions[uid] = self.router_manager.scheduler.session(uid)
        return self._sessions[uid].submit(prompt, **options)


_ROUTERS = {cls.__name__: cls for cls in (PromptAffinityRouter, EnvAffinityRouter)}


def router_of(name: str | None) -> type[Router]:
    """By its name in router_args."""
    if name is None:
        return PromptAffinityRouter
    if name not in _ROUTERS:
        refused = REFUSED["roll"].get(name, f"there is no router {name!r}")
        raise WrongValue(f"router_name: {refused}")
    return _ROUTERS[name]


refuse_members("roll", Router, PromptAffinityRouter, EnvAffinityRouter)
