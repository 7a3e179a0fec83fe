"""RolloutScheduler: batches of rollouts that environments play, as ROLL has it.

Environments are workers of a role of their own. The queue of episodes and the router are
workers too, so that environments reach them.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from time import monotonic
from types import SimpleNamespace
from typing import Any

import muster
from muster._adapters.actor import Handle
from muster._core import WAIT_S
from muster.errors import DeadlineExceeded
from muster.roll.cluster import Cluster
from muster.roll.group_queue import GroupQueueManager
from muster.roll.protocol import DataProto
from muster.roll.router_manager import RouterManager, history_of

__all__ = ["RolloutScheduler"]

_LOOP_S = 365 * 86400.0  # run_rollout_loop goes on until `shutdown`
_SPARE = 16  # calls beside those of the environments


class RolloutScheduler:
    """`initialize`, then for each step `get_batch`, with `suspend` before weights change;
    `shutdown` at the end.

    env_manager_config: the role of the environments: `name`, `worker_cls`, `env_configs`
    (by rank and environment), `group_size`, `max_traj_per_env`. Its class has
    `initialize(pipeline_config, generate_scheduler, output_queue, collator, mode)`,
    `run_rollout_loop(seed)`, `update_step(global_step)` and `stop()`; generate_scheduler and
    output_queue are handles of a RouterManager and of a GroupQueueManager.
    """

    def __init__(
        self,
        config: Any,
        env_manager_config: Any,
        resource_manager: Any,
        infer_cluster: Any,
        mode: str,
        collator: Any = None,
    ) -> None:
        self.config = config
        self.env_manager_config = env_manager_config
        self.resource_manager = resource_manager
        self.infer_cluster = infer_cluster
        self.mode = mode
        self.collator = collator
        self.rollout_task: asyncio.Task[None] | None = None
        self._clusters: list[Any] = []

    async def initialize(self) -> None:
        """Start the router, the queue and the environments."""
        starting = asyncio.create_task(asyncio.to_thread(self._start))
        try:
            await asyncio.shield(starting)
            await self.generate_scheduler.initialize.remote()
            await self.generate_scheduler.suspend.remote()
            await self._environments(
                "initialize",
                pipeline_config=self.config,
                generate_scheduler=self.generate_scheduler,
                output_queue=self.env_output_queue,
                collator=self.collator,
                mode=self.mode,
            )
        except BaseException:
            await asyncio.wait({starting})  # also what it still makes is destroyed
            await self._destroy()
            raise

    def _start(self) -> None:
        role = self.env_manager_config
        name = getattr(role, "name", None) or f"{self.mode}_env"
        self.generate_scheduler = self._worker(
            f"{name}_router",
            RouterManager,
            self.infer_cluster,
            _router_args(self.config, self.mode),
            getattr(self.config, "num_gpus_per_node", 0),
        )
        self.env_output_queue = self._worker(
            f"{name}_queue", GroupQueueManager, self.config, role, self.mode
        )
        self.es_manager = Cluster(name, role.worker_cls, self.resource_manager, role)
        self._clusters.append(self.es_manager)

    def _worker(self, name: str, cls: type, *args: Any) -> Handle:
        envs = sum(
            len(of_rank) for of_rank in self.env_manager_config.env_configs.values()
        )
        role = muster.WorkerConfig(
            world_size=1, args=args, max_concurrency=envs + _SPARE
        )
        made = muster.Cluster(name, cls, None, role)
        self._clusters.append(made)
        return Handle(made[0])

    async def _environments(self, method: str, *args: Any, **kwargs: Any) -> None:
        await asyncio.gather(
            *self.es_manager.execute_all_async(method, *args, **kwargs)
        )

    async def _play(self, seed: int) -> None:
        workers = self.es_manager.options(timeout=_LOOP_S)
        await asyncio.gather(*workers.execute_all_async("run_rollout_loop", seed))

    # ---- batches ----------------------------------------------------------------------

    async def get_batch(
        self, data: DataProto, batch_size: int, timeout: float = WAIT_S
    ) -> DataProto | None:
        """So many rollouts of whole groups, as one DataProto; below 0 all until the
        environments end, and None if there was none. `data` has global_step in its
        meta_info. An environment's failure is raised at once, DeadlineExceeded after
        `timeout` seconds."""
        end = monotonic() + timeout
        step = data.meta_info["global_step"]
        if self.rollout_task is None:
            is_train = self.mode == "train"
            seed = random.randrange(1_000_000) if is_train else self.config.seed
            self.rollout_task = asyncio.create_task(self._play(seed))
        await self._environments("update_step", step)
        await self.env_output_queue.advance_step.remote(step)
        await self.generate_scheduler.resume.remote()
        rollouts = await self._take(batch_size, step, timeout)
        if batch_size < 0:
            await self._await_end(step, timeout, end)
            await self.env_output_queue.clear.remote()
        metrics = await self.env_output_queue.collect_metrics.remote()
        if not rollouts:
            return None
        batch = DataProto.concat(rollouts)
        batch.meta_info["metrics"] = metrics
        return batch

    async def _take(self, batch_size: int, step: int, timeout: float) -> list[Any]:
        assert self.rollout_task is not None
        get = asyncio.ensure_future(
            self.env_output_queue.get_batch.remote(batch_size, step)
        )
        try:
            async with asyncio.timeout(timeout):
                both = {get, self.rollout_task}
                await asyncio.wait(both, return_when="FIRST_COMPLETED")
                if not get.done():
                    self.rollout_task.result()  # raises what ended it
                taken: list[Any] = await get
                return taken
        except TimeoutError:
            raise DeadlineExceeded(
                f"step {step}: {batch_size} rollouts were not there within {timeout} s"
            ) from None
        finally:
            get.cancel()

    async def _await_end(self, step: int, timeout: float, end: float) -> None:
        """The environments have said that they ended; now they do."""
        assert self.rollout_task is not None
        left = max(0.0, end - monotonic())
        done, _ = await asyncio.wait({self.rollout_task}, timeout=left)
        if not done:
            raise DeadlineExceeded(
                f"step {step}: the environments did not end within {timeout} s"
            )
        task, self.rollout_task = self.rollout_task, None
        task.result()

    async def suspend(self, timeout: float = WAIT_S) -> None:
        """Until the next `get_batch` nothing is generated; what ran was aborted, and its
        environments get what there was."""
        await self.generate_scheduler.suspend.remote()
        await self.generate_scheduler.abort_all.remote()
        await self.generate_scheduler.wait_complete.remote(timeout)

    async def shrink_sampler(self, target_gpus: Any) -> Any:
        return await self.generate_scheduler.shrink_workers.remote(target_gpus)

    async def expand_sampler(self, target_gpus: Any, skip_load: bool = False) -> Any:
        return await self.generate_scheduler.expand_workers.remote(
            target_gpus, skip_load
        )

    # ---- the end ----------------------------------------------------------------------

    async def shutdown(self, timeout: float = WAIT_S) -> None:
        """Environments end, then the workers, also those that have died. Idempotent."""
        try:
            if (task := self.rollout_task) is not None:
                self.rollout_task = None
                if not task.done():
                    await self._say_goodbye(timeout)
                await asyncio.wait({task}, timeout=timeout)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        finally:
            await self._destroy()

    async def _say_goodbye(self, timeout: float) -> None:
        """To each; one that has died is ended by `_destroy`."""
        for said in (
            self._environments("stop"),
            self.env_output_queue.shutdown.remote(),
            self.generate_scheduler.shutdown.remote(timeout),
        ):
            with suppress(muster.MusterError):
                await said

    async def _destroy(self) -> None:
        clusters, self._clusters = self._clusters, []
        for one in reversed(clusters):
            await asyncio.to_thread(one.destroy)


def _router_args(config: Any, mode: str) -> Any:
    """Of the configuration; environments have an affinity unless it says otherwise. Training
    and validation each have a history of their own."""
    given = getattr(config, "router_args", None)
    options = dict(getattr(given, "router_config", None) or {})
    if options.get("history"):
        options["history"] = history_of(options["history"], mode)
    return SimpleNamespace(
        router_name=getattr(given, "router_name", None) or "EnvAffinityRouter",
        router_config=options,
    )
