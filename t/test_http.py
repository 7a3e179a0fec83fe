"""HTTP on a worker's port: what AReaL's clients send and expect."""

import base64
import socket
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import Bell, wait_gone
from http_rig import Client, Color, Engine, Trainer

Make = Callable[..., Any]


@pytest.fixture
def client(cluster: Make) -> Client:
    return Client(cluster(Engine).http_urls[0])


def test_health(cluster: Make) -> None:
    one = cluster(Engine, 2)
    for url in one.http_urls:
        status, health = Client(url, None).get("/health")
        assert status == 200
        assert health == {
            "status": "healthy",
            "forked_children": 0,
            "engine_count": 1,
            "engines": ["default"],
        }
    assert len(set(one.http_urls)) == 2


def test_arguments_are_not_broadcast_without_groups(cluster: Make) -> None:
    call = {"method": "add", "engine_name": "default", "args": [1]}
    told = call | {"rpc_meta": {"broadcast": True}}
    plain = Client(cluster(Engine).http_urls[0])
    answer = plain.fails("/call", told, 501, "'context_and_model_parallel_group'")
    assert "'current_data_parallel_head'" in answer["error"]
    assert plain.post("/call", call | {"rpc_meta": {"broadcast": False}})[0] == 200
    trainer = Client(cluster(Trainer).http_urls[0])
    trainer.fails("/call", told, 501, "torch is not loaded")
    assert trainer.call("add", 1) == 1
    trainer.call("initialize")  # from now on it is what is done if nothing is said
    trainer.fails("/call", call, 501, "torch is not loaded")


