"""Tensors by HTTP (/data): kept for others, fetched while the engine computes."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import muster
import numpy as np
import pytest
from helpers import Bell
from http_rig import Client, DataClient, Engine, encoded, put

Make = Callable[..., Any]


@pytest.fixture
def one(cluster: Make) -> Any:
    return cluster(Engine)


@pytest.fixture
def client(one: Any) -> DataClient:
    return DataClient(one.http_urls[0])


def test_sizes(client: DataClient) -> None:
    """Also those that end within a unit of base64, and far beyond what is sent at once."""
    for size in (0, 1, 2, 3, 4, 5, 47, 48, 49, 49152, 65536, (5 << 20) + 1):
        value = encoded(np.arange(size, dtype=np.uint8))
        put(client, "x", value)
        assert client.ask("GET", "/data/x") == (200, "application/octet-stream", value)
    status, _, got = client.ids("POST", "/data/batch", "x", "x", "x")
    assert (status, got) == (200, [value] * 3)


def test_bfloat16(client: DataClient) -> None:
    """Travels as float32, is kept as it is."""
    bits = np.arange(0, 1 << 16, 3, dtype=np.uint32) << 16
    wide = bits.view(np.float32)
    wide = wide[~np.isnan(wide)]
    value = encoded(wide) | {"type": "tensor", "dtype": "torch.bfloat16"}
    put(client, "x", value)
    assert client.ask("GET", "/data/x")[2] == value
    _, _, cleared = client.ids("DELETE", "/data/clear", "nothing")
    assert cleared["total_bytes"] == 2 * len(wide)


def test_clear(client: DataClient) -> None:
    for name in "abc":
        put(client, name, encoded(np.zeros(10)))
    status, _, answer = client.ids("DELETE", "/data/clear", "a", "b", "no")
    counts = {"cleared_count": 2, "num_tensors": 1, "total_bytes": 80}
    assert (status, answer) == (200, {"status": "ok"} | counts)
    status, _, answer = client.ids("POST", "/data/batch", "a", "c")
    assert (status, answer["missing_shard_ids"]) == (400, ["a"])
    assert client.ask("GET", "/data/a")[0] == 404


def test_what_is_wrong(client: DataClient) -> None:
    good = encoded(np.zeros(2))
    bad = (
        b"",
        b"{",
        b"3",
        b"{}",
        json.dumps(good | {"data": "###"}).encode(),
        json.dumps(good | {"shape": [3]}).encode(),
        json.dumps(good | {"shape": [-2]}).encode(),
        json.dumps(good | {"dtype": "|O"}).encode(),
        json.dumps(good | {"data": None}).encode(),
        json.dumps({"type": "bytes", "data": ""}).encode(),
    )
    for body in bad:
        status, _, answer = client.ask("PUT", "/data/x", body)
        assert (status, answer["status"]) == (500, "error"), body
    for body in (b"{}", b"[]", b'{"shard_ids": "a"}', b'{"shard_ids": [1]}'):
        for method, path in (("POST", "/data/batch"), ("DELETE", "/data/clear")):
            assert client.ask(method, path, body)[0] == 400
    assert client.ask("GET", "/data/x")[0] == 404
    assert client.ask("GET", "/data/")[0] == 404


def test_while_the_engine_computes(
    one: Any, client: DataClient, bell: Callable[[], Bell]
) -> None:
    begun = bell()
    go = begun.path + "-go"
    held = one.execute_rank_zero("hold", begun.path, go)
    begun.hear()
    value = encoded(np.arange(1 << 20))
    put(client, "x", value)
    assert client.ask("GET", "/data/x")[2] == value
    assert client.ids("DELETE", "/data/clear", "x")[2]["cleared_count"] == 1
    open(go, "wb").close()
    held.result()


def test_cleared_while_it_is_read(client: DataClient) -> None:
    """Who reads goes on, and then it is gone."""
    value = encoded(np.arange(1 << 20))
    put(client, "x", value)
    conn = client.connect()
    conn.request("GET", "/data/x", headers={"Authorization": f"Bearer {client.token}"})
    answer = conn.getresponse()
    first = answer.read(1000)
    assert client.ids("DELETE", "/data/clear", "x")[2]["cleared_count"] == 1
    assert json.loads(first + answer.read()) == value
    conn.close()


@pytest.fixture
def readers() -> Iterator[list[threading.Thread]]:
    made: list[threading.Thread] = []
    yield made
    for one in made:
        one.join(20)


def test_health_beside_big_answers(
    client: DataClient, readers: list[threading.Thread]
) -> None:
    """A body is made while it is sent: others have their turn."""
    value = encoded(np.arange(4 << 20))
    put(client, "x", value)
    for _ in range(2):
        readers.append(threading.Thread(target=client.ask, args=("GET", "/data/x")))
        readers[-1].start()
    while any(one.is_alive() for one in readers):
        assert client.get("/health")[0] == 200
    client.ids("DELETE", "/data/clear", "x")


def test_types_that_are_none(client: DataClient) -> None:
    """What it says of itself is what it is."""
    wide = np.array([1.5, 2.5], dtype="<f4")
    value = encoded(wide) | {"type": "tensor", "dtype": "bfloat16"}
    put(client, "x", value)
    assert client.ask("GET", "/data/x")[2] == value | {"dtype": "torch.bfloat16"}
    inner = encoded(np.zeros(3, np.uint8)) | {"type": "tensor", "dtype": "torch.uint8"}
    other = {"value": inner, "data": "AAAA", "dtype": "torch.bfloat16", "shape": [1]}
    for kind in ("torch_dtype", "enum", "bytes", "dataclass"):
        body = json.dumps(other | {"type": kind, "class_path": "a.B"}).encode()
        assert client.ask("PUT", "/data/y", body)[0] == 500, kind
    assert client.ask("GET", "/data/y")[0] == 404


def test_ways_to_write_it(client: DataClient) -> None:
    """The data is found wherever it stands, and only there."""
    value = encoded(np.full(100_000, 0xFF, np.uint8))  # base64 of it is all "/"
    text = json.dumps(value)
    for body in (
        text.replace("/", "\\/"),
        json.dumps(value, indent=3),
        json.dumps(dict(reversed(value.items()))),
        json.dumps({"x": {"data": "no"}, "y": ['"data":"', "data"]} | value),
    ):
        assert client.ask("PUT", "/data/x", body.encode())[0] == 200, body[:80]
        assert client.ask("GET", "/data/x")[2] == value
    for body in (
        text[:-1],
        text.replace("//", "/=", 1),
        text.replace("//", "\\u002f/", 1),
        text.replace("{", '{"data": "",'),
        json.dumps({"x": "y" * (1 << 20)} | value),
        json.dumps(value | {"x": "y" * (1 << 20)}),
    ):
        assert client.ask("PUT", "/data/y", body.encode())[0] == 500, body[:80]
    assert client.ask("GET", "/data/y")[0] == 404


def test_health_beside_a_big_put(
    client: DataClient, readers: list[threading.Thread]
) -> None:
    """It is decoded as it comes: others have their turn."""
    value = encoded(np.zeros(64 << 20, np.uint8))
    readers.append(threading.Thread(target=put, args=(client, "x", value)))
    readers[-1].start()
    answered = 0
    while readers[-1].is_alive():
        begun = time.monotonic()
        assert client.get("/health")[0] == 200
        assert time.monotonic() - begun < 1
        answered += 1
    assert answered > 3
    assert client.ids("DELETE", "/data/clear", "x")[2]["cleared_count"] == 1


def test_a_put_that_goes(client: DataClient) -> None:
    value = encoded(np.zeros(64 << 20, np.uint8))
    conn = client.connect()
    headers = {"Authorization": f"Bearer {client.token}"}
    conn.request("PUT", "/data/x", json.dumps(value).encode(), headers)
    conn.close()
    assert client.call("add", 1) == 1
    assert client.ids("DELETE", "/data/clear", "x")[2]["num_tensors"] == 0


def test_a_reader_that_goes(client: DataClient) -> None:
    put(client, "x", encoded(np.arange(4 << 20)))
    conn = client.connect()
    conn.request("GET", "/data/x", headers={"Authorization": f"Bearer {client.token}"})
    conn.getresponse().read(1000)
    conn.close()
    assert client.ids("DELETE", "/data/clear", "x")[2]["cleared_count"] == 1
    assert client.call("add", 1) == 1


def test_web_pages_may_not(cluster: Make) -> None:
    with pytest.warns(UserWarning, match="http_open"):
        url = cluster(Engine, http_open=True).http_urls[0]
    conn = Client(url, None).connect()
    conn.request("GET", "/data/x", headers={"Origin": "http://evil.example"})
    assert conn.getresponse().status == 403
    conn.close()
    assert muster.is_initialized()
