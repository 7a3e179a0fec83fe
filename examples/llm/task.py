"""The task: name a capital, in few words. A program checks the answer."""

from __future__ import annotations

import random

CAPITALS = {
    "France": "Paris",
    "Japan": "Tokyo",
    "Italy": "Rome",
    "Germany": "Berlin",
    "Spain": "Madrid",
    "Egypt": "Cairo",
    "China": "Beijing",
    "Russia": "Moscow",
    "Greece": "Athens",
    "Portugal": "Lisbon",
    "Austria": "Vienna",
    "Ireland": "Dublin",
    "Norway": "Oslo",
    "Cuba": "Havana",
    "Peru": "Lima",
    "Kenya": "Nairobi",
}
LONGEST = 24  # tokens of an answer


def prompt(country: str) -> str:
    """As the model was taught to read it (ChatML)."""
    question = f"What is the capital of {country}?"
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


def draw(count: int, seed: random.Random) -> list[str]:
    return seed.sample(sorted(CAPITALS), count)


def reward(country: str, answer: str, tokens: int) -> float:
    """1 for the right name, and up to 1 more for few words; 0 for a wrong one."""
    if CAPITALS[country] not in answer:
        return 0.0
    return 1.0 + (1.0 - tokens / LONGEST)
