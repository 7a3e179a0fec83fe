"""The roles of examples/grpo on Muster, as its train.py calls them."""

from collections.abc import Callable
from typing import Any

import muster
from grpo_infer import ActorInfer
from grpo_loop import ROLES, SEED
from workers import ActorTrain, Reference, Reward


class OnMuster:
    def __init__(self) -> None:
        self.train = self.cluster("train", ActorTrain, SEED)
        self.infer = self.cluster("infer", ActorInfer, SEED)
        self.reference = self.cluster("reference", Reference, SEED)
        self.reward = self.cluster("reward", Reward)
        self.get_weights = self.train.get_weights
        self.set_weights = self.infer.set_weights
        self.generate = self.infer.generate
        self.score = self.reward.score
        self.gradient = self.train.gradient
        self.update = self.train.update

    def cluster(self, role: str, cls: type, *args: int) -> muster.Cluster:
        return muster.Cluster(role, cls, world_size=ROLES[role], args=args)

    def log_probs(self, prompts: Any, answers: Any) -> Callable[[], Any]:
        pending = self.reference.log_probs(prompts, answers, blocking=False)
        result: Callable[[], Any] = pending.result
        return result
