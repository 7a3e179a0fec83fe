"""Chrome's trace-event format, as strictly as Perfetto's reader needs it."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import Any

Trace = list[dict[str, Any]]
Track = tuple[int, int]

# of each kind: what it must have, and what it may have besides
ALL = {"name", "ph", "pid", "tid"}
FIELDS: dict[str, tuple[set[str], set[str]]] = {
    "M": (ALL | {"args"}, set()),
    "X": (ALL | {"ts", "dur"}, {"args", "cat"}),
    "i": (ALL | {"ts", "s"}, {"args", "cat"}),
    "C": (ALL | {"ts", "args"}, {"cat"}),
    "s": (ALL | {"ts", "id", "cat"}, {"bp", "args"}),
    "f": (ALL | {"ts", "id", "cat", "bp"}, {"args"}),
}
ROUNDED_US = 1e-3  # times are written in nanoseconds


def check_trace(events: Trace) -> None:
    for e in events:
        _check_event(e)
    _check_names(events)
    spans = _spans(events)
    for found in spans.values():
        _check_nesting(found)
    _check_flows(events, spans)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and value == value and abs(value) < 2**53


def _check_event(e: dict[str, Any]) -> None:
    need, may = FIELDS[e["ph"]]
    assert need <= e.keys() <= need | may, e
    assert isinstance(e["name"], str) and e["name"], e
    assert type(e["pid"]) is int and type(e["tid"]) is int, e
    for name in ("ts", "dur"):
        assert name not in e or (_is_number(e[name]) and e[name] >= 0), e
    assert isinstance(e.get("args", {}), dict), e
    if e["ph"] == "C":
        assert e["args"] and all(map(_is_number, e["args"].values())), e
    if e["ph"] == "i":
        assert e["s"] in ("t", "p", "g"), e
    if e["ph"] == "f":
        assert e["bp"] == "e", e  # else it would end at the next span


def _check_names(events: Trace) -> None:
    """Each track has one name, and each process; none has a name alone."""
    kinds = ("thread_name", "process_name")
    names = [e for e in events if e["ph"] == "M" and e["name"] in kinds]
    assert all(isinstance(e["args"].get("name"), str) for e in names)
    threads = Counter((e["pid"], e["tid"]) for e in names if e["name"] == kinds[0])
    processes = Counter(e["pid"] for e in names if e["name"] == kinds[1])
    assert set(threads.values()) <= {1} and set(processes.values()) <= {1}
    used = {(e["pid"], e["tid"]) for e in events if e["ph"] != "M"}
    assert used == set(threads), used ^ set(threads)
    assert {pid for pid, _ in used} == set(processes)
    whose: dict[int, int] = {}
    for pid, tid in used:  # Perfetto takes a tid for the same thread in all processes
        assert whose.setdefault(tid, pid) == pid, tid


def _spans(events: Trace) -> dict[Track, list[tuple[float, float]]]:
    """Of each track, by their beginnings, the longer ones first."""
    found: dict[Track, list[tuple[float, float]]] = {}
    for e in events:
        if e["ph"] == "X":
            span = (e["ts"], e["ts"] + e["dur"])
            found.setdefault((e["pid"], e["tid"]), []).append(span)
    for spans in found.values():
        spans.sort(key=lambda span: (span[0], -span[1]))
    return found


def _check_nesting(spans: list[tuple[float, float]]) -> None:
    """Spans of a track lie within each other or apart."""
    ends: list[float] = []
    for begin, end in spans:
        while ends and ends[-1] <= begin + ROUNDED_US:
            ends.pop()
        assert not ends or end <= ends[-1] + ROUNDED_US, (begin, end)
        ends.append(end)


def _check_flows(events: Trace, spans: dict[Track, list[tuple[float, float]]]) -> None:
    """Each arrow begins once and ends once, later, and both ends are on a span."""
    starts = {(e["cat"], e["id"]): e for e in events if e["ph"] == "s"}
    ends = {(e["cat"], e["id"]): e for e in events if e["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert len(starts) + len(ends) == sum(e["ph"] in "sf" for e in events)
    for name, start in starts.items():
        end = ends[name]
        assert start["ts"] <= end["ts"] and start["name"] == end["name"], name
        for e in (start, end):
            own = spans.get((e["pid"], e["tid"]), [])
            last = bisect_right(own, e["ts"] + ROUNDED_US, key=lambda span: span[0])
            under = own[max(0, last - 8) : last]  # tracks are not nested deeper
            assert any(stop + ROUNDED_US >= e["ts"] for _, stop in under), e
