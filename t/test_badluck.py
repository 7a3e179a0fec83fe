"""What bad input and bad luck get: a clear error in time, and nothing left."""

import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import muster
import pytest
from helpers import (
    DEADLINE_S,
    MARK,
    Bell,
    describe,
    is_spare,
    processes,
    until,
    wait_gone,
)
from workers import AsyncEcho, Dies, Echo, Hangs, Mishap, Raises

Make = Callable[..., Any]
Bells = Callable[[], Bell]
QUICK_S = 5.0


# ---- a worker that ends ---------------------------------------------------------------


def fails_with_death(cluster: Any, method: str, *args: Any) -> muster.WorkerDied:
    """That call, one behind it, and every later one fail with the same death."""
    first = cluster.execute_rank_zero_async(method, *args)
    queued = cluster.execute_rank_zero_async("pid")
    with pytest.raises(muster.WorkerDied) as caught:
        first.result(DEADLINE_S)
    for later in (queued, cluster.execute_rank_zero_async("pid")):
        with pytest.raises(muster.WorkerDied):
            later.result(QUICK_S)
    e = caught.value
    assert (e.cluster, e.rank, e.pid) == (cluster.name, 0, cluster.pids[0])
    assert e.node == muster.nodes()[0].name
    assert f"{e.cluster}/0@{e.node}" in str(e) and str(e.pid) in str(e)
    assert wait_gone(cluster.pids) == []
    return e


def test_exits(cluster: Make) -> None:
    e = fails_with_death(cluster(Echo), "exit", 3)
    assert (e.exit_code, e.signal) == (3, None)
    assert e.last_lines[-1] == "about to exit" and "about to exit" in str(e)
    assert e.log_path in str(e) and "about to exit" in Path(e.log_path).read_text()


@pytest.mark.parametrize("how", [("close_descriptors",), ("execute", "sleep", "60")])
def test_cuts_itself_off(cluster: Make, how: tuple[str, ...]) -> None:
    """It lives, and cannot be reached any more: it is ended, with that reason."""
    start = time.monotonic()
    e = fails_with_death(cluster(Echo), *how)
    assert time.monotonic() - start < DEADLINE_S / 2
    assert e.signal == signal.SIGKILL
    assert "closed its link to the agent" in str(e)


@pytest.mark.parametrize("code", [0, 7])
def test_leaves_by_sys_exit(cluster: Make, code: int) -> None:
    e = fails_with_death(cluster(Echo), "sys_exit", code)
    assert (e.exit_code, e.signal) == (code, None)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_is_killed(cluster: Make, number: signal.Signals) -> None:
    e = fails_with_death(cluster(Echo), "kill", int(number))
    assert (e.exit_code, e.signal, e.out_of_memory) == (None, number, False)
    assert number.name in str(e) and "about to get signal" in str(e)


def test_crashes(cluster: Make) -> None:
    e = fails_with_death(cluster(Echo), "segfault")
    assert e.signal == signal.SIGSEGV and "SIGSEGV" in str(e)
    assert "Fatal Python error: Segmentation fault" in str(e)
    assert "in segfault" in str(e)  # the line of the method


def test_crashes_in_a_fresh_interpreter(cluster: Make) -> None:
    e = fails_with_death(cluster(Echo, start="exec"), "segfault")
    assert e.signal == signal.SIGSEGV and "in segfault" in str(e)


def test_reaches_its_memory_limit(cluster: Make) -> None:
    try:
        c = cluster(Echo, memory="200MiB")
    except muster.MusterError as e:
        assert "memory" in str(e)
        pytest.skip(f"no limits here: {e}")
    assert c.execute_rank_zero_sync("eat", 1 << 20) == 1 << 20
    e = fails_with_death(c, "eat", 1 << 30)
    assert e.out_of_memory and e.signal == signal.SIGKILL
    assert "memory limit" in str(e)


def test_is_killed_while_idle(cluster: Make) -> None:
    c = cluster(Echo, 2)
    c.execute_all_sync("pid")
    os.kill(c.pids[0], signal.SIGKILL)
    assert wait_gone(c.pids[:1]) == []
    with pytest.raises(muster.WorkerDied):
        c.execute_rank_zero_sync("pid")
    assert c[1].execute_rank_zero_sync("rank") == 1


