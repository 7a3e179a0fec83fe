"""Workers for test_roll_rollouts.py: an engine that counts down from the last token, so that
it goes on as well from a longer prompt, and a class that computes rewards."""

import asyncio
import os
from typing import Any

import numpy as np
from muster.roll import DataProto, Dispatch, Worker, register


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


class Reward(Worker):
    """The reward of a response is its length; raises for one that contains `bad`."""

    bad = -1

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
