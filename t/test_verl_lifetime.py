"""Groups of muster.verl end when nobody refers to them, and give their devices back."""

import gc
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import muster
import pytest
from helpers import until, wait_gone
from muster import verl
from verl_workers import Actor, Critic


class Slow(verl.Worker):
    @verl.register(dispatch_mode=verl.Dispatch.ONE_TO_ALL, blocking=False)
    def write(self, folder: str) -> int:
        time.sleep(0.5)
        Path(folder, str(self.rank)).touch()
        return self.rank


class Failing(verl.Worker):
    @verl.register(dispatch_mode=verl.Dispatch.ONE_TO_ALL)
    def fail(self) -> None:
        raise ValueError("bad")


class Unmakable(verl.Worker):
    def __init__(self) -> None:
        raise RuntimeError("no")


class SlowAsync(verl.Worker):
    async def nap(self) -> str:
        import asyncio

        await asyncio.sleep(0.5)
        return "done"


@pytest.fixture(autouse=True)
def no_collector(session: Any) -> Iterator[None]:
    """References alone must do, unless a user has made a cycle."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.collect()
    until(lambda: not session.head.request("status", {}, 5)["clusters"])
    assert all_devices_are_free()


def all_devices_are_free() -> bool:
    with muster.Cluster("all", Critic, device_mapping="0-3", args=(1,)):
        return True


def new(cls: Any, pool: Any = 4) -> verl.RayWorkerGroup:
    if not isinstance(cls, verl.ClassWithInitArgs):
        cls = verl.RayClassWithInitArgs(cls)
    if isinstance(pool, int):
        pool = verl.RayResourcePool([pool])
    return verl.RayWorkerGroup(resource_pool=pool, ray_cls_with_init=cls)


def is_there(pids: list[int]) -> bool:
    return all(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_del_gives_all_back() -> None:
    pool = verl.RayResourcePool([4])
    group = new(verl.RayClassWithInitArgs(Actor, 3), pool)
    pids = group._view.pids
    assert is_there(pids)
    with pytest.raises(muster.PlacementError):
        all_devices_are_free()
    del group
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert pool.pgs is None
    assert all_devices_are_free()
    again = new(verl.RayClassWithInitArgs(Actor, 3), pool)
    assert len(again.execute_all_sync("how_many")) == 4


def test_leaving_a_scope() -> None:
    def step() -> list[int]:
        group = new(verl.RayClassWithInitArgs(Actor, 3))
        group.execute_all_sync("how_many")
        return group._view.pids

    assert wait_gone(step(), 0) == []


def test_workers_and_methods_count() -> None:
    group = new(verl.RayClassWithInitArgs(Actor, 3), 2)
    pids = group._view.pids
    handle, method = group.workers[1], group.echo
    del group
    assert method(7) == [((7,), {})] * 2
    del method
    assert muster.get(handle.how_many.remote()) is not None
    assert is_there(pids)
    del handle
    assert wait_gone(pids, 0) == []


def test_roles_in_the_same_processes() -> None:
    roles = {
        "actor": verl.RayClassWithInitArgs(Actor, 3),
        "critic": verl.RayClassWithInitArgs(cls=Critic, bias=100),
    }
    both = new(verl.create_colocated_worker_cls(roles), 2)
    pids = both._view.pids
    groups = both.spawn(roles)
    del both
    actor, critic = groups.pop("actor"), groups.pop("critic")
    del actor
    assert [pid for pid, _ in critic.beside()] == pids
    del critic
    assert wait_gone(pids, 0) == []


def test_two_groups_in_one_pool() -> None:
    """The devices stay until the last one has gone."""
    pool = verl.RayResourcePool([4])
    first = new(verl.RayClassWithInitArgs(Actor, 3), pool)
    second = new(verl.RayClassWithInitArgs(Actor, 3), pool)
    del first
    with pytest.raises(muster.PlacementError):
        all_devices_are_free()
    assert len(second.execute_all_sync("how_many")) == 4
    del second
    assert all_devices_are_free()


def test_parts_of_a_pool() -> None:
    pool = verl.RayResourcePool([4])
    parts = verl.split_resource_pool(pool, 2)
    del pool
    group = new(verl.RayClassWithInitArgs(Actor, 3), parts.pop())
    del parts
    with pytest.raises(muster.PlacementError):
        all_devices_are_free()
    assert group.world_size == 2
    del group
    assert all_devices_are_free()


def test_what_was_asked_for_stays_with_the_pool() -> None:
    pool = verl.RayResourcePool([4])
    groups = pool.get_placement_groups()
    group = new(verl.RayClassWithInitArgs(Actor, 3), pool)
    del group, groups
    with pytest.raises(muster.PlacementError):
        all_devices_are_free()
    del pool
    assert all_devices_are_free()


def test_calls_that_are_open_end_first(tmp_path: Path) -> None:
    group = new(Slow, 2)
    pids = group._view.pids
    futures = group.write(str(tmp_path))
    began = time.monotonic()
    del group
    assert time.monotonic() - began < 0.45
    assert muster.get(futures, timeout=20) == [0, 1]
    assert wait_gone(pids) == []


def test_also_those_that_nobody_waits_for(tmp_path: Path) -> None:
    group = new(Slow, 2)
    pids = group._view.pids
    group.write(str(tmp_path))
    del group
    assert wait_gone(pids) == []
    assert sorted(os.listdir(tmp_path)) == ["0", "1"]


def test_of_an_async_class_those_with_a_future() -> None:
    group = new(SlowAsync, 2)
    pids = group._view.pids
    futures = [worker.nap.remote() for worker in group.workers]
    del group
    assert muster.get(futures, timeout=20) == ["done", "done"]
    del futures
    assert wait_gone(pids) == []


def test_a_cycle_of_the_users() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.group = new(verl.RayClassWithInitArgs(Actor, 3), 2)
            self.step = self.run

        def run(self) -> list[int]:
            return self.group._view.pids

    trainer = Trainer()
    pids = trainer.step()
    del trainer
    assert is_there(pids)
    gc.collect()
    assert wait_gone(pids, 0) == []


def test_a_dead_worker() -> None:
    group = new(verl.RayClassWithInitArgs(Actor, 3), 2)
    pids = group._view.pids
    os.kill(pids[1], 9)
    del group
    assert wait_gone(pids) == []


def test_a_call_that_raised() -> None:
    group = new(Failing)
    pids = group._view.pids
    with pytest.raises(ValueError, match="bad"):
        group.fail()
    del group
    assert wait_gone(pids, 0) == []
    assert all_devices_are_free()


def test_a_constructor_that_raises() -> None:
    """Also while its exception is still held."""
    pool = verl.RayResourcePool([4])
    with pytest.raises(RuntimeError, match="no") as caught:
        new(Unmakable, pool)
    assert pool.pgs is None
    assert all_devices_are_free()
    roles = verl.create_colocated_worker_cls(
        {"bad": verl.RayClassWithInitArgs(Unmakable)}
    )
    with pytest.raises(RuntimeError, match="no") as also:
        new(roles, pool)
    assert all_devices_are_free()
    del caught, also
    assert len(new(verl.RayClassWithInitArgs(Actor, 3), pool).workers) == 4


def test_a_constructor_that_raises_beside_others() -> None:
    """The devices stay with the group that stands there."""
    pool = verl.RayResourcePool([4])
    group = new(verl.RayClassWithInitArgs(Actor, 3), pool)
    with pytest.raises(RuntimeError, match="no"):
        new(Unmakable, pool)
    with pytest.raises(muster.PlacementError):
        all_devices_are_free()
    assert len(group.execute_all_sync("how_many")) == 4


def test_destroyed_before() -> None:
    group = new(verl.RayClassWithInitArgs(Actor, 3), 2)
    group.destroy()
    del group
    assert all_devices_are_free()


SCRIPT = """
import muster
from muster import verl
from verl_workers import Actor

muster.init(num_gpus=2)
made = verl.RayClassWithInitArgs(Actor, 3)
group = verl.RayWorkerGroup(verl.RayResourcePool([1]), made)
other = verl.RayWorkerGroup(verl.RayResourcePool([1]), made)
{end}
"""


@pytest.mark.parametrize("end", ["", "muster.shutdown()\ndel group", "group.x = group"])
def test_no_noise_at_the_end(end: str) -> None:
    paths = [str(Path(__file__).parent), *filter(None, sys.path)]
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", SCRIPT.format(end=end)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
