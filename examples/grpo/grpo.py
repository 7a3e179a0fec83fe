"""GRPO: an answer is as good as it compares with other answers to the same prompt.

The loss of a token with log-probability l, which was l0 when it was generated and is r in
the reference, in an answer with advantage A:

    -min(ratio A, clip(ratio, 1 - CLIP, 1 + CLIP) A)        ratio = exp(l - l0)
    + KL (exp(r - l) - (r - l) - 1)                         stay near the reference
    - ENTROPY H                                             keep trying other tokens
"""

import numpy as np
from policy import Array, Tokens, Weights, backward, forward, unroll

RATE = 3e-3
CLIP = 0.2
ENTROPY = 0.1
KL = 0.01
FAR = 2.0  # r - l beyond which the pull to the reference grows no more


def advantages(rewards: Array, group: int) -> Array:
    """Of answers that lie in groups of `group` to the same prompt."""
    groups = rewards.reshape(-1, group)
    better = groups - groups.mean(axis=1, keepdims=True)
    spread = groups.std(axis=1, keepdims=True) + 1e-4
    gains: Array = (better / spread).reshape(-1).astype(np.float32)
    return gains


def slope_of_loss(
    log_p: Array, tokens: Tokens, before: Array, reference: Array, gain: Array
) -> Array:
    """By each logit of each token's distribution `log_p`."""
    rows = np.arange(len(tokens))
    chosen = log_p[rows, tokens]
    ratio = np.exp(chosen - before)
    is_clipped = np.where(gain > 0, ratio > 1 + CLIP, ratio < 1 - CLIP)
    by_chosen = np.where(is_clipped, 0, -gain * ratio)
    by_chosen += KL * (1 - np.exp(np.minimum(reference - chosen, FAR)))
    p = np.exp(log_p)
    slope = -p * by_chosen[:, None]  # of a softmax: the chosen one up, all others down
    slope[rows, tokens] += by_chosen
    entropy = -(p * log_p).sum(axis=1, keepdims=True)
    slope += ENTROPY * p * (log_p + entropy)
    return slope


def gradient(
    weights: Weights,
    prompts: Tokens,
    answers: Tokens,
    before: Array,
    reference: Array,
    gains: Array,
) -> Weights:
    """Of the loss, summed over the answers: sums of parts can be added up."""
    lines, tokens, is_token = unroll(prompts, answers)
    log_p, hidden, embedded = forward(weights, lines)
    gain = np.repeat(gains, answers.shape[1])
    given = (before.reshape(-1), reference.reshape(-1), gain)
    slope = slope_of_loss(log_p, tokens, *given) * is_token[:, None]
    return backward(weights, lines, hidden, embedded, slope.astype(log_p.dtype))


def average(parts: list[Weights], rows: int) -> Weights:
    """The mean gradient of `rows` answers, from the sums of their parts."""
    return {k: np.sum([part[k] for part in parts], axis=0) / rows for k in parts[0]}


class Adam:
    def __init__(self, weights: Weights) -> None:
        self.step = 0
        self.mean = {name: np.zeros_like(w) for name, w in weights.items()}
        self.square = {name: np.zeros_like(w) for name, w in weights.items()}

    def update(self, weights: Weights, gradient: Weights) -> None:
        self.step += 1
        for name, slope in gradient.items():
            mean, square = self.mean[name], self.square[name]
            mean += 0.1 * (slope - mean)
            square += 0.01 * (slope**2 - square)
            spread = np.sqrt(square / (1 - 0.99**self.step)) + 1e-8
            weights[name] -= RATE * mean / (1 - 0.9**self.step) / spread
