"""The demo: its gradient is right, it learns, it survives a death, it leaves nothing."""

import importlib
import json
import os
import re
import runpy
import socket
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers import MARK, leftovers, new_mark, processes, wait_gone
from trace_rules import check_trace

ROOT = Path(__file__).resolve().parent.parent
RUN_S = 250.0  # below pytest's limit
GRPO = ROOT / "examples/grpo"
MODULES = ("grpo", "policy", "task")


@pytest.fixture(scope="module")
def example() -> Iterator[Any]:
    """The modules of the example, which import each other by their short names."""
    sys.path.insert(0, str(GRPO))
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
    sys.path.remove(str(GRPO))
    for name in (*MODULES, "ledger"):
        sys.modules.pop(name, None)


def _loss(example: Any, weights: Any, batch: Any) -> float:
    """The formula of grpo.py, straight."""
    grpo, policy = example.grpo, example.policy
    prompts, answers, before, reference, gains = batch
    lines, tokens, is_token = policy.unroll(prompts, answers)
    log_p = policy.forward(weights, lines)[0]
    now = log_p[np.arange(len(tokens)), tokens]
    ratio = np.exp(now - before.reshape(-1))
    gain = np.repeat(gains, policy.ANSWER)
    clipped = np.clip(ratio, 1 - grpo.CLIP, 1 + grpo.CLIP)
    gained = np.minimum(ratio * gain, clipped * gain)
    away = reference.reshape(-1) - now
    entropy = -(np.exp(log_p) * log_p).sum(axis=1)
    each = grpo.KL * (np.exp(away) - away - 1) - gained - grpo.ENTROPY * entropy
    return float(each[is_token].sum())


@pytest.fixture
def batch(example: Any) -> Any:
    """Answers of one policy, seen by another that has moved on: some tokens are clipped."""
    random = np.random.default_rng(5)
    policy, task = example.policy, example.task
    old = policy.new_weights(1)
    prompts = policy.encode(task.training_prompts(24, random), policy.PROMPT)
    answers, before = policy.generate(old, prompts, random)
    weights = {k: w.astype(np.float64) for k, w in old.items()}
    for w in weights.values():
        w += random.normal(scale=0.05, size=w.shape)
    reference = policy.log_probs(policy.new_weights(2), prompts, answers)
    gains = random.normal(size=len(prompts))
    return weights, (prompts, answers, before, reference, gains)


def test_gradient_is_the_slope_of_the_loss(example: Any, batch: Any) -> None:
    weights, samples = batch
    _, answers, before, *_ = samples
    now = example.policy.log_probs(weights, *samples[:2])
    ratio = np.exp(now - before)[answers != example.policy.PAD]
    assert ((ratio > 1.2) | (ratio < 0.8)).any() and (abs(ratio - 1) < 0.2).any()

    slopes = example.grpo.gradient(weights, *samples)
    random = np.random.default_rng(6)
    for name, w in weights.items():
        # along a direction at random, and by single weights
        directions = [random.normal(size=w.shape)]
        for _ in range(4):
            one = np.zeros_like(w)
            one[tuple(random.integers(0, n) for n in w.shape)] = 1
            directions.append(one)
        for direction in directions:
            step = 1e-6
            up = _loss(example, weights | {name: w + step * direction}, samples)
            down = _loss(example, weights | {name: w - step * direction}, samples)
            slope = (up - down) / (2 * step)
            assert (slopes[name] * direction).sum() == pytest.approx(
                slope, rel=1e-4, abs=1e-5
            ), name


def test_parts_of_a_batch_add_up(example: Any, batch: Any) -> None:
    weights, samples = batch
    whole = example.grpo.gradient(weights, *samples)
    cut = 7  # uneven
    parts = [
        example.grpo.gradient(weights, *(column[rows] for column in samples))
        for rows in (slice(cut), slice(cut, None))
    ]
    mean = example.grpo.average(parts, len(samples[0]))
    for name, slope in whole.items():
        np.testing.assert_allclose(mean[name], slope / len(samples[0]), atol=1e-12)


def test_task(example: Any) -> None:
    task = example.task
    assert task.truth("52814>") == "12458."
    assert task.reward("52814>", "12458.") == 1
    assert 0 < task.reward("52814>", "12") < task.reward("52814>", "1245.") < 0.5
    assert task.reward("52814>", "") == 0
    held_out = set(task.test_prompts(1000))
    assert len(held_out) == 1000
    random = np.random.default_rng(0)
    trained = task.training_prompts(3000, random)
    assert len(trained) == 3000 and not held_out & set(trained)


def test_sampling_follows_the_policy(example: Any) -> None:
    policy = example.policy
    weights = policy.new_weights(3)
    weights["out"] = weights["out"] * 30
    prompts = policy.encode(["52814>"] * 40000, policy.PROMPT)
    answers, log_ps = policy.generate(weights, prompts, np.random.default_rng(4))
    shares = np.bincount(answers[:, 0], minlength=len(policy.VOCABULARY)) / len(answers)
    wanted = np.exp(
        policy.forward(weights, policy.unroll(prompts[:1], answers[:1])[0])[0]
    )
    assert wanted[0].max() > 0.15  # not all alike
    np.testing.assert_allclose(shares, wanted[0], atol=0.01)
    again = policy.log_probs(weights, prompts[:500], answers[:500])
    np.testing.assert_allclose(log_ps[:500], again, atol=1e-4)


def _demo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    mark = new_mark()
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/demo"), *arguments],
        cwd=folder,
        env={**os.environ, MARK: mark},
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )
    wait_gone(processes(mark))
    assert leftovers(mark) == []
    return done


