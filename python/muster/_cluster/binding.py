"""What is known of a cluster's engines: registered methods, and places in the mesh."""

from __future__ import annotations

from muster import _core, api
from muster._cluster.member import NoPeer
from muster.config import MESH, mesh_sizes
from muster.errors import ClusterError
from muster.future import Future, gather

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from muster.dispatch import Method
    from muster.view import View

UNKNOWN = "unknown"  # a mesh that the workers have to be asked for

Place = tuple[int, int, int, int]  # tp, cp, dp, pp


class _RankInfo:
    """The place of a rank, and the sizes of its mesh, as its engine says."""

    __slots__ = ("place", "sizes")

    def __init__(self, place: Place, sizes: tuple[int, ...]) -> None:
        self.place = place
        self.sizes = sizes  # of tp, cp, dp, pp and ep


class Binding:
    """What is known of an engine: its methods and the places of its ranks."""

    # Shared by the cluster and its views; what is not known is asked for once.

    def __init__(
        self,
        cluster: str,
        engine: str,
        world_size: int,
        methods: Mapping[str, Method] | None,
        mesh: Mapping[str, int] | str | None,
    ) -> None:
        self.cluster = cluster
        self.engine = engine
        self.world_size = world_size
        self.methods = None if methods is None else dict(methods)
        self.mesh = mesh  # None: as the ranks say
        self.version = 0  # of the places
        self._changes = 0  # of clusters, when they were asked for
        self._fixed: list[Place] | None = None  # of the mesh that was given
        self._ranks: dict[int, _RankInfo] = {}  # by rank
        self._registered: dict[str, dict[int, tuple[int, bool]]] = {}
        self._engines: dict[str, Binding] = {engine: self}

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self.cluster, self.engine, self.world_size, self.methods, self.mesh)
        return Binding, fields

    # ---- engines ----------------------------------------------------------------------

    def of_engine(self, engine: str) -> Binding:
        return self._engines.get(engine) or self.add_engine(engine, None)

    def add_engine(self, engine: str, methods: Mapping[str, Method] | None) -> Binding:
        fields = (self.cluster, engine, self.world_size, methods, self.mesh)
        made = self._engines[engine] = Binding(*fields)
        made._engines = self._engines
        return made

    def refresh(self) -> int:
        """Forget the places if any process has resized or initialized a cluster since; how
        many such changes this process knows of."""
        known = api.changes()
        if known != self._changes:
            self._changes = known
            self.forget()
        return known

    def forget(self, rank: int | None = None) -> None:
        """That rank, or all of them, may be elsewhere in the mesh by now."""
        for one in self._engines.values():
            one.version += 1
            if rank is None:
                one._ranks.clear()
                one._registered.clear()
                continue
            one._ranks.pop(rank, None)
            for registered in one._registered.values():
                registered.pop(rank, None)

    def resize(self, world_size: int) -> None:
        """So many ranks from now on. A mesh is all data parallel then, or as it was."""
        for one in self._engines.values():
            if one.world_size == world_size:
                continue
            one.world_size = world_size
            one._fixed = None
            if isinstance(one.mesh, dict):
                one.mesh = mesh_sizes(
                    {d: n for d, n in one.mesh.items() if d != "dp"}, world_size
                )
        self.forget()

    # ---- asking -----------------------------------------------------------------------

    def look(
        self, view: View, what: str, ranks: list[int], name: str = ""
    ) -> list[Any]:
        if not view._peers:
            view._destroyed()
        ask = {"engine": self.engine, "what": what, "name": name}
        how = (_core.OP_LOOK, ask, view._timeout, _core.CODEC_PICKLE)
        peers = [view._peers[i] for i in ranks]
        return gather([Future(peer.operation(*how), what) for peer in peers])

    def find(self, view: View, name: str) -> Method | None:
        if self.methods is None:
            if view._members[0].native or isinstance(view._peers[0], NoPeer):
                return None
            found: dict[str, Method] = self.look(view, "methods", [0])[0]
            check_names(type(view), found)
            self.methods = found
        return self.methods.get(name)

    def places(self, view: View) -> list[Place]:
        self.refresh()
        if self.mesh == UNKNOWN:
            answers = self.look(view, "mesh", [0])[0]
            self.mesh = mesh_sizes(answers, self.world_size) if answers else None
        ranks = view.ranks
        if isinstance(self.mesh, dict):
            if self._fixed is None:
                sizes = [self.mesh[d] for d in MESH]
                self._fixed = _core.mesh_ranks(self.world_size, *sizes)
            return [self._fixed[rank] for rank in ranks]
        self._ask_ranks(view, ranks)
        return [self._ranks[rank].place for rank in ranks]

    def _ask_ranks(self, view: View, ranks: list[int]) -> None:
        new = [i for i, rank in enumerate(ranks) if rank not in self._ranks]
        if not new:
            return
        asked = not view._members[0].native
        answers = self.look(view, "rank_info", new) if asked else [None] * len(new)
        for i, info in zip(new, answers, strict=True):
            # without one: all are data parallel
            alone = ((0, 0, ranks[i], 0), (1, 1, self.world_size, 1, 1))
            self._ranks[ranks[i]] = _RankInfo(*(alone if info is None else info))

    def sizes(self, view: View) -> dict[str, int]:
        """Of tp, cp, dp, pp and ep."""
        self.places(view)
        if isinstance(self.mesh, dict):
            return dict(self.mesh)
        return dict(zip(MESH, self._ranks[view.ranks[0]].sizes, strict=True))

    def registered(self, view: View, mesh: str) -> list[tuple[int, bool]]:
        """(dp_rank, is_collect) of each worker of a view, as it has said."""
        self.refresh()
        known = self._registered.setdefault(mesh, {})
        ranks = view.ranks
        new = [i for i, rank in enumerate(ranks) if rank not in known]
        answers = self.look(view, "registered", new, mesh) if new else []
        missing = [ranks[i] for i, one in zip(new, answers, strict=True) if one is None]
        if missing:
            raise ClusterError(
                f"mesh {mesh!r} of {self.cluster!r}: rank {missing[0]} has not registered "
                f"it: call muster.register_mesh({mesh!r}, dp_rank, is_collect) in the "
                "worker"
            )
        for i, one in zip(new, answers, strict=True):
            known[ranks[i]] = one
        return [known[rank] for rank in ranks]


def check_names(kind: type, methods: Iterable[str], of: str = "") -> None:
    """A registered method must not hide what a cluster has itself."""
    for name in methods:
        if hasattr(kind, name) or name in getattr(kind, "_INSTANCE", ()):
            raise ClusterError(
                f"the registered method {name!r}{of} cannot be bound: {kind.__name__} "
                "has an attribute of that name. Rename it, or do not register it: "
                f"execute_all_sync({name!r}) calls it without being registered"
            )
