"""The keeper of a worker's memory comes with its first call that is not a short one."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import DEADLINE_S, Bell, until
from muster import Cluster, WorkerDied
from workers import Echo

LONG_S = 0.025  # base/limits.h, MS_LONG_NS


class Kept(Echo):
    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def keepers(parent: int) -> int:
    """How many of its children are keepers."""
    count = 0
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        try:
            stat = Path(f"/proc/{entry}/stat").read_text()
        except OSError:
            continue
        name, _, rest = stat.partition("(")[2].rpartition(")")
        count += name == "muster-keeper" and int(rest.split()[1]) == parent
    return count


@pytest.mark.parametrize("kind", ["fork", "exec"])
def test_it_comes_when_it_is_needed(
    session: Any, bell: Callable[[], Bell], kind: str
) -> None:
    with Cluster("kept", Kept, start=kind) as c:
        pid = c.pids[0]
        for _ in range(100):
            c.execute_rank_zero_sync("rank")
        begun, go_on = bell(), bell()
        call = c.execute_rank_zero_async("wait_for", begun.path, go_on.path)
        until(lambda: keepers(pid))
        go_on.ring()
        call.result(DEADLINE_S)
        c.execute_rank_zero_sync("sleep", 4 * LONG_S)
        assert keepers(pid) == 1  # once
        call = c.execute_rank_zero_async("sleep", DEADLINE_S)
        c.execute_rank_zero_async("rank")

        os.kill(pid, 9)
        with pytest.raises(WorkerDied):
            call.result(DEADLINE_S)