def _files(folder: Path) -> tuple[str, ...]:
    places = {"--curve": "curve.svg", "--timeline": "timeline.json"}
    return tuple(
        x for option, name in places.items() for x in (option, str(folder / name))
    )


def _requests(out: str) -> list[int]:
    """Submitted, finished, resumed, lost, doubled, as the run has counted them."""
    (line,) = re.findall(r"^Requests: .*", out, re.M)
    return [int(n.replace(",", "")) for n in re.findall(r"\d[\d,]*(?= \w)", line)]


def test_short_demo(tmp_path: Path) -> None:
    done = _demo(tmp_path, "--steps", "30", "--target", "0.1", *_files(tmp_path))
    out = done.stdout
    assert done.returncode == 0, out + done.stderr
    for role in ("actor_train", "actor_infer", "reference", "reward"):
        assert re.search(rf"^{role} +1 ", out, re.M), out
    assert re.search(r"^  ! WorkerDied: .*actor_infer/1.*SIGKILL", out, re.M), out
    assert "actor_infer/1 died and was replaced" in out
    assert re.search(r"^step  30/30 .* reward 0\.\d+ .* samples/s", out, re.M), out
    assert "Nothing is left but logs" in out and "What to try next" in out
    submitted, finished, resumed, lost, doubled = _requests(out)
    assert submitted >= 30 * 32 * 16 and finished == 30 * 32 * 16
    assert resumed > 0 and (lost, doubled) == (0, 0)
    # how many new weights have interrupted depends on the machine
    behind = re.findall(
        r"[\d,]+ answers have tokens of two or more, none of more than (\d+) behind",
        out,
    )
    assert [int(n) <= 1 for n in behind] == [True]
    drawn = ET.parse(tmp_path / "curve.svg").getroot()
    lines = [line.attrib["points"].split() for line in drawn.findall("{*}polyline")]
    assert [len(points) for points in lines[-2:]] == [30, 30]
    assert any("actor_infer/1" in (t.text or "") for t in drawn.findall("{*}text"))
    _check_timeline(json.loads((tmp_path / "timeline.json").read_text())["traceEvents"])


def _check_timeline(events: list[dict[str, Any]]) -> None:
    check_trace(events)
    threads = {
        e["tid"]: e["args"]["name"].partition("@")[0]
        for e in events
        if e["name"] == "thread_name"
    }

    def spans(name: str) -> list[str]:
        found = (e for e in events if e["ph"] == "X" and e["name"] == name)
        return [threads[e["tid"]] for e in found]

    assert spans("step") == ["driver"] * 30
    assert len(spans("hand over weights")) == 30
    assert len(spans("gradient")) == 30 * 2 * 2
    generated = spans("generate")
    assert len(generated) > 30 * 32 * 16 and len(set(generated)) == 2
    # what ran on the one that died went on on the other
    starts = {e["id"]: threads[e["tid"]] for e in events if e["ph"] == "s"}
    ends = {e["id"]: threads[e["tid"]] for e in events if e["ph"] == "f"}
    assert ("actor_infer/1", "actor_infer/0") in {(starts[i], ends[i]) for i in starts}


@pytest.mark.parametrize("kill", ["never", "0"])
def test_every_request_comes_once(tmp_path: Path, kill: str) -> None:
    sizes = ("--steps", "4", "--prompts", "8", "--group", "4", "--target", "0")
    done = _demo(tmp_path, *sizes, "--kill", kill, *_files(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("WorkerDied" in done.stdout) == (kill != "never")
    submitted, finished, resumed, lost, doubled = _requests(done.stdout)
    assert submitted >= finished == 4 * 8 * 4 and (lost, doubled) == (0, 0)
    assert kill != "never" or resumed == 0


def test_the_books_see_what_is_wrong(example: Any) -> None:
    """They are no constants: what does not come is lost, what comes twice is doubled."""
    ledger = importlib.import_module("ledger")
    sample = SimpleNamespace(seq=0, versions=[3, 5], attempt=1)
    group = SimpleNamespace(id=7, n=2, samples=[sample, sample])
    scheduler = SimpleNamespace(
        version=6, submit=lambda prompt, n: group, timeline=list
    )
    books = ledger.Ledger(scheduler)
    books.submit([1], 2)
    books.take([group])
    assert books.lost == {(7, 1)} and books.doubled == 1
    assert books.mixed == {(7, 0)} and books.oldest == 3
    assert "1 lost, 1 doubled" in next(iter(books.lines()))


def test_demo_that_does_not_learn_fails(tmp_path: Path) -> None:
    short = ("--steps", "3", "--kill", "never")
    done = _demo(tmp_path, *short, *_files(tmp_path))
    assert done.returncode == 1
    assert "less than the target" in done.stderr


def test_demo_sees_what_is_left(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = runpy.run_path(str(ROOT / "tools/demo"))
    mark = new_mark()
    env = {**os.environ, demo["MARK"]: mark}
    child = subprocess.Popen(
        ["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
    )
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(b"here\n")
    child.stdin.flush()
    child.stdout.readline()  # before its exec is over /proc has no environment
    assert [line.split()[1] for line in demo["processes"](mark)] == [str(child.pid)]
    child.communicate()
    assert demo["processes"](mark) == []

    monkeypatch.setenv("MUSTER_HOME", str(short_path))
    folder = short_path / "20260101-000000-17"
    folder.mkdir()
    (folder / "agent.log").touch()
    assert demo["files"](17) == []
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(folder / "w.sock"))
        assert sorted(line.split()[0] for line in demo["files"](17)) == [
            "file",
            "socket",
        ]
