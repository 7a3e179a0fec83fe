"""GRPO with a real small model: what `make demo-llm` and `make demo-llm-train` run.

    python train.py --server PYTHON --model SmolLM2-135M-Instruct.gguf

SmolLM2-135M answers on replicas that are llama.cpp servers; requests go through
muster.generate.Scheduler. One server is killed on the way, and its requests go on on the
others. With torch (and gguf) each step trains the model, and the servers get its weights;
without, the answers are only scored.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import muster
import task
from muster.generate import Groups, HttpEngine, Scheduler

HERE = Path(__file__).resolve().parent
SLOTS = 4  # requests that a server runs at once
START_S = 120.0
WAIT_S = 600.0  # for a batch


def servers(options: argparse.Namespace) -> muster.Cluster:
    """Each worker has a server of its own, which ends with it."""
    command = [options.server, str(HERE / "llama_server.py"), "--port", "{port}"]
    command += ["--model", "{model}", "--slots", str(SLOTS), "--context", "256"]
    engine = {"command": command, "kind": "llama.cpp", "model": options.model}
    return muster.Cluster(
        "actor_infer",
        HttpEngine,
        world_size=options.replicas,
        kwargs=engine | {"piece": 8, "start_timeout": START_S},
    )


def trainer(options: argparse.Namespace, folder: str) -> muster.Cluster | None:
    if missing := [name for name in ("torch", "gguf") if find_spec(name) is None]:
        print(
            f"Without {' and '.join(missing)}: answers are scored, nothing is trained."
        )
        return None
    from trainer import ActorTrain

    args = (options.model, folder, options.rate)
    env = {"OMP_WAIT_POLICY": "passive"}  # the servers want the cores, too
    return muster.Cluster("actor_train", ActorTrain, world_size=1, args=args, env=env)


def submit(
    sched: Scheduler, prompts: Any, n: int, seed: random.Random, count: int
) -> None:
    """Groups of n answers; how long those of a country get is remembered by its name."""
    for country in task.draw(count, seed):
        sched.submit(prompts[country], n=n, key=country, max_new_tokens=task.LONGEST)


def scored(groups: Groups, infer: muster.Cluster) -> list[dict[str, Any]]:
    """What the trainer wants of each group, with the rewards."""

    def text(tokens: list[int]) -> str:
        found: str = infer.execute_rank_zero_sync("detokenize", tokens)
        return found

    batch = []
    for group in groups:
        country, samples = str(group.key), group.samples
        texts = [text(one.tokens) for one in samples]
        rewards = [
            task.reward(country, words, len(one.tokens))
            for words, one in zip(texts, samples, strict=True)
        ]
        batch.append(
            {
                "country": country,
                "prompt": group.prompt,
                "tokens": [one.tokens for one in samples],
                "logprobs": [one.logprobs for one in samples],
                "texts": texts,
                "rewards": rewards,
            }
        )
    return batch


def kill_server(sched: Scheduler, infer: muster.Cluster) -> None:
    """The bad luck of this run: a replica dies while answers come from it."""
    rank = len(infer) - 1
    before = sched.stats()["replicas"][rank]["tokens"]
    until = time.monotonic() + START_S
    while sched.stats()["replicas"][rank]["tokens"] == before:
        if time.monotonic() > until:
            raise RuntimeError(f"no tokens came from {infer.name}/{rank}")
        time.sleep(0.01)
    print(
        f"      SIGKILL to {infer.name}/{rank}, process {infer.pids[rank]}", flush=True
    )
    os.kill(infer.pids[rank], signal.SIGKILL)


def run(options: argparse.Namespace, folder: str) -> list[float]:
    infer = servers(options)
    actor = trainer(options, folder)
    seed = random.Random(options.seed)
    prompts = {
        country: infer.execute_rank_zero_sync("tokenize", task.prompt(country))
        for country in task.CAPITALS
    }
    ask = (prompts, options.group, seed, options.prompts)
    rewards: list[float] = []
    seen: list[str] = []
    resumed = 0
    began = time.monotonic()
    print("step  reward  tokens  versions  resumed  seconds  an answer")
    with Scheduler(infer, slots=SLOTS, max_staleness=1) as sched:
        submit(sched, *ask)
        for step in range(options.steps):
            if step == options.kill:
                if step > 0:
                    submit(sched, *ask)
                kill_server(sched, infer)
            groups = sched.get_batch(options.prompts, timeout=WAIT_S)
            batch = scored(groups, infer)
            rewards.append(mean([r for one in batch for r in one["rewards"]]))
            seen += [one.rid for one in groups.samples]
            resumed += sum(one.attempt > 1 for one in groups.samples)
            show(step, rewards[-1], groups, batch, time.monotonic() - began)
            if step == options.kill:
                infer.replace(len(infer) - 1)
            if step + 1 == options.steps:
                break
            if step + 1 != options.kill:
                submit(sched, *ask)  # they run while the model is trained
            update(sched, infer, actor, batch, step + 1)
    wanted = options.steps * options.prompts * options.group
    print(
        f"{wanted} answers were asked for, {len(seen)} came, "
        f"{len(seen) - len(set(seen))} of them twice; {resumed} were resumed."
    )
    if len(set(seen)) != wanted or len(seen) != wanted:
        raise RuntimeError("answers are lost or doubled")
    return rewards


def update(
    sched: Scheduler, infer: muster.Cluster, actor: Any, batch: Any, version: int
) -> None:
    if actor is None:
        return
    told = actor.execute_rank_zero_sync("step", batch)
    path = actor.execute_rank_zero_sync("save", version)
    with sched.weights(version=version):
        infer.execute_all_sync("update_weights", path, version)
    # the ratio: of what torch and what llama.cpp make of the same tokens; 1 is best
    print(
        f"      version {version}: ratio {told['ratio']:.3f}, norm {told['norm']:.2f}"
    )


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def show(step: int, reward: float, groups: Groups, batch: Any, seconds: float) -> None:
    samples = groups.samples
    length = mean([float(len(one.tokens)) for one in samples])
    versions = "-".join(
        str(v) for v in sorted({v for s in samples for v in s.versions})
    )
    resumed = sum(one.attempt > 1 for one in samples)
    answer = " ".join(batch[0]["texts"][0].removesuffix("<|im_end|>").split())
    print(
        f"{step:4}  {reward:6.3f}  {length:6.1f}  {versions:>8}  {resumed:7}  {seconds:7.0f}"
        f"  {batch[0]['country']}: {answer[:48]}",
        flush=True,
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True, help="a Python that has xllamacpp")
    parser.add_argument("--model", required=True, help="a GGUF file")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=4, help="in each step")
    parser.add_argument("--group", type=int, default=8, help="answers to each prompt")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--rate", type=float, default=1e-5)
    parser.add_argument("--kill", type=int, default=1, help="at this step; -1: never")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> int:
    options = arguments()
    muster.init()
    with tempfile.TemporaryDirectory() as folder:
        rewards = run(options, folder)
    muster.shutdown()
    first, last = mean(rewards[:2]), mean(rewards[-2:])
    print(
        f"Mean reward: {first:.2f} in the first two steps, {last:.2f} in the last two."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
