"""A new incarnation of a rank: the same place, the same constructor."""

from __future__ import annotations

from contextlib import contextmanager, suppress

from muster._start import START_S
from muster.errors import ClusterError, DeadlineExceeded, MusterError
from muster.future import Future

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from muster import _core
    from muster._helpers import Helpers
    from muster._member import Worker

ANSWER_S = 30.0
CONFIGURE = 16  # wire/frame.h, enum ms_op
CREATE_ENGINE = 18
DESTROY_ENGINE = 19


class Recipe:
    """How the workers of a cluster were made: their processes, and what was done to all
    of them since, in order."""

    def __init__(
        self,
        ranks: list[_core.RankSpec],
        beside: Sequence[Worker] = (),
        timeout: float | None = None,
    ) -> None:
        self.ranks = ranks
        self.beside = tuple(beside)  # workers beside which they run
        self.timeout = timeout  # of a constructor
        self.done: list[tuple[int, str, Any]] = []  # operation, engine, argument
        self.calls: list[tuple[str, str, list[Any]]] = []  # see `note_call`
        self.busy: set[int] = set()  # ranks that are being replaced
        self.wide: frozenset[int] = frozenset()  # ranks that have helpers

    def add(self, op: int, engine: str, argument: Any) -> None:
        """This was done to all workers."""
        if op == DESTROY_ENGINE:
            self.done = [d for d in self.done if d[:2] != (CREATE_ENGINE, engine)]
            return
        done = (op, engine, argument)
        if op == CONFIGURE:  # the last one counts, also for engines that came before it
            for i, (earlier, _, _) in enumerate(self.done):
                if earlier == CONFIGURE:
                    self.done[i] = done
                    return
        self.done.append(done)

    def note_call(self, engine: str, method: str, arguments: list[Any]) -> None:
        """Each rank was told its argument, and is told again when it is new. Plain values."""
        self.calls.append((engine, method, arguments))

    @contextmanager
    def alone(self, worker: Worker) -> Iterator[None]:
        """While it is being replaced nobody else replaces it."""
        if worker.rank in self.busy:
            raise ClusterError(f"{worker.label} is being replaced already")
        self.busy.add(worker.rank)
        try:
            yield
        finally:
            self.busy.discard(worker.rank)

    def rank(self, rank: int) -> _core.RankSpec:
        spec = self.ranks[rank].copy()
        if self.beside:
            spec["beside"] = self.beside[rank].peer.uid  # it may be a new one too
        return spec


def replace(
    head: _core.Head,
    name: str,
    worker: Worker,
    recipe: Recipe,
    codec: int,
    grace: float,
    timeout: float | None,
    helpers: Helpers | None,
) -> None:
    """End what is in the worker's place, start it anew, then its helpers, make its
    engines, and send there whoever calls the old one. `worker` is the new one afterwards."""
    with recipe.alone(worker):
        made = _begin(head, name, worker, recipe.rank(worker.rank), grace)
        uid, _, address, *_ = made
        peer = head.peer(address, uid, worker.label)
        try:
            if helpers is not None:  # constructors may ask for them
                helpers.restart(worker, uid, peer)
            _do_again(recipe, worker.rank, peer, timeout or recipe.timeout, codec)
            head.open_worker(worker.peer.uid, uid, address, ANSWER_S)
        except BaseException:  # nobody has its place then
            with suppress(Exception):
                head.replace(name, worker.rank, None, uid, 0, ANSWER_S)
            raise
        worker.renew(*made)


def _begin(
    head: _core.Head, name: str, worker: Worker, spec: _core.RankSpec, grace: float
) -> tuple[int, int, str, str, int]:
    """The old one has ended, the new process is there."""
    try:
        made = head.replace(name, worker.rank, spec, 0, grace, grace + START_S)
    except TimeoutError as e:
        raise DeadlineExceeded(
            f"{worker.label} was not replaced in time: {e}"
        ) from None
    except (OSError, MusterError) as e:
        raise ClusterError(f"{worker.label} cannot be replaced: {e.args[-1]}") from None
    assert made is not None
    return made


def _do_again(
    recipe: Recipe, rank: int, peer: _core.Peer, timeout: float | None, codec: int
) -> None:
    """What was done to all workers since they are there."""
    for op, engine, argument in recipe.done:
        call = peer.operation(op, argument, timeout, codec)
        Future(call, engine or "configure").result()
    for engine, method, arguments in recipe.calls:
        peer.call_sync(engine, method, (arguments[rank],), None, timeout, True, codec)
