"""The roles, but for actor_infer (engine.py). Each is a plain class; `register` says who
gets which rows of a call.

With DP_MP_COMPUTE the rows of all arguments are shared out among the ranks, and what
they return, an array or a dict of arrays, is put together again in the same order.
"""

import grpo
import numpy as np
import policy
import task
from muster import Dispatch, register
from policy import Array, Tokens, Weights


class ActorTrain:
    """The policy that learns. Its ranks are data parallel: all have the same weights."""

    def __init__(self, seed: int) -> None:
        self.weights = policy.new_weights(seed)
        self.adam = grpo.Adam(self.weights)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_METRIC)  # rows in, a list by rank out
    def gradient(
        self,
        prompts: Tokens,
        answers: Tokens,
        log_ps: Array,
        reference: Array,
        gains: Array,
    ) -> Weights:
        samples = (prompts, answers, log_ps, reference, gains)
        return grpo.gradient(self.weights, *samples)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def update(self, gradient: Weights) -> None:
        self.adam.update(self.weights, gradient)

    @register(dispatch_mode=Dispatch.RANK_ZERO)
    def get_weights(self) -> Weights:
        return self.weights


class Reference:
    """The policy as it was at the start, which the learning one should stay near."""

    def __init__(self, seed: int) -> None:
        self.weights = policy.new_weights(seed)

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def log_probs(self, prompts: Tokens, answers: Tokens) -> Array:
        return policy.log_probs(self.weights, prompts, answers)


class Reward:
    """Checks answers; needs no device."""

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def score(self, prompts: Tokens, answers: Tokens) -> Array:
        texts = zip(policy.decode(prompts), policy.decode(answers), strict=True)
        return np.array([task.reward(*pair) for pair in texts], np.float32)
