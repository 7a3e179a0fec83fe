"""AReaL's own LocalScheduler starts `muster.areal.rpc_server` instead of its own server."""

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from areal.api import Job
from areal.api.cli_args import SchedulingSpec
from areal.infra.scheduler.exceptions import EngineCallError, EngineImportError
from areal.infra.scheduler.local import LocalScheduler
from helpers import MARK, leftovers, new_mark, until

RANKS = 2
SERVER = "muster.areal.rpc_server"


class Scheduler:
    """A LocalScheduler with workers of one role."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "names").mkdir()
        self.local = LocalScheduler(
            experiment_name="e",
            trial_name="t",
            fileroot=str(folder),
            nfs_record_root=f"{folder}/names",
            gpu_devices=[0],
            startup_timeout=60,
        )
        spec = SchedulingSpec(cpu=1, gpu=0, mem=1, cmd=f"python -m {SERVER}")
        job = Job(role="actor", replicas=RANKS, tasks=[spec])
        self.ids = self.local.create_workers(job)

    def start(self) -> None:
        self.workers = self.local.get_workers("actor")
        for one in self.ids:
            asyncio.run(self.local.create_engine(one, "areal_rig.Engine"))
            self.local.call_engine(
                one, "remember", None, f"{self.folder}/{one[-1]}.end"
            )


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduler]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield from started(tmp_path_factory.mktemp("local"), monkeypatch)


def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scheduler]:
    # it calls "python"
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    paths = [str(Path(__file__).parent.parent), os.environ["PYTHONPATH"]]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    mark = new_mark()
    monkeypatch.setenv(MARK, mark)
    one = Scheduler(tmp_path)
    one.start()
    yield one
    one.local.delete_workers()
    until(lambda: leftovers(mark) == [])


def test_calls(scheduler: Scheduler) -> None:
    local = scheduler.local
    assert scheduler.ids == ["actor/0", "actor/1"]
    assert [local.call_engine(one, "add", None, 2) for one in scheduler.ids] == [2, 2]
    handle = local.call_engine("actor/0", "echo", None, torch.arange(100_000))
    assert handle.data.is_meta
    assert local.call_engine("actor/1", "total", None, [handle]) == 4999950000.0
    assert torch.equal(handle.to_local(), torch.arange(100_000))
    with pytest.raises(EngineCallError, match="on purpose"):
        local.call_engine("actor/0", "fail")
    with pytest.raises(EngineImportError):
        asyncio.run(local.create_engine("actor/0", "no.such.Engine", "other"))


def test_many_calls_at_once(scheduler: Scheduler) -> None:
    async def burst() -> list[Any]:
        call = scheduler.local.async_call_engine
        return await asyncio.gather(
            *[call("actor/0", "echo", None, i) for i in range(500)]
        )

    assert asyncio.run(burst()) == list(range(500))


def test_forked_workers(scheduler: Scheduler) -> None:
    local = scheduler.local
    ids = local.fork_workers("ref", "actor", command=SERVER)
    assert ids == ["ref/0", "ref/1"]
    asyncio.run(local.create_engine("ref/1", "areal_rig.Engine"))
    assert local.call_engine("ref/1", "add", None, 5) == 5


def test_deleted_workers_clean_up(scheduler: Scheduler) -> None:
    """The last one: the workers are those of all tests here."""
    scheduler.local.delete_workers("actor")
    for rank in range(RANKS):
        end = scheduler.folder / f"{rank}.end"
        until(end.exists)
        assert end.read_text() == "destroyed"
