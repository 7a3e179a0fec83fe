"""The roles of examples/grpo on Muster, as its train.py calls them."""

from collections.abc import Callable
from typing import Any

import engine
import muster
import numpy as np
import policy
from grpo_infer import ActorInfer
from grpo_loop import GROUP, PROMPTS, ROLES, SEED
from muster import generate
from policy import Tokens, Weights
from workers import ActorTrain, Reference, Reward

GENERATE_S = 60  # seconds for a batch


class OnMuster:
    prefix = ""  # of the clusters' names

    def __init__(self, infer: type = ActorInfer) -> None:
        self.train = self.cluster("train", ActorTrain, SEED)
        self.infer = self.cluster("infer", infer, SEED)
        self.reference = self.cluster("reference", Reference, SEED)
        self.reward = self.cluster("reward", Reward)
        self.get_weights = self.train.get_weights
        self.set_weights = self.infer.set_weights
        if infer is ActorInfer:
            self.generate = self.infer.generate
        self.score = self.reward.score
        self.gradient = self.train.gradient
        self.update = self.train.update

    def cluster(self, role: str, cls: type, *args: int) -> muster.Cluster:
        return muster.Cluster(
            self.prefix + role, cls, world_size=ROLES[role], args=args
        )

    def log_probs(self, prompts: Any, answers: Any) -> Callable[[], Any]:
        pending = self.reference.log_probs(prompts, answers, blocking=False)
        result: Callable[[], Any] = pending.result
        return result


class Scheduled(OnMuster):
    """Each answer is a request of its own, through the scheduler, as train.py has it."""

    prefix = "scheduled-"

    def __init__(self) -> None:
        super().__init__(engine.ActorInfer)
        self.version = 0
        self.scheduler: generate.Scheduler | None = None
        self.set_weights = self.hand_over
        self.generate = self.answers

    def hand_over(self, weights: Weights) -> None:
        if self.scheduler is None:  # replicas are asked only when they have weights
            self.infer.set_weights(weights, self.version)
            self.scheduler = generate.Scheduler(self.infer, slots=PROMPTS * GROUP)
            return
        self.version += 1
        with self.scheduler.weights(self.version):
            self.infer.set_weights(weights, self.version)

    def answers(self, prompts: Tokens, step: int) -> dict[str, Any]:
        assert self.scheduler is not None
        for prompt in prompts[::GROUP].tolist():
            self.scheduler.submit(
                prompt, GROUP, key=str(prompt), max_new_tokens=policy.ANSWER
            )
        batch = self.scheduler.get_batch(PROMPTS, timeout=GENERATE_S).to_batch()
        # in the order in which they have finished
        prompts[:] = np.array(batch["prompt"].padded(policy.PAD, policy.PROMPT))
        return {
            "answers": batch["tokens"].padded(policy.PAD, policy.ANSWER),
            "log_ps": batch["logprobs"].padded(0, policy.ANSWER),
        }
