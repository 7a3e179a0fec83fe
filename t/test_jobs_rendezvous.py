"""Ranks of a submitted job's role meet through the head that hosts it, told by nobody where."""

import os
import signal
import sys
from pathlib import Path

import pytest
from jobs_rig import Jobs, jobs, until  # noqa: F401  (fixture)

# Sums over all ranks of a world through a TCP server at its rank 0, whose address is in the
# round's own part of the head's store; a member that dies breaks the sum, as a collective does.
TRAIN = """
import os, socket, sys, time
from pathlib import Path
import muster
from muster import kv

FOLDER = Path(os.environ["FOLDER"])


def serve(world):
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(20)
    kv.put(f"{world.prefix}/master", str(listener.getsockname()[1]).encode(), owner="none")
    conns = [listener.accept()[0] for _ in range(world.size - 1)]
    listener.close()
    return conns


def connect(world):
    assert kv.wait([f"{world.prefix}/master"], 20)
    port = int(kv.get(f"{world.prefix}/master"))
    return [socket.create_connection(("127.0.0.1", port), 20)]


def add(world, conns, mine):
    for c in conns:
        c.settimeout(20)
    if world.rank > 0:
        conns[0].sendall(bytes([mine]))
        return ask(conns[0])
    total = mine + sum(ask(c) for c in conns)
    for c in conns:
        c.sendall(bytes([total]))
    return total


def ask(conn):
    got = conn.recv(1)
    if not got:
        raise ConnectionError("a member has gone")
    return got[0]


def work(meeting, world):
    world.barrier("begin", timeout=60)
    conns = serve(world) if world.rank == 0 else connect(world)
    while not meeting.should_rejoin():
        total = add(world, conns, 1)
        note = f"{world.round} {world.rank} {world.size} {total} {os.environ['RANK']}"
        part = FOLDER / f"{os.getpid()}.part"
        part.write_text(note)
        part.rename(FOLDER / f"{os.getpid()}.world")
        with open(FOLDER / "sizes", "a") as f:
            f.write(f"{world.size}\\n")
        if (FOLDER / "stop").exists():
            os._exit(0)
        time.sleep(0.02)


if __name__ == "__main__":
    muster.init(min_nodes=0)
    meeting = muster.Rendezvous(last_call=60.0)
    while True:
        world = meeting.join()
        try:
            work(meeting, world)
        except (OSError, muster.ClusterError) as e:
            print("again:", e, flush=True)
            meeting.should_rejoin(wait=20)
"""

JOB = """
name: meets
nodes: [{{name: n0, cpus: 8}}]
roles:
  train: {{command: [{python}, train.py], world_size: "2:4:2", restart: {restart}}}
driver: [sleep, "600"]
env: {{FOLDER: {folder}}}
"""


class Worlds:
    """What the ranks have written down."""

    def __init__(self, jobs: Jobs, text: str) -> None:  # noqa: F811
        self.folder = jobs.folder / "worlds"
        self.folder.mkdir()
        (jobs.folder / "train.py").write_text(TRAIN)
        self.name = jobs.submit(text)

    def whole(self, size: int) -> dict[int, int]:
        """The process of each rank in a world of this size at work; {}: there is none."""
        found: dict[int, int] = {}
        for path in self.folder.glob("*.world"):
            pid = int(path.stem)
            _, rank, of, total, own = map(int, path.read_text().split())
            if of == total == size and Path(f"/proc/{pid}").exists():
                assert rank == own  # a rank of the role has that rank in the world
                found[rank] = pid
        return found if sorted(found) == list(range(size)) else {}

    def wait(self, size: int) -> dict[int, int]:
        for path in self.folder.glob("*.world"):
            path.unlink()
        found: dict[int, int] = until(lambda: self.whole(size))
        return found

    def sizes(self) -> set[str]:
        return set((self.folder / "sizes").read_text().split())


@pytest.mark.parametrize("restart", ["role", "rank"])
def test_a_member_is_killed(jobs: Jobs, restart: str) -> None:  # noqa: F811
    """The next world has the same ranks: of new processes where the role starts together,
    else of the survivors and the replacement. No world is ever below min or half a unit."""
    text = JOB.format(
        python=sys.executable, restart=restart, folder=jobs.folder / "worlds"
    )
    worlds = Worlds(jobs, text)
    before = worlds.wait(4)
    os.kill(before[2], signal.SIGKILL)
    after = worlds.wait(4)
    kept = {rank for rank in before if before[rank] == after[rank]}
    assert kept == (set() if restart == "role" else {0, 1, 3}), jobs.texts(worlds.name)
    jobs.kill_head()
    again = worlds.wait(4)  # a head that comes back has the world as it was
    assert again == after
    jobs.run("scale", worlds.name, "train=2")
    until(lambda: worlds.whole(2))
    assert worlds.sizes() == {"2", "4"}
    jobs.run("stop", "job", worlds.name)


CLASS = """
name: classes
nodes: [{{name: n0, cpus: 8}}]
roles:
  train: {{worker_cls: meets.Trainer, world_size: 3, restart: role}}
driver: [sleep, "600"]
env: {{FOLDER: {folder}}}
"""

WORKER = """
import os
import threading
import muster
import train


class Trainer:
    def __init__(self):
        self.meeting = muster.Rendezvous()
        self.world = self.meeting.join()
        loop = threading.Thread(target=train.work, args=(self.meeting, self.world))
        loop.daemon = True
        loop.start()
"""


def test_workers_meet_in_their_constructor(jobs: Jobs) -> None:  # noqa: F811
    (jobs.folder / "meets.py").write_text(WORKER)
    worlds = Worlds(jobs, CLASS.format(folder=jobs.folder / "worlds"))
    before = worlds.wait(3)
    os.kill(before[0], signal.SIGKILL)
    after = worlds.wait(3)
    assert not set(before.values()) & set(after.values())
    assert worlds.sizes() == {"3"}
    jobs.run("stop", "job", worlds.name)