def test_all_pending_calls_fail_at_once(cluster: Make, bell: Bells) -> None:
    c = cluster(Echo, 2)
    begun = bell()
    pending = [c.execute_rank_zero_async("hang", begun.path)]
    pending += [c.execute_rank_zero_async("pid") for _ in range(50)]
    begun.hear()
    failed: list[BaseException] = []

    def wait() -> None:
        try:
            c.execute_all_sync("pid")
        except BaseException as e:
            failed.append(e)

    thread = threading.Thread(target=wait)
    thread.start()
    start = time.monotonic()
    os.kill(c.pids[0], signal.SIGKILL)
    for future in pending:
        assert isinstance(future.exception(DEADLINE_S), muster.WorkerDied)
    thread.join(DEADLINE_S)
    assert [type(e) for e in failed] == [muster.WorkerDied]
    assert time.monotonic() - start < QUICK_S


def test_dies_in_the_middle_of_a_stream(cluster: Make, bell: Bells) -> None:
    c = cluster(Echo)
    stream = c.execute_rank_zero_sync("endless", bell().path)
    assert next(stream) == 0
    os.kill(c.pids[0], signal.SIGKILL)
    with pytest.raises(muster.WorkerDied):
        for _ in stream:
            pass


@pytest.mark.parametrize("again", range(5))
def test_forks_children_and_dies(cluster: Make, again: int) -> None:
    """The last of them is perhaps still within its exec."""
    c = cluster(Echo)
    before = set(processes(os.environ[MARK]))
    fails_with_death(c, "fork_and_die")
    started = set(processes(os.environ[MARK])) - before
    children = [pid for pid in started if not is_spare(pid)]
    assert [describe(pid) for pid in wait_gone(children)] == []


def test_ignores_sigterm(cluster: Make) -> None:
    c = cluster(Echo)
    c.execute_rank_zero_sync("ignore_terminate")
    start = time.monotonic()
    c.destroy(grace=0.2)
    assert time.monotonic() - start < QUICK_S
    assert not os.path.exists(f"/proc/{c.pids[0]}")


def test_a_death_seen_by_a_worker(cluster: Make) -> None:
    a, b = cluster(Echo), cluster(Echo)
    with pytest.raises(muster.WorkerDied) as caught:
        a.execute_rank_zero_sync("call", b, "kill", 9)
    assert isinstance(caught.value, muster.RemoteError)
    assert caught.value.cluster == b.name and caught.value.signal == 9
    assert a.execute_rank_zero_sync("rank") == 0


def test_an_async_worker_dies(cluster: Make, bell: Bells) -> None:
    c = cluster(AsyncEcho)
    begun = bell()
    future = c.execute_rank_zero_async("hang", begun.path)
    begun.hear()
    os.kill(c.pids[0], signal.SIGKILL)
    with pytest.raises(muster.WorkerDied):
        future.result(DEADLINE_S)


# ---- a worker that raises or hangs ----------------------------------------------------


def test_raises(cluster: Make) -> None:
    c = cluster(Echo)
    with pytest.raises(KeyError) as caught:
        c.execute_rank_zero_sync("fail_deep", 3)
    e = caught.value
    assert isinstance(e, muster.RemoteError) and e.remote_type == "builtins.KeyError"
    assert e.remote_traceback.count("fail_deep") >= 4 and "workers.py" in str(e)
    assert e.args == ("deep",) and f"{c.name}/0@" in str(e)
    assert c.execute_rank_zero_sync("rank") == 0


def test_raises_a_class_with_an_odd_constructor(cluster: Make) -> None:
    with pytest.raises(Mishap, match="1 and 2") as caught:
        cluster(Echo).execute_rank_zero_sync("mishap", 1, 2)
    assert caught.value.b == 2 and isinstance(caught.value, muster.RemoteError)


def test_hangs_and_is_looked_at(cluster: Make, bell: Bells) -> None:
    c = cluster(Echo)
    begun = bell()
    future = c.execute_rank_zero_async("hang", begun.path)
    begun.hear()
    assert c.health()["running"] == "default.hang"
    python, native = c.stack()
    assert "in hang" in python and "workers.py" in python and native
    assert not future.done()


