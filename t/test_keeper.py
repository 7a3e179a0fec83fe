"""The keeper of a worker's memory comes with its first call that is not a short one."""

import os
from pathlib import Path
from typing import Any

import pytest
from helpers import DEADLINE_S
from muster import Cluster, WorkerDied
from replace_workers import Counter

LONG_S = 0.025  # base/limits.h, MS_LONG_NS


def keepers(pid: int) -> list[str]:
    children = [
        child
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    names = [Path(f"/proc/{child}/comm").read_text().strip() for child in children]
    return [name for name in names if name == "muster-keeper"]


@pytest.mark.parametrize("kind", ["fork", "exec"])
def test_it_comes_when_it_is_needed(session: Any, kind: str) -> None:
    with Cluster("kept", Counter, start=kind) as c:
        for _ in range(100):
            c.execute_rank_zero_sync("count")
        c.execute_rank_zero_sync("sleep", 4 * LONG_S)
        assert len(keepers(c.pids[0])) == 1
        c.execute_rank_zero_sync("sleep", 4 * LONG_S)
        assert len(keepers(c.pids[0])) == 1  # once
        call = c.execute_rank_zero_async("sleep", DEADLINE_S)
        c.execute_rank_zero_async("count")

        os.kill(c.pids[0], 9)
        with pytest.raises(WorkerDied):
            call.result(DEADLINE_S)
