"""A data set in shards that workers take, each of which is done although workers die.

shards = muster.Shards("train", size=1_000_000, shard_size=1000, epochs=2, shuffle=True)
for shard in shards:                  # in any number of workers and drivers
    with shard:                       # done at its end; failed by an exception, and tried again
        train(shard.start, shard.end)

muster.save_shards(folder)            # in a checkpoint: how far all queues of the job are
muster.restore_shards(folder)         # what was not done then is to be done

The queue is in the head (src/job/shards.h), `doc/jobs.md` has the rules.
"""

from __future__ import annotations

import os
from errno import EEXIST

from muster import _core, api
from muster.errors import DeadlineExceeded, MusterError, ShardsFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Any

SAVED = "muster.shards"  # the file in a checkpoint's folder


class Shard:
    """Records `start` to `end` (excluded) of an epoch. `attempt`: how often it came back.
    It is this process's until one of `done`, `fail` and `give_back`; when the process dies
    another one gets it."""

    __slots__ = ("_lease", "_queue", "attempt", "end", "epoch", "index", "start")

    def __init__(self, queue: Shards, taken: _core.Message) -> None:
        self._queue = queue
        self._lease = taken["lease"]
        self.epoch = taken["epoch"]
        self.index = taken["index"]
        self.start = taken["start"]
        self.end = taken["end"]
        self.attempt = taken["attempt"]

    def done(self) -> bool:
        """True: the head has written it down, and it is not done again. False: it is not this
        process's any more, and another one does it again."""
        return self._end("done")

    def fail(self, reason: str) -> bool:
        """It is tried again, here or elsewhere, up to `max_failures` times."""
        return self._end("failed", reason)

    def give_back(self) -> bool:
        """Another one is to do it; that counts as nothing."""
        return self._end("given_back")

    def _end(self, how: str, reason: str = "") -> bool:
        asked = {"lease": self._lease, "how": how, "reason": reason[:256]}
        not_kept = ""
        for hold in api.holds(None):
            asked["wait_ns"] = _core.ns(hold)
            answer = self._queue._ask("end_shard", asked, hold)
            if not (not_kept := answer["not_kept"]):
                return bool(answer["accepted"])
        raise DeadlineExceeded(
            f"{self!r}: the head knows how it ended, and cannot write it down: {not_kept}"
        )

    def __len__(self) -> int:
        return int(self.end - self.start)

    def __enter__(self) -> Shard:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.done()
        elif isinstance(error, Exception):
            self.fail(f"{type(error).__name__}: {error}")
        else:  # Ctrl-C, SystemExit: no fault of the shard
            self.give_back()

    def __repr__(self) -> str:
        where = f"[{self.start}, {self.end}) of epoch {self.epoch}"
        return f"<muster.Shard {self._queue.name!r}: {where}>"


