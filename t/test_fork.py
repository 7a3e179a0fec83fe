"""Processes beside the workers of a cluster."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import muster
import pytest
from helpers import Bell, wait_gone


class Parent:
    def where(self) -> tuple[str, str, str, int]:
        names = ("RANK", "CUDA_VISIBLE_DEVICES", "CLUSTER_NAME")
        rank, devices, cluster = (os.environ[name] for name in names)
        return rank, devices, cluster, os.getpid()


class Child(Parent):
    def __init__(self, word: str) -> None:
        self.word = word

    def say(self) -> str:
        return f"{self.word} {os.environ['RANK']} {os.environ['EXTRA']}"


class Bad:
    def __init__(self) -> None:
        raise RuntimeError("not today")


@pytest.fixture
def parent(cluster: Any) -> Any:
    return cluster(Parent, None, device_mapping="0-1")


def test_a_cluster_beside_another(parent: Any) -> None:
    child = parent.fork_cluster("beside", Child, args=("hello",), env={"EXTRA": "x"})
    try:
        assert child.execute_all_sync("say") == ["hello 0 x", "hello 1 x"]
        ours, theirs = parent.execute_all_sync("where"), child.execute_all_sync("where")
        for (rank, devices, _, pid), (rank2, devices2, name, pid2) in zip(
            ours, theirs, strict=True
        ):
            assert (rank, devices) == (rank2, devices2)
            assert name == "beside"
            assert pid != pid2
        with pytest.raises(muster.ClusterError, match="already"):
            parent.fork_cluster("beside", Child, args=("again",))
    finally:
        child.destroy(grace=0.2)
    assert wait_gone(child.pids) == []
    assert parent.execute_rank_zero_sync("where")[0] == "0"


def test_a_constructor_that_raises_leaves_nothing(parent: Any) -> None:
    with pytest.raises(RuntimeError, match="not today"):
        parent.fork_cluster("bad", Bad)
    again = parent.fork_cluster("bad", Child, args=("y",), env={"EXTRA": "z"})
    assert again.execute_all_sync("say") == ["y 0 z", "y 1 z"]
    again.destroy(grace=0.2)


SCRIPT = """
import os, signal
print("up", os.environ["RANK"], flush=True)
open(os.environ["BELL"], "wb").write(b"!")
signal.pause()
"""


def fork_tools(parent: Any, bell: Bell) -> muster.Processes:
    """One beside each worker; all are up."""
    command = [sys.executable, "-c", SCRIPT]
    tools = parent.fork_workers("tool", command=command, env={"BELL": bell.path})
    for _ in tools.pids:
        bell.hear()
    return tools


def test_commands_and_modules(parent: Any, bell: Callable[[], Bell]) -> None:
    with fork_tools(parent, bell()) as tools:
        assert len(tools) == 2
    assert wait_gone(tools.pids) == []
    for rank, path in enumerate(tools.log_paths):  # the log is whole now
        assert f"up {rank}" in Path(path).read_text()
    with parent.fork_workers("module", module="this") as modules:
        assert wait_gone(modules.pids) == []  # it prints, and that is all
    for path in modules.log_paths:
        assert "Beautiful is better than ugly" in Path(path).read_text()
    with pytest.raises(ValueError, match="module or command"):
        parent.fork_workers("nothing")


def test_they_end_with_the_worker_beside_them(
    parent: Any, bell: Callable[[], Bell]
) -> None:
    tools = fork_tools(parent, bell())
    os.kill(parent.pids[1], signal.SIGKILL)
    assert wait_gone(tools.pids[1:]) == []
    os.kill(tools.pids[0], 0)  # the other one lives
    tools.destroy(grace=0.2)
    assert wait_gone(tools.pids) == []


def test_nobody_beside_the_dead(parent: Any) -> None:
    os.kill(parent.pids[0], signal.SIGKILL)
    with pytest.raises(muster.WorkerDied):
        parent.execute_rank_zero_sync("where")
    with pytest.raises(
        muster.MusterError, match="beside which it is to run, has ended"
    ):
        parent.fork_workers("late", command=["true"])
