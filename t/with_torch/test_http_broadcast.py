"""POST /call as a controller of AReaL's makes it: the arguments to the heads alone.

Four ranks in two model-parallel groups of two, in torch's own process groups (gloo).
"""

import base64
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from http_rig import Client

torch = pytest.importorskip(
    "torch", reason="torch is not installed here: `make test-verl` has it"
)

WIDTH = 2
RANKS = 4


class Trainer:
    """What AReaL's TrainEngine is to a server."""

    def __init__(self) -> None:
        self.initialized = False
        self.is_offload = False
        self.device = torch.device("cpu")
        self.context_and_model_parallel_group: Any = None
        self.cpu_model_parallel_group: Any = None
        self.calls = 0

    def create_process_group(self) -> None:
        torch.distributed.init_process_group("gloo")
        self.rank = torch.distributed.get_rank()
        for first in range(0, RANKS, WIDTH):
            ranks = list(range(first, first + WIDTH))
            group = torch.distributed.new_group(ranks, backend="gloo")
            mirror = torch.distributed.new_group(ranks, backend="gloo")
            if self.rank in ranks:
                self.context_and_model_parallel_group = group
                self.cpu_model_parallel_group = mirror

    def initialize(self) -> None:
        self.initialized = True

    def current_data_parallel_head(self) -> int:
        return self.rank // WIDTH * WIDTH

    def keep(self, *args: Any, **kwargs: Any) -> str:
        self.calls += 1
        self.kept = (args, kwargs)
        return f"{self.rank} has it"

    def count(self) -> int:
        return self.calls

    def describe(self) -> Any:
        """What was kept, at this rank."""

        def text(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return [
                    str(value.dtype),
                    list(value.shape),
                    value.double().sum().item(),
                ]
            if isinstance(value, dict):
                return {key: text(each) for key, each in value.items()}
            if isinstance(value, (list, tuple)):
                return [text(each) for each in value]
            return repr(value)

        return text(self.kept)

    def own_storage(self) -> bool:
        """Does each tensor own its bytes, rather than be a view of a buffer?"""
        return all(
            each.untyped_storage().nbytes() == each.numel() * each.element_size()
            for each in self.kept[0]
        )

    def give_device_away(self) -> None:
        """As an engine does whose memory goes to the inference engine for a while."""
        self.is_offload = True
        self.context_and_model_parallel_group = None


class Ranks:
    """All clients; ranks are called at once, as collectives need it."""

    def __init__(self, urls: list[str]) -> None:
        self.clients = [Client(url) for url in urls]

    def call(self, method: str, bodies: list[dict[str, Any]]) -> list[tuple[int, Any]]:
        common = {"method": method, "engine_name": "default", "rpc_meta": None}
        with ThreadPoolExecutor(RANKS) as pool:
            return list(
                pool.map(
                    lambda client, body: client.post("/call", common | body),
                    self.clients,
                    bodies,
                )
            )

    def everywhere(self, method: str) -> list[Any]:
        answers = self.call(method, [{"rpc_meta": {"broadcast": False}}] * RANKS)
        assert [status for status, _ in answers] == [200] * RANKS, answers
        return [answer["result"] for _, answer in answers]

    def to_heads(self, method: str, *args: Any, **more: Any) -> list[tuple[int, Any]]:
        """Each head gets its own rank as the first argument."""
        bodies: list[dict[str, Any]] = [
            {"args": [], "kwargs": {}} for _ in range(RANKS)
        ]
        for head in range(0, RANKS, WIDTH):
            bodies[head] = {"args": [head, *args]}
        return self.call(method, [body | more for body in bodies])


@pytest.fixture
def ranks(cluster: Any) -> Iterator[Ranks]:
    # else gloo looks for the address of the host's name
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    try:
        yield Ranks(cluster(Trainer, RANKS).http_urls)
    finally:
        del os.environ["GLOO_SOCKET_IFNAME"]


@pytest.fixture
def ready(ranks: Ranks) -> Ranks:
    ranks.everywhere("create_process_group")
    ranks.everywhere("initialize")
    return ranks


def tensor(value: Any) -> dict[str, Any]:
    stored = value.float() if value.dtype is torch.bfloat16 else value
    return {
        "type": "tensor",
        "data": base64.b64encode(stored.numpy().tobytes()).decode(),
        "shape": list(value.shape),
        "dtype": str(value.dtype),
    }


def test_all_ranks_of_a_group_get_what_its_head_got(ready: Ranks) -> None:
    batch = {
        "input_ids": tensor(torch.arange(12).reshape(3, 4)),
        "mask": tensor(torch.tensor([True, False, True])),
        "logp": tensor(torch.ones(5, dtype=torch.bfloat16)),
        "none": tensor(torch.zeros(0, 3)),
        "scale": tensor(torch.tensor(2.5)),
        "big": tensor(torch.ones(5 << 18, dtype=torch.float32)),
        "lengths": [1, 2, 3],
    }
    config = {
        "type": "dataclass",
        "class_path": "http_rig.Config",
        "data": {"seed": 3},
    }
    answers = ready.to_heads("keep", [batch, None], config)
    assert [status for status, _ in answers] == [200] * RANKS, answers
    # a controller looks at the heads' results alone
    results = [answer["result"] for _, answer in answers]
    assert results == ["0 has it", None, "2 has it", None]
    described = ready.everywhere("describe")
    for rank, found in enumerate(described):
        (head, (got, nothing), made), kwargs = found
        assert (head, nothing, kwargs) == (str(rank // WIDTH * WIDTH), "None", {})
        assert made == "Config(seed=3, name='x', inner=None)"
        assert got["input_ids"] == ["torch.int64", [3, 4], 66.0]
        assert got["mask"] == ["torch.bool", [3], 2.0]
        assert got["logp"] == ["torch.bfloat16", [5], 5.0]
        assert got["none"] == ["torch.float32", [0, 3], 0.0]
        assert got["scale"] == ["torch.float32", [], 2.5]
        assert got["big"] == ["torch.float32", [5 << 18], float(5 << 18)]
        assert got["lengths"] == ["1", "2", "3"]


def test_tensors_own_their_bytes(ready: Ranks) -> None:
    bodies: list[dict[str, Any]] = [{} for _ in range(RANKS)]
    for head in range(0, RANKS, WIDTH):
        bodies[head] = {"args": [tensor(torch.ones(3)), tensor(torch.ones(2))]}
    assert [status for status, _ in ready.call("keep", bodies)] == [200] * RANKS
    assert ready.everywhere("own_storage") == [True] * RANKS


def test_without_broadcast_each_has_its_own(ready: Ranks) -> None:
    bodies = [
        {"args": [rank], "rpc_meta": {"broadcast": False}} for rank in range(RANKS)
    ]
    answers = ready.call("keep", bodies)
    assert [answer["result"] for _, answer in answers] == [
        f"{rank} has it" for rank in range(RANKS)
    ]
    assert [kept[0] for kept in ready.everywhere("describe")] == [
        [str(rank)] for rank in range(RANKS)
    ]


def test_an_engine_that_gave_its_device_away_uses_the_mirror(ready: Ranks) -> None:
    ready.everywhere("give_device_away")
    answers = ready.to_heads("keep", tensor(torch.ones(2)))
    assert [status for status, _ in answers] == [200] * RANKS, answers
    assert [kept[0][0] for kept in ready.everywhere("describe")] == ["0", "0", "2", "2"]


def test_a_head_without_arguments_fails_its_whole_group(ready: Ranks) -> None:
    bad = {"type": "tensor", "data": "AAAA", "shape": [5], "dtype": "torch.float32"}
    bodies: list[dict[str, Any]] = [{"args": [bad]}, {}, {"args": [1]}, {}]
    answers = ready.call("keep", bodies)
    assert [status for status, _ in answers] == [400, 400, 200, 200], answers
    assert "decoded" in answers[0][1]["error"]
    assert "rank 0 had no arguments" in answers[1][1]["error"]
    assert ready.everywhere("count") == [0, 0, 1, 1]
    assert ready.to_heads("keep")[1][0] == 200  # and the next call is in step


def test_what_is_missing_is_said(ranks: Ranks) -> None:
    asked = {"rpc_meta": {"broadcast": True}, "args": [1]}
    for status, answer in ranks.call("keep", [asked] * RANKS):
        assert (status, answer["status"]) == (501, "error")
        assert "not made its process groups" in answer["error"]
    # before it is initialized nothing is broadcast by itself
    assert {status for status, _ in ranks.call("count", [{}] * RANKS)} == {200}
