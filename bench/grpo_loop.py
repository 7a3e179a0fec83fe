"""The loop of examples/grpo, over whatever hosts its roles: the same work for all."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

EXAMPLE = Path(__file__).resolve().parent.parent / "examples/grpo"
sys.path.insert(0, str(EXAMPLE))

import grpo  # noqa: E402
import numpy as np  # noqa: E402
import policy  # noqa: E402
import task  # noqa: E402

ROLES = {"train": 2, "infer": 2, "reference": 2, "reward": 2}  # ranks of each
SEED, PROMPTS, GROUP, EPOCHS = 0, 32, 16, 2  # as train.py has them


class Roles(Protocol):
    """Calls to all ranks of a role. Rows are shared out, and results joined again."""

    def get_weights(self) -> Any: ...
    def set_weights(self, weights: Any) -> None: ...
    def generate(self, prompts: Any, step: int) -> dict[str, Any]: ...
    def log_probs(self, prompts: Any, answers: Any) -> Callable[[], Any]: ...
    def score(self, prompts: Any, answers: Any) -> Any: ...
    def gradient(self, *batch: Any) -> list[Any]: ...
    def update(self, gradient: Any) -> None: ...


class Loop:
    def __init__(self, roles: Roles) -> None:
        self.roles = roles
        self.random = np.random.default_rng([SEED, 1])
        self.count = 0

    def run(self, steps: int) -> list[float]:
        """Seconds that each took."""
        times = []
        for _ in range(steps):
            start = time.perf_counter()
            self.step()
            times.append(time.perf_counter() - start)
        return times

    def step(self) -> None:
        roles = self.roles
        texts = task.training_prompts(PROMPTS, self.random)
        prompts = policy.encode(texts, policy.PROMPT).repeat(GROUP, axis=0)
        roles.set_weights(roles.get_weights())
        samples = roles.generate(prompts, self.count)
        answers = samples["answers"]
        pending = roles.log_probs(prompts, answers)
        gains = grpo.advantages(roles.score(prompts, answers), GROUP)
        batch = (prompts, answers, samples["log_ps"], pending(), gains)
        for _ in range(EPOCHS):
            roles.update(grpo.average(roles.gradient(*batch), len(prompts)))
        self.count += 1


def share_out(ranks: int, arrays: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The rows of each rank."""
    return list(zip(*(np.array_split(array, ranks) for array in arrays), strict=True))


def join(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
