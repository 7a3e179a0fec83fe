"""The bridge's lines on a real Ray: lending, giving back, and why not."""

import errno
from typing import Any

import pytest
from ray_rig import Bridge


def nodes_of(bridge: Bridge, key: str) -> list[str]:
    return [p["node"] for p in bridge.of(key)]


def test_hello(bridge: Bridge) -> None:
    said = bridge.hello
    assert said["grace_s"] == 0
    nodes = {n["name"]: n for n in said["nodes"]}
    assert set(nodes) == {"head", "n0", "n1", "n2"}
    assert nodes["n1"]["cpus"] == 8 and nodes["n1"]["gpus"] == 4
    assert nodes["head"]["cpus"] == 0


def test_pieces_are_in_the_order_of_nodes_and_devices(bridge: Bridge) -> None:
    assert bridge.reserve("all", 12, cpus=1, gpus=1)["rc"] == 0
    told = [(p["node"], p["devices"]) for p in bridge.of("all")]
    assert told == [(f"n{i // 4}", [i % 4]) for i in range(12)]
    assert all(p["phase"] == "running" for p in bridge.of("all"))
    keepers, groups = bridge.ray.held()
    assert keepers == 12 and len(groups) == 1
    # and once more: the same key, the same pieces, nothing new
    assert bridge.reserve("all", 12, cpus=1, gpus=1)["rc"] == 0
    assert bridge.reserve("all", 11, cpus=1, gpus=1)["rc"] == -errno.EEXIST
    assert len(bridge.ray.held()[1]) == 1
    # no room: it waits, and gets what is given back
    second = bridge.ask("reserve", **bridge.request("second", 3, cpus=2, gpus=2))
    assert bridge.do("release", key="all")["rc"] == 0
    assert bridge.of("all") == []
    assert bridge.answer(second)["rc"] == 0
    assert bridge.do("release", key="second")["rc"] == 0
    assert bridge.do("release", key="second")["rc"] == 0  # it is not there
    assert bridge.ray.held() == (0, [])


@pytest.mark.timeout(300)  # 32 Pythons are started
def test_32_pieces(bridge: Bridge) -> None:
    asked = bridge.request("wide", 32, cpus=0.5, timeout_s=240)
    assert bridge.do("reserve", timeout=240, **asked)["rc"] == 0
    pieces = bridge.of("wide")
    assert [p["number"] for p in pieces] == list(range(32))
    nodes = [p["node"] for p in pieces]
    assert nodes == sorted(nodes)
    assert {p["agent"] for p in pieces} == set(nodes)  # one agent a node
    assert bridge.do("release", key="wide")["rc"] == 0
    assert bridge.ray.held() == (0, [])


def test_infeasible_fails_at_its_deadline_with_reasons(bridge: Bridge) -> None:
    said = bridge.reserve("wide", 4, cpus=8, gpus=4, timeout_s=2)
    assert said["rc"] == -errno.ETIMEDOUT
    assert "wide: not lent within 2 s" in said["why"]
    assert "4 x {8 CPU, 4 GPU} (PACK)" in said["why"]
    assert "n1: 8 CPU, 4 GPU of 8 CPU, 4 GPU" in said["why"]
    assert bridge.of("wide") == []
    assert bridge.ray.held() == (0, [])
    said = bridge.reserve("one", 1, gpus=5, timeout_s=1)
    assert said["rc"] == -errno.ETIMEDOUT and "5 GPU" in said["why"]


