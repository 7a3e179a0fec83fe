"""HttpEngine with a real server of llama.cpp and SmolLM2-135M: what `make test-llm` runs.

LLM_PYTHON: a Python that has the server and the model (tools/llm-venv).
"""

import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import until
from muster.generate import HttpEngine, Scheduler

Make = Callable[..., Any]
ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON = os.environ.get("LLM_PYTHON", "")
SERVER = str(ROOT / "examples/llm/llama_server.py")
CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
CAPITAL = CHAT.format("What is the capital of France?")
LONG = CHAT.format("Tell a long story of a ship.")
GREEDY = {"temperature": 0.0}
WAIT_S = 120.0

pytestmark = [
    pytest.mark.skipif(
        not PYTHON, reason="the model could not be installed; see tools/llm-venv"
    ),
    pytest.mark.timeout(600),
]


def servers(cluster: Make, count: int, piece: int = 4) -> Any:
    command = [PYTHON, SERVER, "--port", "{port}", "--slots", "4", "--context", "512"]
    fields = {"command": command, "kind": "llama.cpp", "start_timeout": WAIT_S}
    return cluster(HttpEngine, count, kwargs=fields | {"piece": piece})


def text_of(c: Any, tokens: list[int]) -> str:
    return str(c.execute_rank_zero_sync("detokenize", tokens))


def test_answers_of_two_servers(cluster: Make) -> None:
    c = servers(cluster, 2)
    ids = c.execute_rank_zero_sync("tokenize", CAPITAL)
    assert text_of(c, ids) == CAPITAL
    with Scheduler(c, slots=4) as sched:
        greedy = sched.submit(ids, n=4, max_new_tokens=24, sampling=GREEDY)
        drawn = sched.submit(CAPITAL, n=4, max_new_tokens=24)  # a text does, too
        samples = greedy.result(WAIT_S).samples
        others = drawn.result(WAIT_S).samples
    assert {one.replica for one in [*samples, *others]} == {0, 1}
    assert len({tuple(one.tokens) for one in others}) > 1
    for one in samples:
        assert "Paris" in text_of(c, one.tokens)
        assert one.finish_reason == "stop" and len(one.versions) == len(one.tokens)
    for one in [*samples, *others]:
        assert one.logprobs is not None and len(one.logprobs) == len(one.tokens)
        assert all(not p > 0 for p in one.logprobs)  # NaN: within a character


def test_a_killed_server(cluster: Make) -> None:
    """Its requests go on elsewhere, and end as they would have there."""
    c = servers(cluster, 2)
    with Scheduler(c, slots=4) as sched:
        want = sched.submit(LONG, max_new_tokens=48, sampling=GREEDY).result(WAIT_S)
        groups = [
            sched.submit(LONG, n=2, max_new_tokens=48, sampling=GREEDY)
            for _ in range(2)
        ]
        before = sched.stats()["replicas"][1]["tokens"]
        until(lambda: sched.stats()["replicas"][1]["tokens"] > before, within_s=WAIT_S)
        os.kill(c.pids[1], signal.SIGKILL)
        samples = [one for group in groups for one in group.result(WAIT_S).samples]
    assert any(one.attempt > 1 for one in samples)
    assert all(one.replica == 0 for one in samples if one.attempt > 1)
    for one in samples:
        # batches of another size round otherwise, so greedy answers may part at last
        assert one.tokens[:8] == want.samples[0].tokens[:8]
        assert len(one.tokens) == 48 or one.finish_reason == "stop"


def test_cancelled_requests_leave_the_server(cluster: Make) -> None:
    c = servers(cluster, 1)
    with Scheduler(c, slots=4) as sched:
        group = sched.submit(LONG, n=4, max_new_tokens=400)
        until(lambda: sched.stats()["replicas"][0]["tokens"] > 0, within_s=WAIT_S)
        group.cancel()
        until(lambda: c.execute_rank_zero_sync("load")["running"] == 0, within_s=WAIT_S)
        again = sched.submit(CAPITAL, max_new_tokens=24, sampling=GREEDY)
        assert "Paris" in text_of(c, again.result(WAIT_S).samples[0].tokens)


def test_new_weights(cluster: Make) -> None:
    """Requests that run keep their tokens and go on with the new version."""
    c = servers(cluster, 1)
    model = next(Path(PYTHON).parent.parent.glob("lib/python3*/site-packages/*/*.gguf"))
    with Scheduler(c, slots=4) as sched:
        group = sched.submit(LONG, n=2, max_new_tokens=40, sampling=GREEDY)
        until(lambda: sched.stats()["replicas"][0]["tokens"] > 0, within_s=WAIT_S)
        with sched.weights(version=1):
            c.execute_all_sync("update_weights", str(model), 1)
        samples = group.result(WAIT_S).samples
    for one in samples:
        assert set(one.versions) <= {0, 1} and one.versions == sorted(one.versions)
    assert any(1 in one.versions for one in samples)


def example(*arguments: str) -> str:
    done = subprocess.run(
        [str(ROOT / "tools/demo-llm"), *arguments],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example(_muster_home: None) -> None:
    out = example("--steps", "2", "--prompts", "2", "--group", "4", "--kill", "0")
    assert "16 answers were asked for, 16 came, 0 of them twice" in out


def test_the_example_trains(_muster_home: None) -> None:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    if not list(cache.glob("muster/verl-venv-*/.made")):
        pytest.skip("torch is not installed; `make test-verl` does it")
    out = example(
        *("train", "--steps", "2", "--prompts", "2", "--group", "4", "--kill", "-1")
    )
    assert "16 answers were asked for, 16 came, 0 of them twice" in out
    ratios = [float(found) for found in re.findall(r"ratio ([0-9.]+)", out)]
    # what torch makes of the file is what llama.cpp makes of it
    assert len(ratios) == 1 and 0.8 < ratios[0] < 1.25
