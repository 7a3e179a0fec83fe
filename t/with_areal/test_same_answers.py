"""The same request to AReaL's own RPC server and to a Muster worker: the same answer."""

import asyncio
import base64
import contextlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aiohttp
import areal_rig
import muster
import pytest
import requests
import torch
from areal.infra.rpc.serialization import deserialize_value, serialize_value
from areal_rig import Config, Pair

Clean = Callable[[Any], Any]


class Both:
    """AReaL's server and ours, asked the same."""

    def __init__(self, theirs: str, ours: str) -> None:
        self.urls = (theirs, ours)

    def ask(self, method: str, path: str, **request: Any) -> list[requests.Response]:
        return [
            requests.request(method, url + path, timeout=60, **request)
            for url in self.urls
        ]

    def same(self, method: str, path: str, **request: Any) -> Any:
        """The answer of both."""
        theirs, ours = self.ask(method, path, **request)
        assert (ours.status_code, ours.json()) == (theirs.status_code, theirs.json())
        return ours.json()

    def same_bytes(self, method: str, path: str, **request: Any) -> bytes:
        theirs, ours = self.ask(method, path, **request)
        assert ours.status_code == theirs.status_code
        assert ours.headers["Content-Type"] == theirs.headers["Content-Type"]
        assert ours.content == theirs.content
        return ours.content

    def same_status(self, method: str, path: str, **request: Any) -> list[Any]:
        """An error: its text is each server's own, its fields are not."""
        theirs, ours = self.ask(method, path, **request)
        assert ours.status_code == theirs.status_code >= 400
        for answer in (theirs, ours):
            assert "error" in answer.json() or "message" in answer.json()
        return [theirs.json(), ours.json()]

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        body = {"method": method, "engine_name": "default", "args": list(args)}
        return self.same("POST", "/call", json=body | {"kwargs": kwargs})["result"]

    def results(self, method: str, *args: Any) -> list[Any]:
        """Of each by itself, as AReaL's clients decode it."""
        body = {"method": method, "engine_name": "default"}
        body["args"] = serialize_value(list(args))
        answers = self.ask("POST", "/call", json=body)
        assert [answer.status_code for answer in answers] == [200, 200], answers[1].text
        return [deserialize_value(answer.json()["result"]) for answer in answers]


@contextlib.contextmanager
def worker() -> Iterator[str]:
    """Of a cluster."""
    with pytest.warns(UserWarning, match="http_open"):
        one = muster.Cluster("actor", areal_rig.Engine, http_open=True)
    yield one.http_urls[0]
    one.destroy()


@pytest.fixture(scope="module", params=["worker", "rpc_server"])
def both(
    request: Any, session: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Both]:
    """Ours is a worker, or a server that takes the place of AReaL's."""
    make = {"engine": "areal_rig.Engine", "engine_name": "default"}
    with contextlib.ExitStack() as stack:
        server = areal_rig.rpc_server(tmp_path_factory.mktemp("theirs"))
        theirs = stack.enter_context(server)[0]
        requests.post(f"{theirs}/create_engine", json=make, timeout=60)
        if request.param == "worker":
            ours = stack.enter_context(worker())
        else:
            folder = tmp_path_factory.mktemp("ours")
            server = areal_rig.rpc_server(folder, "muster.areal.rpc_server")
            ours = stack.enter_context(server)[0]
            requests.post(f"{ours}/create_engine", json=make, timeout=60)
        yield Both(theirs, ours)


def test_health(both: Both) -> None:
    assert both.same("GET", "/health")["engines"] == ["default"]


def test_calls(both: Both) -> None:
    assert both.call("add", 3) == 3
    assert both.call("add", 3, twice=True) == 9
    assert both.call("echo", {"a": [1, 2.5, None, True, "x"]})
    assert both.call("later") == "later"
    body = {"method": "fail", "engine_name": "default"}
    theirs, ours = both.same_status("POST", "/call", json=body)
    assert "on purpose" in theirs["error"] and "on purpose" in ours["error"]
    for wrong in ({"method": "nope"}, {"engine_name": "nope"}, {"args": {}}):
        both.same_status("POST", "/call", json=body | wrong)
    both.same_status("POST", "/call", json={"method": "add"})