def test_holds_the_gil(cluster: Make, bell: Bells) -> None:
    c = cluster(Echo)
    begun, go_on = bell(), bell()
    future = c.execute_rank_zero_async("spin", begun.path, go_on.path)
    begun.hear()
    assert c.health(timeout=DEADLINE_S)["running"] == "default.spin"
    with pytest.raises(muster.DeadlineExceeded):
        c.options(timeout=0.2).execute_rank_zero_sync("pid")
    assert not future.done()
    go_on.ring()
    future.result(DEADLINE_S)


def test_floods_its_stdout(cluster: Make, capfd: pytest.CaptureFixture[str]) -> None:
    c = cluster(Echo, 2)
    assert c.execute_all_sync("flood", 100_000, 100) == [100_000] * 2
    assert c.execute_rank_zero_sync("rank") == 0
    c.execute_rank_zero_sync("print", "after it")
    log = Path(c.log_path(0))  # the agent copies what came through the pipe
    until(lambda: "after it" in log.read_text()[-200:])


# ---- a worker that cannot begin -------------------------------------------------------


@pytest.fixture
def nothing_new(session: Any) -> Iterator[None]:
    """A cluster that could not be made leaves no process; its name can be used."""
    with muster.Cluster("failing", Echo):
        pass  # zygotes are there
    before = set(processes(os.environ[MARK]))
    yield
    started = set(processes(os.environ[MARK])) - before
    new = [pid for pid in started if "zygote" not in describe(pid)]
    assert [describe(pid) for pid in new] == []
    with muster.Cluster("failing", Echo) as c:
        assert c.execute_rank_zero_sync("rank") == 0


@pytest.mark.parametrize(
    ("path", "said"), [("nowhere.at.All", "nowhere"), ("workers.Nothing", "Nothing")]
)
def test_class_that_cannot_be_imported(nothing_new: None, path: str, said: str) -> None:
    with pytest.raises(ImportError, match=said) as caught:
        muster.Cluster("failing", path, world_size=2)
    assert isinstance(caught.value, muster.MusterError)


def test_module_that_raises_when_imported(nothing_new: None) -> None:
    with pytest.raises(RuntimeError, match="not today") as caught:
        muster.Cluster("failing", "bad_module.Worker")
    assert isinstance(caught.value, muster.RemoteError)


def test_preload_that_cannot_be_imported(session: Any) -> None:
    """The workers start all the same, or the reason names the module."""
    try:
        with muster.Cluster("odd", Echo, preload=["no_such_module"]) as c:
            assert c.execute_rank_zero_sync("rank") == 0
    except muster.MusterError as e:
        assert "no_such_module" in str(e)


@pytest.mark.parametrize("ranks", [(0,), (2,), (0, 1, 2)])
def test_constructor_raises(nothing_new: None, ranks: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="the constructor says no") as caught:
        muster.Cluster("failing", Raises, world_size=3, args=(ranks,))
    assert isinstance(caught.value, muster.RemoteError)
    assert "failing/" in str(caught.value)


def test_constructor_with_wrong_arguments(nothing_new: None) -> None:
    with pytest.raises(TypeError, match="odd"):
        muster.Cluster("failing", Raises, kwargs={"odd": 1})


def test_constructor_dies(nothing_new: None) -> None:
    with pytest.raises(muster.WorkerDied, match="the constructor dies") as caught:
        muster.Cluster("failing", Dies, world_size=2)
    assert caught.value.signal == signal.SIGKILL


def test_constructor_hangs(nothing_new: None, bell: Bells) -> None:
    with pytest.raises(muster.DeadlineExceeded, match="failing") as late:
        muster.Cluster("failing", Hangs, args=(bell().path,), start_timeout=0.5)
    first, _, stack = str(late.value).partition("\n\nIn the worker:\n")
    assert "not made within 0.5 s (start_timeout)" in first
    assert "Current thread" in stack and "in __init__" in stack, stack


def test_interpreter_that_is_not_there(nothing_new: None) -> None:
    for start in ("fork", "exec"):
        with pytest.raises(muster.MusterError):
            muster.Cluster("failing", Echo, python="/no/python", start=start)