def test_cancel(bridge: Bridge) -> None:
    wide = bridge.ask("reserve", **bridge.request("wide", 4, cpus=8, timeout_s=60))
    bridge.wait_event("piece", key="wide", phase="pending")
    again = bridge.ask("reserve", **bridge.request("wide", 4, cpus=8, timeout_s=60))
    assert bridge.do("cancel", of=wide)["rc"] == 0
    assert bridge.answer(wide)["rc"] == -errno.ECANCELED
    assert bridge.answer(again)["rc"] == -errno.ECANCELED  # it ends as the first one
    assert bridge.do("cancel", of=wide)["rc"] == 0  # it is over: nothing happens
    assert bridge.do("list")["rc"] == 0
    assert bridge.pieces == {} and bridge.ray.held() == (0, [])


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": "../../etc", "pieces": [{"cpus": 1}], "timeout_s": 5},
        {"key": "", "pieces": [{"cpus": 1}], "timeout_s": 5},
        {"key": "none", "pieces": [], "timeout_s": 5},
        {"key": "half", "pieces": [{"gpus": 0.5}], "timeout_s": 5},
        {"key": "less", "pieces": [{"cpus": -1}], "timeout_s": 5},
        {"key": "text", "pieces": ["a"], "timeout_s": 5},
        {"key": "long", "pieces": [{"cpus": 1}], "timeout_s": "x"},
        {"key": "how", "pieces": [{}], "timeout_s": 5, "strategy": "SOMEHOW"},
    ],
)
def test_wrong_requests(bridge: Bridge, wrong: dict[str, Any]) -> None:
    code = errno.ENOTSUP if wrong["key"] == "half" else errno.EINVAL
    assert bridge.do("reserve", **wrong)["rc"] == -code
    assert bridge.do("dance")["rc"] == -errno.EINVAL
    bridge.process.stdin.write(b"no json\n[1]\n")  # type: ignore[union-attr]
    assert bridge.do("list")["rc"] == 0


def test_grow_and_shrink(bridge: Bridge) -> None:
    assert bridge.reserve("role", 3, cpus=1)["rc"] == 0
    assert bridge.reserve("role", 2, verb="grow", cpus=1)["rc"] == 0
    assert [p["number"] for p in bridge.of("role")] == [0, 1, 2, 3, 4]
    agents = {p["number"]: p["agent"] for p in bridge.of("role")}
    assert agents[0] != agents[3]  # each gang has its own
    assert bridge.do("release", key="role", pieces=[0, 2])["rc"] == 0
    assert [p["number"] for p in bridge.of("role")] == [1, 3, 4]
    assert bridge.of("role")[0]["phase"] == "running"
    assert bridge.ray.held()[0] == 3  # the agent goes on for piece 1
    assert bridge.do("release", key="role", pieces=[1])["rc"] == 0
    assert bridge.ray.held()[0] == 2 and len(bridge.ray.held()[1]) == 1
    said = bridge.reserve("role", 9, verb="grow", gpus=4, timeout_s=1)
    assert said["rc"] == -errno.ETIMEDOUT  # and what was there stays
    assert [p["number"] for p in bridge.of("role")] == [3, 4]
    assert bridge.reserve("no", 2, verb="grow", cpus=1)["rc"] == -errno.ENOENT
    assert bridge.do("release", key="role", pieces=[3, 4])["rc"] == 0
    assert bridge.events[-1] == {"event": "gone", "key": "role"}
    assert bridge.ray.held() == (0, [])


def test_strategies(bridge: Bridge) -> None:
    def asked(strategy: str, count: int = 2, **more: Any) -> list[str]:
        said = bridge.reserve("how", count, cpus=1, strategy=strategy, **more)
        assert said["rc"] == 0, said
        nodes = nodes_of(bridge, "how")
        assert bridge.do("release", key="how")["rc"] == 0
        return nodes

    assert len(set(asked("STRICT_PACK", 4))) == 1
    assert len(set(asked("STRICT_SPREAD", 3))) == 3
    assert asked("STRICT_PACK", 1, labels={"rack": "b"}) == ["n1"]
    assert sorted(asked("STRICT_SPREAD", 2, same="rack")) == ["n0", "n2"]


def test_pieces_of_two_kinds_keep_their_numbers(bridge: Bridge) -> None:
    pieces = [{"cpus": 1}, {"cpus": 6, "gpus": 4}, {"cpus": 1}, {"cpus": 6, "gpus": 2}]
    said = bridge.do("reserve", key="mixed", pieces=pieces, timeout_s=90)
    assert said["rc"] == 0, said
    assert [len(p["devices"]) for p in bridge.of("mixed")] == [0, 4, 0, 2]
    assert bridge.do("release", key="mixed")["rc"] == 0


def test_avoid(bridge: Bridge) -> None:
    assert bridge.do("avoid", node="n9", reason="?")["rc"] == -errno.ENOENT
    assert bridge.do("avoid", node="n1", reason="it was slow")["rc"] == 0
    assert bridge.reserve("rest", 2, cpus=8)["rc"] == 0
    assert nodes_of(bridge, "rest") == ["n0", "n2"]
    said = bridge.reserve("more", 1, cpus=8, timeout_s=1)
    assert said["rc"] == -errno.ETIMEDOUT
    assert "avoided: it was slow" in said["why"]
