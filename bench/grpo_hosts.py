"""The roles of examples/grpo in this process, and on Ray (grpo_loop.py has the loop)."""

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

PLAIN = str(Path(__file__).resolve().parent / "plain")
os.environ["OMP_NUM_THREADS"] = "1"  # as workers have it
if "muster" not in sys.modules:
    sys.path.insert(0, PLAIN)

import numpy as np  # noqa: E402
from grpo_loop import EXAMPLE, ROLES, SEED, join, share_out  # noqa: E402


def classes(infer: str) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Of each role: its class, and the arguments of the constructor."""
    import workers

    return {
        "train": (workers.ActorTrain, (SEED,)),
        "infer": (importlib.import_module(infer).ActorInfer, (SEED,)),
        "reference": (workers.Reference, (SEED,)),
        "reward": (workers.Reward, ()),
    }


class Hosted:
    """Rows are shared out here; `call` has a method run in all ranks of a role."""

    def call(self, role: str, method: str, parts: list[tuple[Any, ...]]) -> Any:
        """What `take` gives the results of."""
        raise NotImplementedError

    def take(self, called: Any) -> list[Any]:
        raise NotImplementedError

    def all(self, role: str, method: str, *args: Any) -> list[Any]:
        return self.take(self.call(role, method, [args] * ROLES[role]))

    def rows(self, role: str, method: str, *arrays: Any) -> Any:
        return self.call(role, method, share_out(ROLES[role], arrays))

    def get_weights(self) -> Any:
        return self.take(self.call("train", "get_weights", [()]))[0]

    def set_weights(self, weights: Any) -> None:
        self.all("infer", "set_weights", weights)

    def generate(self, prompts: Any, step: int) -> dict[str, Any]:
        parts = [(mine, step) for (mine,) in share_out(ROLES["infer"], [prompts])]
        return join(self.take(self.call("infer", "generate", parts)))

    def log_probs(self, prompts: Any, answers: Any) -> Callable[[], Any]:
        called = self.rows("reference", "log_probs", prompts, answers)
        return lambda: np.concatenate(self.take(called))

    def score(self, prompts: Any, answers: Any) -> Any:
        return np.concatenate(self.take(self.rows("reward", "score", prompts, answers)))

    def gradient(self, *batch: Any) -> list[Any]:
        return self.take(self.rows("train", "gradient", *batch))

    def update(self, gradient: Any) -> None:
        self.all("train", "update", gradient)


class Here(Hosted):
    """One rank after the other, in this process: the work alone."""

    def __init__(self, infer: str = "grpo_infer") -> None:
        os.environ.setdefault("RANK", "0")
        self.ranks = {
            role: [cls(*args) for _ in range(ROLES[role])]
            for role, (cls, args) in classes(infer).items()
        }

    def call(self, role: str, method: str, parts: list[tuple[Any, ...]]) -> Any:
        ranks = zip(self.ranks[role], parts, strict=False)
        return [getattr(rank, method)(*part) for rank, part in ranks]

    def take(self, called: Any) -> list[Any]:
        return list(called)


class OnRay(Hosted):
    """An actor for each rank; what all ranks get is put into Ray's store once."""

    def __init__(self, infer: str = "grpo_infer") -> None:
        import ray

        self.ray = ray
        self.actors = {
            role: [self.actor(cls, args, rank) for rank in range(ROLES[role])]
            for role, (cls, args) in classes(infer).items()
        }

    def actor(self, cls: Any, args: tuple[int, ...], rank: int) -> Any:
        env = {
            "RANK": str(rank),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(
                [PLAIN, str(EXAMPLE), str(EXAMPLE.parent.parent / "bench")]
            ),
        }
        made = self.ray.remote(num_cpus=0, runtime_env={"env_vars": env})(cls)
        return made.remote(*args)

    def call(self, role: str, method: str, parts: list[tuple[Any, ...]]) -> Any:
        actors = zip(self.actors[role], parts, strict=False)
        return [getattr(actor, method).remote(*part) for actor, part in actors]

    def take(self, called: Any) -> list[Any]:
        return list(self.ray.get(called))

    def all(self, role: str, method: str, *args: Any) -> list[Any]:
        put = [self.ray.put(arg) for arg in args]
        return super().all(role, method, *put)
