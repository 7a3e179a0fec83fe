"""Drivers in processes of their own: how they may end, and that nothing is left."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers import Bell, Driver, leftovers

Bells = Callable[[], Bell]


# ---- descriptors and disks ------------------------------------------------------------

NO_DESCRIPTORS = """
import os, resource, sys
import muster
from workers import Echo

resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
when = sys.stdin.readline().strip()

def fill(leave):
    taken = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        for fd in taken[len(taken) - leave:]:
            os.close(fd)
    return taken[:len(taken) - leave]

def attempt(leave):
    taken = fill(leave)
    try:
        if when == "init":
            muster.init()
        c = muster.Cluster(f"a{leave}", Echo, world_size=4)
        assert c.execute_all_sync("rank") == [0, 1, 2, 3]
        return "fine"
    except (muster.MusterError, OSError) as e:
        return f"{type(e).__name__}: {e}"
    finally:
        for fd in taken:
            os.close(fd)
        if when == "init":
            muster.shutdown()

if when == "cluster":
    muster.init()
for leave in range(0, 40, 3):
    print(leave, attempt(leave), flush=True)
muster.shutdown()
print("ended", flush=True)
"""


@pytest.mark.parametrize("when", ["init", "cluster"])
def test_no_descriptor_left_in_the_driver(tmp_path: Path, when: str) -> None:
    driver = Driver(NO_DESCRIPTORS, tmp_path)
    driver.send(when)
    code, out, err = driver.end(60)
    assert code == 0, err
    lines = out.splitlines()
    assert lines[-1] == "ended" and lines[-2].endswith("fine")
    assert "fine" not in lines[0] and len(lines[0]) > len("0 OSError: ")
    assert driver.left() == []


FULL_DISK = """
import muster
from workers import Echo

muster.init()
c = muster.Cluster("a", Echo, world_size=2)
print(c.execute_all_sync("flood", 5000, 200), flush=True)
print(c.execute_all_sync("rank"), flush=True)
try:
    c.execute_rank_zero_sync("exit", 3)
except muster.WorkerDied as e:
    print(e.exit_code, e.last_lines[-1], flush=True)
muster.shutdown()
print("ended", flush=True)
"""


@pytest.fixture
def small_disk() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="muster-t-", dir="/tmp"))
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", str(place)]
    mounted = subprocess.run(mount, capture_output=True).returncode == 0
    if mounted:
        yield place
        subprocess.run(["umount", str(place)], check=True)
    place.rmdir()
    if not mounted:
        pytest.skip("may not mount a tmpfs")


def test_full_disk_for_logs(tmp_path: Path, small_disk: Path) -> None:
    driver = Driver(FULL_DISK, tmp_path, MUSTER_HOME=str(small_disk))
    code, out, err = driver.end(60)
    assert code == 0, err
    told = [line for line in out.splitlines() if not line.startswith("(")]
    assert told == ["[5000, 5000]", "[0, 1]", "3 about to exit", "ended"]
    assert driver.left() == []


def test_home_on_a_full_disk(tmp_path: Path, small_disk: Path) -> None:
    with open(small_disk / "filler", "wb") as f:
        with pytest.raises(OSError):
            while True:
                f.write(b"x" * 65536)
                f.flush()
    for i in range(1000):
        try:
            (small_disk / f"i{i}").write_bytes(b"x")
        except OSError:
            break
    driver = Driver(FULL_DISK, tmp_path, MUSTER_HOME=str(small_disk))
    code, _, err = driver.end(60)
    assert code == 0 or "MusterError" in err or "OSError" in err
    assert driver.left() == []


def test_home_that_cannot_be_written(tmp_path: Path, short_path: Path) -> None:
    (short_path / "file").write_text("not a folder")
    driver = Driver(FULL_DISK, tmp_path, MUSTER_HOME=str(short_path / "file"))
    code, _, err = driver.end(60)
    assert code == 1
    assert f"MusterError: '{short_path}/file' is not a folder of ours" in err
    assert driver.left() == []


# ---- drivers --------------------------------------------------------------------------

TWO = """
import sys
import muster
from muster import api
from workers import Echo

muster.init(num_gpus=2)
c = muster.Cluster("same", Echo, world_size=2)
print(api.session().head.session_dir, flush=True)
for line in sys.stdin:
    print(c.execute_all_sync("echo", line.strip()), flush=True)
muster.shutdown()
"""


def test_two_drivers_at_once(tmp_path: Path) -> None:
    one, two = Driver(TWO, tmp_path), Driver(TWO, tmp_path)
    places = [one.line(), two.line()]
    assert places[0] != places[1]
    for driver in (one, two, one):
        driver.send("hello")
        assert driver.line() == "['hello', 'hello']"
    one.signal(signal.SIGKILL)
    one.end()
    assert one.left() == [] and leftovers(one.mark, places[0]) == []
    two.send("still here")
    assert two.line() == "['still here', 'still here']"
    code, _, err = two.end()
    assert code == 0, err
    assert two.left() == [] and leftovers(two.mark, places[1]) == []


ENDS = """
import os, sys, threading, signal
import muster
from muster import api
from workers import Echo

muster.init()
c = muster.Cluster("a", Echo, world_size=2)
print(api.session().head.session_dir, flush=True)
how, bell = sys.stdin.readline().split()
if how == "exception":
    c.execute_rank_zero_async("hang", bell)
    raise RuntimeError("the driver is wrong")