def test_requests_that_do_not_say_what_they_are(both: Both) -> None:
    body = json.dumps({"method": "add", "engine_name": "default", "args": [1]})
    for headers in ({}, {"Content-Type": "text/plain"}):
        both.same_status("POST", "/call", data=body, headers=headers)
        both.same_status("POST", "/alloc_ports", data='{"count": 1}', headers=headers)
    both.same_status(
        "POST", "/call", data="{", headers={"Content-Type": "application/json"}
    )


def test_engines_that_cannot_be_made(both: Both) -> None:
    make = {"engine": "areal_rig.Engine", "engine_name": "other"}
    for path in ("no.such.Engine", "areal_rig.Nope", "Nope"):
        body = make | {"engine": path}
        theirs, ours = both.same_status("POST", "/create_engine", json=body)
        for answer in (theirs, ours):
            assert "Failed to import" in answer["error"]
    both.same_status("POST", "/create_engine", json=make | {"engine_name": "default"})
    both.same_status("POST", "/create_engine", json=make | {"init_args": [-1]})
    both.same_status("POST", "/create_engine", json={"engine": "areal_rig.Engine"})


def test_types(both: Both) -> None:
    unknown = {"type": "dataclass", "class_path": "no.Such", "data": {"a": [1]}}
    assert both.call("describe", unknown).startswith("dict")
    assert both.call("echo", unknown) == unknown
    known = serialize_value(Pair(Config(5), [Config(6)]))
    assert both.call("describe", known).startswith("Pair")
    assert both.call("echo", known) == known
    both.call("echo", serialize_value(torch.float16))


def test_tokenizers(both: Both, tmp_path: Any) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "b": 2}, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    sent = serialize_value(PreTrainedTokenizerFast(tokenizer_object=raw))
    assert both.call("tokenize", sent, "b a c") == [2, 1, 0]


def test_seeds(both: Both) -> None:
    """Of all generators, of the seed and of the worker; and what AReaL asks for."""
    drawn = []
    for seed in (5, 6):
        body = {"config": serialize_value(Config(seed)), "role": "actor", "rank": 0}
        assert both.ask("POST", "/configure", json=body)[1].status_code == 200
        drawn.append(both.call("draw"))
    for of_five, of_six in zip(*drawn, strict=True):
        assert of_five != of_six
    both.same_status("POST", "/configure", json={"config": {}})


def test_children(both: Both) -> None:
    body = {"role": "kid", "worker_index": 0, "raw_cmd": ["sleep", "1000"]}
    for count in (1, 2):  # a second one of a name, too
        answers = both.ask("POST", "/fork", json=body)
        assert [answer.status_code for answer in answers] == [200, 200]
        assert both.same("GET", "/health")["forked_children"] == count
    for status in (200, 404):
        answers = both.ask("POST", "/kill_forked_worker", json=body)
        assert [answer.status_code for answer in answers] == [status, status]
        assert both.same("GET", "/health")["forked_children"] == 1


# ---- tensors ------------------------------------------------------------------------------

TENSORS = [
    torch.arange(10, dtype=torch.float32),
    torch.tensor(3),
    torch.zeros(0, 4),
    torch.arange(7).to(torch.bfloat16),
    torch.tensor([[True, False]]),
    torch.arange(200_000, dtype=torch.int16).reshape(2, -1),
    torch.arange(1 << 20).to(torch.bfloat16),
]