class Shards:
    """The queue `name`, which is made if there is none. All that open it say the same.

    size, shard_size: records of the data set, and of a shard; the last one may have fewer.
    epochs: how often all of it is gone through; shuffle: each time in another order, which
        follows from `seed` and the epoch alone.
    max_failures, max_deaths: a shard that failed so often, or whose workers died so often,
        is set aside, and the queue ends with ShardsFailed instead of being complete.
    detached: it stays until `remove()`. Else it goes with the driver, of a worker with the
        driver of its cluster.
    """

    def __init__(
        self,
        name: str,
        size: int,
        shard_size: int,
        *,
        epochs: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        max_failures: int = 3,
        max_deaths: int = 3,
        detached: bool = False,
    ) -> None:
        self.name = name
        asked = {"size": size, "shard": shard_size, "epochs": epochs}
        asked |= {"shuffle": shuffle, "seed": seed, "detached": detached}
        asked |= {"failures_max": max_failures, "deaths_max": max_deaths}
        self._ask("open_shards", asked)

    def __iter__(self) -> Iterator[Shard]:
        while (shard := self.take()) is not None:
            yield shard

    def take(self, timeout: float | None = None) -> Shard | None:
        """One; None: all are done. Waits while others have the last ones, which come back if
        those fail or die; DeadlineExceeded after the timeout. ShardsFailed: all is done but
        some that failed too often."""
        found = self.take_many(1, timeout)
        return found[0] if found else None

    def take_many(self, count: int, timeout: float | None = None) -> list[Shard]:
        """Up to so many (1,024), and at least one; []: all are done."""
        not_kept = ""
        for hold in api.holds(timeout):
            asked = {"count": count, "wait_ns": _core.ns(hold)}
            found = self._take(asked, hold)
            if found["shards"] or found["state"] == "complete":
                return [Shard(self, taken) for taken in found["shards"]]
            if found["state"] == "failed":
                raise self._failure()
            not_kept = found["not_kept"]
        why = not_kept or "others have the last ones, and none came back"
        raise DeadlineExceeded(f"shards {self.name!r}: {why}")

    def _take(self, asked: _core.Message, wait: float) -> _core.Message:
        operation = api.live_head().ask("take_shards", {"name": self.name, **asked})
        try:
            return _answer(operation, wait)
        except (MusterError, ValueError):
            raise  # it was refused
        except BaseException:  # Ctrl-C: what comes now goes back
            import threading

            threading.Thread(
                target=self._give_back, args=(operation, wait), daemon=True
            ).start()
            raise

    def _give_back(self, operation: _core.Operation, wait: float) -> None:
        while True:  # it is answered, or fails when the head is lost
            try:
                for taken in _answer(operation, wait)["shards"]:
                    Shard(self, taken).give_back()
                return
            except TimeoutError:
                continue
            except (MusterError, ValueError):
                return  # the queue, or the session, has ended

    def _failure(self) -> ShardsFailed:
        status = self.status()
        first = status["failures"][0]
        where = f"records {first['start']} to {first['end']} of epoch {first['epoch']}"
        text = (
            f"shards {self.name!r}: {status['failed']} of {status['total']} have failed"
        )
        return ShardsFailed(
            f"{text}, first {where}: {first['reason']}", status["failures"]
        )

    def status(self) -> dict[str, Any]:
        """`state` ("open", "complete", "failed"); how many shards there are (`total`), are
        `done`, `doing`, `failed`; `failures` tells of the first of these."""
        found = self._ask("shards", {})
        names = ("state", "total", "done", "doing", "failed", "failures")
        return {name: found[name] for name in names}

    def position(self) -> bytes:
        """How far it is, for a checkpoint: what is done now, and nothing else, is done
        after `restore`."""
        return bytes(self._ask("shards", {"with_position": True})["position"])

    def restore(self, position: bytes) -> None:
        """Go on at a position of the same data set. Shards that workers have do not count."""
        if not position:
            raise ValueError("restore: the position has no bytes")
        self._ask("change_shards", {"position": position})

    def retry(self) -> None:
        """Those that have failed too often are tried again."""
        self._ask("change_shards", {"retry": True})

    def remove(self) -> None:
        """The queue is forgotten."""
        self._ask("change_shards", {"remove": True})

    def _ask(
        self, verb: str, fields: _core.Message, wait: float = 0.0
    ) -> _core.Message:
        return _ask(verb, {"name": self.name, **fields}, wait)

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (self.name,)

    def __repr__(self) -> str:
        return f"<muster.Shards {self.name!r}>"


def _opened(name: str) -> Shards:
    """A handle in another process, to a queue that there is."""
    shards = Shards.__new__(Shards)
    shards.name = name
    return shards


def _ask(verb: str, fields: _core.Message, wait: float = 0.0) -> _core.Message:
    return _answer(api.live_head().ask(verb, fields), wait)


def _answer(operation: _core.Operation, wait: float) -> _core.Message:
    try:
        return operation.result(wait + api.ANSWER_S)
    except _core.Refused as e:
        text, _, code = e.args
        raise (ValueError if code == EEXIST else MusterError)(text) from None


# ---- in a checkpoint ------------------------------------------------------------------


def save_shards(folder: str | os.PathLike[str] | None = None) -> int:
    """Write into a checkpoint's folder how far all queues are, at one moment; how many there
    are. They are those of the job, or without one of the driver. None: MUSTER_CHECKPOINT. The
    file is whole or not there, and the last of several stays."""
    to = _folder(folder)
    found = _ask("save_shards", {})
    path = os.path.join(to, SAVED)
    part = f"{path}.part"
    with open(part, "wb") as f:
        f.write(found["saved"])
        f.flush()
        os.fsync(f.fileno())
    os.rename(part, path)
    at = os.open(to, os.O_RDONLY)
    try:
        os.fsync(at)
    finally:
        os.close(at)
    return int(found["queues"])


def restore_shards(folder: str | os.PathLike[str] | None = None) -> bool:
    """All queues go back to where they were when this checkpoint was saved: what was not done
    then is to be done, and nothing else. Those that it does not have go back to their
    beginning, also if there is no such file: then the answer is False. Shards that workers
    have at that moment do not count any more. None: MUSTER_CHECKPOINT."""
    at = _folder(folder)
    try:
        with open(os.path.join(at, SAVED), "rb") as f:
            saved = f.read()
    except FileNotFoundError:
        _ask("restore_shards", {})
        return False
    if not saved:  # it would mean the beginning
        raise MusterError(f"{SAVED} in {at} is empty: the checkpoint is damaged")
    _ask("restore_shards", {"saved": saved})
    return True


def _folder(folder: str | os.PathLike[str] | None) -> str:
    found = os.environ.get("MUSTER_CHECKPOINT") if folder is None else folder
    if not found:
        raise ValueError(
            "give a folder: only drivers of jobs with `checkpoint` can leave it out"
        )
    return os.fspath(found)
