"""Timelines: what a driver records, and the trace that `muster timeline` makes of it."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import muster
import pytest
from cli_rig import CLI
from trace_rules import Trace, check_trace


class Worker:
    def add(self, a: int, b: int) -> int:
        return a + b

    def fail(self) -> None:
        raise ValueError("on purpose")


def run(*args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([CLI, "timeline", *args], capture_output=True, text=True)
    assert done.returncode == code, done
    return done


def trace(*args: str) -> Trace:
    events: Trace = json.loads(run(*args).stdout)["traceEvents"]
    check_trace(events)
    return events


def spans(events: Trace, name: str) -> Trace:
    return [e for e in events if e["ph"] == "X" and e["name"] == name]


def test_what_a_driver_does(own_session: Any, tmp_path: Path) -> None:
    assert not muster.timeline.is_on()
    muster.timeline.mark("nobody records this")
    assert "MUSTER_TIMELINE=1" in run(code=5).stderr
    with muster.Cluster("adders", Worker, world_size=2) as adders:
        muster.timeline.start()
        assert muster.timeline.is_on()
        with muster.timeline.span("step", number=3), muster.timeline.span("within"):
            assert adders.execute_all_sync("add", 1, 2) == [3, 3]
            with pytest.raises(ValueError, match="on purpose"):
                adders.execute_rank_zero_sync("fail")
        muster.timeline.mark("it is done", what={"a": [1]})
        muster.timeline.count("live", 7)
        for place, begin in ((0, 10), (1, 30)):
            track = f"adders/{place}@n"
            muster.timeline.add_span("r1", begin, begin + 15, track=track, flow=9)
        events = trace()  # while it runs
        (step,) = spans(events, "step")
        (within,) = spans(events, "within")
        assert step["args"] == {"number": 3} and step["tid"] == within["tid"]
        added = spans(events, "add")
        assert len({e["tid"] for e in added}) == 2
        for e in added:
            assert (
                step["ts"] <= e["ts"] <= e["ts"] + e["dur"] <= step["ts"] + step["dur"]
            )
        assert [e["args"] for e in spans(events, "fail")] == [{"failed": True}]
        assert len(spans(events, "r1")) == 2
        assert sum(e["ph"] in "sf" for e in events) == 2
        muster.timeline.stop()
        adders.execute_all_sync("add", 1, 2)
    assert len(spans(trace(), "add")) == 2
    out = tmp_path / "trace.json"
    told = json.loads(run("-o", str(out), "--json").stdout)
    assert told["tracks"] >= 3 and told["file"] == str(out)
    check_trace(json.loads(out.read_text())["traceEvents"])
    assert "perfetto" in run("-o", str(out)).stdout
    assert not list(tmp_path.glob("*.part"))
    run("-o", str(tmp_path / "none" / "x"), code=1)
    run(str(tmp_path / "none"), code=5)


def test_many_threads_and_a_killed_driver(tmp_path: Path) -> None:
    """Lines of all threads are whole, and those of a driver that is killed are there."""
    file = tmp_path / "lines"
    program = """
import os, signal, threading, muster
muster.init()
def spin(i):
    for k in range(200):
        with muster.timeline.span(f"s{i}", track=f"t/{i}", k=k):
            pass
threads = [threading.Thread(target=spin, args=(i,)) for i in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
os.kill(os.getpid(), signal.SIGKILL)
"""
    env = os.environ | {"MUSTER_TIMELINE": str(file)}
    done = subprocess.run([sys.executable, "-c", program], env=env, check=False)
    assert done.returncode == -9
    events = trace(str(file))
    assert [len(spans(events, f"s{i}")) for i in range(4)] == [200] * 4
    with file.open("a") as more:
        more.write('{"track":"t/0","name":"cut o')
    assert "1 lines could not be read" in run(str(file)).stderr


def test_a_timeline_that_cannot_be_written_ends_init(tmp_path: Path) -> None:
    env = os.environ | {"MUSTER_TIMELINE": str(tmp_path / "no" / "where")}
    command = [sys.executable, "-c", "import muster; muster.init()"]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 1 and "cannot write a timeline" in done.stderr


def test_workers_and_wrong_arguments(own_session: Any) -> None:
    muster.timeline.start()
    seen: list[BaseException] = []

    def odd() -> None:
        try:
            muster.timeline.mark("odd", value=object())  # shown as its repr
        except BaseException as e:
            seen.append(e)

    thread = threading.Thread(target=odd)
    thread.start()
    thread.join()
    assert seen == []
    with pytest.raises(ValueError, match="JSON object"):
        own_session.head.add_mark("a", "b", 1, "[1]")
    marks = [e for e in trace() if e["ph"] == "i"]
    assert len(marks) == 1 and "object object" in marks[0]["args"]["value"]


def test_nothing_that_is_told_ends_a_run(
    own_session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError("no repr")

    monkeypatch.setattr("muster.timeline._has_warned", False)
    nan = float("nan")
    muster.timeline.start()
    with muster.timeline.span("step", loss=nan, number=3, keys={(1, 2): 3}):
        pass
    muster.timeline.mark("late", left=float("inf"))
    with pytest.warns(UserWarning, match="count: not a finite number") as seen:
        muster.timeline.count("loss", nan)
        muster.timeline.mark("odd", value=Odd())
        muster.timeline.add_span("odd", 1, 2, value=Odd())
    assert len(seen) == 1
    events = trace()
    (step,) = spans(events, "step")
    assert step["args"] == {"loss": "nan", "number": 3, "keys": "{(1, 2): 3}"}
    assert [e["args"] for e in events if e["ph"] == "i"] == [{"left": "inf"}]
