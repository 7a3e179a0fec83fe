"""Generation as examples/grpo does it: each answer is a request of its own to the engine of a
replica, which streams its tokens. In this process and on Ray; grpo_muster.py has ours."""

import asyncio
from typing import Any

import numpy as np
import policy
from grpo_hosts import Here, Hosted, OnRay
from grpo_loop import ROLES, share_out
from policy import Tokens

Chunk = dict[str, Any]


def request(prompt: list[int]) -> dict[str, Any]:
    return {"prompt": prompt, "tokens": [], "max_new_tokens": policy.ANSWER}


def rows(answers: list[list[Chunk]]) -> dict[str, Any]:
    """A row of each request, of the chunks that have come for it."""
    tokens = np.full((len(answers), policy.ANSWER), policy.PAD)
    log_ps = np.zeros((len(answers), policy.ANSWER), np.float32)
    for row, chunks in enumerate(answers):
        has = [token for chunk in chunks for token in chunk["tokens"]]
        tokens[row, : len(has)] = has
        log_ps[row, : len(has)] = [p for chunk in chunks for p in chunk["logprobs"]]
    return {"answers": tokens, "log_ps": log_ps}


class Requests(Hosted):
    """What differs from a call for all rows of a rank."""

    version = 0

    def set_weights(self, weights: Any) -> None:
        self.all("infer", "set_weights", weights, self.version)
        self.version += 1

    def generate(self, prompts: Tokens, step: int) -> dict[str, Any]:
        parts = [mine.tolist() for (mine,) in share_out(ROLES["infer"], [prompts])]
        return rows(self.streams(parts))

    def streams(self, parts: list[list[list[int]]]) -> list[list[Chunk]]:
        """The chunks of each request, of each rank its prompts."""
        raise NotImplementedError


class RequestsHere(Requests, Here):
    def streams(self, parts: list[list[list[int]]]) -> list[list[Chunk]]:
        ranks = zip(self.ranks["infer"], parts, strict=True)
        return [
            chunks for rank, part in ranks for chunks in asyncio.run(drain(rank, part))
        ]


async def drain(rank: Any, prompts: list[list[int]]) -> list[list[Chunk]]:
    async def one(prompt: list[int]) -> list[Chunk]:
        return [chunk async for chunk in rank.generate(request(prompt))]

    return await asyncio.gather(*map(one, prompts))


class RequestsOnRay(Requests, OnRay):
    def streams(self, parts: list[list[list[int]]]) -> list[list[Chunk]]:
        actors = zip(self.actors["infer"], parts, strict=True)
        streams = [
            actor.generate.options(num_returns="streaming").remote(request(prompt))
            for actor, part in actors
            for prompt in part
        ]
        return [self.ray.get(list(stream)) for stream in streams]
