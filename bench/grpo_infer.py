"""The role of examples/grpo that generates, a call for all rows of a rank: the same work
for all hosts, whatever schedules requests."""

import os

import numpy as np
import policy
from muster import Dispatch, register
from policy import Array, Tokens, Weights


class ActorInfer:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rank = int(os.environ["RANK"])
        self.weights: Weights = {}

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def set_weights(self, weights: Weights) -> None:
        self.weights = weights

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def generate(self, prompts: Tokens, step: int) -> dict[str, Array | Tokens]:
        random = np.random.default_rng([self.seed, step, self.rank])
        answers, log_ps = policy.generate(self.weights, prompts, random)
        return {"answers": answers, "log_ps": log_ps}
