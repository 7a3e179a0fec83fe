"""A driver in Python that shows one behaviour, as driver_behaviours.c does in C.

driver_behaviours.py NAME prints what it saw, a line for each step; test_both_drivers.py
says what both have to print.
"""

import os
import select
import signal
import sys
from collections.abc import Callable
from typing import Any

import muster
from driver_workers import Mortal

DEADLINE_S = 20.0


def make(start: str = "fork") -> Any:
    return muster.Cluster("mortal", Mortal, world_size=2, start=start)


def tell_failure(e: muster.MusterError) -> str:
    if isinstance(e, muster.WorkerDied):
        how = f"code {e.exit_code}" if e.signal is None else f"signal {e.signal}"
        lines = e.last_lines[-1] if e.last_lines else ""
        return f"worker_died: {e.cluster}/{e.rank}: {how}: {lines}"
    if isinstance(e, muster.RemoteError):
        return f"raised: {e.remote_type}"
    if isinstance(e, muster.ClusterError) and "was forked from" in str(e):
        return "refused: forked"
    if isinstance(e, muster.WorkerUnreachable) and "was shut down" in str(e):
        return "shutting_down"
    return repr(e)


def say(what: Callable[[], Any]) -> None:
    """What a call comes to."""
    try:
        print(what(), flush=True)
    except muster.MusterError as e:
        print(tell_failure(e), flush=True)


def kill(pid: int) -> None:
    """Also wait for its end."""
    fd = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    ended, _, _ = select.select([fd], [], [], DEADLINE_S)
    assert ended, "it does not end"
    os.close(fd)


def calls() -> None:
    c = make()
    say(lambda: c.execute_rank_sync(0, "add", 1, 2))
    say(lambda: c.execute_rank_sync(1, "rank"))
    say(lambda: c.execute_rank_sync(1, "fail"))


def dies_in_a_call() -> None:
    c = make()
    say(lambda: c.execute_rank_sync(0, "leave", 7))
    pending = c.execute_rank_async(1, "hang")
    kill(c.pids[1])
    say(pending.result)


def dies_between_calls() -> None:
    c = make()
    say(lambda: c.execute_rank_sync(1, "rank"))
    kill(c.pids[1])
    say(lambda: c.execute_rank_sync(1, "rank"))
    say(lambda: c.execute_rank_sync(1, "rank"))
    say(lambda: c.execute_rank_sync(0, "rank"))


def dies_before_a_call() -> None:
    c = make()
    kill(c.pids[0])
    say(lambda: c.execute_rank_sync(0, "rank"))


def finds_a_successor() -> None:
    c = muster.get_cluster("kept")
    say(lambda: c.execute_rank_sync(1, "pid"))
    sys.stdin.readline()
    say(lambda: c.execute_rank_sync(1, "pid"))


def keeps_the_secret() -> None:
    for start in ("fork", "exec"):
        with make(start) as c:
            say(lambda c=c: c.execute_rank_sync(0, "secret"))


def changes() -> None:
    c = make()
    say(lambda: c.execute_rank_sync(1, "rank"))
    old = c.pids
    c.restart(grace=0)
    say(lambda: len(set(old) & set(c.pids)))
    c.resize(3, grace=0)
    say(lambda: c.execute_rank_sync(2, "rank"))
    c.resize(1, grace=0)
    say(lambda: c.world_size)
    say(lambda: c.execute_rank_sync(0, "rank"))


def follows() -> None:
    c = make()
    other = muster.get_cluster("mortal")
    c.restart(grace=0)
    c.resize(3, grace=0)
    say(lambda: other.world_size)
    say(lambda: other.execute_rank_sync(2, "rank"))
    say(lambda: other.execute_rank_sync(0, "rank"))


def has_its_roles_environment() -> None:
    env = {"ROLE_SAYS": "hello"}
    with muster.Cluster("mortal", Mortal, world_size=2, env=env) as c:
        say(lambda: c.execute_rank_sync(1, "at_import"))


def ends_rank_zero_last() -> None:
    path = os.environ["TOLD"]
    c = muster.Cluster("mortal", Mortal, world_size=2, env={"ROLE_ENDS": path})
    c.destroy(grace=10)
    with open(path) as file:
        say(file.read)


def calls_after_shutdown() -> None:
    c = make()
    pending = c.execute_rank_async(0, "hang")
    muster.shutdown(grace=0)
    say(pending.result)
    say(lambda: c.execute_rank_sync(1, "rank"))


def forks() -> None:
    c = make()
    say(lambda: c.execute_rank_sync(0, "rank"))
    if os.fork() == 0:
        say(lambda: c.execute_rank_sync(0, "rank"))
        muster.shutdown()
        sys.exit(0)
    os.wait()
    say(lambda: c.execute_rank_sync(1, "rank"))


def main() -> None:
    muster.init()
    globals()[sys.argv[1]]()
    muster.shutdown(grace=0)


if __name__ == "__main__":
    main()
