"""RolloutScheduler on real workers: environments in groups, and what happens if one ends."""

import asyncio
import dataclasses
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import muster
import numpy as np
import pytest
from muster import roll
from rollout_workers import Countdown, Environments

WAIT_S = 120.0


@dataclasses.dataclass
class EnvConfig(roll.WorkerConfig):
    """Two workers with two environments each; both workers have one of each group."""

    group_size: int = 2
    max_traj_per_env: int | None = 2
    env_configs: dict[int, dict[int, dict[str, int]]] = dataclasses.field(
        default_factory=lambda: {
            rank: {2 * rank + group: {"group_id": group} for group in range(2)}
            for rank in range(2)
        }
    )


@pytest.fixture
def actor(session: Any) -> Iterator[Any]:
    role = roll.WorkerConfig(device_mapping=[0, 1], num_gpus_per_worker=1)
    manager = roll.ResourceManager(num_gpus_per_node=4, num_nodes=1)
    made = roll.Cluster("actor_infer", Countdown, manager, role)
    yield made
    made.destroy()


def run(
    main: Callable[[roll.RolloutScheduler], Any],
    actor: Any,
    pace: float = 0,
    mode: str = "train",
) -> None:
    config = SimpleNamespace(async_generation_ratio=1, pace=pace, seed=1)
    role = EnvConfig(name="env", worker_cls=Environments, world_size=2)
    if mode == "val":
        role.max_traj_per_env = None

    async def whole() -> None:
        scheduler = roll.RolloutScheduler(config, role, None, actor, mode)
        await scheduler.initialize()
        try:
            await main(scheduler)
        finally:
            await scheduler.shutdown()

    asyncio.run(asyncio.wait_for(whole(), WAIT_S))


def step(number: int) -> roll.DataProto:
    return roll.DataProto(meta_info={"global_step": number})


def check(batch: Any) -> set[str]:
    """Whole groups whose answers are whole; their names."""
    names = list(batch.non_tensor_batch["of"])
    assert sorted(names.count(name) for name in set(names)) == [2] * 4
    for name, tokens in zip(names, np.asarray(batch.batch["tokens"]), strict=True):
        start = 20 + int(name.partition("-")[0])
        assert tokens == 1 + (start - 1) + 1 + 4 + 1
    return set(names)


def test_a_replica_is_killed_while_environments_play(actor: Any) -> None:
    async def main(scheduler: roll.RolloutScheduler) -> None:
        first = check(await scheduler.get_batch(step(0), 8))
        next_ = asyncio.create_task(scheduler.get_batch(step(1), 8))
        os.kill(actor[1].execute_rank_zero_sync("pid"), signal.SIGKILL)
        second = check(await next_)
        assert not first & second
        await scheduler.suspend()
        assert await scheduler.generate_scheduler.size.remote() == 0

    run(main, actor, pace=0.005)


def test_devices_are_given_away_and_taken_back(actor: Any) -> None:
    async def main(scheduler: roll.RolloutScheduler) -> None:
        first = asyncio.create_task(scheduler.get_batch(step(0), 8))
        actor[1].execute_rank_zero_sync("refuse", 1)
        with pytest.raises(RuntimeError, match="no room"):
            await scheduler.shrink_sampler([1])
        assert await scheduler.shrink_sampler([1]) == {"dp_ranks": [1]}
        assert actor.execute_all_sync("loaded") == [True, False]
        check(await first)
        with pytest.raises(ValueError, match="at least one replica must stay"):
            await scheduler.shrink_sampler([0])
        assert await scheduler.expand_sampler([0]) == {"dp_ranks": []}
        assert await scheduler.expand_sampler([0, 1]) == {"dp_ranks": [1]}
        assert actor.execute_all_sync("loaded") == [True, True]
        check(await scheduler.get_batch(step(1), 8))

    run(main, actor, pace=0.002)


def test_an_environment_that_dies_is_raised(actor: Any) -> None:
    async def main(scheduler: roll.RolloutScheduler) -> None:
        check(await scheduler.get_batch(step(0), 8))
        os.kill(scheduler.es_manager[1].execute_rank_zero_sync("pid"), signal.SIGKILL)
        with pytest.raises(muster.WorkerDied):
            for number in range(1, 100):
                await scheduler.get_batch(step(number), 8)

    run(main, actor)


def test_validation_goes_on_until_all_have_ended(actor: Any) -> None:
    async def main(scheduler: roll.RolloutScheduler) -> None:
        for number in range(2):
            check(await scheduler.get_batch(step(number), -1))
            assert scheduler.rollout_task is None

    run(main, actor, mode="val")


def test_environments_that_do_not_end(actor: Any) -> None:
    """They have brought all that there is, and go on."""

    async def main(scheduler: roll.RolloutScheduler) -> None:
        environments = scheduler.es_manager
        environments.execute_all_sync("linger", True)
        said = ""
        while "the environments did not end within 3 s" not in said:
            with pytest.raises(muster.DeadlineExceeded) as e:
                await scheduler.get_batch(step(0), -1, timeout=3)
            said = str(e.value)
        task = scheduler.rollout_task
        assert task is not None and not task.done()  # they still play
        environments.execute_all_sync("linger", False)
        await task

    run(main, actor, mode="val")


def test_cancelled_while_it_starts(actor: Any) -> None:
    """What is still made by then goes, too."""
    begun, go = threading.Event(), threading.Event()

    class Held(roll.RolloutScheduler):
        def _start(self) -> None:
            begun.set()
            assert go.wait(WAIT_S)
            super()._start()

    async def main() -> None:
        role = EnvConfig(name="env", worker_cls=Environments, world_size=2)
        config = SimpleNamespace(async_generation_ratio=1, pace=0, seed=1)
        scheduler = Held(config, role, None, actor, "train")
        starting = asyncio.create_task(scheduler.initialize())
        await asyncio.to_thread(begun.wait)
        starting.cancel()
        await asyncio.sleep(0)  # it is told
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await starting

    asyncio.run(main())
    names = [one["name"] for one in muster.status()["clusters"]]
    assert names == ["actor_infer"]


def test_a_router_that_dies_is_raised(actor: Any) -> None:
    async def main(scheduler: roll.RolloutScheduler) -> None:
        check(await scheduler.get_batch(step(0), 8))
        [router] = scheduler.generate_scheduler.view.pids
        os.kill(router, signal.SIGKILL)
        with pytest.raises(muster.WorkerDied):
            await scheduler.get_batch(step(1), 8)

    run(main, actor, pace=0.01)
