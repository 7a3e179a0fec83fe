"""init and shutdown, and what needs a session of its own."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import muster
import pytest
from helpers import (
    DEADLINE_S,
    MARK,
    Bell,
    agents_of,
    leftovers,
    new_mark,
    processes,
    wait_gone,
)
from muster import api
from workers import Echo

Bells = Callable[[], Bell]
QUICK_S = 5.0


def test_import_is_light() -> None:
    heavy = ("numpy", "asyncio", "cloudpickle", "subprocess", "typing", "inspect", "re")
    script = f"import sys, muster; print([m for m in {heavy} if m in sys.modules])"
    command = [
        sys.executable,
        "-S",
        "-c",
        f"import sys; sys.path = {sys.path}; {script}",
    ]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_without_init() -> None:
    assert not muster.is_initialized()
    with pytest.raises(muster.NotInitialized, match="init"):
        muster.Cluster("x", Echo)
    with pytest.raises(muster.NotInitialized):
        muster.ResourceManager()
    muster.shutdown()


def test_what_this_version_cannot_do() -> None:
    with pytest.raises(ValueError, match="orchestrator: one of local, ray"):
        muster.init(orchestrator="kubernetes")
    with pytest.raises(ValueError, match="num_gpus: "):
        muster.init(num_gpus=-1)
    assert not muster.is_initialized()


def test_init_twice_and_again() -> None:
    mark = os.environ[MARK] = new_mark()
    try:
        for _ in range(2):
            muster.init(num_gpus=2)
            assert muster.is_initialized()
            first = api.session()
            muster.init(num_gpus=2)
            assert api.session() is first
            with pytest.raises(muster.MusterError, match="already"):
                muster.init(num_gpus=3)
            assert muster.nodes()[0].gpus == 2
            assert first.head.session in first.head.session_dir
            muster.shutdown()
            muster.shutdown()
            assert not muster.is_initialized()
            assert leftovers(mark, first.head.session_dir) == []
    finally:
        muster.shutdown()
        del os.environ[MARK]


def test_init_from_many_threads() -> None:
    errors: list[BaseException] = []

    def start() -> None:
        try:
            muster.init(num_gpus=1)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    muster.shutdown()
    assert errors == []


def test_executable_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_BIN", "/nowhere/muster")
    with pytest.raises(muster.MusterError, match=r"/nowhere/muster.*MUSTER_BIN"):
        muster.init()


def test_the_agent_is_killed(own_session: Any, bell: Bells) -> None:
    c = muster.Cluster("a", Echo, world_size=2)
    begun = bell()
    pending = c.execute_rank_zero_async("hang", begun.path)
    begun.hear()
    (agent,) = agents_of(processes(os.environ[MARK]))
    os.kill(agent, signal.SIGKILL)
    with pytest.raises(muster.MusterError):
        pending.result(DEADLINE_S)
    assert wait_gone(processes(os.environ[MARK])) == []
    with pytest.raises(muster.MusterError):
        muster.Cluster("b", Echo)
    muster.init(num_gpus=4)  # as if there had been nothing
    with muster.Cluster("c", Echo) as again:
        assert again.execute_rank_zero_sync("rank") == 0


def test_calls_after_shutdown(own_session: Any) -> None:
    c = muster.Cluster("a", Echo)
    view, future = c[0], c.execute_rank_zero_async("hang")
    muster.shutdown()
    with pytest.raises(muster.MusterError):
        future.result(QUICK_S)
    for one in (c, view):
        with pytest.raises(muster.MusterError):
            one.execute_rank_zero_sync("rank")
    c.destroy()


def test_what_workers_print(
    capfd: pytest.CaptureFixture[str], own_session: Any
) -> None:
    c = muster.Cluster("talker", Echo, world_size=4)
    c[0].execute_rank_zero_sync("print", "only me")
    c.execute_all_sync("print", "all of us")
    c[1].execute_rank_zero_sync("print", "oh no", err=True)
    paths = [c.log_path(r) for r in range(4)]
    node = muster.nodes()[0].name
    muster.shutdown()
    out, err = capfd.readouterr()
    assert f"(talker/0@{node}) only me\n" in out
    assert out.count("all of us") == 2 and "[repeated 3x across cluster]" in out
    assert f"(talker/1@{node}) oh no\n" in err
    assert [open(p).read().count("all of us") for p in paths] == [1] * 4


def test_no_logs_here(capfd: pytest.CaptureFixture[str]) -> None:
    muster.init(log_to_driver=False)
    try:
        with muster.Cluster("quiet", Echo) as c:
            c.execute_rank_zero_sync("print", "psst")
            path = c.log_path()
    finally:
        muster.shutdown()
    assert "psst" not in capfd.readouterr().out
    assert "psst" in open(path).read()