def test_a_trainer_begins(client: Client) -> None:
    """As a controller does: configure, environment, engine, calls."""
    config = {
        "type": "dataclass",
        "class_path": "http_rig.Config",
        "data": {"seed": -7, "name": "exp", "inner": None},
    }
    status, answer = client.post(
        "/configure", {"config": config, "role": "actor", "rank": 0}
    )
    assert (status, answer["status"], answer["result"]) == (200, "success", None)
    env = {"RANK": 0, "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    assert client.post("/set_env", {"env": env}) == (200, {"status": "success"})
    assert client.call("env", "RANK") == "0"
    body = {
        "engine": "http_rig.Engine",
        "engine_name": "actor/0",
        "init_args": [5],
        "init_kwargs": {"config": config},
    }
    status, answer = client.post("/create_engine", body)
    assert (status, answer["status"]) == (200, "success")
    assert answer["engine_name"] == "actor/0"
    assert client.get("/health")[1]["engines"] == ["default", "actor/0"]
    body = {"method": "add", "engine_name": "actor/0", "args": [2]}
    status, answer = client.post("/call", body | {"kwargs": {"twice": True}})
    assert (status, answer) == (200, {"status": "success", "result": 9})
    assert client.call("configured")["data"]["seed"] == -7


def test_seeds(client: Client) -> None:
    def draw(**body: Any) -> list[float]:
        assert client.post("/configure", {"role": "actor", "rank": 0} | body)[0] == 200
        drawn = client.call("draw")
        assert isinstance(drawn, list)
        return drawn

    first = draw(config={"seed": 5})
    assert len(first) == 2  # numpy is in the zygote
    assert draw(config={"seed": 5}) == first
    for other in ({"config": {"seed": 6}}, {"rank": 1}, {"role": "critic"}):
        drawn = draw(**{"config": {"seed": 5}} | other)
        assert all(a != b for a, b in zip(drawn, first, strict=True))


def test_what_goes_wrong(client: Client) -> None:
    call = {"method": "add", "engine_name": "default"}
    client.fails("/call", call | {"engine_name": "no"}, 404, "no engine 'no'")
    client.fails("/call", call | {"method": "no"}, 400, "no method 'no'")
    client.fails("/call", call | {"method": "value"}, 400, "no method 'value'")
    client.fails("/call", {"method": "add"}, 400, "engine_name")
    client.fails("/call", call | {"args": {}}, 400, "'args' must be a list")
    client.fails("/call", call | {"kwargs": []}, 400, "'kwargs' must be an object")
    client.fails("/call", call | {"rpc_meta": 3}, 400, "rpc_meta")
    client.fails("/call", call | {"rpc_meta": {"broadcast": True}}, 501, "broadcast")
    client.fails("/call", call | {"rpc_meta": {"broadcast": 1}}, 400, "true or false")
    raised = client.fails("/call", call | {"method": "fail"}, 500, "inside of it")
    assert raised["type"] == "builtins.AttributeError"
    assert "in fail" in raised["traceback"]
    client.fails("/call", call | {"method": "odd"}, 500, "JSON")
    make = {"engine": "http_rig.Engine", "engine_name": "default"}
    client.fails("/create_engine", make, 400, "already")
    make["engine_name"] = "other"
    client.fails("/create_engine", make | {"init_args": [-1]}, 500, "begin there")
    client.fails(
        "/create_engine", make | {"engine": "no.Such"}, 400, "Failed to import"
    )
    client.fails("/create_engine", make | {"engine": "os.nope"}, 400, "nope")
    client.fails("/create_engine", make | {"engine": "os.sep"}, 400, "no class")
    client.fails("/set_env", {"env": []}, 400, "'env' must be an object")
    client.fails("/set_env", {"env": {"A=B": 1}}, 400, "A=B")
    client.fails("/configure", {"rank": 0}, 400, "config")
    client.fails("/configure", {"config": {}}, 400, "rank")
    client.fails("/configure", {"config": [1], "role": "a", "rank": 0}, 400, "config")
    client.fails("/set_env", {"env": {"A": "\ud800"}}, 400, "'A' cannot be set")
    for bad in (b"", b"{", b"[]", b"3", b"\xff", b"[" * 100000):
        client.fails("/call", bad, 400, "JSON")
    assert client.call("add", 1) == 1


def test_types(client: Client) -> None:
    array = np.arange(6, dtype="<i2").reshape(2, 3)
    sent = {
        "type": "ndarray",
        "data": base64.b64encode(array.tobytes()).decode(),
        "shape": [2, 3],
        "dtype": "<i2",
    }
    assert client.call("describe", sent) == f"ndarray {array!r}"
    assert client.call("echo", sent) == [[sent], {}]
    color = {"type": "enum", "class_path": "http_rig.Color", "value": 1}
    assert client.call("describe", color) == f"Color {Color.RED!r}"
    assert client.call("echo", k=color) == [[], {"k": color}]
    nested = {
        "type": "dataclass",
        "class_path": "http_rig.Config",
        "data": {"seed": -1, "name": "n", "inner": [sent, color]},
    }
    assert client.call("echo", nested) == [[nested], {}]
    some = {"type": "bytes", "data": base64.b64encode(b"\0\xff").decode()}
    assert client.call("describe", some) == "bytes b'\\x00\\xff'"
    assert client.call("echo", k=some) == [[], {"k": some}]
    assert client.call("later") == "later"
    # an object of the user that only looks like one
    for plain in ({"type": "tensor"}, {"type": "enum", "value": 2}, {"type": 3}):
        assert client.call("echo", plain) == [[plain], {}]


def test_a_dataclass_that_is_not_here(client: Client) -> None:
    inner = {"type": "enum", "class_path": "http_rig.Color", "value": 1}
    sent = {"type": "dataclass", "class_path": "no.such", "data": {"a": inner}}
    assert client.call("describe", sent).startswith("dict")
    assert client.call("echo", sent) == [[sent], {}]


def test_types_that_are_refused(client: Client) -> None:
    call = {"method": "echo", "engine_name": "default"}
    for value, part in (
        ({"type": "enum", "class_path": "os.system", "value": "true"}, "enumeration"),
        ({"type": "dataclass", "class_path": "os.system", "data": {}}, "no dataclass"),
        ({"type": "dataclass", "class_path": "Config", "data": {}}, "path of a class"),
        ({"type": "enum", "class_path": "http_rig.Color", "value": 9}, "decoded"),
        ({"type": "ndarray", "data": "!", "shape": [1], "dtype": "<f4"}, "decoded"),
        ({"type": "ndarray", "data": "", "shape": [0], "dtype": "O"}, "objects"),
        ({"type": "bytes", "data": "AA==\n"}, "decoded"),
        ({"type": "ray_object_ref", "data": "gASVAA=="}, "does not travel"),
        ({"type": "tokenizer", "data": "", "name_or_path": "x"}, "tokenizer"),
    ):
        client.fails("/call", call | {"args": [[value]]}, 400, part)


def test_tensors(client: Client) -> None:
    torch = pytest.importorskip("torch")
    data = base64.b64encode(np.float32([1.5, 2]).tobytes()).decode()
    for dtype in ("torch.float32", "torch.bfloat16"):
        sent = {"type": "tensor", "data": data, "shape": [2], "dtype": dtype}
        assert client.call("echo", sent) == [[sent], {}]
    meta = {"type": "tensor", "data": None, "shape": [7], "dtype": "torch.int64"}
    assert client.call("echo", meta) == [[meta], {}]
    assert torch.__name__ == "torch"


def test_without_torch(client: Client) -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        sent = {"type": "tensor", "data": "", "shape": [0], "dtype": "torch.int64"}
        body = {"method": "echo", "engine_name": "default", "args": [sent]}
        client.fails("/call", body, 400, "torch is not here")
    else:
        pytest.skip("torch is here")


def test_an_async_engine(cluster: Make) -> None:
    client = Client(cluster(Engine).http_urls[0])
    body = {"engine": "http_rig.AsyncEngine", "engine_name": "default2"}
    assert client.post("/create_engine", body)[0] == 200
    call = {"engine_name": "default2", "method": "double", "args": [4]}
    assert client.post("/call", call)[1]["result"] == 8
    client.fails("/call", call | {"method": "fail", "args": []}, 500, "lost")
    assert client.call("add", 3) == 3
    assert client.call("later") == "later"


def test_ports(client: Client) -> None:
    status, answer = client.post("/alloc_ports", {"count": 3})
    assert (status, answer["status"], answer["host"]) == (200, "success", "127.0.0.1")
    assert len(set(answer["ports"])) == 3
    for port in answer["ports"]:
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(("127.0.0.1", port))
            s.listen()
    client.fails("/alloc_ports", {"count": 0}, 400, "count")


# ---- children -----------------------------------------------------------------------------


def test_children(cluster: Make, bell: Callable[[], Bell]) -> None:
    client = Client(cluster(Engine, env={"OWN": "1"}).http_urls[0])
    client.post("/set_env", {"env": {"SET": "2"}})
    ring = bell()
    script = (
        "import os, sys, signal\n"
        "assert os.environ['OWN'] + os.environ['SET'] + os.environ['MORE'] == '123'\n"
        f"open({ring.path!r}, 'wb').write(b'!')\n"
        "signal.pause()"
    )
    body = {
        "role": "proxy",
        "worker_index": 0,
        "raw_cmd": [sys.executable, "-c", script],
        "env": {"MORE": "3"},
    }
    status, answer = client.post("/fork", body)
    assert (status, answer["status"], answer["host"]) == (200, "success", "127.0.0.1")
    ring.hear()
    assert client.get("/health")[1]["forked_children"] == 1
    second = body | {"raw_cmd": ["sleep", "1000"]}
    assert client.post("/fork", second)[0] == 200  # the name is this one's from now on
    assert client.get("/health")[1]["forked_children"] == 2
    name = {"role": "proxy", "worker_index": 0}
    status, answer = client.post("/kill_forked_worker", name)
    assert (status, answer["status"]) == (200, "success")
    assert wait_gone([client_pid(answer["message"])]) == []
    assert client.get("/health")[1]["forked_children"] == 1
    client.fails("/kill_forked_worker", name, 404, "no child")
    client.fails("/fork", body | {"raw_cmd": ["/no/such/program"]}, 500, "no/such")
    client.fails("/fork", body | {"role": "../x"}, 400, "role")


def client_pid(message: str) -> int:
    return int(message.rpartition("pid ")[2].rstrip(")"))


def test_children_end_with_their_worker(cluster: Make) -> None:
    one = cluster(Engine)
    client = Client(one.http_urls[0])
    body = {"role": "kid", "worker_index": "1", "raw_cmd": ["sleep", "1000"]}
    status, answer = client.post("/fork", body)
    assert status == 200
    one.destroy(grace=0.2)
    assert wait_gone([answer["pid"]]) == []