def test_command_that_is_no_worker(nothing_new: None) -> None:
    with pytest.raises(muster.WorkerDied, match="hello"):
        muster.Cluster("failing", Echo, start=["sh", "-c", "echo hello; exit 5"])
    with pytest.raises(muster.MusterError, match="no-such-command"):
        muster.Cluster("failing", Echo, start=["no-such-command"])


def test_working_dir_that_is_not_there(nothing_new: None) -> None:
    with pytest.raises(muster.MusterError, match="/no/where"):
        muster.Cluster("failing", Echo, working_dir="/no/where")


# ---- what cannot be sent --------------------------------------------------------------


def test_argument_that_cannot_be_sent(cluster: Make) -> None:
    c = cluster(Echo, 2)
    lock = threading.Lock()
    for call in (c.execute_rank_zero_sync, c.execute_all_sync, c.execute_all_async):
        with pytest.raises(muster.SerializationError, match=r"args\[1\]\['lock'\]"):
            call("echo", 1, {"lock": lock})
    with pytest.raises(muster.SerializationError, match=r"args\[0\]"):
        c.execute_all_sync(
            "note", muster.each([1, lock])
        )  # rank 0's was sent, and is called back
    with pytest.raises(muster.SerializationError, match=r"kwargs\['x'\]"):
        c.execute_rank_zero_async("echo", x=lock)
    with pytest.raises(muster.SerializationError, match=r"^args\[0\]"):
        muster.Cluster("never", Echo, args=(lock,))


def test_result_that_cannot_be_sent(cluster: Make) -> None:
    c = cluster(Echo)
    with pytest.raises(muster.SerializationError, match="lock") as caught:
        c.execute_rank_zero_sync("result", "lock")
    assert c.name in str(caught.value)
    assert c.execute_rank_zero_sync("result", "function")() is None


class Vanishes:
    """Can be pickled, but not the other way."""

    def __reduce__(self) -> Any:
        return _not_in_a_worker, ()


def _not_in_a_worker() -> Any:
    if os.environ.get("RANK"):
        raise RuntimeError("not in a worker")
    return Vanishes()


def test_argument_that_cannot_be_read(cluster: Make) -> None:
    c = cluster(Echo)
    with pytest.raises(muster.MusterError, match="not in a worker"):
        c.execute_rank_zero_sync("echo", Vanishes())
    assert c.execute_rank_zero_sync("rank") == 0


# ---- waiting on oneself ---------------------------------------------------------------


@pytest.mark.timeout(30)
@pytest.mark.parametrize("how", ["call", "call_all", "call_async"])
def test_a_worker_that_calls_itself(cluster: Make, how: str) -> None:
    c = cluster(Echo)
    with pytest.raises(muster.DeadlockError) as caught:
        c.execute_rank_zero_sync(how, c, "pid")
    assert c.name in str(caught.value)
    assert c.execute_rank_zero_sync("rank") == 0


@pytest.mark.timeout(30)
def test_a_worker_among_those_it_calls(cluster: Make) -> None:
    c = cluster(Echo, 2)
    with pytest.raises(muster.DeadlockError):
        c[1].execute_rank_zero_sync("call_all", c, "pid")


@pytest.mark.timeout(30)
@pytest.mark.parametrize("how", ["call", "call_all"])
def test_two_workers_that_call_each_other(cluster: Make, how: str) -> None:
    a, b = cluster(Echo, timeout=10), cluster(Echo, timeout=10)
    with pytest.raises(muster.DeadlockError):
        a.execute_rank_zero_sync(how, b, how, a, "pid")
    assert a.execute_rank_zero_sync("rank") == b.execute_rank_zero_sync("rank") == 0


# ---- descriptors and disks ------------------------------------------------------------


def test_no_descriptor_left_in_a_worker(cluster: Make) -> None:
    c = cluster(Echo)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit > 100_000:
        pytest.skip("too many to take")
    assert c.execute_rank_zero_sync("open_until_full") > 0
    assert c.execute_rank_zero_sync("echo", 1) == 1
    assert c.health()["status"] == "ok"
