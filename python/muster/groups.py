"""Placement groups: bundles of resources that are placed all or none."""

from __future__ import annotations

from errno import ENOENT
from itertools import accumulate, pairwise

from muster import api
from muster.config import parse_size
from muster.errors import DeadlineExceeded, PlacementError, refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any, Self

    from muster import _core
    from muster._cluster.spec import Place
    from muster.config import WorkerConfig
    from muster.resources import NodeSize

__all__ = ["Bundle", "GroupPart", "PlacementGroup", "get_placement_group"]


class Bundle:
    """What one worker needs on one node.

    gpus: whole devices, or a share of one (0.5); gpu_memory: on each of them. kind: "gpu",
    "npu", ...; None: any. one_domain: all its devices in one NVLink or PCIe domain.
    resources: others, by name. labels: conditions on the node, "v", "!v", "in(a,b)".
    """

    __slots__ = ("_message",)

    def __init__(
        self,
        cpus: float = 0,
        gpus: float = 0,
        memory: int | str | None = None,
        gpu_memory: int | str | None = None,
        kind: str | None = None,
        one_domain: bool = False,
        resources: Mapping[str, int] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        _check_amount(cpus, "CPU")
        _check_amount(gpus, "GPU")
        if gpus > 1 and gpus != int(gpus):
            raise ValueError(f"gpus: whole devices or a share of one: {gpus!r}")
        message: _core.Message = {"count": 1, "cpu_milli": round(cpus * 1000)}
        if 0 < gpus < 1:
            message["share_milli"] = round(gpus * 1000)
        elif gpus:
            message["devices"] = int(gpus)
        if memory:
            message["memory"] = parse_size(memory, "memory")
        if gpu_memory:
            message["device_memory"] = parse_size(gpu_memory, "gpu_memory")
        if kind:
            message["kind"] = kind
        if one_domain:
            message["one_domain"] = True
        if resources:
            message["resources"] = [
                {"name": name, "amount": _whole(name, amount)}
                for name, amount in resources.items()
            ]
        if labels:
            message["labels"] = _conditions(labels)
        self._message = message

    @classmethod
    def of(cls, value: Bundle | Mapping[str, Any]) -> Bundle:
        """From a dict: "CPU", "GPU", and the other arguments by their names; the rest are
        resources."""
        if isinstance(value, Bundle):
            return value
        if not hasattr(value, "items"):
            raise TypeError(
                f"a bundle is a dict or a muster.Bundle, and bundles a list of them: "
                f"{value!r}"
            )
        fields = {_KEYS[name]: v for name, v in value.items() if name in _KEYS}
        if len(fields) == len(value):
            return cls(**fields)
        rest = {name: v for name, v in value.items() if name not in _KEYS}
        for name in rest:
            meant = name.upper().removesuffix("S")
            if meant in ("CPU", "GPU"):
                raise ValueError(
                    f"a bundle has no {name!r}: write {meant!r} "
                    "(muster.Bundle(resources=...) takes any name)"
                )
        fields["resources"] = {**(fields.get("resources") or {}), **rest}
        return cls(**fields)

    def __repr__(self) -> str:
        m = self._message.get
        rest = [
            [(one["name"], one["amount"]) for one in m("resources", ())],
            [(one["name"], one["condition"]) for one in m("labels", ())],
        ]
        return (
            f"<muster.Bundle: {m('cpu_milli', 0) / 1000:g} CPUs, "
            f"{m('devices', 0) or m('share_milli', 0) / 1000:g} {m('kind') or 'device'}s, "
            f"{m('memory', 0)} and {m('device_memory', 0)} bytes"
            f"{', one domain' if m('one_domain') else ''}"
            f"{f', {rest}' if any(rest) else ''}>"
        )


def _check_amount(amount: Any, of: str) -> None:
    if isinstance(amount, bool) or not isinstance(amount, (int, float)) or amount < 0:
        raise ValueError(f"{of} of a bundle: a number of at least 0: {amount!r}")


def _whole(name: str, amount: Any) -> int:
    if not isinstance(amount, (int, float)) or int(amount) != amount or amount < 0:
        raise ValueError(f"resources: {name!r}: a whole number is needed: {amount!r}")
    return int(amount)


_KEYS = {name: name for name in "memory gpu_memory kind one_domain".split()}
_KEYS |= {"CPU": "cpus", "GPU": "gpus", "resources": "resources", "labels": "labels"}


def _conditions(labels: Mapping[str, str]) -> list[_core.Message]:
    return [{"name": name, "condition": c} for name, c in labels.items()]


def bundle_messages(
    bundles: Sequence[Bundle | Mapping[str, Any]], labels: Mapping[str, str] | None
) -> list[_core.Message]:
    """As the head takes them: equal ones that stand side by side only once."""
    made: list[_core.Message] = []
    last: object = None
    more = _conditions(labels) if labels else None
    for value in bundles:
        if made and (value is last or value == last):
            made[-1] = {**made[-1], "count": made[-1]["count"] + 1}
            continue
        last = value
        one = Bundle.of(value)._message
        made.append({**one, "labels": one.get("labels", []) + more} if more else one)
    return made


class GroupPart:
    """Some bundles of one group, or of several: a place for a cluster, rank i in bundle i."""

    def __init__(self, seats: Iterable[tuple[PlacementGroup, int]]) -> None:
        self._seats = list(seats)

    def __len__(self) -> int:
        return len(self._seats)

    def __getitem__(self, index: int | slice) -> GroupPart:
        chosen = self._seats[index]
        return GroupPart(chosen if isinstance(chosen, list) else [chosen])

    def __iter__(self) -> Iterator[GroupPart]:
        return (GroupPart([seat]) for seat in self._seats)

    def __add__(self, other: GroupPart) -> GroupPart:
        if not isinstance(other, GroupPart):
            return NotImplemented
        return GroupPart([*self._seats, *other._seats])

    def split(self, *sizes: int) -> list[GroupPart]:
        """Parts of these sizes; one number n: n parts, as even as possible."""
        total = len(self)
        if len(sizes) == 1:
            n = sizes[0]
            if not 0 < n <= total:
                raise ValueError(f"{total} bundles cannot be split into {n} parts")
            sizes = tuple(total // n + (i < total % n) for i in range(n))
        if sum(sizes) != total or min(sizes, default=0) < 1:
            raise ValueError(f"parts of {sizes} bundles are not {total} bundles")
        bounds = accumulate(sizes, initial=0)
        return [GroupPart(self._seats[a:b]) for a, b in pairwise(bounds)]

    @property
    def placement(self) -> list[Place]:
        """The node and the devices of each bundle."""
        return [group._piece(bundle) for group, bundle in self._seats]

    @property
    def nodes(self) -> list[NodeSize]:
        """All that there are."""
        from muster.resources import ResourceManager

        return ResourceManager().nodes

    def request(self, config: WorkerConfig) -> dict[str, Any]:
        """What is asked of placement for such a cluster: a bundle for each rank."""
        if config.device_mapping is not None:
            raise ValueError("device_mapping: the bundles say which devices there are")
        return {
            "scope": {},
            "world_size": config.world_size or 0,
            "seats": [{"group": g.id, "bundle": b} for g, b in self._seats],
            **amounts(config),
        }

    def __repr__(self) -> str:
        names = list(dict.fromkeys(group.name for group, _ in self._seats))
        return f"<muster.GroupPart: {len(self)} bundles of {', '.join(names)}>"


def amounts(config: WorkerConfig) -> dict[str, int]:
    """What each worker asks for beside devices."""
    return {
        "cpu_milli": round(config.num_cpus * 1000),
        "memory": config.memory,
        "device_memory": config.gpu_memory,
    }


class PlacementGroup(GroupPart):
    """Bundles that the head holds until `remove()`, or until this driver ends."""

    def __init__(self, status: _core.Message) -> None:
        self.id: int = status["id"]
        self.name: str = status["name"]
        self._status = status  # a GroupStatus

    @property
    def _seats(self) -> list[tuple[PlacementGroup, int]]:  # type: ignore[override]
        return [(self, i) for i in range(len(self))]

    def __len__(self) -> int:
        return int(self._status["bundles"])

    def _piece(self, bundle: int) -> Place:
        if not self._status["pieces"]:
            self._refresh()
        if not self._status["pieces"]:
            raise PlacementError(
                f"group {self.name!r} is not placed: it is {self.state}"
            )
        piece = self._status["pieces"][bundle]
        return piece["node"], piece["devices"]

    def _ask(self, verb: str, timeout: float | None = api.ANSWER_S) -> Any:
        """None: it was removed."""
        try:
            return api.session().head.ask(verb, {"id": self.id}).result(timeout)
        except LookupError as e:
            if e.args[2] == ENOENT:
                return None
            raise refused(e, PlacementError) from None

    def _refresh(self) -> bool:
        """False: it was removed."""
        status = self._ask("find_group")
        self._status = status or self._status
        return status is not None

    @property
    def state(self) -> str:
        """ "waiting", "placed", "broken" (one of its nodes is gone), "failed" (its time was
        up), or "removed"."""
        return self._status["state"] if self._refresh() else "removed"

    @property
    def clusters(self) -> list[str]:
        """The names of those that stand in it."""
        return self._status["clusters"] if self._refresh() else []

    def wait(self, timeout: float | None = None) -> Self:
        """Until it is placed. PlacementError when its own time is up or it was removed."""
        state = self._status["state"]
        if state not in ("waiting", "failed") and not self._refresh():
            raise PlacementError(f"group {self.name!r} was removed")
        try:
            status = self._status
            if status["state"] == "waiting":
                status = self._ask("wait_group", timeout)
        except TimeoutError:
            raise DeadlineExceeded(
                f"group {self.name!r} was not placed within {timeout:g} s"
            ) from None
        if status is None:
            raise PlacementError(f"group {self.name!r} was removed")
        self._status = status
        if status["state"] == "failed":
            raise PlacementError(self._status["why"], self._status["table"])
        return self

    def remove(self) -> None:
        """Give back what it holds, or stop waiting. Its clusters must have ended. Idempotent."""
        self._ask("remove_group")

    def __repr__(self) -> str:
        return (
            f"<muster.PlacementGroup {self.name!r}: {len(self)} bundles, "
            f"{self._status['state']}>"
        )


def get_placement_group(name: str) -> PlacementGroup:
    """The group of that name, of any driver."""
    return PlacementGroup(
        api.session().ask("find_group", {"name": name}, PlacementError)
    )
