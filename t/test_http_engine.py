"""muster.generate.HttpEngine against a strict server, in workers."""

import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import muster
import pytest
from fake_llm_server import (
    CUT,
    EOS,
    ERROR,
    GARBAGE,
    HANG,
    JSON,
    MANY,
    PROGRAM,
    REFUSE,
    SHORT,
    Fake,
    answer_of,
    logprob,
    server_on,
)
from helpers import until, wait_gone
from muster.generate import HttpEngine, ServerError, ServerUnreachable

Make = Callable[..., Any]
KINDS = ("openai", "vllm", "sglang", "llama.cpp")
STREAMS = KINDS[:3]
PROMPT = [31, 5, 6]


@pytest.fixture
def fake() -> Iterator[Callable[..., Fake]]:
    made: list[Fake] = []

    def make(kind: str, key: str | None = None) -> Fake:
        made.append(Fake(kind, key=key))
        threading.Thread(target=made[-1].serve_forever, daemon=True).start()
        return made[-1]

    yield make
    for one in made:
        one.shutdown()
        one.server_close()


def request(prompt: Any = PROMPT, new: int = 40, **more: Any) -> dict[str, Any]:
    fields = {"rid": os.urandom(16).hex(), "attempt": 1, "prompt": prompt}
    return fields | {"max_new_tokens": new} | more


def collected(chunks: Any) -> tuple[list[int], list[float], str | None]:
    """Tokens, log-probabilities and finish reason of a stream."""
    tokens: list[int] = []
    values: list[float] = []
    finish = None
    for chunk in chunks:
        assert finish is None
        tokens += chunk["tokens"]
        values += chunk.get("logprobs", [])
        finish = chunk.get("finish_reason")
    return tokens, values, finish


def command(kind: str, *more: str) -> list[str]:
    return [sys.executable, PROGRAM, "--kind", kind, "--port", "{port}", *more]


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_come_as_the_server_makes_them(
    cluster: Make, fake: Any, kind: str
) -> None:
    c = cluster(HttpEngine, kwargs={"url": fake(kind).url, "version": 3, "piece": 8})
    for prompt in (PROMPT, [5], [MANY, 1]):
        chunks = list(c.execute_rank_zero_sync("generate", request(prompt)))
        tokens, values, finish = collected(chunks)
        assert tokens == answer_of(prompt, 40)
        assert finish == ("stop" if tokens[-1] == EOS else "length")
        assert len(chunks) > 1 and {chunk["version"] for chunk in chunks} == {3}
        known = [(t, v) for t, v in zip(tokens, values, strict=True) if v == v]
        assert all(v == logprob(t) for t, v in known)
        missing = [t for t, v in zip(tokens, values, strict=True) if math.isnan(v)]
        assert missing == [t for t in tokens if t % 97 == 0 and kind == "llama.cpp"]
    assert c.execute_rank_zero_sync("alive") is True


@pytest.mark.parametrize("kind", KINDS)
def test_resumed_from_its_tokens(cluster: Make, fake: Any, kind: str) -> None:
    """With options that every kind knows, some under another name."""
    c = cluster(HttpEngine, kwargs={"url": fake(kind).url})
    whole = answer_of(PROMPT, 30)
    sampling = {"temperature": 0.5, "top_p": 0.9, "seed": 7, "stop": ["x"]}
    if kind != "openai":
        sampling |= {"top_k": 5, "min_p": 0.1}
    rest = request(new=20, tokens=whole[:10], sampling=sampling, version=0)
    assert collected(c.execute_rank_zero_sync("generate", rest))[0] == whole[10:]
    if kind != "openai":
        text = collected(c.execute_rank_zero_sync("generate", request("hello")))
        ids = c.execute_rank_zero_sync("tokenize", "hello")
        assert text[0] == answer_of(ids, 40)
        assert c.execute_rank_zero_sync("detokenize", ids) == "hello"


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_request_draws_other_numbers(
    cluster: Make, fake: Any, kind: str
) -> None:
    server = fake(kind)
    c = cluster(HttpEngine, kwargs={"url": server.url})

    def drawn(seq: int, made: int) -> int:
        """The seed of sample `seq` behind so many tokens."""
        asked = request(new=2, tokens=[5] * made, seq=seq, sampling={"seed": 7})
        collected(c.execute_rank_zero_sync("generate", asked))
        return server.seeds[-1]

    assert [drawn(0, 0), drawn(1, 0)] == [7, 8]
    seeds = [drawn(seq, made) for seq in (0, 1) for made in range(4)]
    assert len(set(seeds)) == 8 and max(seeds) < 2**31
    assert drawn(1, 3) == seeds[-1]  # the same attempt the same way


