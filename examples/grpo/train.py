"""GRPO on four clusters, driven by one script: what `make demo` runs.

    python train.py                          200 steps; a worker is killed on the way
    python train.py --steps 400 --kill never --seed 7

Exit code 0: the mean reward of the last steps has reached the target.
"""

import argparse
import dataclasses
import os
import signal
import subprocess
import sys
from typing import Any

import curve
import grpo
import muster
import numpy as np
import policy
import show
import task
from engine import ActorInfer
from ledger import Ledger
from muster import generate, timeline
from policy import Weights
from workers import ActorTrain, Reference, Reward

EPOCHS = 2  # updates from the same samples
STALENESS = 1  # versions that the oldest token of a sample may be behind
GENERATE_S = 60  # seconds for a batch
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


class Rollouts:
    """Prompts go in ahead of time, finished groups come out; the scheduler is between."""

    def __init__(self, infer: muster.Cluster, options: argparse.Namespace) -> None:
        self.infer = infer
        self.options = options
        self.random = np.random.default_rng([options.seed, 1])
        self.texts: list[str] = []  # the next prompts
        self.scheduler = generate.Scheduler(
            infer,
            slots=options.prompts * options.group,
            max_staleness=STALENESS,
            batch=options.prompts,  # of one update: more begin only if they can be in time
            refill=self.submit_one,
        )
        self.ledger = Ledger(self.scheduler)
        self.left = (
            options.steps * options.prompts
        )  # prompts that are still to be asked

    def submit_one(self) -> None:
        if not self.texts:
            self.texts = task.training_prompts(self.options.prompts, self.random)
        text = self.texts.pop()
        prompt = policy.encode([text], policy.PROMPT)[0].tolist()
        self.ledger.submit(
            prompt, self.options.group, key=text, max_new_tokens=policy.ANSWER
        )

    def submit(self, prompts: int) -> None:
        for _ in range(min(prompts, self.left)):
            self.submit_one()
            self.left -= 1

    def set_weights(self, weights: Weights, version: int) -> None:
        """What runs stops, keeps its tokens, and goes on with the new weights."""
        with self.scheduler.weights(version):
            self.infer.set_weights(weights, version)

    def batch(self) -> muster.Batch:
        """Rows of finished groups, in the store of this node, where the ranks read them."""
        groups = self.scheduler.get_batch(self.options.prompts, timeout=GENERATE_S)
        self.ledger.take(groups)
        shapes = {
            "prompts": ((policy.PROMPT,), np.int64),
            "answers": ((policy.ANSWER,), np.int64),
            "log_ps": ((policy.ANSWER,), np.float32),
        }
        rows = muster.Batch.allocate(len(groups.samples), shapes)
        told = groups.to_batch()
        rows.write("prompts")[:] = told["prompt"].padded(policy.PAD, policy.PROMPT)
        rows.write("answers")[:] = told["tokens"].padded(policy.PAD, policy.ANSWER)
        rows.write("log_ps")[:] = told["logprobs"].padded(0, policy.ANSWER)
        return rows

    def kill(self, rank: int, progress: show.Progress) -> None:
        """The bad luck of this run. What ran there goes on elsewhere by itself; a new
        process in its place gets the weights with the next version."""
        pid = self.infer.pids[rank]
        progress.note(f"SIGKILL to {self.infer.name}/{rank}, process {pid}")
        os.kill(pid, signal.SIGKILL)
        try:
            while True:  # until it is known
                self.infer[rank].execute_rank_zero_sync("best", np.zeros((0, 6), int))
        except muster.WorkerDied as why:
            progress.note(f"{type(why).__name__}: {str(why).splitlines()[0]}")
        self.infer.replace(rank)
        progress.event(f"{self.infer.name}/{rank} died and was replaced")


def train(
    roles: Roles, rollouts: Rollouts, options: argparse.Namespace
) -> show.Progress:
    progress = show.Progress(options.steps)
    rollouts.submit((1 + STALENESS) * options.prompts)
    for step in range(options.steps):
        with timeline.span("step", number=step):
            if step == options.kill:
                rollouts.kill(1, progress)
            with timeline.span("wait for generation"):
                batch = rollouts.batch()
            if step == options.kill:
                rollouts.ledger.note_deaths()
            rewards = learn(roles, batch, options.group)
            with timeline.span("hand over weights", version=step + 1):
                rollouts.set_weights(roles.train.get_weights(), step + 1)
            rollouts.submit(options.prompts)
        timeline.count("reward", rewards)
        progress.step(rewards, len(batch))
    rollouts.ledger.settle()
    return progress


def learn(roles: Roles, batch: muster.Batch, group: int) -> float:
    """From one batch. The mean reward."""
    prompts, answers = batch["prompts"], batch["answers"]
    # the next two do not wait for each other
    pending = roles.reference.log_probs(prompts, answers, blocking=False)
    rewards = roles.reward.score(prompts, answers)
    gains = grpo.advantages(rewards, group)
    rows = (prompts, answers, batch["log_ps"], pending.result(), gains)
    for _ in range(EPOCHS):
        parts = roles.train.gradient(*rows)  # each rank's own, of its rows
        roles.train.update(grpo.average(parts, len(prompts)))
    return float(rewards.mean())


def examine(roles: Roles, count: int = 1000) -> float:
    """How many of the prompts that it was never trained on the policy answers right."""
    texts = task.test_prompts(count)
    answers = policy.decode(roles.infer.best(policy.encode(texts, policy.PROMPT)))
    for text, answer in list(zip(texts, answers, strict=True))[:: count // 4]:
        print(
            f"  {text} {answer}  {'right' if answer == task.truth(text) else 'wrong'}"
        )
    right = sum(a == task.truth(t) for t, a in zip(texts, answers, strict=True))
    return right / count


def write_timeline(path: str) -> None:
    """What happened when, for Perfetto, from what this session has recorded."""
    name = muster.status()["session"]
    command = [sys.executable, "-m", "muster", "timeline", "--session", name]
    done = subprocess.run(
        [*command, "--output", path], stdout=subprocess.PIPE, text=True
    )
    print(done.stdout.strip())


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="GRPO on four clusters")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--prompts", type=int, default=32, help="in each step")
    parser.add_argument("--group", type=int, default=16, help="answers to each prompt")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", type=float, default=0.9, help="reward for exit 0")
    parser.add_argument("--curve", default="reward.svg", help="where to draw the curve")
    parser.add_argument("--timeline", default="timeline.json", help="where to write it")
    parser.add_argument("--kill", default="third", help="at this step, third or never")
    options = parser.parse_args()
    words = {"third": options.steps // 3, "never": -1}
    options.kill = int(words.get(options.kill, options.kill))
    return options


def main() -> int:
    options = arguments()
    muster.init(num_nodes=2, num_gpus=2)  # two described nodes on this machine
    timeline.start()
    roles = start(options.seed)
    show.placement(vars(roles).values())
    print(f"\nTo learn: {task.__doc__.split(': ')[1].splitlines()[0]}")
    roles.infer.set_weights(roles.train.get_weights(), 0)
    rollouts = Rollouts(roles.infer, options)
    progress = train(roles, rollouts, options)
    progress.end()
    print("\nPrompts that were held out:")
    right = examine(roles)
    print("", *rollouts.ledger.lines(), sep="\n")
    rollouts.scheduler.close()
    write_timeline(options.timeline)
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
