"""HttpEngine under muster.generate.Scheduler: servers as replicas."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_llm_server import HANG, PROGRAM, answer_of, server_on
from helpers import until as until_within_s
from muster.generate import GroupDropped, HttpEngine, Scheduler

Make = Callable[..., Any]
WAIT_S = 60.0
PROMPTS = [[10 + i, 20 + i] for i in range(12)]


def until(happened: Callable[[], Any]) -> None:
    until_within_s(happened, within_s=WAIT_S)


def servers(kind: str, *more: str, **fields: Any) -> dict[str, Any]:
    words = [sys.executable, PROGRAM, "--kind", kind, "--port", "{port}", *more]
    return {"command": words, "piece": 8} | fields


@pytest.mark.parametrize("kind", ["sglang", "llama.cpp"])
def test_groups_on_two_servers(cluster: Make, kind: str) -> None:
    c = cluster(HttpEngine, 2, kwargs=servers(kind))
    with Scheduler(c, slots=4) as sched:
        for prompt in PROMPTS:
            sched.submit(prompt, n=2, max_new_tokens=40)
        groups = sched.get_batch(len(PROMPTS), timeout=60)
    assert sorted(group.prompt for group in groups) == PROMPTS
    assert {sample.replica for sample in groups.samples} == {0, 1}
    for group in groups:
        want = answer_of(group.prompt, 40)
        assert [sample.tokens for sample in group.samples] == [want, want]
        assert all(len(s.logprobs or ()) == len(want) for s in group.samples)


def test_a_request_resumes_elsewhere_when_its_server_dies(cluster: Make) -> None:
    """Its three tokens are kept: the other server hangs three tokens behind them."""
    c = cluster(HttpEngine, 2, kwargs=servers("sglang"))
    with Scheduler(c, slots=4) as sched:
        held = sched.submit([HANG, 1], max_new_tokens=40)
        others = [sched.submit(p, n=2, max_new_tokens=40) for p in PROMPTS]
        for group in others:
            assert group.result(60).samples[0].tokens == answer_of(group.prompt, 40)
        until(lambda: running(sched))
        (first,) = running(sched)
        until(lambda: tokens_of(sched, held) == 3)
        port = c[first].execute_rank_zero_sync("address").rpartition(":")[2]
        os.kill(server_on(port), signal.SIGKILL)
        until(lambda: running(sched) == [1 - first])
        until(lambda: tokens_of(sched, held) == 6)
        held.cancel()


def running(sched: Any) -> list[int]:
    return [one["replica"] for one in sched.stats()["replicas"] if one["running"]]


def tokens_of(sched: Any, group: Any) -> int:
    found: int = sched.explain(group.rids[0])["generated"]
    return found


def test_a_request_that_a_server_refuses(cluster: Make) -> None:
    c = cluster(HttpEngine, 2, kwargs=servers("vllm"))
    with Scheduler(c, slots=4) as sched:
        bad = sched.submit([1001], max_new_tokens=4)
        with pytest.raises(GroupDropped, match="Prompt contains invalid tokens") as e:
            bad.result(60)
        assert e.value.reason == "refused"
        assert sched.stats()["sent"] == 1  # the other server is not asked
        good = sched.submit(PROMPTS[0], max_new_tokens=4).result(60)
        assert good.samples[0].tokens == answer_of(PROMPTS[0], 4)


@pytest.mark.parametrize("kind", ["sglang", "llama.cpp"])
def test_new_weights_for_servers(cluster: Make, tmp_path: Path, kind: str) -> None:
    """By the server itself, or by starting it anew; tokens carry their version."""
    for number in (0, 1):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "version").write_text(str(number))
    model = {"model": str(tmp_path / "0")}
    c = cluster(HttpEngine, 2, kwargs=servers(kind, "--model", "{model}") | model)
    with Scheduler(c, slots=4) as sched:
        held = sched.submit([HANG, 1], max_new_tokens=12)
        if kind == "sglang":
            until(lambda: tokens_of(sched, held) == 3)
        with sched.weights(version=1):
            c.execute_all_sync("update_weights", str(tmp_path / "1"), 1)
        after = sched.submit(PROMPTS[1], max_new_tokens=40).result(60).samples[0]
        assert after.tokens == answer_of(PROMPTS[1], 40, 1)
        assert set(after.versions) == {1}
        if kind == "sglang":  # it goes on behind its tokens, and hangs there again
            until(lambda: tokens_of(sched, held) == 6)
        held.cancel()
