"""The agentic group queue as ROLL has it: episodes that environments take, in groups.

A group of environments plays the same episode; what they bring is handed out when
`group_size` of them are done. All of it belongs to one event loop: as a worker's class
GroupQueueManager has one of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import pkgutil
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from muster._adapters.checks import NoSuchKey, WrongValue
from muster._core import WAIT_S
from muster.roll.changes import Changes, deadline

logger = logging.getLogger("muster.roll")

_LOOK = 30.0  # seconds between two looks for environments that hang
_HUNG = 3600.0  # seconds without a rollout, unless the configuration says otherwise


@dataclass
class GroupData:
    """An episode of a group: who takes part, and what they have brought."""

    group_id: int
    episode_id: int
    create_step: int
    rollouts: list[Any] = field(default_factory=list)
    running_rollouts: int = 0  # environments that took it
    takers: set[int] = field(
        default_factory=set
    )  # those of them that said who they are


class GroupQueue:
    """The episodes of one group of environments, oldest first."""

    def __init__(
        self,
        group_id: int,
        progress_bar: Any,
        group_size: int,
        group_size_redundancy: int,
        max_traj_per_env: int | None,
        async_generation_ratio: float,
        group_filter: Any,
        env_monitor: EnvActivityMonitor | None = None,
    ) -> None:
        self.group_id = group_id
        self.progress_bar = progress_bar
        self.group_size = group_size
        self.group_size_redundancy = group_size_redundancy
        is_open = max_traj_per_env is None or max_traj_per_env >= sys.maxsize
        self.max_traj_per_env = None if is_open else max_traj_per_env
        self.async_generation_ratio = async_generation_ratio
        self.group_filter = group_filter
        self.group_filter_count = 0
        self.env_monitor = env_monitor
        self._changes = Changes()
        self.clear()

    def clear(self) -> None:
        """Forget all episodes; the next step is the first one."""
        self.current_step: int | None = None
        self.groups: dict[int, GroupData] = {}  # by episode, in order of creation
        self._next = itertools.count()
        self._exits = 0  # of environments
        self._is_shut_down = False
        self._changes.tell()

    def shutdown(self) -> None:
        """Environments that ask for an episode get None, and everything is forgotten."""
        self._is_shut_down = True
        self.groups.clear()
        self._changes.tell()

    # ---- steps ------------------------------------------------------------------------

    def advance_group(self, create_step: int) -> None:
        """One more episode."""
        episode = next(self._next)
        self.groups[episode] = GroupData(self.group_id, episode, create_step)
        self._changes.tell()

    def advance_step(self, step: int) -> None:
        """The episodes of a step: `max_traj_per_env`, and at first those by which
        environments may run ahead. Episodes that are older than the ratio end."""
        ahead = 0
        if self.current_step is None:
            ahead = math.ceil(
                (self.max_traj_per_env or 0) * self.async_generation_ratio
            )
        for episode, group in list(self.groups.items()):
            if step - group.create_step > self.async_generation_ratio:
                del self.groups[episode]
                if self.env_monitor is not None:
                    self.env_monitor.cleanup_episode(self.group_id, episode)
        self.current_step = step
        for _ in range(ahead + (self.max_traj_per_env or 0)):
            self.advance_group(step)
        self._changes.tell()

    # ---- environments -----------------------------------------------------------------

    async def get_episode_id(
        self, env_id: int | None = None, timeout: float = WAIT_S
    ) -> int | None:
        """An episode that has room for one more, and that this environment has not had yet;
        None after `shutdown`. DeadlineExceeded after `timeout` seconds."""
        what = f"group {self.group_id} had no episode with room for one more"
        async with deadline(timeout, lambda: what):
            return await self._get_episode_id(env_id)

    async def _get_episode_id(self, env_id: int | None) -> int | None:
        while not self._is_shut_down:
            for episode, group in self.groups.items():
                if group.running_rollouts < self._width and env_id not in group.takers:
                    self._note_start(group, env_id)
                    return episode
            if self.max_traj_per_env is None and self.current_step is not None:
                self.advance_group(self.current_step)
            else:
                await self._changes.wait()
        return None

    @property
    def _width(self) -> int:
        """How many environments play one episode."""
        return self.group_size + self.group_size_redundancy

    def _note_start(self, group: GroupData, env_id: int | None) -> None:
        group.running_rollouts += 1
        if env_id is None:
            return
        group.takers.add(env_id)
        if self.env_monitor is not None:
            self.env_monitor.record_episode_start(
                self.group_id, env_id, group.episode_id
            )

    def put(self, episode_id: int, start_step: int, rollout: Any) -> None:
        """What an environment brought, or None: it has ended. What comes after its
        episode is ignored."""
        if rollout is None:
            self._exits += 1
            self._changes.tell()
        group = self.groups.get(episode_id)
        if group is None:
            return
        if start_step < group.create_step:
            raise WrongValue(
                f"episode {episode_id}: began at step {group.create_step}, its rollout at "
                f"{start_step}"
            )
        group.rollouts.append(rollout)
        if len(group.rollouts) == self.group_size:
            self._complete(group)
        self._changes.tell()

    def _complete(self, group: GroupData) -> None:
        if all(rollout is None for rollout in group.rollouts):
            return  # its environments have ended: get() says so
        has_filter = self.group_filter is not None
        if has_filter and self.group_filter.filter(
            self.group_id, group.episode_id, group.rollouts
        ):
            self.group_filter_count += 1
            del self.groups[group.episode_id]
            self.advance_group(
                group.create_step if self.current_step is None else self.current_step
            )
        elif self.progress_bar is not None:
            self.progress_bar.update(self.group_size)

    # ---- the consumer -----------------------------------------------------------------

    async def get(self, timeout: float = WAIT_S) -> GroupData:
        """The oldest episode, once it is complete, even if a later one is. DeadlineExceeded
        after `timeout` seconds."""
        what = f"group {self.group_id} had no complete episode"
        async with deadline(timeout, lambda: what):
            return await self.oldest()

    async def oldest(self) -> GroupData:
        """The same, for a task that its owner ends. When all environments have ended, an
        episode is as complete as it gets, and one without rollouts says that it was the last."""
        while True:
            has_ended = self._exits >= self._width
            oldest = next(iter(self.groups.values()), None)
            if oldest is not None and (
                has_ended or len(oldest.rollouts) >= self.group_size
            ):
                return self.groups.pop(oldest.episode_id)
            if has_ended:
                return GroupData(self.group_id, -1, self.current_step or 0)
            await self._changes.wait()


class GroupQueueManager:
    """The queues of all groups of environments of `env_manager_config.env_configs`."""

    def __init__(self, config: Any, env_manager_config: Any, mode: str) -> None:
        self.mode = mode
        self.env_manager_config = env_manager_config
        self.group_size: int = env_manager_config.group_size
        ratio = config.async_generation_ratio if mode == "train" else 0
        self.async_generation_ratio: float = ratio
        redundancy = getattr(env_manager_config, "group_size_redundancy", 0)
        self.group_queue: dict[int, GroupQueue] = {}
        self.env_monitor = EnvActivityMonitor(config, self.group_queue)
        self._gets: dict[asyncio.Task[GroupData], int] = {}
        self._taken: list[GroupData] = []  # for the batch that is asked for
        self._ended: set[int] = set()  # groups whose environments have ended
        for group_id in _group_ids(env_manager_config):
            self.group_queue[group_id] = GroupQueue(
                group_id,
                None,
                self.group_size,
                redundancy,
                env_manager_config.max_traj_per_env,
                ratio,
                _filter_of(config, env_manager_config, mode),
                self.env_monitor,
            )

    def collect_metrics(self) -> dict[str, int]:
        """How many groups were filtered out since the last call."""
        count = 0
        for queue in self.group_queue.values():
            count += queue.group_filter_count
            queue.group_filter_count = 0
        return {"scheduler/group_filter_count": count}

    def clear(self) -> None:
        for get in self._gets:
            get.cancel()
        self._gets.clear()
        self._taken.clear()
        self._ended.clear()
        for queue in self.group_queue.values():
            queue.clear()

    def advance_step(self, step: int) -> None:
        for queue in self.group_queue.values():
            queue.advance_step(step)

    async def get_episode_id(
        self, group_id: int, env_id: int | None = None, timeout: float = WAIT_S
    ) -> int | None:
        return await self._queue(group_id).get_episode_id(env_id, timeout)

    def shutdown(self) -> None:
        self.env_monitor.stop_monitoring()
        for get in self._gets:
            get.cancel()
        self._gets.clear()
        for queue in self.group_queue.values():
            queue.shutdown()

    def put(
        self,
        group_id: int,
        episode_id: int,
        start_step: int,
        rollout: Any,
        env_id: int | None = None,
    ) -> None:
        if env_id is not None:
            self.env_monitor.record_activity(group_id, env_id, episode_id, rollout)
        self._queue(group_id).put(episode_id, start_step, rollout)

    def _queue(self, group_id: int) -> GroupQueue:
        if group_id not in self.group_queue:
            raise NoSuchKey(f"no environment is of group {group_id}")
        return self.group_queue[group_id]

    async def get_batch(
        self, batch_size: int, current_step: int, timeout: float = WAIT_S
    ) -> list[Any]:
        """Rollouts of whole groups, from whichever has one; each group gives its episodes
        in order. Below 0: all until every environment has ended. DeadlineExceeded after
        `timeout` seconds; what a call that ended so, or was cancelled, had taken comes with
        the next. CancelledError on `clear` and `shutdown`."""
        self.env_monitor.start_monitoring()
        what = f"{batch_size} rollouts were not there"
        async with deadline(timeout, lambda: f"{what}: {self._count_taken()} were"):
            return await self._get_batch(batch_size, current_step)

    async def _get_batch(self, batch_size: int, current_step: int) -> list[Any]:
        self._taken = [g for g in self._taken if self._is_fresh(g, current_step)]
        while batch_size < 0 or self._count_taken() < batch_size:
            self._ask()
            if not self._gets:
                break  # every environment has ended
            done, _ = await asyncio.wait(self._gets, return_when="FIRST_COMPLETED")
            if not done <= self._gets.keys():
                raise asyncio.CancelledError("the queues were cleared or shut down")
            for get in sorted(done, key=lambda one: self._gets[one]):
                if 0 <= batch_size <= self._count_taken():
                    break  # the rest comes with the next batch
                self._take(get, current_step)
        taken, self._taken = self._taken, []
        return [rollout for group in taken for rollout in group.rollouts]

    def _ask(self) -> None:
        """One get per group; those that were not taken go on with the next batch, so that
        no group is starved."""
        if not self._gets:
            for group_id, queue in self.group_queue.items():
                if group_id not in self._ended:
                    self._gets[asyncio.ensure_future(queue.oldest())] = group_id

    def _take(self, get: asyncio.Task[GroupData], step: int) -> None:
        group_id = self._gets.pop(get)
        group = get.result()
        group.rollouts = [one for one in group.rollouts if one is not None]
        if not group.rollouts:
            self._ended.add(group_id)
        elif self._is_fresh(group, step):
            del group.rollouts[self.group_size :]
            self._taken.append(group)

    def _is_fresh(self, group: GroupData, step: int) -> bool:
        return step - group.create_step <= self.async_generation_ratio

    def _count_taken(self) -> int:
        return sum(len(group.rollouts) for group in self._taken)


def _group_ids(env_manager_config: Any) -> list[int]:
    """Of all environments, in order, each once."""
    of_ranks = env_manager_config.env_configs.values()
    ids = (env["group_id"] for envs in of_ranks for env in envs.values())
    return list(dict.fromkeys(ids))


def _filter_of(config: Any, env_manager_config: Any, mode: str) -> Any:
    """An object of the configured class, or None."""
    cls = getattr(env_manager_config, "group_filter_cls", None)
    if cls is None or mode != "train":
        return None
    return (pkgutil.resolve_name(cls) if isinstance(cls, str) else cls)(
        config, env_manager_config, mode
    )


class EnvActivityMonitor:
    """Says in the log which environments took an episode and have brought nothing for
    `hung_timeout` seconds."""

    def __init__(self, config: Any, group_queue_dict: dict[int, GroupQueue]) -> None:
        self.hung_timeout = float(getattr(config, "env_hung_timeout", _HUNG))
        self.group_queue_dict = group_queue_dict
        self._since: dict[
            tuple[int, int, int], float
        ] = {}  # group, environment, episode
        self._task: asyncio.Task[None] | None = None

    def record_episode_start(self, group_id: int, env_id: int, episode_id: int) -> None:
        self._since[group_id, env_id, episode_id] = time.monotonic()

    def record_activity(
        self, group_id: int, env_id: int, episode_id: int, rollout: Any
    ) -> None:
        self._since.pop((group_id, env_id, episode_id), None)

    def cleanup_episode(self, group_id: int, episode_id: int) -> None:
        gone = [k for k in self._since if (k[0], k[2]) == (group_id, episode_id)]
        for key in gone:
            del self._since[key]

    def check_and_log_hung_envs(self) -> list[tuple[int, int, int]]:
        """Those that hang: group, environment and episode."""
        now = time.monotonic()
        hung = [
            k for k, since in self._since.items() if now - since > self.hung_timeout
        ]
        for group, env, episode in hung:
            seconds = now - self._since[group, env, episode]
            logger.warning(
                "environment %s of group %s has brought nothing of episode %s for %.0f s",
                env,
                group,
                episode,
                seconds,
            )
        return hung

    def start_monitoring(self) -> None:
        """Look every 30 s, on the running event loop."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._look())

    def stop_monitoring(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _look(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                await asyncio.sleep(_LOOK)
                self.check_and_log_hung_envs()
