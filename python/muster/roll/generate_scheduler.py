"""DynamicSamplingScheduler: batches of rewarded samples for RLVR, as ROLL has it.

ReplayBuffer says which prompts may begin and which samples make a batch,
muster.generate.Scheduler where requests run. Here a task for each prompt joins them. All of
it belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import pkgutil
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import monotonic
from typing import Any

import numpy as np

from muster._adapters.checks import NoSuchKey, WrongValue
from muster._core import WAIT_S
from muster.errors import DeadlineExceeded
from muster.roll.changes import deadline
from muster.roll.protocol import (
    DataProto,
    pad_dataproto_to_divisor,
    unpad_dataproto,
)
from muster.roll.replay_buffer import ExperienceItem, ReplayBuffer
from muster.roll.reward_scheduler import RewardScheduler
from muster.roll.rollout_context import RolloutContext
from muster.roll.rollout_data import expand_responses, query_filter, request_of
from muster.roll.rollout_items import Durations, Order, collect_fn_of
from muster.roll.rollout_loop import UserDefinedRolloutLoop
from muster.roll.router_clients import RouterClient
from muster.roll.router_manager import RouterManager

__all__ = ["DynamicSamplingScheduler"]

logger = logging.getLogger("muster.roll")
_LOOP = "roll.distributed.scheduler.user_defined_rollout_loop.UserDefinedRolloutLoop"


class DynamicSamplingScheduler:
    """`initialize`, then for each step `get_batch`, with `pause_sampling` before weights
    change; `shutdown` at the end.

    pipeline_config: seed, sequence_length (val_sequence_length), prompt_length,
    async_generation_ratio, and the rest of ROLL's RLVR configuration.
    dataset: items by number, each a mapping. collect_fn_cls(tokenizer=..., **collect_fn_kwargs)
    makes a list of them into columns. state: of get_scheduler_state.
    """

    def __init__(
        self,
        pipeline_config: Any,
        actor_cluster: Any,
        reward_clusters: dict[str, Any],
        dataset: Any,
        collect_fn_cls: Any,
        collect_fn_kwargs: dict[str, Any] | None,
        state: dict[str, Any] | None = None,
        is_val: bool = False,
        get_data_item_kwargs: dict[str, Any] | None = None,
    ) -> None:
        config = self.pipeline_config = pipeline_config
        self.is_val = is_val
        self.sequence_length: int = (
            config.val_sequence_length if is_val else config.sequence_length
        )
        self.actor_cluster = actor_cluster
        self.reward_clusters = reward_clusters
        self.generate_timer = {domain: Durations() for domain in reward_clusters}
        self.reward_timer = {domain: Durations() for domain in reward_clusters}
        self.request_id = uuid.uuid4()
        self.request_counter = 0
        self.dataset = dataset
        self.get_data_item_kwargs = get_data_item_kwargs or {}
        self._order = Order(config.seed, len(dataset))
        self._order.skip((state or {}).get("dataset_iter_count", 0))
        self.collect_fn = collect_fn_of(
            collect_fn_cls, collect_fn_kwargs, actor_cluster
        )
        self.async_generation_ratio = 0 if is_val else config.async_generation_ratio
        self.replay_buffer = ReplayBuffer(
            self.async_generation_ratio,
            not is_val and getattr(config, "is_use_additional_prompts", False),
            0 if is_val else getattr(config, "max_additional_running_prompts", 0),
        )
        self.router_manager = RouterManager(
            actor_cluster,
            getattr(config, "router_args", None),
            getattr(config, "num_gpus_per_node", 0),
            part="val" if is_val else "+".join(sorted(reward_clusters)),
        )
        self.router_client: RouterClient = self.router_manager.create_client_sync()
        self.running_tasks: dict[int, asyncio.Task[None]] = {}
        self.meta_info: dict[str, Any] = {}  # of the present step's requests
        self.udrl = _loop_of(config)
        self.reward_scheduler = RewardScheduler()
        self.async_sending_task: asyncio.Task[None] | None = None
        self._unfinished: int | None = None  # a step whose batch may be asked for again
        self._rewarding: dict[Any, int] = {}  # calls that run, by worker

    # ---- life -------------------------------------------------------------------------

    async def initialize(self) -> None:
        """Nothing is sent until the first `get_batch`."""
        await self.router_manager.initialize()
        self.router_manager.suspend()
        self.async_sending_task = asyncio.create_task(self.sending_request())

    def next_request_id(self) -> str:
        self.request_counter += 1
        return f"{self.request_id}_{self.request_counter - 1}"

    def gc(self) -> None:
        """Cancel the prompts of steps that no later batch may have samples of."""
        for prompt_id in self.replay_buffer.gc():
            if (task := self.running_tasks.get(prompt_id)) is not None:
                task.cancel()

    async def pause_sampling(self, timeout: float = WAIT_S) -> None:
        """Until the next `get_batch` nothing is generated: the weights may change. Rewards
        go on; requests that were aborted wait with their tokens, if the loop keeps them."""
        self.router_manager.suspend()
        self.gc()
        if self.async_generation_ratio == 0:
            self._unfinished = None  # the prompts of this step are over
        await self.router_manager.abort_all()
        await self.router_manager.wait_complete(timeout)

    async def shutdown(self, timeout: float = WAIT_S) -> None:
        """Prompts that run are given up. Idempotent."""
        end = monotonic() + timeout
        self.replay_buffer.shutdown()
        try:
            await self.router_manager.shutdown(timeout)
        finally:
            self.gc()
            await self._end_sending(max(0.0, end - monotonic()))

    async def _end_sending(self, timeout: float) -> None:
        if (task := self.async_sending_task) is None:
            return
        await asyncio.wait({task}, timeout=timeout)
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("sampling had failed: %r", error)

    async def sending_request(self) -> None:
        """A task for each prompt that may begin, until `shutdown` or until one fails."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                try:
                    prompt_id = await self.replay_buffer.poll()
                except DeadlineExceeded:
                    continue  # no step began for so long: `get_batch` has its own deadline
                except asyncio.CancelledError:
                    if self.replay_buffer.is_shut_down:
                        break
                    raise
                task = tasks.create_task(
                    RolloutContext.process_new_prompt(self, prompt_id)
                )
                self.running_tasks[prompt_id] = task
                task.add_done_callback(partial(self._ended, prompt_id))
            await self.router_manager.abort_all()

    def _ended(self, prompt_id: int, task: asyncio.Task[None]) -> None:
        """One that was cancelled before its first line gives its place back here."""
        self.running_tasks.pop(prompt_id, None)
        if task.cancelled():
            self.replay_buffer.abort(prompt_id)

    # ---- batches ----------------------------------------------------------------------

    async def get_batch(
        self,
        data: DataProto,
        global_step: int,
        batch_size: int,
        timeout: float = WAIT_S,
    ) -> DataProto:
        """`batch_size` prompts with all their samples and rewards. `data` has the
        generation_config in its meta_info. DeadlineExceeded after `timeout` seconds: then it
        may be called again for the same step, and goes on; what makes a prompt fail is
        raised at once. Without an async ratio sampling is paused when it returns."""
        end = monotonic() + timeout
        if getattr(self.pipeline_config, "generate_opt_level", 1) == 0:
            what = f"{batch_size} prompts of step {global_step} were not there"
            async with deadline(timeout, lambda: what):
                return await self.get_batch_opt_level_0(data, batch_size)
        is_async = self.async_generation_ratio > 0
        if global_step != self._unfinished:
            self._begin_step(data, global_step, batch_size)
        wanted = (
            batch_size * self.meta_info["generation_config"]["num_return_sequences"]
        )
        self._unfinished = global_step
        self.router_manager.resume()
        items = await self._take(wanted, timeout)
        if not is_async:
            await self._pause_with(items, max(0.0, end - monotonic()))
        self._unfinished = None
        if self.replay_buffer.is_use_additional_prompts:
            items = items[:wanted]  # the last prompt may have had more
        batch = self.collect_items_as_batch(items)
        batch.meta_info["metrics"] |= self._times()
        return batch

    def _begin_step(self, data: DataProto, step: int, batch_size: int) -> None:
        if self.router_manager.size() > 0:
            raise WrongValue(
                f"{self.router_manager.size()} requests run: call pause_sampling first"
            )
        self.meta_info = copy.deepcopy(data.meta_info)
        self.meta_info["global_step"] = step
        self.meta_info.setdefault("collect_unfinished", self.async_generation_ratio > 0)
        self.replay_buffer.advance_step(step, batch_size)

    async def _pause_with(self, items: list[ExperienceItem], timeout: float) -> None:
        """If it fails the items come with the next call."""
        step = self._unfinished
        try:
            await self.pause_sampling(timeout)
        except BaseException:
            self.replay_buffer.give_back(items)
            self._unfinished = step
            raise

    async def _take(self, wanted: int, timeout: float) -> list[ExperienceItem]:
        sending = self.async_sending_task
        if sending is None:
            raise WrongValue("call initialize first")
        get = asyncio.create_task(self.replay_buffer.get_batch(wanted, None, timeout))
        try:
            await asyncio.wait({get, sending}, return_when="FIRST_COMPLETED")
            if sending.done():
                _raise_of(sending)
            return await get
        except DeadlineExceeded as e:
            raise DeadlineExceeded(f"{e}; {self.router_manager.info()}") from None
        finally:
            get.cancel()

    def _times(self) -> dict[str, float]:
        timers = {"generate": self.generate_timer, "reward": self.reward_timer}
        return {
            f"scheduler/{domain}/time/{what}/{name}": value
            for what, of in timers.items()
            for domain, timer in of.items()
            for name, value in timer.log().items()
        }

    def collect_items_as_batch(self, finished_items: list[ExperienceItem]) -> DataProto:
        """One DataProto, domain by domain, with metrics: how many prompts, how many steps
        they are behind in the mean, and the scores of each domain."""
        of: dict[str, list[Any]] = {}
        for item in finished_items:
            of.setdefault(item.domain, []).append(item.data)
        joined = {domain: DataProto.concat(rows) for domain, rows in of.items()}
        batch = DataProto.concat(list(joined.values()))
        now = self.replay_buffer.current_step or 0
        behind = [now - (item.sampling_start_step or 0) for item in finished_items]
        prompts = len({item.prompt_id for item in finished_items})
        metrics = {
            "scheduler/collect_query_count": prompts,
            "scheduler/query_use_count": prompts,
            "scheduler/off_policy_ratio": sum(behind) / len(behind),
        }
        for domain, rows in joined.items():
            if "scores" in rows.batch:
                scores = np.asarray(rows.batch["scores"], dtype=np.float64)
                for name in ("mean", "max", "min"):
                    value = float(getattr(scores, name)())
                    metrics[f"scheduler/{domain}/score/{name}"] = value
        batch.meta_info["metrics"] = {**batch.meta_info.get("metrics", {}), **metrics}
        return batch

    async def get_batch_opt_level_0(
        self, data: DataProto, batch_size: int
    ) -> DataProto:
        """By whole batches: `generate` of the actor's class, then the rewards, until
        `batch_size` prompts have passed query_filter."""
        done: list[DataProto] = []
        used = filtered = 0
        while len(done) < batch_size:
            batch = await self._generate_rows(data, batch_size)
            used += batch_size
            for group in batch.group_by("origin_prompt_id").values():
                config = self.pipeline_config
                if self.is_val or query_filter(expand_responses(group), config):
                    done.append(group)
                else:
                    filtered += 1
        joined = DataProto.concat(done[:batch_size])
        joined.meta_info["metrics"] = {
            "scheduler/query_filter_count": filtered,
            "scheduler/collect_query_count": batch_size,
            "scheduler/query_use_count": used,
        }
        return joined

    async def _generate_rows(self, data: DataProto, batch_size: int) -> DataProto:
        items = [self.get_next_dataset_item() for _ in range(batch_size)]
        meta = copy.deepcopy(data.meta_info)
        asked = request_of(self.collect_fn(items), meta)
        prompts = asked.pop([k for k in _PROMPT if k in asked.batch])
        prompts.meta_info = meta
        asked.batch["origin_prompt_id"] = np.arange(len(items))
        padded, count = pad_dataproto_to_divisor(prompts, self.actor_cluster.dp_size)
        each = meta["generation_config"]["num_return_sequences"]
        out = await asyncio.to_thread(self.actor_cluster.generate, padded)
        batch: DataProto = unpad_dataproto(out, count * each)
        batch.union(asked.repeat(repeat_times=each))
        rewards = await self.reward_scheduler.compute_rewards(
            batch, self.reward_clusters, self.pipeline_config
        )
        for one in (batch, rewards):
            one.meta_info.pop("metrics", None)
        batch.union(rewards)
        return batch

    async def reward(self, req: DataProto, domain: str) -> DataProto:
        """Of the worker that has the fewest of our calls."""
        if domain not in self.reward_clusters:
            raise NoSuchKey(f"no cluster computes rewards of domain {domain!r}")
        running = self._rewarding
        workers = self.reward_clusters[domain].workers
        worker = min(workers, key=lambda one: running.get(one, 0))
        running[worker] = running.get(worker, 0) + 1
        try:
            rewards: DataProto = await worker.compute_rewards.remote(req)
            return rewards
        finally:
            running[worker] -= 1
            if running[worker] == 0:
                del running[worker]

    # ---- data -------------------------------------------------------------------------

    @property
    def dataset_iter_count(self) -> int:
        return self._order.count

    def get_next_dataset_item(self) -> Any:
        """In a new order in each epoch, which the seed decides."""
        return self.next_item()[1]

    def next_item(self) -> tuple[int, Any]:
        """With its number, which is the same in each epoch."""
        number = self._order.next()
        return number, self.dataset[number]

    def get_next_data_item_by_dataloader(
        self, batch_size: int = 1, use_collect_fn: bool = False, num_workers: int = 8
    ) -> Any:
        """The next items, read by so many threads; with `use_collect_fn` as columns."""
        places = [self._order.next() for _ in range(batch_size)]
        with ThreadPoolExecutor(max(1, num_workers)) as threads:
            items = list(threads.map(self.dataset.__getitem__, places))
        return self.collect_fn(items) if use_collect_fn else items

    def get_scheduler_state(self) -> dict[str, Any]:
        """To go on with the next item in another run."""
        return {"dataset_iter_count": self.dataset_iter_count}


_PROMPT = ("input_ids", "attention_mask", "position_ids")


def _raise_of(task: asyncio.Task[None]) -> None:
    """What ended the task; of a group the first."""
    try:
        task.result()
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    raise asyncio.CancelledError("the scheduler was shut down")


def _loop_of(config: Any) -> Any:
    """An object of the configured class; ROLL's own is the one that is here."""
    cls = getattr(config, "user_defined_rollout_loop_cls", None)
    if cls is None or cls == _LOOP:
        return UserDefinedRolloutLoop()
    return (pkgutil.resolve_name(cls) if isinstance(cls, str) else cls)()
