"""Where workers meet: barriers, and the rendezvous of two clusters."""

from __future__ import annotations

import os

from muster import _core, api
from muster.errors import ClusterError, DeadlineExceeded, MusterError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from muster.view import View


def barrier(
    name: str = "", *, timeout: float | None = None, cluster: str | None = None
) -> None:
    """Inside a worker: wait until every rank of its cluster is at the barrier of this
    name. DeadlineExceeded names the ranks that have not come in time; ClusterError the
    one that has died. timeout: None is two hours."""
    host = _core.in_worker()
    if host is None:
        raise ClusterError(
            "barrier() is for workers: it waits for all ranks of their cluster"
        )
    if cluster is not None and host.cluster != cluster:
        raise ClusterError(
            f"barrier(): this is a worker of {host.cluster!r}, not of {cluster!r}"
        )
    wait = _core.WAIT_S if timeout is None else max(timeout, 0.001)
    try:
        asked = {"name": name or "default", "wait_ns": _core.ns(wait)}
        api.ask("barrier", asked, wait)
    except TimeoutError as e:
        raise DeadlineExceeded(str(e)) from None
    except MusterError as e:
        raise ClusterError(str(e)) from None


# ---- the rendezvous of two clusters ---------------------------------------------------


class CollectiveGroup:
    """Where the workers of two clusters meet to move weights, and who each of them is.

    Group ranks are dense: those of the source first, in their order, then those of the
    target. The port is held on the node of the first source rank, which listens there, until
    `close()` or the driver's end. Muster moves none of the bytes. Pickles for the workers.
    """

    def __init__(
        self, name: str, master: tuple[str, int], src_size: int, tgt_size: int
    ) -> None:
        self.name = name
        self.master_addr, self.master_port = master
        self.src_ranks = list(range(src_size))
        self.tgt_ranks = list(range(src_size, src_size + tgt_size))
        self.world_size = src_size + tgt_size
        self._held: tuple[_core.Head, str] | None = None

    def env(self, rank: int) -> dict[str, str]:
        """What a library such as torch.distributed wants to know, for this group rank."""
        if not 0 <= rank < self.world_size:
            raise IndexError(
                f"group {self.name!r} has ranks 0 to {self.world_size - 1}"
            )
        return {
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": str(self.master_port),
            "WORLD_SIZE": str(self.world_size),
            "RANK": str(rank),
            "GROUP_NAME": self.name,
        }

    @property
    def src_envs(self) -> list[dict[str, str]]:
        """One for each worker of the source: `src.execute_all_sync("setup",
        muster.each(group.src_envs))`."""
        return [self.env(rank) for rank in self.src_ranks]

    @property
    def tgt_envs(self) -> list[dict[str, str]]:
        return [self.env(rank) for rank in self.tgt_ranks]

    def close(self) -> None:
        """Let go of the port. Idempotent; nothing in a worker."""
        held, self._held = self._held, None
        if held is not None and held[0].alive:
            held[0].request("drop_port", {"owner": held[1]}, api.ANSWER_S)

    def __enter__(self) -> CollectiveGroup:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_held": None}

    def __repr__(self) -> str:
        return (
            f"<muster.CollectiveGroup {self.name!r}: {len(self.src_ranks)} to "
            f"{len(self.tgt_ranks)} workers at {self.master_addr}:{self.master_port}>"
        )


def collective_group(src: View, tgt: View, name: str | None = None) -> CollectiveGroup:
    """A meeting point for the workers of two clusters, or of parts of them."""
    both = {w.uid for w in src._members} & {w.uid for w in tgt._members}
    if both:
        worker = next(w for w in src._members if w.uid in both)
        raise ClusterError(f"collective_group: {worker.label} is on both sides")
    if not src._members or not tgt._members:
        raise ClusterError("collective_group: a side has no workers")
    first = src._members[0]
    name = name or f"{src._name}-{tgt._name}"
    owner = f"{src._name}:group-{os.urandom(4).hex()}"
    head = api.session().head
    asked = {"owner": owner, "node": first.node[1]}
    port = head.request("hold_port", asked, api.ANSWER_S)
    master = port["host"], port["port"]
    group = CollectiveGroup(name, master, len(src._members), len(tgt._members))
    group._held = head, owner
    return group