def test_data(both: Both) -> None:
    ids = []
    for i, tensor in enumerate(TENSORS):
        ids.append(f"shard-{i}")
        body = json.dumps(serialize_value(tensor))
        both.same("PUT", f"/data/{ids[-1]}", data=body)
        both.same_bytes("GET", f"/data/{ids[-1]}")
    both.same_bytes("POST", "/data/batch", json={"shard_ids": ids[::-1]})
    both.same_bytes("POST", "/data/batch", json={"shard_ids": []})
    array = {"type": "ndarray", "data": base64.b64encode(b"1234").decode()}
    array |= {"shape": [2], "dtype": "<i2"}
    both.same("PUT", "/data/array", data=json.dumps(array))
    both.same_bytes("GET", "/data/array")
    theirs, ours = both.same_status(
        "POST", "/data/batch", json={"shard_ids": ["no", ids[0], "none"]}
    )
    assert ours["missing_shard_ids"] == theirs["missing_shard_ids"] == ["no", "none"]
    for path in ("/data/no", "/data/batch"):
        both.same_status("GET", path)
    for wrong in ({}, {"shard_ids": "x"}):
        both.same_status("POST", "/data/batch", json=wrong)
        both.same_status("DELETE", "/data/clear", json=wrong)
    both.same("DELETE", "/data/clear", json={"shard_ids": [*ids[:3], "no"]})
    answer = both.same("DELETE", "/data/clear", json={"shard_ids": [*ids, "array"]})
    assert (answer["num_tensors"], answer["total_bytes"]) == (0, 0)


def test_tensors_as_results(both: Both) -> None:
    for tensor in TENSORS:
        for handle, url in zip(both.results("echo", tensor), both.urls, strict=True):
            assert (handle.shape, handle.dtype) == (tensor.shape, tensor.dtype)
            assert handle.data.is_meta
            assert handle.shard.node_addr == url.removeprefix("http://")
            assert torch.equal(handle.to_local(), tensor)


def test_trajectories_are_trimmed(both: Both) -> None:
    """As RTensor does it: by the attention mask."""
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0]])
    batch = {"attention_mask": mask, "input_ids": torch.arange(8).reshape(2, 4)}
    theirs, ours = both.results("echo", batch)
    for name in batch:
        assert ours[name].shape == theirs[name].shape == (2, 3)
        assert torch.equal(ours[name].to_local(), theirs[name].to_local())


def test_tensors_as_arguments(both: Both) -> None:
    """Handles of any server, fetched before the method runs."""
    handles = both.results("echo", torch.arange(100_000, dtype=torch.float32))
    for first in handles:
        for second in handles:
            args = [{"a": first, "b": [second]}]
            assert both.results("total", *args) == [9999900000.0] * 2
    # what a method writes into its arguments is its own, which AReaL's server does not give
    ours = Both(both.urls[1], both.urls[1])
    assert ours.results("spoil", handles[1]) == [-1.0] * 2
    assert ours.results("total", handles[1]) == [4999950000.0] * 2


def test_only_heads_answer(both: Both) -> None:
    make = {"engine": "areal_rig.Trainer", "engine_name": "trainer"}
    assert [a.status_code for a in both.ask("POST", "/create_engine", json=make)] == [
        200
    ] * 2
    call = {"method": "echo", "engine_name": "trainer", "args": [3]}
    call["rpc_meta"] = {"broadcast": False}
    assert both.same("POST", "/call", json=call)["result"] == 3
    for is_head, result in ((True, 3), (False, None)):
        body = call | {"method": "initialize", "args": [is_head]}
        both.ask("POST", "/call", json=body)
        assert both.same("POST", "/call", json=call)["result"] == result


# ---- many at once -------------------------------------------------------------------------


async def burst(url: str, count: int) -> list[int]:
    """Each on a connection of its own, as AReaL's schedulers call."""
    body = {"method": "echo", "engine_name": "default", "args": [1]}

    async def one() -> int:
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session:
            async with session.post(f"{url}/call", json=body) as answer:
                return answer.status

    return await asyncio.gather(*[one() for _ in range(count)], return_exceptions=True)


@pytest.mark.parametrize("count", [300, 1500])
def test_a_burst(both: Both, count: int) -> None:
    assert asyncio.run(burst(both.urls[1], count)) == [200] * count


def test_threads(both: Both) -> None:
    def call(i: int) -> Any:
        body = {"method": "echo", "engine_name": "default", "args": [i]}
        return requests.post(f"{both.urls[1]}/call", json=body, timeout=60).json()

    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(call, range(500)))
    assert [answer["result"] for answer in answers] == list(range(500))