if how == "sys.exit":
    sys.exit(4)
if how == "os._exit":
    os._exit(5)
if how == "abort":
    os.abort()
if how == "nothing":
    c.execute_rank_zero_sync("ignore_terminate")
    c.execute_rank_zero_async("hang", bell)
if how == "stuck-thread":
    threading.Thread(target=c.execute_rank_zero_sync, args=("hang", bell), daemon=True).start()
if how == "call":
    c.execute_rank_zero_sync("hang", bell)
"""


@pytest.mark.parametrize(
    ("how", "number", "code"),
    [
        ("nothing", None, 0),
        ("exception", None, 1),
        ("sys.exit", None, 4),
        ("os._exit", None, 5),
        ("abort", None, -signal.SIGABRT),
        ("stuck-thread", None, 0),
        ("call", signal.SIGKILL, -signal.SIGKILL),
        ("call", signal.SIGTERM, -signal.SIGTERM),
        ("call", signal.SIGINT, -signal.SIGINT),
        ("call", signal.SIGHUP, -signal.SIGHUP),
    ],
)
def test_a_driver_ends_by_any_road(
    tmp_path: Path, bell: Bells, how: str, number: signal.Signals | None, code: int
) -> None:
    driver = Driver(ENDS, tmp_path)
    place = driver.line()
    begun = bell()
    driver.send(f"{how} {begun.path}")
    if number is not None:
        begun.hear()
        driver.signal(number)
    got, _, err = driver.end()
    assert got == code, err
    assert driver.left() == [] and leftovers(driver.mark, place) == []
    assert ("KeyboardInterrupt" in err) == (number is signal.SIGINT)


CTRL_C = """
import sys, time
print("begin", flush=True)
import muster
from workers import Echo

try:
    for _ in range(100):
        muster.init()
        c = muster.Cluster("a", Echo, world_size=3)
        for _ in range(20):
            c.execute_all_sync("echo", 1)
            list(c.execute_rank_zero_sync("count", 10))
        c.destroy()
        muster.shutdown()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("after_ms", [40, 80, 130, 190, 260, 340, 450, 600, 800, 1000])
def test_ctrl_c_at_any_moment(tmp_path: Path, after_ms: int) -> None:
    driver = Driver(CTRL_C, tmp_path)
    assert driver.line() == "begin"
    time.sleep(after_ms / 1000)  # not to wait: to meet another moment
    driver.signal(signal.SIGINT)
    code, out, err = driver.end()
    assert "interrupted" in out or "KeyboardInterrupt" in err, (code, out, err)
    assert driver.left() == []


TERMINAL = """
import os, signal
import muster
from workers import Echo

os.setpgid(0, 0)
muster.init()
c = muster.Cluster("a", Echo, world_size=2)
try:
    print("ready", flush=True)
    signal.pause()
except KeyboardInterrupt:
    print(c.execute_all_sync("rank"), flush=True)
"""


def test_the_terminals_ctrl_c_reaches_the_driver_alone(tmp_path: Path) -> None:
    driver = Driver(TERMINAL, tmp_path)
    assert driver.line() == "ready"
    os.killpg(driver.process.pid, signal.SIGINT)  # as a terminal does
    assert driver.line() == "[0, 1]"
    assert driver.end()[0] == 0
    assert driver.left() == []


FORKS = """
import multiprocessing, os, sys
import muster
from muster import api
from workers import Echo

def child(queue):
    queue.put(muster.is_initialized())

muster.init()
c = muster.Cluster("a", Echo)
context = multiprocessing.get_context("fork")
queue = context.Queue()
p = context.Process(target=child, args=(queue,))
p.start()
print(queue.get(), flush=True)
p.join()
if os.fork() == 0:
    sys.exit(0)  # runs atexit
os.wait()
print(c.execute_rank_zero_sync("echo", "alive"), flush=True)
muster.shutdown()
"""


def test_children_of_the_driver_end_nothing(tmp_path: Path) -> None:
    driver = Driver(FORKS, tmp_path)
    code, out, err = driver.end()
    assert (code, out.split()) == (0, ["False", "alive"]), err
    assert driver.left() == []


MAIN_CLASS = """
import sys
import muster

FACTOR = 3

class Mine:
    def __init__(self, x):
        self.x = x
    def times(self, y):
        if y < 0:
            raise Mistake(y)
        return Result(self.x * y * FACTOR)

class Result:
    def __init__(self, value):
        self.value = value

class Mistake(Exception):
    pass

muster.init()
c = muster.Cluster("mine", Mine, world_size=2, args=(2,))
results = c.execute_all_sync("times", 5)
assert all(isinstance(r, Result) and r.value == 30 for r in results)
try:
    c.execute_rank_zero_sync("times", -1)
except Mistake as e:
    print("mistake", e.args[0])
"""


def test_everything_of_main(tmp_path: Path) -> None:
    driver = Driver(MAIN_CLASS, tmp_path)
    code, out, err = driver.end()
    assert (code, out) == (0, "mistake -1\n"), err
    assert driver.left() == []


def test_the_demo() -> None:
    demo = Path(__file__).parent.parent / "examples" / "first.py"
    done = subprocess.run([sys.executable, str(demo)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
