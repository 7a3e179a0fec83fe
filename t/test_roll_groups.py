"""The agentic group queue under ROLL's names."""

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from muster import DeadlineExceeded
from muster.roll import EnvActivityMonitor, GroupQueue, GroupQueueManager


def run(test: Callable[[], Awaitable[Any]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(60) as limit:
            await test()
        assert not limit.expired()  # a test that expects CancelledError has taken it

    asyncio.run(whole())


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class DropOdd:
    """Filters the groups whose first rollout is odd."""

    def __init__(self, *given: Any) -> None:
        pass

    def filter(self, group_id: int, episode_id: int, group: list[int]) -> bool:
        return group[0] % 2 == 1


def queue(size: int = 2, extra: int = 0, ratio: float = 0, **more: Any) -> GroupQueue:
    most = more.get("most", 1)
    return GroupQueue(7, None, size, extra, most, ratio, more.get("filter"))


def manager(groups: int = 2, ratio: float = 0, mode: str = "train", **more: Any) -> Any:
    configs = {
        0: {env: {"group_id": env // 2} for env in range(groups * 2)},
    }
    most = more.pop("max_traj_per_env", 1)
    env = SimpleNamespace(
        group_size=2, max_traj_per_env=most, env_configs=configs, **more
    )
    config = SimpleNamespace(async_generation_ratio=ratio, env_hung_timeout=0)
    return GroupQueueManager(config, env, mode)


def test_an_episode_has_room_for_its_group() -> None:
    async def test() -> None:
        q = queue(size=2, extra=1)
        asked = [asyncio.ensure_future(q.get_episode_id(env)) for env in range(4)]
        await settle()
        assert not any(a.done() for a in asked)
        q.advance_step(0)
        await settle()
        assert [a.result() for a in asked[:3]] == [0, 0, 0]
        assert not asked[3].done()
        q.put(0, 0, 10)
        q.put(0, 0, 12)
        group = await q.get()
        assert (group.episode_id, group.create_step, group.rollouts) == (0, 0, [10, 12])
        q.put(0, 0, 14)  # the redundant one: late
        q.advance_step(1)
        assert await asked[3] == 1
        q.shutdown()
        assert await q.get_episode_id() is None

    run(test)


def test_waits_have_deadlines() -> None:
    async def test() -> None:
        q = queue(size=1)
        with pytest.raises(DeadlineExceeded, match=r"no episode .* within 0.01 s"):
            await q.get_episode_id(timeout=0.01)
        with pytest.raises(
            DeadlineExceeded, match=r"no complete episode within 0.01 s"
        ):
            await q.get(timeout=0.01)
        q.advance_step(0)
        q.put(await q.get_episode_id() or 0, 0, 10)
        assert (await q.get()).rollouts == [10]
        m = manager()
        m.advance_step(0)
        for env in (0, 1):
            m.put(0, await m.get_episode_id(0, env), 0, env, env)
        with pytest.raises(
            DeadlineExceeded, match=r"4 .* not there within 0.05 s: 2 were"
        ):
            await m.get_batch(4, 0, timeout=0.05)
        with pytest.raises(DeadlineExceeded, match="group 0 had no episode"):
            await m.get_episode_id(0, 0, timeout=0.01)
        for env in (2, 3):
            m.put(1, await m.get_episode_id(1, env), 0, env, env)
        assert await m.get_batch(4, 0) == [0, 1, 2, 3]  # nothing was lost
        for wait in (q.get, q.get_episode_id, m.get_batch, m.get_episode_id):
            assert inspect.signature(wait).parameters["timeout"].default == 7200
        m.shutdown()

    run(test)


@pytest.mark.parametrize(("ratio", "episodes"), [(0, 2), (1, 4), (2, 6)])
def test_episodes_of_the_first_step(ratio: int, episodes: int) -> None:
    q = queue(ratio=ratio, most=2)
    q.advance_step(5)
    assert list(q.groups) == list(range(episodes))
    q.advance_step(6)
    assert len(q.groups) == (2 if ratio == 0 else episodes + 2)
    q.advance_step(6 + ratio)
    assert min(g.create_step for g in q.groups.values()) >= 6


def test_oldest_episode_first() -> None:
    async def test() -> None:
        q = queue(size=1, most=2)
        q.advance_step(0)
        assert [await q.get_episode_id(), await q.get_episode_id()] == [0, 1]
        q.put(1, 0, 20)
        first = asyncio.ensure_future(q.get())
        await settle()
        assert not first.done()
        q.put(0, 0, 22)
        assert (await first).rollouts == [22]
        assert (await q.get()).rollouts == [20]

    run(test)


def test_a_filtered_group_is_replaced() -> None:
    async def test() -> None:
        q = queue(size=2, filter=DropOdd())
        q.advance_step(0)
        for value in (1, 2):
            q.put(await q.get_episode_id() or 0, 0, value)
        assert q.group_filter_count == 1 and list(q.groups) == [1]
        for value in (2, 3):
            episode = await q.get_episode_id()
            assert episode == 1
            q.put(episode, 0, value)
        assert (await q.get()).rollouts == [2, 3]
        with pytest.raises(AssertionError, match="began at step 3"):
            q.advance_step(3)
            q.put(2, 2, 1)

    run(test)


@pytest.mark.parametrize("ratio", [0, 1, 2])
def test_batches(ratio: int) -> None:
    """Environments of any speed: batches are whole groups, none too old."""

    async def test() -> None:
        chance = random.Random(ratio)
        m = manager(groups=3, ratio=ratio)
        step = 0

        async def environment(env: int) -> None:
            group = env // 2
            while (episode := await m.get_episode_id(group, env)) is not None:
                start = step
                for _ in range(chance.randrange(6)):
                    await asyncio.sleep(0)
                m.put(group, episode, start, (group, episode, start), env)

        envs = [asyncio.ensure_future(environment(env)) for env in range(6)]
        taken = set()
        for step in range(30):
            m.advance_step(step)
            batch = await m.get_batch(6, step)
            assert len(batch) == 6
            for pair in zip(batch[::2], batch[1::2], strict=True):
                assert pair[0][:2] == pair[1][:2] and pair[0][:2] not in taken
                taken.add(pair[0][:2])
            assert min(start for *_, start in batch) >= step - ratio
        m.shutdown()
        await asyncio.gather(*envs)

    run(test)


def test_until_all_have_ended() -> None:
    async def test() -> None:
        m = manager(mode="val")
        m.advance_step(0)
        for env in range(4):
            episode = await m.get_episode_id(env // 2, env)
            m.put(env // 2, episode, 0, env * 10)
        batch = asyncio.ensure_future(m.get_batch(-1, 0))
        await settle()
        assert not batch.done()
        m.advance_step(0)
        for env in range(4):
            m.put(env // 2, await m.get_episode_id(env // 2, env), 0, None)
        assert sorted(await batch) == [0, 10, 20, 30]
        m.clear()
        assert m.collect_metrics() == {"scheduler/group_filter_count": 0}

    run(test)


def test_an_environment_that_is_ahead_takes_the_next_episode() -> None:
    """Not the same one twice, which would leave the other one alone in the last."""

    async def test() -> None:
        m = manager(groups=1, mode="val", max_traj_per_env=None)
        m.advance_step(0)
        for env, episodes in ((0, 3), (1, 3)):
            for played in range(episodes):
                episode = await m.get_episode_id(0, env)
                assert episode == played
                m.put(0, episode, 0, 10 * env + played if played < 2 else None)
        assert await m.get_batch(-1, 0, timeout=5) == [0, 10, 1, 11]

    run(test)


def test_environments_that_end_in_different_episodes() -> None:
    async def test() -> None:
        m = manager(groups=1, mode="val", max_traj_per_env=None)
        m.advance_step(0)
        for env, episodes in ((0, 1), (1, 3)):
            for played in range(episodes + 1):
                episode = await m.get_episode_id(0, env)
                m.put(0, episode, 0, 10 * env + played if played < episodes else None)
        assert await m.get_batch(-1, 0, timeout=5) == [0, 10, 11, 12]

    run(test)


def test_a_cancelled_batch_loses_nothing() -> None:
    async def test() -> None:
        m = manager(ratio=1)
        m.advance_step(0)

        async def play(group: int) -> None:
            for env in (2 * group, 2 * group + 1):
                m.put(group, await m.get_episode_id(group, env), m_step, env)

        m_step = 0
        await play(0)
        batch = asyncio.ensure_future(m.get_batch(4, 0))
        await settle()
        batch.cancel()
        await settle()
        await play(1)
        assert await m.get_batch(4, 0) == [0, 1, 2, 3]
        await play(0)  # of those that run ahead
        batch = asyncio.ensure_future(m.get_batch(4, 0))
        await settle()
        batch.cancel()
        await settle()
        for m_step in (1, 2):
            m.advance_step(m_step)
        await play(1)
        await play(0)
        assert await m.get_batch(4, 2) == [2, 3, 0, 1]  # none of step 0

    run(test)


@pytest.mark.parametrize("end", ["clear", "shutdown"])
def test_a_batch_that_waits_ends_with_the_queues(end: str) -> None:
    async def test() -> None:
        m = manager()
        m.advance_step(0)
        batch = asyncio.ensure_future(m.get_batch(4, 0))
        await settle()
        getattr(m, end)()
        with pytest.raises(asyncio.CancelledError):
            await batch
        m.shutdown()

    run(test)


def test_environments_are_watched_once_batches_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("muster.roll.group_queue._LOOK", 0)

    async def test() -> None:
        m = manager()
        m.advance_step(0)
        await m.get_episode_id(1, 3)
        batch = asyncio.ensure_future(m.get_batch(4, 0))
        while "environment 3 of group 1" not in caplog.text:
            await asyncio.sleep(0)
        m.shutdown()
        with pytest.raises(asyncio.CancelledError):
            await batch

    run(test)


def test_filter_by_name_and_metrics() -> None:
    async def test() -> None:
        m = manager(groups=1, group_filter_cls=f"{__name__}.DropOdd")
        m.advance_step(0)
        for value in (1, 1, 4, 4):
            m.put(0, await m.get_episode_id(0), 0, value)
        assert await m.get_batch(2, 0) == [4, 4]
        assert m.collect_metrics() == {"scheduler/group_filter_count": 1}
        assert m.collect_metrics() == {"scheduler/group_filter_count": 0}
        with pytest.raises(KeyError):
            m.put(9, 0, 0, 1)

    run(test)


def test_hung_environments_are_told(caplog: pytest.LogCaptureFixture) -> None:
    monitor = EnvActivityMonitor(SimpleNamespace(env_hung_timeout=0), {})
    monitor.record_episode_start(1, 2, 3)
    monitor.record_episode_start(1, 4, 3)
    monitor.record_activity(1, 4, 3, "rollout")
    assert monitor.check_and_log_hung_envs() == [(1, 2, 3)]
    assert "environment 2 of group 1" in caplog.text
    monitor.cleanup_episode(1, 3)
    assert monitor.check_and_log_hung_envs() == []
