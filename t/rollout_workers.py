"""Workers for test_roll_rollouts.py: an engine that counts down from the last token, so that
it goes on as well from a longer prompt, and a class that computes rewards."""

import asyncio
import os
from typing import Any

import numpy as np
from muster.roll import (
    DataProto,
    Dispatch,
    RouterManager,
    Worker,
    postprocess_output_data,
    register,
)


class Countdown(Worker):
    """sampling: "pace", seconds for each token."""

    async def generate(self, request: dict[str, Any]) -> Any:
        last = (request["prompt"] + request["tokens"])[-1]
        for _ in range(request["max_new_tokens"]):
            if last <= 1:
                return
            last -= 1
            await asyncio.sleep(request["sampling"].get("pace", 0))
            yield {
                "tokens": [last],
                "logprobs": [-float(last)],
                "version": self.version,
            }

    version = 0

    async def set_weights(self, version: int) -> None:
        self.version = version

    async def pid(self) -> int:
        return os.getpid()

    is_loaded = True

    refusals = 0

    async def refuse(self, times: int) -> None:
        self.refusals = times

    async def offload_states(self) -> None:  # type: ignore[override]
        if self.refusals > 0:
            self.refusals -= 1
            raise RuntimeError("there is no room for them")
        self.is_loaded = False

    async def load_states(self) -> None:  # type: ignore[override]
        self.is_loaded = True

    async def loaded(self) -> bool:
        return self.is_loaded


class BatchActor(Worker):
    """Answers a whole batch, as actors did before there were schedulers."""

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def generate(self, data: DataProto) -> DataProto:
        rows = []
        for i in range(len(data)):
            start = int(np.asarray(data.batch["input_ids"])[i, -1])
            n = data.meta_info["generation_config"]["num_return_sequences"]
            output = {"output_token_ids": [list(range(start - 1, 0, -1))] * n}
            response = DataProto(meta_info={**output, "pad_token_id": 0})
            one = data.slice(i, i + 1)
            rows.append(postprocess_output_data(one, response, 64))
        return DataProto.concat(rows)


class Reward(Worker):
    """The reward of a response is its length; raises for one that contains `bad`."""

    bad = -1

    async def pid(self) -> int:
        return os.getpid()

    async def set_bad(self, token: int) -> None:
        self.bad = token

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    async def compute_rewards(self, data: DataProto) -> DataProto:
        responses = np.asarray(data.batch["responses"])
        if (responses == self.bad).any():
            raise ValueError(f"token {self.bad} cannot be rewarded")
        lengths = (responses != 0).sum(axis=1).astype(np.float32)
        return DataProto.from_dict(
            {"response_level_rewards": lengths, "scores": lengths},
            meta_info={"metrics": {"reward/rows": len(data)}},
        )


class Environments(Worker):
    """Each environment asks twice in an episode: the second prompt has the first answer."""

    async def initialize(
        self,
        pipeline_config: Any,
        generate_scheduler: Any,
        output_queue: Any,
        collator: Any = None,
        mode: str = "train",
    ) -> None:
        self.queue = output_queue
        self.client = await RouterManager.create_client(generate_scheduler)
        self.pace = pipeline_config.pace
        self.most = 2 if mode == "val" else 1 << 30  # episodes
        self.step = 0

    async def update_step(self, global_step: int) -> None:
        self.step = global_step

    async def stop(self) -> None:
        pass  # the queue ends the episodes

    async def pid(self) -> int:
        return os.getpid()

    lingers = False

    async def linger(self, lingers: bool) -> None:
        self.lingers = lingers

    async def run_rollout_loop(self, seed: int) -> None:
        await self._play_all()
        while self.lingers:
            await asyncio.sleep(0.01)

    async def _play_all(self) -> None:
        mine = self.worker_config.env_configs[self.rank]
        await asyncio.gather(*(self._play(e, mine[e]["group_id"]) for e in mine))

    async def _play(self, env: int, group: int) -> None:
        played = 0
        episode = await self.queue.get_episode_id.remote(group, env)
        while episode is not None:
            step = self.step
            if (played := played + 1) > self.most:
                await self.queue.put.remote(group, episode, step, None, env)
                return
            prompt = [20 + group]
            for turn in range(2):
                name = f"{env}-{episode}-{turn}"
                answer = await self._ask(prompt, name, env)
                if answer is None:
                    return
                prompt = [*prompt, *answer, 5]
            rollout = DataProto.from_dict(
                {"tokens": np.array([len(prompt)])},
                non_tensors={"of": np.array([f"{group}-{episode}"], dtype=object)},
            )
            await self.queue.put.remote(group, episode, step, rollout, env)
            episode = await self.queue.get_episode_id.remote(group, env)

    async def _ask(self, prompt: list[int], name: str, env: int) -> Any:
        config = {"max_new_tokens": 60, "pace": self.pace}
        ids = np.array([prompt])
        request = DataProto.from_dict(
            {"input_ids": ids, "attention_mask": np.ones_like(ids)},
            meta_info={"generation_config": config},
        )
        response = await self.client.generate_request(request, name, env)
        if response is None:
            return None
        return response.meta_info["output_token_ids"][0]
