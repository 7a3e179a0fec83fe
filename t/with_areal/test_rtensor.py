"""AReaL's own RTensor against Muster workers: what is kept, fetched, cleared and left."""

import asyncio
import os
import signal
from collections.abc import Iterator
from typing import Any

import areal_rig
import muster
import pytest
import requests
import torch
from areal.infra.rpc.rtensor import RTensor, clear_fetch_buffer, flatten_shard_ids
from areal.infra.rpc.serialization import deserialize_value, serialize_value
from helpers import until

MIB = 1 << 20


class Worker:
    """One of a cluster, called as AReaL's schedulers call."""

    def __init__(self, cluster: Any, rank: int) -> None:
        self.pid = cluster.pids[rank]
        self.url = cluster.http_urls[rank]

    def call(self, method: str, *args: Any) -> Any:
        body = {"method": method, "engine_name": "default"}
        body["args"] = serialize_value(list(args))
        answer = requests.post(f"{self.url}/call", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        return deserialize_value(answer.json()["result"])

    def clear(self, value: Any) -> None:
        """As a controller does it at the end of a step."""
        for address, ids in RTensor.collect_shards(value).items():
            asyncio.run(RTensor.clear_node(address, ids))


@pytest.fixture
def workers(own_session: Any) -> Iterator[list[Worker]]:
    with pytest.warns(UserWarning, match="http_open"):
        one = muster.Cluster("actor", areal_rig.Engine, world_size=2, http_open=True)
    yield [Worker(one, rank) for rank in range(2)]
    clear_fetch_buffer()
    one.destroy()


def used() -> int:
    return int(muster.store_stats()["used"])


def test_steps_leave_nothing_in_the_store(workers: list[Worker]) -> None:
    first, second = workers
    clear_fetch_buffer()  # of other tests
    before = used()
    for step in range(10):
        batch = {"ids": torch.full((4, MIB // 8), step), "mask": torch.ones(4, 10)}
        handles = first.call("echo", [batch, batch])
        assert used() - before >= 2 * 4 * MIB
        expected = 2.0 * (MIB // 2 * step + 40)
        assert second.call("total", handles) == expected
        assert first.call("total", handles) == expected
        second.call("forget", flatten_shard_ids(handles))  # of what it has fetched
        first.clear(handles)
        until(lambda: used() <= before, lambda: f"{used() - before} bytes are left")
    assert clear_fetch_buffer() == 0


def test_a_batch_of_many(workers: list[Worker]) -> None:
    """More than AReaL asks for at once, in order."""
    handles = workers[0].call("echo", [torch.full((3,), i) for i in range(100)])
    assert all(handle.data.is_meta for handle in handles)
    tensors = RTensor.localize(handles)
    assert [int(tensor[0]) for tensor in tensors] == list(range(100))
    workers[0].clear(handles)


def test_what_was_cleared_is_gone(workers: list[Worker]) -> None:
    handle = workers[0].call("echo", torch.ones(3))
    workers[0].clear(handle)
    with pytest.raises(RuntimeError, match=r"404|400"):
        handle.to_local()


def test_a_killed_worker_leaves_nothing(workers: list[Worker]) -> None:
    before = used()
    workers[0].call("echo", torch.zeros(8 * MIB))
    assert used() - before >= 32 * MIB
    os.kill(workers[0].pid, signal.SIGKILL)
    until(lambda: used() <= before)


def test_a_store_that_is_full(tmp_path: Any) -> None:
    muster.init(store_limit="64MiB", spill=False)
    try:
        with pytest.warns(UserWarning, match="http_open"):
            cluster = muster.Cluster("actor", areal_rig.Engine, http_open=True)
        one = Worker(cluster, 0)
        kept = one.call("echo", torch.zeros(8 * MIB))
        body = {"method": "make", "engine_name": "default", "args": [16 * MIB]}
        answer = requests.post(f"{one.url}/call", json=body, timeout=60)
        assert answer.status_code == 500
        assert "store" in answer.json()["error"]
        one.clear(kept)
        assert one.call("total", one.call("make", 8 * MIB)) == 8 * MIB
    finally:
        muster.shutdown()
