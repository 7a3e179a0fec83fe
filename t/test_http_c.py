"""HTTP calls to workers in C: the same requests and answers as to those in Python."""

import base64
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Bell
from http_rig import Client
from test_c import folder  # noqa: F401  (fixture)

Make = Callable[..., Any]


@pytest.fixture
def client(cluster: Make, folder: Path) -> Client:  # noqa: F811
    return Client(cluster(f"{folder}/libodd.so:odd").http_urls[0])


@pytest.fixture
def reward(cluster: Make, folder: Path) -> Client:  # noqa: F811
    url = cluster(f"{folder}/libreward.so:reward", kwargs={"scale": 2}).http_urls[0]
    return Client(url)


def text64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def array(values: Any) -> dict[str, Any]:
    return {
        "type": "ndarray",
        "data": text64(values.tobytes()),
        "shape": list(values.shape),
        "dtype": values.dtype.str,
    }


def test_the_example(reward: Client) -> None:
    assert reward.call("score", ["hello", "aaaa", ""]) == [8 / 6, 2 / 5, 0]
    numbers = np.arange(100000, dtype=np.float32)
    assert reward.call("sum", array(numbers)) == numbers.sum(dtype="f8")
    tensor = array(numbers) | {"type": "tensor", "dtype": "torch.float32"}
    assert reward.call("sum", tensor) == numbers.sum(dtype="f8")
    call = {"method": "score", "engine_name": "default"}
    raised = reward.fails("/call", call | {"args": [["x", 1]]}, 500, "[1] is no text")
    assert raised["type"] == "TypeError"
    wrong = array(np.zeros(3, dtype=np.int16))
    reward.fails("/call", call | {"method": "sum", "args": [wrong]}, 500, "float32")


def test_values(client: Client) -> None:
    for value in (
        None,
        True,
        -(2**63),
        0.25,
        1e300,
        math.pi,
        "grüße",
        "a\0b",
        [1, ["x", {}]],
        {"": [None], "type": "tensor"},
        {"type": "bytes", "data": text64(b"\0\1\xff")},
        array(np.arange(6, dtype="<i2").reshape(2, 3)),
        array(np.array([True, False])),
        array(np.zeros((0, 3), dtype="<c16")),
        {
            "type": "tensor",
            "data": text64(np.float32([1.5, 2]).tobytes()),
            "shape": [2],
            "dtype": "torch.bfloat16",
        },
    ):
        assert client.call("echo", value) == value
    assert client.call("named", a=1, b=[2]) == {"a": 1, "b": [2]}
    assert client.call("nothing") is None
    assert client.call("twice") == 1
    text = "x" * (4 << 20)
    assert client.call("echo", text) == text
    enum = {"type": "enum", "class_path": "a.B", "value": 3}
    made = {"type": "dataclass", "class_path": "a.C", "data": {"e": enum}}
    assert client.call("echo", made) == {"e": 3}


def test_bytes(client: Client) -> None:
    sent = {"type": "bytes", "data": text64(b"loud")}
    assert client.call("shout", sent) == {"type": "bytes", "data": text64(b"LOUD")}


def test_a_trainer_begins(cluster: Make, folder: Path) -> None:  # noqa: F811
    client = Client(cluster(f"{folder}/libodd.so:odd").http_urls[0])
    config = {"type": "dataclass", "class_path": "x.Y", "data": {"seed": 7}}
    body = {"config": config, "role": "actor", "rank": 0}
    status, answer = client.post("/configure", body)
    assert (status, answer["status"], answer["result"]) == (200, "success", None)
    env = {"FLAVOUR": "sour", "RANK": 0, "ON": True, "EMPTY": ""}
    assert client.post("/set_env", {"env": env}) == (200, {"status": "success"})
    who = client.call("who")
    assert (who["flavour"], who["config"]) == ("sour", {"seed": 7})
    body = {"engine": f"{folder}/libreward.so:reward", "engine_name": "reward/0"}
    status, answer = client.post("/create_engine", body | {"init_kwargs": {"scale": 4}})
    assert (status, answer["status"]) == (200, "success")
    assert (answer["engine_name"], answer["result"]) == ("reward/0", None)
    assert client.get("/health")[1]["engines"] == ["default", "reward/0"]
    call = {"method": "score", "engine_name": "reward/0", "args": [["aaaa"]]}
    assert client.post("/call", call) == (200, {"status": "success", "result": [0.8]})


