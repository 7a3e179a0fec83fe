"""GRPO on four clusters, driven by one script: what `make demo` runs.

    python train.py                          200 steps; a worker is killed on the way
    python train.py --steps 400 --kill never --seed 7

Exit code 0: the mean reward of the last steps has reached the target.
"""

import argparse
import dataclasses
import os
import signal
import sys
from typing import Any

import curve
import grpo
import muster
import numpy as np
import policy
import show
import task
from policy import Tokens, Weights
from workers import ActorInfer, ActorTrain, Reference, Reward

EPOCHS = 2  # updates from the same samples
TRIES = 3  # of a rollout whose workers die
LAST = 10  # steps whose mean reward counts


@dataclasses.dataclass
class Roles:
    train: muster.Cluster
    infer: muster.Cluster
    reference: muster.Cluster
    reward: muster.Cluster


def start(seed: int) -> Roles:
    """Four clusters. Which devices each gets is all there is to say of placement."""
    in_file = bool(muster.roles())  # `muster run job.yaml`: there it is said

    def cluster(name: str, role: type, *args: int, **where: Any) -> muster.Cluster:
        return muster.Cluster(name, role, args=args, **({} if in_file else where))

    return Roles(
        train=cluster("actor_train", ActorTrain, seed, device_mapping="0-1"),
        infer=cluster("actor_infer", ActorInfer, seed, device_mapping="2-3"),
        # the devices of actor_train: colocated
        reference=cluster("reference", Reference, seed, device_mapping="0-1"),
        reward=cluster("reward", Reward, world_size=2),
    )


def rollout(
    infer: muster.Cluster,
    weights: Weights,
    prompts: Tokens,
    step: int,
    progress: show.Progress,
    *,
    kill: bool,
) -> dict[str, Any]:
    """The newest weights to all replicas, then samples of all of them.

    A replica that dies on the way is replaced, and the step is done again.
    """
    for _ in range(TRIES):
        try:
            infer.set_weights(weights)
            pending = infer.generate(prompts, step, blocking=False)
            if kill:  # the bad luck of this run
                kill = False
                progress.note(f"SIGKILL to {infer.name}/1, process {infer.pids[1]}")
                os.kill(infer.pids[1], signal.SIGKILL)
            samples: dict[str, Any] = pending.result()
            return samples
        except muster.WorkerDied as death:
            progress.note(f"{type(death).__name__}: {str(death).splitlines()[0]}")
            infer.replace(death.rank)
            progress.event(f"{death.cluster}/{death.rank} died and was replaced")
    raise RuntimeError(f"the rollout of step {step} failed {TRIES} times")


def train(roles: Roles, options: argparse.Namespace) -> show.Progress:
    random = np.random.default_rng([options.seed, 1])
    progress = show.Progress(options.steps)
    for step in range(options.steps):
        texts = task.training_prompts(options.prompts, random)
        prompts = policy.encode(texts, policy.PROMPT).repeat(options.group, axis=0)

        weights = roles.train.get_weights()
        kill = step == options.kill
        samples = rollout(roles.infer, weights, prompts, step, progress, kill=kill)
        answers = samples["answers"]
        # the next two do not wait for each other
        pending = roles.reference.log_probs(prompts, answers, blocking=False)
        rewards = roles.reward.score(prompts, answers)
        gains = grpo.advantages(rewards, options.group)

        batch = (prompts, answers, samples["log_ps"], pending.result(), gains)
        for _ in range(EPOCHS):
            parts = roles.train.gradient(*batch)  # each rank's own, of its rows
            roles.train.update(grpo.average(parts, len(prompts)))
        progress.step(float(rewards.mean()), len(prompts))
    return progress


def examine(roles: Roles, count: int = 1000) -> float:
    """How many of the prompts that it was never trained on the policy answers right."""
    texts = task.test_prompts(count)
    roles.infer.set_weights(roles.train.get_weights())
    answers = policy.decode(roles.infer.best(policy.encode(texts, policy.PROMPT)))
    for text, answer in list(zip(texts, answers, strict=True))[:: count // 4]:
        print(
            f"  {text} {answer}  {'right' if answer == task.truth(text) else 'wrong'}"
        )
    right = sum(a == task.truth(t) for t, a in zip(texts, answers, strict=True))
    return right / count


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="GRPO on four clusters")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--prompts", type=int, default=32, help="in each step")
    parser.add_argument("--group", type=int, default=16, help="answers to each prompt")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", type=float, default=0.9, help="reward for exit 0")
    parser.add_argument("--curve", default="reward.svg", help="where to draw the curve")
    parser.add_argument("--kill", default="third", help="at this step, third or never")
    options = parser.parse_args()
    words = {"third": options.steps // 3, "never": -1}
    options.kill = int(words.get(options.kill, options.kill))
    return options


def main() -> int:
    options = arguments()
    muster.init(num_nodes=2, num_gpus=2)  # two described nodes on this machine
    roles = start(options.seed)
    show.placement(vars(roles).values())
    print(f"\nTo learn: {task.__doc__.split(': ')[1].splitlines()[0]}")
    progress = train(roles, options)
    progress.end()
    print("\nPrompts that were held out:")
    right = examine(roles)
    muster.shutdown()

    first, last = progress.mean(0, LAST), progress.mean(-LAST, None)
    print(curve.plot(progress))
    curve.draw(progress, options.curve)
    print(f"\nReward {first:.3f} at first, {last:.3f} at the end; {right:.1%} of the")
    print(f"held out prompts are answered right. The curve: {options.curve}")
    if last < options.target:
        print(f"That is less than the target of {options.target}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)  # workers end with their driver
