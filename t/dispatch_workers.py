"""Workers with registered methods. Imported by workers: keep it light."""

import asyncio
import atexit
import os
import socket
from collections.abc import Iterator
from typing import Any

import muster
from muster import Dispatch, Execute, register
from workers import say


def every_other(cluster: Any, rows: list[Any]) -> Any:
    """A user's own: row i to rank i % world_size."""
    n = cluster.world_size
    return (muster.each(rows[i::n] for i in range(n)),), {}


def interleave(cluster: Any, outputs: list[Any]) -> Any:
    rows = max(map(len, outputs))
    return [out[i] for i in range(rows) for out in outputs if i < len(out)]


class Batch:
    """Rows with meta information, as ROLL's and verl's: divides only evenly."""

    def __init__(self, batch: Any = None, meta_info: Any = None) -> None:
        self.batch = batch
        self.meta_info = meta_info or {}

    def __len__(self) -> int:
        return 0 if self.batch is None else len(self.batch)

    def __getitem__(self, index: slice) -> "Batch":
        return Batch(self.batch[index], self.meta_info)

    def chunk(self, chunks: int) -> list["Batch"]:
        each, rest = divmod(len(self), chunks)
        assert not rest, "only equal chunks"
        return [self[i * each : (i + 1) * each] for i in range(chunks)]

    @staticmethod
    def concat(parts: list["Batch"]) -> "Batch":
        rows = [row for part in parts for row in part.batch]
        return Batch(rows, parts[0].meta_info)


class Base:
    def __init__(self) -> None:
        self.number = int(os.environ["RANK"])

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def who(self, *args: Any, **kwargs: Any) -> Any:
        return (self.number, args, kwargs) if args or kwargs else self.number


class Trainer(Base):
    """One method for each mode; most give (rank, what they got)."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def told(
        self,
        rows: list[int],
        /,
        lr: float = 0.5,
        *more: Any,
        way: Any = Batch,
        **kw: Any,
    ) -> int:
        """One step.

        rows: what it learns from.
        """
        return len(rows)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    @staticmethod
    def static(x: int = 1) -> int:
        return x

    @register(dispatch_mode=Dispatch.ONE_TO_ALL_ONE)
    def one(self, x: Any) -> Any:
        return self.number, x

    @register(dispatch_mode=Dispatch.ALL_TO_ALL)
    def each(self, *args: Any, **kwargs: Any) -> Any:
        return self.number, args, kwargs

    @register(dispatch_mode=Dispatch.RANK_ZERO)
    def zero(self, x: Any) -> Any:
        return self.number, x

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, execute_mode=Execute.RANK_ZERO)
    def zero_too(self, x: Any) -> Any:
        return self.number, x

    @register(dispatch_mode=Dispatch.DIRECT_ROLLOUT_METHOD)
    def direct(self, x: Any) -> Any:
        return self.number, x

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def compute(self, rows: Any, *args: Any, **kwargs: Any) -> Any:
        return [(self.number, row, *args, *kwargs.values()) for row in rows]

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def same_type(self, rows: Any) -> Any:
        return rows

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def count(self, rows: Any) -> Any:
        return len(rows)

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def columns(self, rows: Any) -> Any:
        return {"x": list(rows), "rank": [self.number] * len(rows)}

    @register(dispatch_mode="DP_MP_DISPATCH_FIRST")
    def first(self, rows: Any) -> Any:
        return rows

    @register(dispatch_mode=Dispatch.DP_MP_DISPATCH_FIRST_COLLECT_ALL)
    def first_all(self, rows: Any, more: Any = None) -> Any:
        batch = rows.batch if isinstance(rows, Batch) else rows
        return self.number, batch, getattr(rows, "meta_info", None), more

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE, pad=True)
    def padded(self, rows: Any) -> Any:
        return {"row": rows, "size": [len(rows)] * len(rows)}

    @register(dispatch_mode=Dispatch.DP_COMPUTE)
    def dp(self, x: Any) -> Any:
        return self.number, x

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def proto(self, rows: Any) -> Any:
        return rows

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO_WITH_FUNC)
    def with_func(self, f: Any, rows: Any) -> Any:
        return [f(row) for row in rows]

    @register(dispatch_mode=Dispatch.DP_COMPUTE_METRIC)
    def metric(self, rows: Any) -> Any:
        return sum(rows)

    @register(dispatch_mode={"dispatch_fn": every_other, "collect_fn": interleave})
    def own(self, rows: Any) -> Any:
        return [(self.number, row) for row in rows]

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE, blocking=False)
    def later(self, rows: Any) -> Any:
        return [row + 1 for row in rows]

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def hang(self, fifo: str) -> None:
        say(fifo)
        while True:
            os.read(os.pipe()[0], 1)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def fail(self, ranks: list[int], fifo: str = "") -> int:
        if self.number in ranks:
            raise ValueError(f"rank {self.number} says no")
        if fifo:
            with open(fifo, "rb", buffering=0) as f:
                f.read(1)
        return self.number

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def stream(self, n: int) -> Iterator[int]:
        for i in range(n):
            yield 10 * self.number + i

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def ask(self, rows: Any, other: Any) -> Any:
        """Call another cluster's method from here."""
        return other.compute(rows)

    def find(self, name: str) -> Any:
        return muster.get_cluster(name)

    def not_registered(self) -> int:
        return self.number


