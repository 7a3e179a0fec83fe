"""The inference engine: many requests at once, a token of each in every step.

muster.generate.Scheduler calls `generate` once for each request, and reads what it yields
as it comes. A request that was running when new weights came, or on a replica that died,
is sent again with the tokens that it has, and goes on behind them.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import policy
from muster import Dispatch, register
from policy import Tokens, Weights

STREAM = 3  # tokens of a message


class Row:
    """A request that runs: its line of tokens, and what was not sent yet."""

    def __init__(self, request: dict[str, Any]) -> None:
        before = [*request["prompt"], *request["tokens"]]
        self.line = np.full(policy.LINE + 1, policy.PAD)
        self.line[: len(before)] = before
        self.at = len(before)
        self.end = self.at + request["max_new_tokens"]
        self.reason = ""  # why it is over
        self.tokens: list[int] = []
        self.log_ps: list[float] = []
        self.version = 0  # that the unsent tokens are of
        self.ready = asyncio.Event()

    def add(self, token: int, log_p: float, version: int) -> None:
        self.line[self.at] = token
        self.at += 1
        self.version = version
        self.tokens.append(token)
        self.log_ps.append(log_p)
        if token == policy.END or self.at == self.end:
            self.reason = "stop" if token == policy.END else "length"
        if self.reason or len(self.tokens) >= STREAM:
            self.ready.set()

    async def next(self) -> dict[str, Any]:
        """What has come since the last call."""
        await self.ready.wait()
        self.ready.clear()
        chunk = {
            "tokens": self.tokens,
            "logprobs": self.log_ps,
            "version": self.version,
        }
        if self.reason:  # with the last tokens: it needs no more, whatever happens now
            chunk["finish_reason"] = self.reason
        self.tokens, self.log_ps = [], []
        return chunk


class ActorInfer:
    """A replica that generates."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(
            [seed, int(os.environ["RANK"]), os.getpid()]
        )
        self.weights: Weights = {}
        self.version = 0
        self.rows: dict[Row, None] = {}  # that run, in the order in which they came
        self.decoder: asyncio.Task[None] | None = None

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def set_weights(self, weights: Weights, version: int) -> None:
        self.weights = weights
        self.version = version

    async def generate(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        if not self.weights:  # it has just been started in the place of another
            raise RuntimeError("this replica has no weights yet")
        row = Row(request)
        self.rows[row] = None
        if self.decoder is None or self.decoder.done():
            self.decoder = asyncio.create_task(self.decode())
        try:
            while not row.reason or row.tokens:
                yield await row.next()
        finally:
            self.rows.pop(row, None)  # also if nobody wants it any more

    async def decode(self) -> None:
        """One more token of every row, until there is none left."""
        while rows := list(self.rows):
            lines = np.stack([row.line[: policy.LINE] for row in rows])
            log_p, _, _ = policy.forward(self.weights, lines)
            tokens = (log_p + self.random.gumbel(size=log_p.shape)).argmax(axis=1)
            chosen = log_p[np.arange(len(rows)), tokens]
            for row, token, p in zip(
                rows, tokens.tolist(), chosen.tolist(), strict=True
            ):
                row.add(token, p, self.version)
                if row.reason:
                    self.rows.pop(row, None)
            await asyncio.sleep(0)  # requests come and go between two steps

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def best(self, prompts: Tokens) -> Tokens:
        return policy.generate(self.weights, prompts)[0]