@pytest.mark.parametrize("kind", STREAMS)
def test_abort_ends_one_request_alone(cluster: Make, fake: Any, kind: str) -> None:
    server = fake(kind)
    c = cluster(HttpEngine, kwargs={"url": server.url})
    one, other = request([HANG, 1]), request([HANG, 2])
    streams = [c.execute_rank_zero_sync("generate", r) for r in (one, other)]
    first = [next(streams[0])["tokens"] for _ in range(3)]
    next(streams[1])
    assert c.execute_rank_zero_sync("abort", "nobody") is False
    assert c.execute_rank_zero_sync("abort", one["rid"]) is True
    tokens, _, finish = collected(streams[0])
    assert tokens == [] and finish == "abort"
    assert [t for (t,) in first] == answer_of(one["prompt"], 3)
    until(lambda: len(server.ended) == 1)
    assert len(server.running) == 1
    streams[1].close()  # as good as an abort
    until(lambda: len(server.ended) == 2)
    assert server.running == {}
    if kind != "openai":
        assert c.execute_rank_zero_sync("load")["running"] == 0


@pytest.mark.parametrize("kind", STREAMS)
def test_what_goes_wrong_is_said(cluster: Make, fake: Any, kind: str) -> None:
    server = fake(kind)
    c = cluster(HttpEngine, kwargs={"url": server.url})
    cases = [
        ([1001], ServerError, "400 Bad Request: .*invalid tokens"),
        (list(range(300)), ServerError, "exceeds the context"),
        ([REFUSE, 1], ServerError, "503 .*no capacity"),
        ([ERROR, 1], ServerError, "the server says: out of memory"),
        ([GARBAGE, 1], ServerError, r"not JSON: \{\"choices\": \["),
        (
            [JSON, 1],
            ServerError,
            "a stream of events was asked for, and application/json",
        ),
        ([CUT, 1], ServerUnreachable, "cut the connection"),
        ([SHORT, 1], ServerUnreachable, "ended before the answer did"),
    ]
    for prompt, error, text in cases:
        with pytest.raises(error, match=text):
            list(c.execute_rank_zero_sync("generate", request(prompt)))
    with pytest.raises(ServerError, match=r"unknown fields.*'best_of'") as raised:
        bad = request(sampling={"best_of": 4})
        list(c.execute_rank_zero_sync("generate", bad))
    assert raised.value.status == 400
    with pytest.raises(ValueError, match="max_new_tokens must be positive"):
        list(c.execute_rank_zero_sync("generate", request(new=0)))
    # and it goes on
    assert collected(c.execute_rank_zero_sync("generate", request()))[2] is not None


