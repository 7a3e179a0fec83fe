"""What users feel: a step of examples/grpo, and how soon a death is known."""

from collections.abc import Callable

from lab import Lab, take_turns
from report import Line, Target, median
from side import Side

CORES = 2  # that the ideal shares the work out to


def grpo(lab: Lab) -> list[Line]:
    """A call for all rows of a rank: beside Ray actors, and beside the numpy work alone,
    shared out to two cores."""
    return steps_of(lab, "a step of examples/grpo", requests=False)


def grpo_requests(lab: Lab) -> list[Line]:
    """The same, each of 512 answers a request to the example's engine: through our scheduler,
    and a stream of a Ray actor each."""
    return steps_of(lab, "a step, each answer a request", requests=True)


def steps_of(lab: Lab, work: str, requests: bool) -> list[Line]:
    steps = {"ray": lab.size(20, 5)}
    others = lab.size(40, 10)

    def measure(side: Side) -> float | None:
        return median(
            side.ask("grpo", steps=steps.get(side.name, others), requests=requests)
        )

    with lab.sides(["bare", "ray", "muster"]) as sides:
        for side in sides:
            side.ask("grpo", steps=5, requests=requests)  # warm up
        slices = take_turns(sides, lab.size(7, 2), measure)
    if "bare" in slices:
        slices["bare"] = [seconds / CORES for seconds in slices["bare"]]
    detail: dict[str, object] = {"slices": slices}
    ours = median(slices.get("muster"))
    # what requests may cost beyond their engine is not in the aims: told
    ideal = Target("told" if requests else "at_most_peer", 1.5, "s")
    peers = {
        "ray": (work, Target("better", 2, "s")),
        "bare": ("the same, its work alone on 2 cores", ideal),
    }
    return [
        Line(work, target, "idle", name, ours, median(slices.get(name)), detail)
        for name, (work, target) in peers.items()
    ]


def death_notice(lab: Lab) -> list[Line]:
    with lab.sides(["ray", "muster"]) as sides:
        slices = take_turns(
            sides, lab.size(21, 3), lambda side: side.ask("death_notice")
        )
    return [
        Line(
            "a dead worker's pidfd until its call failed",
            Target("at_most", 0.0003, "s"),
            "idle",
            "ray",
            median(slices.get("muster")),
            median(slices.get("ray")),
            {"slices": slices},
        )
    ]


LOOP_ROWS: dict[str, Callable[[Lab], list[Line]]] = {
    "grpo": grpo,
    "grpo-requests": grpo_requests,
    "death-notice": death_notice,
}
