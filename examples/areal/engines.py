"""Engines of a small AReaL job: a policy over four answers, and samplers of it.

The model is a stand-in; process groups, staleness control, workflows and weights are real.
"""

import asyncio
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from areal.api import InferenceEngine, LocalInfServerInfo, RolloutWorkflow, TrainEngine
from areal.infra import WorkflowExecutor
from areal.infra.rpc.rtensor import clear_fetch_buffer, fetch_buffer_stats
from areal.utils.dynamic_import import import_from_string

ANSWERS = 4


def stand_in(cls: Any) -> Any:
    """What is not called need not be there."""
    cls.__abstractmethods__ = frozenset()
    return cls


@stand_in
class Policy(TrainEngine):
    """REINFORCE on one row of logits; every rank has them, and gradients are averaged."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.is_ready = False
        self.version = 0

    def create_process_group(self, parallel_strategy: Any = None) -> None:
        dist.init_process_group("gloo", timeout=timedelta(seconds=60))
        alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
        self.own_group = alone[dist.get_rank()]  # all ranks are data parallel

    def initialize(self, ft_spec: Any = None) -> None:
        self.logits = torch.zeros(ANSWERS)
        self.is_ready = True

    @property
    def initialized(self) -> bool:
        return self.is_ready

    @property
    def context_and_model_parallel_group(self) -> Any:
        return self.own_group

    def current_data_parallel_head(self) -> int:
        return dist.get_rank()

    def is_data_parallel_head(self) -> bool:
        return True

    def update(self, batch: list[dict[str, Any]]) -> list[float]:
        """A step of gradient ascent on the mean reward; the reward of each episode."""
        rewards = torch.cat([one["rewards"] for one in batch])
        answers = torch.cat([one["input_ids"][:, -1] for one in batch])
        chosen = torch.nn.functional.one_hot(answers, ANSWERS).float()
        gradient = (rewards - 0.25) @ (chosen - self.logits.softmax(0))
        dist.all_reduce(gradient)
        self.logits += 0.2 * gradient / dist.get_world_size()
        return [float(one["rewards"].mean()) for one in batch]

    def weights(self) -> torch.Tensor:
        return self.logits

    def clear_batches(self, shard_ids: list[str]) -> None:
        clear_fetch_buffer(shard_ids)

    def fetch_buffer_stats(self) -> dict[str, int]:
        stats: dict[str, int] = fetch_buffer_stats()
        return stats

    def set_version(self, version: int) -> None:
        self.version = version

    def destroy(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()


@stand_in
class Sampler(InferenceEngine):
    """A rollout instance: AReaL's own executor runs the workflows in it."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.logits = torch.zeros(ANSWERS)
        self.version = 0
        self.executor = WorkflowExecutor(config, self)

    @property
    def initialized(self) -> bool:
        return True

    def launch_server(self, server_args: dict[str, Any]) -> LocalInfServerInfo:
        return LocalInfServerInfo(host="127.0.0.1", port=0, process=None)

    def initialize(self, engine_id: str, **rest: Any) -> None:
        self.executor.initialize(train_data_parallel_size=1)

    async def agenerate(self, req: Any) -> int:
        """An answer to a prompt."""
        await asyncio.sleep(0.001)
        return int(torch.multinomial(self.logits.softmax(0), 1))

    def submit(
        self,
        data: dict[str, Any],
        workflow: str,
        workflow_kwargs: dict[str, Any],
        task_id: int,
        callback_addr: str,
        **rest: Any,
    ) -> int:
        self.executor.dispatcher.register_callback(task_id, callback_addr)
        made = import_from_string(workflow)(**workflow_kwargs)
        return int(self.executor.submit(data, made, task_id=task_id))

    def wait_for_task(
        self, task_id: int, timeout: float, raise_timeout: bool
    ) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.executor.wait_for_task(
            task_id, timeout, raise_timeout
        )
        return found

    def set_weights(self, weights: torch.Tensor) -> None:
        self.logits = weights.clone()

    def set_version(self, version: int) -> None:
        self.version = version

    def get_version(self) -> int:
        return self.version

    def pause(self) -> None:
        self.executor.pause()

    def resume(self) -> None:
        self.executor.resume()

    def destroy(self) -> None:
        self.executor.destroy()


class Episode(RolloutWorkflow):  # type: ignore[misc]
    """One prompt, one answer; the right one is rewarded."""

    async def arun_episode(self, engine: Any, data: dict[str, Any]) -> dict[str, Any]:
        answer = await engine.agenerate(data)
        return {
            "input_ids": torch.tensor([[data["prompt"], answer]]),
            "attention_mask": torch.ones(1, 2, dtype=torch.bool),
            "rewards": torch.tensor([float(answer == data["right"])]),
            "versions": torch.full((1, 2), engine.get_version()),
        }