def test_llama_cpp_says_what_goes_wrong(cluster: Make, fake: Any) -> None:
    server = fake("llama.cpp")
    c = cluster(HttpEngine, kwargs={"url": server.url})
    for prompt, error, text in (
        ([1001], ServerError, "invalid tokens"),
        ([CUT, 1], ServerUnreachable, "cut the connection"),
    ):
        with pytest.raises(error, match=text):
            list(c.execute_rank_zero_sync("generate", request(prompt)))
    with pytest.raises(ValueError, match="no stop_token_ids"):
        wrong = request(sampling={"stop_token_ids": [1]})
        list(c.execute_rank_zero_sync("generate", wrong))
    with pytest.raises(NotImplementedError, match="was not started here"):
        c.execute_rank_zero_sync("update_weights", "/nowhere", 1)
    held = request([HANG, 1])
    stream = c.execute_rank_zero_async("generate", held)
    until(lambda: len(server.running) == 1)
    with pytest.raises(NotImplementedError, match="cannot keep requests"):
        c.execute_rank_zero_sync("pause", "keep")
    c.execute_rank_zero_sync("pause", "abort")
    assert collected(stream.result())[2] == "abort"
    until(lambda: server.ended[-1] == "cut")


def test_a_server_that_falls_silent(cluster: Make, fake: Any) -> None:
    server = fake("vllm")
    c = cluster(HttpEngine, kwargs={"url": server.url, "silence_timeout": 2})
    with pytest.raises(ServerUnreachable, match=r"did not come within 2 s"):
        list(c.execute_rank_zero_sync("generate", request([HANG, 1])))
    until(lambda: server.ended == ["cut"])


def test_keys_and_urls(
    cluster: Make, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = fake("vllm", "secret"), fake("vllm", "secret")
    urls = [a.url, b.url]
    c = cluster(
        HttpEngine,
        2,
        kwargs={"url": urls, "key": "$FAKE_KEY"},
        env={"FAKE_KEY": "secret"},
    )
    assert c.execute_all_sync("address") == urls
    assert c.execute_all_sync("alive") == [True, True]
    wrong = cluster(HttpEngine, kwargs={"url": a.url, "key": "other"})
    with pytest.raises(ServerError, match=r"401 .*Invalid API Key"):
        wrong.execute_rank_zero_sync("alive")
    for kwargs, text in (
        ({}, "either url= or command="),
        ({"url": a.url, "command": ["x"]}, "either url= or command="),
        ({"url": "ftp://x"}, "url: must be http"),
        ({"url": a.url, "kind": "tgi"}, "kind: one of openai"),
        ({"url": a.url, "key": "$NO_SUCH"}, "the environment has no NO_SUCH"),
        ({"command": ["x"]}, "must contain {port}"),
    ):
        with pytest.raises(Exception, match=text):
            cluster(HttpEngine, kwargs=kwargs)


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_weights_change_under_a_kept_request(
    cluster: Make, fake: Any, tmp_path: Path, kind: str
) -> None:
    server = fake(kind)
    c = cluster(HttpEngine, kwargs={"url": server.url})
    (tmp_path / "version").write_text("7")
    # paused before it begins: a request waits
    c.execute_rank_zero_sync("pause", "abort")
    waiting = c.execute_rank_zero_async("generate", request())
    with pytest.raises(ServerError, match="no weights at"):
        c.execute_rank_zero_sync("update_weights", str(tmp_path / "none"), 7)
    assert c.execute_rank_zero_sync("weight_version") == 0
    c.execute_rank_zero_sync("update_weights", str(tmp_path), 7)
    assert server.label == "7" and c.execute_rank_zero_sync("weight_version") == 7
    assert "/generate" not in server.posts and "/v1/completions" not in server.posts
    c.execute_rank_zero_sync("resume")
    chunks = list(waiting.result())
    assert {chunk["version"] for chunk in chunks} == {7}
    assert collected(chunks)[0] == answer_of(PROMPT, 40, 7)
    # one that runs stands still in the server and goes on
    c.execute_rank_zero_sync("pause", "keep")
    assert server.is_paused
    c.execute_rank_zero_sync("resume")
    assert not server.is_paused
    assert collected(c.execute_rank_zero_sync("generate", request()))[2] is not None


def test_caches_of_kept_requests_are_given_back(cluster: Make, fake: Any) -> None:
    """With `retract` the scheduler's pause asks for that; only SGLang has it."""
    server = fake("sglang")
    c = cluster(HttpEngine, kwargs={"url": server.url, "retract": True})
    asked = request([HANG, 1])
    held = c.execute_rank_zero_async("generate", asked)
    until(lambda: len(server.running) == 1)
    c.execute_rank_zero_sync("pause")
    assert server.pauses == ["retract"] and len(server.running) == 1
    c.execute_rank_zero_sync("resume")
    assert c.execute_rank_zero_sync("abort", asked["rid"])
    assert collected(held.result())[2] == "abort"
    other = cluster(HttpEngine, kwargs={"url": fake("vllm").url})
    with pytest.raises(NotImplementedError, match="vllm cannot retract requests"):
        other.execute_rank_zero_sync("pause", "retract")


def test_a_server_of_its_own(cluster: Make, tmp_path: Path) -> None:
    """New weights start it anew; it ends with its worker."""
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "version").write_text(str(number))
    log = tmp_path / "server-{rank}.log"
    kwargs = {
        "command": command("llama.cpp", "--model", "{model}"),
        "model": str(tmp_path / "1"),
        "version": 1,
        "log": str(log),
    }
    c = cluster(HttpEngine, 2, kwargs=kwargs)
    assert len(set(c.execute_all_sync("address"))) == 2
    got = collected(c.execute_rank_zero_sync("generate", request()))
    assert got[0] == answer_of(PROMPT, 40, 1)
    c.execute_all_sync("pause")
    c.execute_all_sync("update_weights", str(tmp_path / "2"), 2)
    c.execute_all_sync("resume")
    for stream in c.execute_all_sync("generate", request()):
        chunks = list(stream)
        assert collected(chunks)[0] == answer_of(PROMPT, 40, 2)
        assert chunks[0]["version"] == 2
    text = (tmp_path / "server-1.log").read_text()
    assert text == "loading the model\nready\n" * 2
    port = c.execute_rank_zero_sync("address").rpartition(":")[2]
    server = server_on(port)
    c.destroy()
    assert wait_gone([server]) == []


