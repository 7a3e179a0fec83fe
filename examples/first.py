"""Muster in two seconds: start workers, call them, kill one, leave nothing behind.

Run by `make demo-first`. Exit code 0: all was as expected.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import muster
from muster import api

MARK = "MUSTER_DEMO"  # in the environment of every process that this demo starts
mistakes: list[str] = []


class Actor:
    """A worker: a plain class, here one of `__main__`."""

    def __init__(self, scale: float) -> None:
        self.rank = int(os.environ["RANK"])
        self.scale = scale
        print(f"rank {self.rank} of {os.environ['WORLD_SIZE']} is ready")

    def step(self, batch: list[float]) -> float:
        return self.scale * sum(batch)

    def generate(self, prompt: str, tokens: int) -> Iterator[str]:
        for i in range(tokens):
            yield f"{prompt}-{i}"

    def mistake(self) -> float:
        return self.scale / 0

    def train(self) -> None:
        print("step 17: about to run out of luck", file=sys.stderr, flush=True)
        signal.pause()


def title(text: str) -> None:
    sys.stdout.flush()
    print(f"\n== {text}", flush=True)


def check(is_so: bool, text: str) -> None:
    print(f"   {'ok' if is_so else 'NOT SO'}: {text}", flush=True)
    if not is_so:
        mistakes.append(text)


def processes(mark: str) -> list[str]:
    """The command lines of what this demo started and what still lives."""
    found = []
    want = f"{MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if want in (folder / "environ").read_bytes().split(b"\0"):
                found.append(
                    (folder / "cmdline").read_bytes().decode().replace("\0", " ")
                )
        except OSError:
            continue  # it has just ended, or is not ours
    return found


def show_calls(actors: muster.Cluster) -> None:
    title("Call them")
    results = actors.execute_all_sync("step", muster.each([[1.0], [2.0], [3.0], [4.0]]))
    check(results == [2.0, 4.0, 6.0, 8.0], f"element i goes to rank i: {results}")
    future = actors[2].execute_rank_zero_async("step", [0.5, 0.5])
    check(future.result() == 2.0, f"one rank, as a future: {future}")
    count, start = 2000, time.perf_counter()
    for _ in range(count):
        actors.execute_rank_zero_sync("step", [1.0])
    each_us = (time.perf_counter() - start) / count * 1e6
    check(each_us < 5000, f"{count} calls, {each_us:.0f} microseconds each")

    title("A generator streams")
    words = list(actors.execute_rank_zero_sync("generate", "token", 5))
    check(words[-1] == "token-4", " ".join(words))

    title("A worker's exception arrives with its type and its traceback")
    try:
        actors.execute_rank_zero_sync("mistake")
    except ZeroDivisionError as e:
        check(isinstance(e, muster.RemoteError), type(e).__qualname__)
        print("\n".join(f"   | {line}" for line in str(e).splitlines()))
    else:
        check(False, "it raised")


def show_death(actors: muster.Cluster) -> None:
    title("Kill rank 1 with SIGKILL while a call waits for it")
    pending = actors[1].execute_rank_zero_async("train")
    while actors.health(1)["running"] != "default.train":
        pass
    start = time.perf_counter()
    os.kill(actors.pids[1], signal.SIGKILL)
    try:
        pending.result(timeout=10)
    except muster.WorkerDied as e:
        took_ms = (time.perf_counter() - start) * 1e3
        check(e.signal == signal.SIGKILL, f"WorkerDied after {took_ms:.1f} ms:")
        print("\n".join(f"   | {line}" for line in str(e).splitlines()))
    else:
        check(False, "the call failed")
    rest = actors[[0, 2, 3]].execute_all_sync("step", [1.0])
    check(rest == [2.0] * 3, "the others go on")


def main() -> int:
    mark = os.environ[MARK] = os.urandom(8).hex()
    title("Start a head, an agent and 4 workers")
    start = time.perf_counter()
    muster.init(num_gpus=4)
    session_dir = api.session().head.session_dir
    actors = muster.Cluster(
        "actor",
        Actor,
        worker_config=muster.WorkerConfig(device_mapping="0-3", args=(2.0,)),
    )
    took_ms = (time.perf_counter() - start) * 1e3
    check(actors.world_size == 4, f"{actors} in {took_ms:.0f} ms")
    show_calls(actors)
    show_death(actors)

    title("Shut down")
    check(len(processes(mark)) > 0, f"{len(processes(mark))} processes before")
    muster.shutdown()
    check(processes(mark) == [], "no process is left")
    sockets = Path("/proc/net/unix").read_text()
    check(session_dir not in sockets, "no socket is left")
    files = [p for p in Path(session_dir).rglob("*") if p.is_file()]
    check(all(p.suffix == ".log" for p in files), f"only logs: {session_dir}")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
