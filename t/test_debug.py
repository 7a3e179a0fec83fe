"""`breakpoint()` in a worker, and `muster debug`."""

import os
import pty
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import muster
import pytest
from cli_rig import CLI, DEADLINE_S
from daemon_rig import Daemon, daemon  # noqa: F401  (fixture)
from debug_workers import Async, Stepper
from helpers import until

Make = Callable[..., Any]


def debug(
    *args: str, text: str = "", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [CLI, "debug", *args],
        input=text,
        env=env,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def waits(worker: str, env: dict[str, str] | None = None) -> str:
    """Its line in the list of those that wait, when it does."""
    found: list[str] = []

    def look() -> bool:
        lines = debug(env=env).stdout.splitlines()
        found[:] = [line for line in lines if line.startswith(worker + "@")]
        return bool(found)

    until(look)
    return found[0]


def log_of(worker: str) -> str:
    command = [CLI, "logs", worker]
    return subprocess.run(command, capture_output=True, text=True).stdout


class Terminal:
    """`muster debug` on a terminal of its own."""

    def __init__(self, *args: str) -> None:
        self.ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [CLI, "debug", *args],
            env={**os.environ, "TERM": "dumb"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.text = ""

    def until(self, part: str) -> None:
        """Read on until this comes."""
        deadline = time.monotonic() + DEADLINE_S
        while part not in self.text:
            assert time.monotonic() < deadline, self.text
            try:
                self.text += os.read(self.ours, 65536).decode()
            except OSError as error:  # EIO: the last one has closed it
                raise AssertionError(f"ended after {self.text!r}") from error
        self.text = self.text.partition(part)[2]

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def end(self) -> int:
        code = self.process.wait(DEADLINE_S)
        os.close(self.ours)
        return code

    def kill(self) -> None:
        self.process.kill()
        self.end()


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    made: list[Terminal] = []

    def start(*args: str) -> Terminal:
        made.append(Terminal(*args))
        return made[-1]

    yield start
    for one in made:
        if one.process.poll() is None:
            one.kill()


def test_look_change_and_go_on(cluster: Make) -> None:
    one = cluster(Stepper, 2, name="stepper")
    assert debug().stdout == "no worker is at a breakpoint()\n"
    calls = one.execute_all_async("step", 4)
    line = waits("stepper/0")
    assert re.search(r"debug_workers\.py:\d+ in Stepper\.step$", line), line
    waits("stepper/1")
    done = debug("stepper/0", text="p y\nself.total = 100\nc\n")
    assert done.returncode == 0
    assert "-> self.total += y" in done.stdout and "(Pdb) 5\n" in done.stdout
    assert done.stderr.splitlines()[-1] == "stepper/0 goes on"
    assert calls[0].result(timeout=DEADLINE_S) == 105
    assert debug().stdout.startswith("stepper/1@")
    assert debug("stepper/1", text="c").returncode == 0
    assert calls[1].result(timeout=DEADLINE_S) == 5
    assert debug("stepper/1", text="c").returncode == 5


def test_the_log_says_how_to_attach(cluster: Make) -> None:
    one = cluster(Stepper, name="told")
    call = one.execute_all_async("step", 1)[0]
    waits("told/0")
    line = r"told/0 waits at \S+:\d+ in Stepper\.step: muster debug told/0\n"
    until(lambda: re.fullmatch(line, log_of("told/0")))  # the agent has read it
    debug("told/0", text="c\n")
    call.result(timeout=DEADLINE_S)


def test_leaving_and_coming_back(cluster: Make) -> None:
    one = cluster(Stepper, name="left")
    call = one.execute_all_async("step", 1)[0]
    waits("left/0")
    done = debug("left/0", text="n\n")  # the end of the input leaves it waiting
    assert done.returncode == 0
    assert "left/0 still waits at" in done.stderr
    assert not call.done()
    assert one.execute_all_async("plain", 1)[0].done() is False
    # steps beyond the end of the method are the end of the session
    done = debug("left/0", text="p self.total\nn\nn\n")
    assert "(Pdb) 2\n" in done.stdout and "--Return--" in done.stdout
    assert done.stderr.splitlines()[-1] == "left/0 goes on"
    assert call.result(timeout=DEADLINE_S) == 2


def test_quit_fails_the_call(cluster: Make) -> None:
    one = cluster(Stepper, name="quitter")
    call = one.execute_all_async("step", 1)[0]
    waits("quitter/0")
    assert debug("quitter/0", text="q\n").returncode == 0
    with pytest.raises(muster.RemoteError, match="BdbQuit"):
        call.result(timeout=DEADLINE_S)
    assert one.execute_rank_zero_sync("plain", 7) == 7  # and is well


def test_several_stops_and_breakpoints_of_pdb(cluster: Make) -> None:
    one = cluster(Stepper, name="several")
    call = one.execute_all_async("twice")[0]
    waits("several/0")
    done = debug("several/0", text="c\n")
    assert "first" in done.stdout
    waits("several/0")
    debug("several/0", text="c\n")
    assert call.result(timeout=DEADLINE_S) == "between"
    # with a breakpoint of its own the session lasts over calls
    call = one.execute_all_async("step", 1)[0]
    waits("several/0")
    with subprocess.Popen(
        [CLI, "debug", "several/0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as client:
        assert client.stdin is not None and client.stdout is not None
        client.stdin.write(b"b Stepper.plain\nc\na\nclear 1\nc\n")
        client.stdin.close()
        assert call.result(timeout=DEADLINE_S) == 2
        call = one.execute_all_async("plain", "here")[0]
        assert call.result(timeout=DEADLINE_S) == "here"
        assert b"value = 'here'" in client.stdout.read()
        assert client.wait(DEADLINE_S) == 0


def test_it_answers_while_it_waits(cluster: Make) -> None:
    one = cluster(Stepper, name="asked")
    call = one.execute_all_async("step", 1)[0]
    waits("asked/0")
    stack = subprocess.run(
        [CLI, "stack", "asked/0"], capture_output=True, text=True, timeout=DEADLINE_S
    ).stdout
    assert "debugger.py" in stack and "debug_workers.py" in stack
    with pytest.raises(muster.DeadlineExceeded):
        one.options(timeout=0.2).execute_rank_zero_sync("plain", 1)
    debug("asked/0", text="c\n")
    assert call.result(timeout=DEADLINE_S) == 2


def test_constructors_and_async_methods(cluster: Make) -> None:
    made = muster.Cluster("built", Stepper, world_size=1, args=(True,), blocking=False)
    waits("built/0")
    assert debug("built/0", text="p self.total\nc\n").returncode == 0
    made.wait()
    made.destroy()
    one = cluster(Async, name="async")
    call = one.execute_all_async("step", 1)[0]
    waits("async/0")
    assert "(Pdb) 1\n" in debug("async/0", text="p x\nc\n").stdout
    assert call.result(timeout=DEADLINE_S) == 2


def test_threads_take_turns(cluster: Make) -> None:
    one = cluster(Stepper, name="threads", max_concurrency=2)
    calls = [one.execute_all_async("step", i)[0] for i in range(2)]
    for _ in calls:
        waits("threads/0")
        assert debug("threads/0", text="c\n").returncode == 0
    assert sorted(c.result(timeout=DEADLINE_S) for c in calls)[-1] == 3


def test_other_hooks_go_first(cluster: Make) -> None:
    one = cluster(Stepper, name="hooks")
    assert one.execute_rank_zero_sync("own_hook") == "mine"
    one.execute_rank_zero_sync("set_env", "0")
    assert one.execute_rank_zero_sync("step", 1) == 2


def test_one_at_a_time_on_a_terminal(
    cluster: Make, terminal: Callable[..., Terminal]
) -> None:
    one = cluster(Stepper, name="shared")
    call = one.execute_all_async("step", 1)[0]
    waits("shared/0")
    first = terminal("shared/0")
    first.until("(Pdb) ")
    done = debug("shared/0", text="c\n")
    assert done.returncode == 1
    assert "is debugged by" in done.stderr
    assert f"process {first.process.pid}" in done.stderr
    assert f"process {first.process.pid}" in waits("shared/0")
    first.type("p y\n")
    first.until("2\r\n")
    first.until("(Pdb) ")
    first.type("half a li")
    first.until("half a li")
    first.process.send_signal(signal.SIGINT)  # which drops the line
    first.until("(Pdb) ")
    first.type("p 40 + 2\n")
    first.until("42\r\n")
    first.until("(Pdb) ")
    first.type("\x04")
    first.until("still waits")
    assert first.end() == 0
    # one that is killed is missed soon
    second = terminal("shared/0")
    second.until("(Pdb) ")
    second.kill()
    until(lambda: "debugged by" not in waits("shared/0"))
    assert debug("shared/0", text="c\n").returncode == 0
    assert call.result(timeout=DEADLINE_S) == 2


def test_interrupts(cluster: Make, terminal: Callable[..., Terminal]) -> None:
    one = cluster(Stepper, name="busy")
    call = one.execute_all_async("loop")[0]
    waits("busy/0")
    here = terminal("busy/0")
    here.until("(Pdb) ")
    here.type("import time; print('it', 'sleeps'); time.sleep(1000)\n")
    here.until("it sleeps\r\n")
    here.process.send_signal(signal.SIGINT)
    here.until("KeyboardInterrupt")
    here.until("(Pdb) ")
    here.type("b Stepper.plain\n")
    here.until("(Pdb) ")
    here.type("c\n")
    until(lambda: "it turns" in log_of("busy/0"))
    here.process.send_signal(signal.SIGINT)
    here.until("Program interrupted")
    here.until("(Pdb) ")
    here.type("self.turns = 10_000_000\n")
    here.until("(Pdb) ")
    here.type("clear 1\n")
    here.until("(Pdb) ")
    here.type("c\n")
    here.until("goes on")
    assert here.end() == 0
    assert call.result(timeout=DEADLINE_S) >= 10_000_000


def test_the_end_of_the_worker_ends_the_client(
    cluster: Make, terminal: Callable[..., Terminal]
) -> None:
    one = cluster(Stepper, name="killed")
    pid = one.execute_rank_zero_sync("pid")
    call = one.execute_all_async("step", 1)[0]
    waits("killed/0")
    here = terminal("killed/0")
    here.until("(Pdb) ")
    os.kill(pid, signal.SIGKILL)
    here.until("killed/0 has ended: killed by SIGKILL")
    assert here.end() == 1
    with pytest.raises(muster.WorkerDied):
        call.result(timeout=DEADLINE_S)
    two = muster.Cluster("destroyed", Stepper, world_size=1)
    two.execute_all_async("step", 1)
    waits("destroyed/0")
    here = terminal("destroyed/0")
    here.until("(Pdb) ")
    two.destroy(grace=5)
    here.until("destroyed/0 has ended")
    assert here.end() == 1


def test_wrong_words(session: Any) -> None:
    for args, code in ((["x"], 2), (["x/0"], 5), (["a/b/c"], 2)):
        done = debug(*args)
        assert done.returncode == code
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("tls", ["auto", "on"])
def test_through_a_daemon(daemon: Daemon, tls: str) -> None:  # noqa: F811
    if muster.is_initialized():
        muster.shutdown()
    if tls == "on":
        daemon.head.signal(signal.SIGTERM)
        daemon.head.end()
        daemon.more = ["--tls", "on"]
        daemon.start()
    daemon.agent("n1", tls=tls)
    muster.init(address=daemon.address, secret_file=daemon.secret_file, tls=tls)
    try:
        one = muster.Cluster("far", Stepper, world_size=1)
        call = one.execute_all_async("step", 1)[0]
        assert waits("far/0", daemon.env).startswith("far/0@n1 waits at")
        done = debug("far/0", text="p y\nc\n", env=daemon.env)
        assert "(Pdb) 2\n" in done.stdout, done
        assert call.result(timeout=DEADLINE_S) == 2
    finally:
        muster.shutdown()
