"""The workers of test_jobs_chaos.py: each takes shards until all are done. They write into
the folder that they run in:

    pids/ROLE-RANK     which process has this rank now
    work/PID           "S START": begun; "W START": its work is done, the queue does not know
                       yet; "C START": the queue has taken it
    eat-PID            made by the test: take more memory than the role may have
"""

import os
import sys
import threading
import time
from pathlib import Path

import muster
from muster.errors import MusterError

QUEUE = "records"
SLOW_S = 0.1  # a shard takes so long until the file `calm` is there


def write_pid(role: str, rank: int) -> None:
    path = Path("pids", f"{role}-{rank}")
    made = path.with_name(f".{path.name}.{os.getpid()}")
    made.write_text(str(os.getpid()))
    made.rename(path)


def note(what: str, start: int) -> None:
    with Path("work", str(os.getpid())).open("a") as f:
        f.write(f"{what} {start}\n")


def eat() -> None:
    """When it is told to, whatever it does then."""
    while not Path(f"eat-{os.getpid()}").exists():
        time.sleep(0.05)
    kept = []
    while True:
        kept.append(b"x" * (1 << 20))


def queue() -> muster.Shards:
    """Its shards are given back without end when their workers die."""
    size = int(Path("size").read_text())
    deaths = 1 << 20
    return muster.Shards(QUEUE, size, 1, max_deaths=deaths, detached=True)


def do(shard: muster.Shard) -> None:
    note("S", shard.start)
    time.sleep(0 if Path("calm").exists() else SLOW_S)
    note("W", shard.start)
    if shard.done():
        note("C", shard.start)


def take() -> None:
    """Until all are done; a head that is away is asked again."""
    threading.Thread(target=eat, daemon=True).start()
    while True:
        try:
            for shard in queue():
                do(shard)
            return
        except (MusterError, TimeoutError, OSError) as e:
            print(f"{type(e).__name__}: {e}", file=sys.stderr, flush=True)
            time.sleep(0.05)


class Taker:
    def __init__(self, role: str) -> None:
        write_pid(role, int(os.environ["RANK"]))
        threading.Thread(target=take, daemon=True).start()

    def pid(self) -> int:
        return os.getpid()


def main() -> None:
    """A rank that is a plain program."""
    muster.init()
    write_pid("plain", int(os.environ["RANK"]))
    take()
    while not Path("finish").exists():
        time.sleep(0.05)


if __name__ == "__main__":
    main()
