"""A driver with a scheduler ends, in order or not: nothing is left, nothing hangs."""

import signal
from pathlib import Path

import pytest
from doc_rig import blocks_of
from helpers import Driver
from test_doc import run

WAIT_S = 60.0

DRIVER = """
import os, sys, threading, time
import muster
from generate_workers import Engine, answer

muster.init()
c = muster.Cluster("infer", Engine, world_size=2)
sched = muster.generate.Scheduler(c, slots=4, history="lengths")
sampling = {"length": 10**6, "pace": 0.01}
group = sched.submit([1], n=4, max_new_tokens=10**6, sampling=sampling)
while sum(one["tokens"] for one in sched.stats()["replicas"]) < 20:
    time.sleep(0.01)
"""

ENDS = {
    "exit": "print('ready', flush=True)",
    "killed": "print('ready', flush=True); group.result()",
    "interrupted": """
try:
    print('ready', flush=True)
    group.result()
except KeyboardInterrupt:
    print('interrupted', flush=True)
""",
    "shutdown": """
muster.shutdown()
end = time.monotonic() + 60
while any(one["state"] == "up" for one in sched.stats()["replicas"]):
    assert time.monotonic() < end
    time.sleep(0.01)
try:
    sched.get_batch(1, timeout=0.1)
except muster.DeadlineExceeded as e:
    print(e, flush=True)
sched.close()
print('ready', flush=True)
""",
    "forked": """
pid = os.fork()
if pid == 0:
    try:
        sched.submit([2], max_new_tokens=9)
    except muster.MusterError as e:
        os._exit(7 if "forked child" in str(e) else 8)
    os._exit(9)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
assert sched.stats()["running"] == 4
print('ready', flush=True)
""",
}


@pytest.mark.parametrize("how", ENDS)
def test_nothing_is_left(tmp_path: Path, how: str) -> None:
    script = f"import os; os.chdir({str(tmp_path)!r})\n{DRIVER}{ENDS[how]}"
    driver = Driver(script, tmp_path)
    said = driver.line(WAIT_S)
    if how == "shutdown":
        assert "0 of 2 replicas are up" in said
        assert driver.line(WAIT_S) == "ready"
    if how == "killed":
        driver.signal(signal.SIGKILL)
    if how == "interrupted":
        driver.signal(signal.SIGINT)
        assert driver.line(WAIT_S) == "interrupted"
    code, _, err = driver.end(WAIT_S)
    assert code == (-signal.SIGKILL if how == "killed" else 0), err
    assert driver.left() == []
    assert not [one for one in tmp_path.iterdir() if one.name.startswith("lengths.")]


def test_the_example_of_the_page(tmp_path: Path) -> None:
    run(blocks_of("doc/generation.md", "python", "import muster\n\n\nclass"), tmp_path)
