"""A task whose answers a program can check: sort five digits, "52814>" wants "12458."."""

import numpy as np

DIGITS = 5
HELD_OUT = 7  # prompts whose number is a multiple of it are never trained on


def truth(prompt: str) -> str:
    return "".join(sorted(prompt[:DIGITS])) + "."


def reward(prompt: str, answer: str) -> float:
    """1 for the right answer. Each digit at its place earns a little: a policy that knows
    nothing yet would wait forever for its first right answer."""
    want = truth(prompt)
    if answer == want:
        return 1.0
    in_place = sum(a == b for a, b in zip(answer, want, strict=False))
    return 0.5 * in_place / len(want)


def training_prompts(count: int, random: np.random.Generator) -> list[str]:
    numbers = random.integers(0, 10**DIGITS, 2 * count)
    kept = [n for n in numbers.tolist() if n % HELD_OUT][:count]
    return [f"{n:0{DIGITS}}>" for n in kept]


def test_prompts(count: int) -> list[str]:
    """The same ones each time, none of which is a training prompt."""
    numbers = np.arange(0, 10**DIGITS, HELD_OUT)
    some = np.random.default_rng(0).permutation(numbers)[:count]
    return [f"{n:0{DIGITS}}>" for n in some]
