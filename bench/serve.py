"""The process of one contestant: answers one JSON request per line, until the end.

The runner starts one such process for each contestant and lets them take turns. What a
library prints must not mix with the answers, so descriptors 0 and 1 are taken away
from it: its output goes to stderr, which the runner keeps in a file.
"""

import itertools
import json
import os
import time
import traceback
from collections.abc import Callable
from typing import Protocol


class Contestant(Protocol):
    """Its public methods are the requests: JSON values in and out."""

    def close(self) -> None: ...


def time_each(call: Callable[[], object], count: int, warm_up: int) -> list[float]:
    """Seconds that each of `count` calls took, one after the other."""
    for _ in range(warm_up):
        call()
    clock = time.perf_counter_ns
    stamps = [clock()]
    for _ in range(count):
        call()
        stamps.append(clock())
    return [(end - start) / 1e9 for start, end in itertools.pairwise(stamps)]


def serve(contestant: Contestant) -> None:
    """Answer `{"op": NAME, ...arguments}` with `{"ok": VALUE}` or `{"error": TEXT}`."""
    requests = os.fdopen(os.dup(0), "r")
    answers = os.fdopen(os.dup(1), "w")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    try:
        for line in requests:
            request = json.loads(line)
            op = request.pop("op")
            if op == "close":
                break
            try:
                answer = {"ok": getattr(contestant, op)(**request)}
            except Exception:
                answer = {"error": traceback.format_exc()}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    finally:
        contestant.close()