class AsyncTrainer(Base):
    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    async def compute(self, rows: Any) -> Any:
        await asyncio.sleep(0)
        return [(self.number, row) for row in rows]

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def plain(self, rows: Any) -> Any:
        return rows


class RankInfo:
    def __init__(self, rank: int, tp: int, pp: int, world: int) -> None:
        self.tp_size, self.pp_size, self.cp_size = tp, pp, 1
        self.dp_size = world // tp // pp
        # data parallel outermost: not the order of muster's own meshes
        self.tp_rank = rank % tp
        self.pp_rank = rank // tp % pp
        self.dp_rank = rank // tp // pp
        self.cp_rank = 0


class RollWorker(Base):
    """Its strategy decides where a rank is, in initialize."""

    def __init__(self) -> None:
        super().__init__()
        self.world = int(os.environ["WORLD_SIZE"])
        self.rank_info = RankInfo(self.number, 1, 1, self.world)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def initialize(self, tp: int, pp: int) -> None:
        self.rank_info = RankInfo(self.number, tp, pp, self.world)

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def compute(self, rows: Any) -> Any:
        return [(self.number, row) for row in rows]


class HandleUser:
    """Another process with a handle of a cluster, and a view of a part of it."""

    def take(self, cluster: Any, part: Any) -> None:
        self.cluster, self.part = cluster, part

    def compute(self, rows: Any) -> Any:
        return self.cluster.compute(rows)

    def compute_in_part(self, rows: Any) -> Any:
        return self.part.compute(rows)

    def initialize_cluster(self, tp: int, pp: int) -> None:
        self.cluster.initialize(tp, pp)


class Meshes(Base):
    """Two meshes, as in verl: train 2 x 4, infer 2 x 2 x 2."""

    def __init__(self) -> None:
        super().__init__()
        train, infer = self.number // 4, self.number // 2 % 2
        muster.register_mesh("train", train, is_collect=self.number % 4 == 0)
        muster.register_mesh("infer", infer, is_collect=self.number in (0, 2))

    @register(dispatch_mode=muster.nd_mesh("train"))
    def train(self, rows: Any) -> Any:
        return [sum(rows)] if rows else []

    @register(dispatch_mode=muster.nd_mesh("infer"))
    def infer(self, rows: Any) -> Any:
        return [sum(rows)] if rows else []

    @register(dispatch_mode=muster.nd_mesh("train"))
    def train_who(self, rows: Any) -> Any:
        return [(self.number, row) for row in rows]

    @register(dispatch_mode=muster.nd_mesh("nobody's"))
    def nobody(self, rows: Any) -> Any:
        return rows


