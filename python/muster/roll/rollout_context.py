"""RolloutContext: what a rollout loop does with one prompt, from its data to its samples."""

from __future__ import annotations

import copy
import logging
import uuid
from contextlib import asynccontextmanager
from typing import Any

from muster._adapters.checks import WrongValue
from muster._data.remote_array import object_array
from muster.roll.protocol import DataProto
from muster.roll.replay_buffer import ExperienceItem
from muster.roll.rollout_data import expand_responses, request_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from muster.roll.generate_scheduler import DynamicSamplingScheduler

__all__ = ["RolloutContext"]

logger = logging.getLogger("muster.roll")


class RolloutContext:
    """One prompt of a DynamicSamplingScheduler. A loop gets its data, then generates and
    computes rewards within `do_generate_and_reward`."""

    @staticmethod
    async def process_new_prompt(
        scheduler: DynamicSamplingScheduler, prompt_id: int
    ) -> None:
        """Run the loop, and commit what it returns. None gives the prompt up, and another
        takes its place."""
        buffer = scheduler.replay_buffer
        context = RolloutContext(scheduler, prompt_id, scheduler.meta_info)
        items: list[ExperienceItem] | None = None
        try:
            items = context._items(await scheduler.udrl.process_new_prompt(context))
        finally:
            if items is None:
                buffer.abort(prompt_id)
        if items is not None:
            buffer.commit(prompt_id, items)

    def __init__(
        self, scheduler: DynamicSamplingScheduler, prompt_id: int, meta_info: Any
    ) -> None:
        config = scheduler.pipeline_config
        self._scheduler = scheduler
        self.prompt_id = prompt_id
        self.meta_info = copy.deepcopy(meta_info)  # the loop may change it
        self.pipeline_config = config
        self.is_val = scheduler.is_val
        self.sequence_length = scheduler.sequence_length
        self.prompt_length = config.prompt_length
        self.is_num_return_sequences_expand = getattr(
            config, "is_num_return_sequences_expand", False
        )
        self.domain: str | None = None  # of the data
        self._item_number: int | None = (
            None  # of the data: what its requests are named by
        )
        self.sampling_start_step: int | None = None  # the step that it is bound to
        self.inflight_requests: set[str] = set()
        self._is_inside = False  # do_generate_and_reward

    def _items(self, responses: Any) -> list[ExperienceItem] | None:
        if responses is None:
            logger.debug("prompt %s was given up by its loop", self.prompt_id)
            return None
        rows = expand_responses(responses)
        wanted = self._scheduler.meta_info["generation_config"]["num_return_sequences"]
        may_differ = self._scheduler.replay_buffer.is_use_additional_prompts
        if len(rows) != wanted and not may_differ:
            raise WrongValue(
                f"prompt {self.prompt_id}: the loop returned {len(rows)} samples, not "
                f"{wanted}: another number needs is_use_additional_prompts"
            )
        if self.sampling_start_step is None:
            raise WrongValue(
                f"prompt {self.prompt_id}: the loop returned samples without "
                "do_generate_and_reward"
            )
        return [
            ExperienceItem(
                self.prompt_id, self.domain or "default", self.sampling_start_step, row
            )
            for row in rows
        ]

    def get_request_data(self, meta_info: Any) -> tuple[DataProto, str]:
        """The next item of the dataset, as a request of one row, and its domain. Once for
        each prompt: a loop that does not want the item returns None."""
        if self.domain is not None or self.sampling_start_step is not None:
            raise RuntimeError(
                f"prompt {self.prompt_id} has its data: return None to have another"
            )
        self._item_number, item = self._scheduler.next_item()
        self.domain = str(item.get("domain", "default"))
        columns = self._scheduler.collect_fn([item])
        return request_of(columns, meta_info), self.domain

    @asynccontextmanager
    async def do_generate_and_reward(self, max_concurrency: int) -> AsyncIterator[None]:
        """Binds the prompt to the current step. `max_concurrency` is not used: the
        scheduler knows what each replica can run. Requests that still run at the end are
        aborted, and are an error of a loop that did not fail itself."""
        if self._is_inside or self.sampling_start_step is not None:
            raise WrongValue(f"prompt {self.prompt_id} has generated already")
        buffer = self._scheduler.replay_buffer
        self.sampling_start_step = await buffer.begin(self.prompt_id)
        self._is_inside = True
        try:
            yield
            if self.inflight_requests:
                raise WrongValue(
                    f"prompt {self.prompt_id}: the loop left requests that still run: "
                    f"{', '.join(sorted(self.inflight_requests))}"
                )
        finally:
            await self.abort_running_requests()
            self._is_inside = False

    def _check_inside(self) -> None:
        if not self._is_inside:
            raise WrongValue(
                f"prompt {self.prompt_id}: generate and compute_rewards belong into "
                "`async with context.do_generate_and_reward(...)`"
            )

    async def generate(self, req: DataProto, domain: str) -> DataProto | None:
        """The response; None when the scheduler was shut down. One that was aborted says
        so (`is_report_data_finished`)."""
        self._check_inside()
        client = self._scheduler.router_client
        request_id = req.meta_info["request_id"] = self._scheduler.next_request_id()
        with self._scheduler.generate_timer[domain].track():
            self.inflight_requests.add(request_id)
            try:
                return await client.generate_request(req, request_id, self._item_number)
            finally:
                self.inflight_requests.discard(request_id)

    async def compute_rewards(self, req: DataProto, domain: str) -> DataProto:
        """By a worker of the domain's cluster: the one that has the fewest of ours."""
        self._check_inside()
        ids = [str(uuid.uuid4()) for _ in range(len(req))]
        req.non_tensor_batch["rollout_id"] = object_array(ids)
        with self._scheduler.reward_timer[domain].track():
            rewards: DataProto = await self._scheduler.reward(req, domain)
            return rewards

    async def abort_running_requests(self) -> None:
        """Those of this prompt: their `generate` gives what there is, with the reason
        "abort"."""
        self._check_inside()
        ids = list(self.inflight_requests)
        await self._scheduler.router_manager.abort_requests(ids, self._item_number)