def test_what_goes_wrong(client: Client, folder: Path) -> None:  # noqa: F811
    call = {"method": "echo", "engine_name": "default"}
    client.fails("/call", call | {"engine_name": "no"}, 404, "no engine 'no'")
    client.fails("/call", call | {"method": "no"}, 400, "no method 'no'")
    client.fails("/call", {"method": "echo"}, 400, "engine_name")
    client.fails("/call", call | {"method": "a\0b"}, 400, "method")
    client.fails("/call", call | {"args": {}}, 400, "'args' must be a list")
    client.fails("/call", call | {"kwargs": []}, 400, "'kwargs' must be an object")
    client.fails("/call", call | {"rpc_meta": 3}, 400, "rpc_meta")
    client.fails("/call", call | {"rpc_meta": {"broadcast": True}}, 501, "broadcast")
    client.fails("/call", call | {"rpc_meta": {"broadcast": 1}}, 400, "true or false")
    raised = client.fails("/call", call | {"method": "fail"}, 500, "it is 42")
    assert raised["type"] == "odd.Error"
    client.fails("/call", call | {"method": "silent"}, 500, "failed with -33")
    client.fails("/call", call | {"method": "infinite"}, 500, "not finite")
    client.fails("/call", call | {"method": "forever"}, 500, "stream")
    client.fails("/call", call | {"method": "too_deep"}, 500, "cannot be sent")
    deep: Any = None
    for _ in range(100):
        deep = [deep]
    client.fails("/call", call | {"args": [deep]}, 400, "64 deep")
    image = {"type": "pil_image", "data": "", "mode": "RGB"}
    client.fails("/call", call | {"args": [image]}, 400, "pil_image")
    client.fails("/call", b'{"args": [NaN]}', 400, "JSON")
    for bad in (b"", b"{", b"[]", b"3", b"\xff", b"[" * 100000):
        client.fails("/call", bad, 400, "JSON")
    make = {"engine": f"{folder}/libodd.so:odd", "engine_name": "default"}
    client.fails("/create_engine", make, 400, "already")
    make["engine_name"] = "other"
    client.fails("/create_engine", make | {"init_args": ["bad day"]}, 500, "bad day")
    client.fails("/create_engine", make | {"engine": "libno.so:x"}, 400, "libno.so")
    client.fails("/create_engine", make | {"engine": "os.sep"}, 400, "os.sep")
    client.fails("/create_engine", make | {"init_args": {}}, 400, "must be a list")
    client.fails("/set_env", {"env": []}, 400, "'env' must be an object")
    for name, value in (("A=B", 1), ("", "x"), ("A", None), ("A", "\0")):
        both = {"FLAVOUR": "bitter", name: value}
        client.fails("/set_env", {"env": both}, 400, "cannot be set")
    client.fails("/configure", {"rank": 0}, 400, "config")
    client.fails("/configure", {"config": {}}, 400, "rank")
    assert client.call("who")["flavour"] is None  # a refused one has set nothing
    assert client.get("/health")[1]["engines"] == ["default"]


def test_together_with_native_calls(cluster: Make, folder: Path) -> None:  # noqa: F811
    one = cluster(f"{folder}/libodd.so:odd")
    client = Client(one.http_urls[0])
    for i in range(20):
        assert client.call("echo", i) == one.execute_rank_zero_sync("echo", i) == i


def test_a_caller_that_goes(
    cluster: Make,
    folder: Path,  # noqa: F811
    bell: Callable[[], Bell],
) -> None:
    client = Client(cluster(f"{folder}/libodd.so:odd").http_urls[0])
    ringing = bell()
    conn = client.connect()
    body = {"method": "wait_for_cancel", "engine_name": "default"}
    client.send(conn, "/call", body | {"args": [ringing.path]})
    ringing.hear()
    conn.close()
    ringing.hear()  # the method was told
    assert client.call("echo", 1) == 1


def test_without_the_token(cluster: Make, folder: Path) -> None:  # noqa: F811
    client = Client(cluster(f"{folder}/libodd.so:odd").http_urls[0], None)
    for path in ("/call", "/configure", "/set_env", "/create_engine"):
        client.fails(path, {}, 401, "token")
    assert client.get("/health")[1]["engines"] == ["default"]
