"""What is PUT to a worker is in the node's store: its memory, its limits, its disk."""

import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import muster
import numpy as np
import pytest
from conftest import _started
from helpers import until
from http_rig import DataClient, Engine, encoded, put

MIB = 1 << 20


def big(number: int, mib: int = 6) -> dict[str, Any]:
    words = np.arange(mib * MIB // 4, dtype=np.uint32)
    return encoded(words * np.uint32(2654435761) + np.uint32(number))


def memory_of(pid: int) -> int:
    """Bytes of a process's own memory; what it shares is not counted."""
    with open(f"/proc/{pid}/status") as f:
        fields = dict(line.split(":", 1) for line in f)
    return int(fields["RssAnon"].split()[0]) << 10


@pytest.fixture
def one(own_session: Any) -> Iterator[Any]:
    with muster.Cluster("kept", Engine) as cluster:
        yield cluster


@pytest.fixture
def client(one: Any) -> DataClient:
    return DataClient(one.http_urls[0])


def wait_empty() -> None:
    until(lambda: muster.store_stats()["objects"] == 0)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Any]:
    for _ in _started(store_limit="16MiB", spill=tmp_path):
        with muster.Cluster("kept", Engine) as cluster:
            yield cluster


def test_more_than_the_stores_memory(small: Any) -> None:
    """It is spilled, and read back right, one larger than the store too."""
    client = DataClient(small.http_urls[0])
    for number in range(5):
        put(client, str(number), big(number))
    put(client, "larger", big(9, 24))
    stats = muster.store_stats()
    assert stats["used"] <= 16 * MIB
    assert stats["spilled"] >= 36 * MIB
    for number in range(5):
        assert client.ask("GET", f"/data/{number}")[2] == big(number)
    names = [str(number) for number in range(5)] + ["larger"]
    _, _, got = client.ids("POST", "/data/batch", *names)
    assert got == [*(big(number) for number in range(5)), big(9, 24)]
    answer = client.ids("DELETE", "/data/clear", *names)[2]
    assert (answer["cleared_count"], answer["num_tensors"]) == (6, 0)
    wait_empty()


def test_bytes_stay_out_of_the_worker(one: Any, client: DataClient) -> None:
    pid = one.pids[0]
    put(client, "first", big(0))
    before = memory_of(pid)
    for number in range(20):
        put(client, str(number), big(number))
    assert client.ask("GET", "/data/19")[2] == big(19)
    assert memory_of(pid) < before + 4 * MIB
    assert muster.store_stats()["used"] >= 126 * MIB


def begin_put(client: DataClient, length: int, sent: bytes) -> Any:
    conn = client.connect()
    conn.putrequest("PUT", "/data/x")
    conn.putheader("Authorization", f"Bearer {client.token}")
    conn.putheader("Content-Length", str(length))
    conn.endheaders(sent)
    return conn


BEGIN = b'{"type": "ndarray", "data": "'


def test_announced_and_not_sent(one: Any, client: DataClient) -> None:
    """8 GiB are announced: memory is taken for what has come. A slow client delays nobody."""
    conn = begin_put(client, 8 << 30, BEGIN + b"A" * 1024)
    assert client.get("/health")[0] == 200
    assert muster.store_stats()["used"] == 0
    conn.send(b"A" * (4 * MIB))
    until(lambda: muster.store_stats()["used"] > MIB)
    assert muster.store_stats()["used"] <= 8 * MIB
    for _ in range(20):
        conn.send(b"A")
        begun = time.monotonic()
        assert client.get("/health")[0] == 200
        assert time.monotonic() - begun < 1
    conn.close()
    wait_empty()
    assert client.ask("GET", "/data/x")[0] == 404


def test_cut_in_the_middle(one: Any, client: DataClient) -> None:
    text = json.dumps(big(1)).encode()
    for part in (1000, 100_000, len(text) // 2, len(text) - 1):
        conn = begin_put(client, len(text), text[:part])
        assert client.get("/health")[0] == 200
        conn.close()
    wait_empty()
    assert client.ids("DELETE", "/data/clear", "x")[2]["cleared_count"] == 0
    put(client, "x", big(1))
    assert client.ask("GET", "/data/x")[2] == big(1)


def test_a_killed_worker_leaves_nothing(one: Any, client: DataClient) -> None:
    put(client, "x", big(1))
    conn = begin_put(client, 8 << 30, BEGIN + b"A" * (4 * MIB))
    until(lambda: muster.store_stats()["objects"] >= 3)
    os.kill(one.pids[0], signal.SIGKILL)
    wait_empty()
    conn.close()


def test_the_end_of_a_worker_leaves_nothing(one: Any, client: DataClient) -> None:
    put(client, "x", big(1))
    assert muster.store_stats()["used"] >= 6 * MIB
    one.destroy()
    wait_empty()


def test_a_full_store(tmp_path: Path) -> None:
    """What does not fit is refused with the reason, and what is there stays."""
    for _ in _started(store_limit="16MiB", spill=False):
        with muster.Cluster("kept", Engine) as cluster:
            client = DataClient(cluster.http_urls[0])
            put(client, "x", big(1))
            status, _, answer = client.ask(
                "PUT", "/data/y", json.dumps(big(2, 12)).encode()
            )
            assert (status, answer["status"]) == (507, "error")
            assert "kept/0 (HTTP) holds" in answer["message"]
            assert client.ask("GET", "/data/x")[2] == big(1)
            assert client.ask("GET", "/data/y")[0] == 404


def put_and_get(client: DataClient, number: int) -> bool:
    put(client, str(number), big(number, 3))
    return bool(client.ask("GET", f"/data/{number}")[2] == big(number, 3))


def test_more_at_once_than_fits(tmp_path: Path) -> None:
    """Of many clients of many workers each has its turn."""
    for _ in _started(store_limit="16MiB", spill=tmp_path):
        with muster.Cluster("kept", Engine, world_size=4) as cluster:
            clients = [DataClient(url) for url in cluster.http_urls]
            with ThreadPoolExecutor(32) as threads:
                assert all(threads.map(put_and_get, clients * 8, range(32)))