class Moves(Base):
    """A mesh that changes."""

    def __init__(self) -> None:
        super().__init__()
        muster.register_mesh("moves", self.number, is_collect=True)

    def move(self) -> None:
        muster.register_mesh("moves", self.number, is_collect=self.number == 1)

    @register(dispatch_mode=muster.nd_mesh("moves"))
    def work(self, rows: Any) -> Any:
        return [(self.number, row) for row in rows]


class Turned(Base):
    """The mesh of `Moves`, the other way round; said by a method or by the constructor."""

    def __init__(self, now: bool) -> None:
        super().__init__()
        if now:
            self.say()

    def say(self) -> None:
        muster.register_mesh("moves", 1 - self.number, is_collect=True)

    async def say_later(self) -> None:
        self.say()

    @register(dispatch_mode=muster.nd_mesh("moves"))
    def work(self, rows: Any) -> Any:
        return [(self.number, row) for row in rows]


class Collides(Base):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def destroy(self) -> None:
        pass


class Reward(Base):
    """Another engine for the same processes."""

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def score(self, rows: Any) -> Any:
        return [len(str(row)) for row in rows]


class Leaves(Base):
    """All ranks meet at rank 0 in their clean-up; it notes what it sees at its end."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder
        if self.number == 0:
            self.server = socket.socket(socket.AF_UNIX)
            self.server.bind(f"{folder}/meet")
            self.server.listen()
            atexit.register(self.note_others)

    def know(self, pids: list[int]) -> None:
        self.pids = pids

    def destroy(self) -> None:
        world = int(os.environ["WORLD_SIZE"])
        if self.number == 0:
            others = [self.server.accept()[0] for _ in range(1, world)]
            for one in others:
                one.sendall(b"!")
        else:
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(f"{self.folder}/meet")
                assert s.recv(1) == b"!"
        with open(f"{self.folder}/{self.number}", "w") as f:
            f.write("met")

    def note_others(self) -> None:
        living = [pid for pid in self.pids if os.path.exists(f"/proc/{pid}")]
        with open(f"{self.folder}/last", "w") as f:
            f.write(repr(living))


class AsyncLeaves(Leaves):
    async def destroy(self) -> None:  # type: ignore[override]
        await asyncio.to_thread(super().destroy)


class Stays(Base):
    """Does not end by itself."""

    def destroy(self) -> None:
        while True:
            os.read(os.pipe()[0], 1)


class Picky:
    """Constructors that fail in their own ways."""

    def __init__(self) -> None:
        rank = int(os.environ["RANK"])
        if rank == 1:
            raise KeyError("no key")
        if rank in (2, 3):
            raise ValueError("no value")


class Nests(Base):
    """Makes a cluster of its own."""

    def nest(self, name: str, size: int) -> Any:
        self.inner = muster.Cluster(name, Trainer, world_size=size)
        return self.inner, self.inner.compute([1, 2, 3])

    def drop(self) -> None:
        self.inner.destroy()

    def nest_deeper(self, name: str) -> Any:
        self.inner = muster.Cluster(name, Nests, world_size=1)
        return self.inner, *self.inner.execute_rank_zero_sync("nest", name + "-in", 1)

    def die(self) -> None:
        os._exit(3)


class AsyncNests(Nests):
    async def wait(self) -> None:
        await asyncio.sleep(0)


def as_given(cluster: Any, rows: Any) -> Any:
    return (rows,), {}


def collected(cluster: Any, output: Any) -> Any:
    return "collected", output


class OwnZero(Base):
    """Rank 0 alone, by a user's own functions."""

    @register(
        dispatch_mode={"dispatch_fn": as_given, "collect_fn": collected},
        execute_mode=Execute.RANK_ZERO,
    )
    def zero(self, rows: Any) -> Any:
        return rows
