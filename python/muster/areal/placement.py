"""Where the workers of a role go: one placement group for all, or one for each."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

from muster import api
from muster._session.reservation import Reservation, reserve
from muster.groups import GroupPart, PlacementGroup
from muster.resources import ResourceManager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

_ASK_AT_ONCE = 32  # reservations


class Places:
    """A bundle for each worker. `release()` gives all of it back."""

    def __init__(self) -> None:
        self.groups: list[PlacementGroup] = []
        self.reservations: list[Reservation] = []

    @property
    def part(self) -> GroupPart:
        return GroupPart(seat for group in self.groups for seat in group._seats)

    def release(self) -> None:
        """The role's workers have ended."""
        if not api.is_initialized():
            return  # and with it all that it held
        for group in self.groups:
            group.remove()
        for lent in self.reservations:
            lent.release()
        self.groups, self.reservations = [], []


def _units(specs: Sequence[Any]) -> list[list[Any]]:
    """Those that are placed together: a rollout instance is placed by itself."""
    if specs[0].ray_placement_strategy == "shared":
        return [list(specs)]
    return [[spec] for spec in specs]


def _group(role: str, unit: list[Any], manager: ResourceManager, lent: bool) -> Any:
    bundles: list[dict[str, Any]] = [{"GPU": spec.gpu} for spec in unit]
    if lent:  # what was asked of the orchestrator is counted
        bundles = [b | {"CPU": s.cpu} for b, s in zip(bundles, unit, strict=True)]
    strategy = "PACK" if any(spec.gpu for spec in unit) else "SPREAD"
    return manager.placement_group(bundles, strategy, name=role)


def _reserve(name: str, run: list[Any], timeout: float) -> Reservation:
    spec = run[0]
    return reserve(
        name,
        len(run),
        num_gpus=spec.gpu,
        num_cpus=spec.cpu,
        memory=f"{spec.mem}GiB" if spec.mem else None,
        strategy="PACK",
        timeout=timeout,
    )


def _lend(role: str, unit: list[Any], timeout: float) -> list[Reservation]:
    """Machines for one unit: of equal workers one reservation."""
    runs = [
        list(run) for _, run in itertools.groupby(unit, lambda s: (s.gpu, s.cpu, s.mem))
    ]
    made: list[Reservation] = []
    try:
        for number, run in enumerate(runs):
            name = role if len(runs) == 1 else f"{role}.{number}"
            made.append(_reserve(name, run, timeout))
    except BaseException:
        for one in made:
            one.release()
        raise
    return made


def take(role: str, specs: Sequence[Any], lends: bool, timeout: float) -> Places:
    """All or none: PlacementError, DeadlineExceeded. `lends`: an orchestrator is asked for
    the machines first, one reservation for each unit."""
    places, units = Places(), _units(specs)
    names = [role if len(units) == 1 else f"{role}-{i}" for i in range(len(units))]
    try:
        managers = [ResourceManager()] * len(units) if not lends else []
        if lends:
            for lent in _at_once(lambda i: _lend(names[i], units[i], timeout), names):
                places.reservations += lent
                nodes = [node for one in lent for node in one.nodes]
                managers.append(ResourceManager(nodes=list(dict.fromkeys(nodes))))
        for name, unit, manager in zip(names, units, managers, strict=True):
            places.groups.append(_group(name, unit, manager, lends))
    except BaseException:
        places.release()
        raise
    return places


def _at_once(make: Callable[[int], Any], names: list[str]) -> list[Any]:
    """All of them, asked for together; if one fails the others are given back."""
    with ThreadPoolExecutor(min(len(names), _ASK_AT_ONCE)) as threads:
        asked = [threads.submit(make, i) for i in range(len(names))]
    failures = [one.exception() for one in asked if one.exception() is not None]
    if failures:
        for one in asked:
            for lent in one.result() if one.exception() is None else ():
                lent.release()
        raise failures[0]  # type: ignore[misc]
    return [one.result() for one in asked]
