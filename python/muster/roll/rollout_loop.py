"""UserDefinedRolloutLoop: the loop of a prompt where the configuration names none."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

from muster.roll.protocol import DataProto
from muster.roll.rollout_context import RolloutContext
from muster.roll.rollout_data import (
    expand_requests,
    expand_responses,
    is_report_data_finished,
    postprocess_output_data,
    postprocess_paused_data,
    query_filter,
    response_filter,
)

__all__ = ["UserDefinedRolloutLoop"]

_TRIES = 5  # of a request whose samples response_filter rejects


class UserDefinedRolloutLoop:
    """A class of one's own has `process_new_prompt` with the same meaning. It returns the
    samples, or None to give the prompt up. CancelledError must pass; any other exception
    ends the scheduler."""

    def __init__(self) -> None:
        pass

    async def process_new_prompt(
        self, context: RolloutContext
    ) -> DataProto | list[DataProto] | None:
        """Generate, compute rewards, drop samples by `response_filter`, and the prompt by
        `query_filter`."""
        count = context.meta_info["generation_config"]["num_return_sequences"]
        data, domain = context.get_request_data(context.meta_info)
        requests = expand_requests(data, count, context.is_num_return_sequences_expand)
        async with context.do_generate_and_reward(max_concurrency=count):
            parts = await asyncio.gather(
                *(self._samples(context, one, domain) for one in requests)
            )
        whole = [part for part in parts if part is not None]
        if len(whole) < len(parts):
            return None
        samples = [sample for part in whole for sample in part]
        if context.is_val or query_filter(samples, context.pipeline_config):
            return samples
        return None

    async def _samples(
        self, context: RolloutContext, request: DataProto, domain: str
    ) -> list[DataProto] | None:
        """As many as are wanted, or None: aborted, or too many were rejected."""
        kept: list[DataProto] = []
        wanted: int = request.meta_info["generation_config"]["num_return_sequences"]
        for _ in range(_TRIES):
            again = copy.deepcopy(request)
            rows = await self._generate(context, request, domain)
            if rows is None:
                return None
            rewards = await context.compute_rewards(rows, domain)
            metrics = _metrics(rows) | _metrics(rewards)
            rows.union(rewards)
            rows.meta_info["metrics"] = metrics
            config = context.pipeline_config
            samples = expand_responses(rows)
            good = [s for s in samples if context.is_val or response_filter(s, config)]
            kept += good
            wanted -= len(good)
            if wanted <= 0:
                break
            request = again
            request.meta_info["generation_config"]["num_return_sequences"] = wanted
        return kept if wanted <= 0 else None

    async def _generate(
        self, context: RolloutContext, request: DataProto, domain: str
    ) -> DataProto | None:
        """Rows; one that was aborted goes on behind its tokens if `collect_unfinished` says
        so, and is None otherwise."""
        while (response := await context.generate(request, domain)) is not None:
            if is_report_data_finished(response):
                return postprocess_output_data(
                    request, response, context.sequence_length
                )
            if not request.meta_info.get("collect_unfinished"):
                return None
            request = postprocess_paused_data(
                request, response, context.sequence_length, context.prompt_length
            )
        return None


def _metrics(data: DataProto) -> dict[str, Any]:
    return dict(data.meta_info.pop("metrics", None) or {})
