"""AReaL's own TrainController and RolloutController, over Muster.

python train.py                          # on this machine
python train.py --on ray                 # a Ray of our own; or --address http://HEAD:8265
"""

import argparse
import os
import tempfile
from typing import Any

from areal import RolloutController, TrainController
from areal.api.cli_args import (
    BaseExperimentConfig,
    ClusterSpecConfig,
    InferenceEngineConfig,
    NameResolveConfig,
    SchedulingSpec,
    TrainEngineConfig,
)
from engines import Episode, Policy, Sampler
from muster.areal import MusterScheduler

BATCH = 16


class Prompts:
    """A data loader: the same question again and again, whose answer is 2."""

    batch_size = BATCH

    def __iter__(self) -> Any:
        for step in range(1 << 30):
            yield [{"prompt": step % 7, "right": 2} for _ in range(BATCH)]


def configurations(folder: str) -> tuple[Any, Any, Any]:
    names = {"experiment_name": "areal-on-muster", "trial_name": "first"}
    spec = SchedulingSpec(cpu=0, mem=1, gpu=0)  # so that four fit on a small machine
    resolve = NameResolveConfig(type="nfs", nfs_record_root=f"{folder}/names")
    cluster = ClusterSpecConfig(fileroot=folder, name_resolve=resolve)
    whole = BaseExperimentConfig(**names, cluster=cluster, seed=1)
    train = TrainEngineConfig(**names, backend="fsdp:d2", scheduling_spec=(spec,))
    rollout = InferenceEngineConfig(
        **names,
        backend="sglang:d2",
        scheduling_spec=(spec,),
        consumer_batch_size=BATCH,
        max_concurrent_rollouts=32,
        max_head_offpolicyness=1,
        request_timeout=60,
    )
    return whole, train, rollout


def run(scheduler: Any, train: Any, rollout: Any, steps: int) -> list[float]:
    """The mean reward of each step."""
    actor = TrainController(Policy, train, scheduler)
    sampler = RolloutController(Sampler, rollout, scheduler)
    curve = []
    try:
        actor.initialize("actor", None)
        sampler.initialize("rollout", server_args={})
        for step in range(steps):
            batch = sampler.prepare_batch(Prompts(), Episode, workflow_kwargs={})
            rewards = actor._custom_function_call("update", batch)
            curve.append(sum(rewards) / len(rewards))
            sampler.pause()
            weights = actor._custom_function_call("weights")
            sampler._collective_rpc("set_weights", weights=weights)
            actor.set_version(step + 1)
            sampler.set_version(step + 1)
            actor.clear_batches(batch)
            sampler.resume()
    finally:
        sampler.destroy()
        actor.destroy()
    return curve


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--on", default=None, help="local or ray")
    parser.add_argument("--address", default=None, help="Ray's dashboard, or local")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--fileroot", default=None, help="for logs")
    given = parser.parse_args()
    folder = given.fileroot or tempfile.mkdtemp()
    os.makedirs(f"{folder}/names", exist_ok=True)
    whole, train, rollout = configurations(folder)
    address = given.address or ("local" if given.on == "ray" else None)
    with MusterScheduler(
        exp_config=whole, orchestrator=given.on, address=address, preload=["engines"]
    ) as scheduler:
        curve = run(scheduler, train, rollout, given.steps)
        logs = scheduler.log_dir
    print(f"reward {curve[0]:.2f} in the first step, {curve[-1]:.2f} in the last")
    print(f"logs: {', '.join(sorted(os.listdir(logs)))}")


if __name__ == "__main__":
    main()