def test_a_server_that_does_not_start(cluster: Make) -> None:
    with pytest.raises(
        RuntimeError, match=r"exit code 1 before.*\n.*\n  CUDA out of mem"
    ):
        cluster(HttpEngine, kwargs={"command": command("vllm", "--fail", "exit")})
    silent = {"command": command("vllm", "--fail", "never"), "start_timeout": 10}
    with pytest.raises(
        ServerUnreachable, match=r"(?s)not ready within 10 s: .*loading the"
    ):
        cluster(HttpEngine, kwargs=silent)
    with pytest.raises(FileNotFoundError, match="no-such-server"):
        cluster(HttpEngine, kwargs={"command": ["/no-such-server", "{port}"]})


def test_a_server_is_not_asked_through_a_proxy(cluster: Make) -> None:
    env = {"http_proxy": "http://127.0.0.1:9", "no_proxy": ""}
    kwargs = {"command": command("vllm"), "start_timeout": 20}
    c = cluster(HttpEngine, kwargs=kwargs, env=env)
    assert c.execute_rank_zero_sync("alive") is True


def test_a_worker_ends_with_its_server(cluster: Make) -> None:
    c = cluster(HttpEngine, kwargs={"command": command("vllm")})
    stream = c.execute_rank_zero_sync("generate", request([HANG, 1]))
    next(stream)
    port = c.execute_rank_zero_sync("address").rpartition(":")[2]
    os.kill(server_on(port), signal.SIGKILL)
    with pytest.raises(muster.WorkerDied, match="the server ended with SIGKILL"):
        list(stream)


def test_a_server_ends_with_its_worker(cluster: Make) -> None:
    c = cluster(HttpEngine, kwargs={"command": command("vllm")})
    port = c.execute_rank_zero_sync("address").rpartition(":")[2]
    server = server_on(port)
    parent = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[1]
    os.kill(int(parent), signal.SIGKILL)
    assert wait_gone([server]) == []
