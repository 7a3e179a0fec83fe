"""Operations on the rows of a batch of 1 GiB, timed; run by muster's python.

Prints, by operation, how many seconds each of several took, and how many bytes of payload
all of them have copied.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from muster import Batch, Ragged
from muster.batch import copied_bytes

ROWS = 1 << 14
WIDE = 1 << 12  # numbers of 4 bytes in a row of each of four columns: 1 GiB
CHUNKS = 8
METRICS = {"loss": [0.1] * CHUNKS}


def made() -> Batch:
    tokens = Ragged(np.zeros(ROWS * WIDE, np.int32), np.arange(ROWS + 1) * WIDE)
    fixed = {name: np.zeros((ROWS, WIDE), np.float32) for name in "abc"}
    return Batch({**fixed, "tokens": tokens}, {"step": 1, "metrics": METRICS})


def timed(operation: Callable[[], Any], times: int) -> list[float]:
    took = []
    for _ in range(times):
        began = time.perf_counter()
        operation()
        took.append(time.perf_counter() - began)
    return took


def main(times: int) -> None:
    batch = made()
    order = np.random.default_rng(1).permutation(ROWS)
    mixed = batch.reorder(order)
    parts, mixed_parts = batch.chunk(CHUNKS), mixed.chunk(CHUNKS)
    before = copied_bytes()
    operations: dict[str, Callable[[], Any]] = {
        f"chunk({CHUNKS})": lambda: batch.chunk(CHUNKS),
        "select": lambda: batch.select(["a", "tokens"]),
        "reorder": lambda: batch.reorder(order),
        "concat": lambda: Batch.concat(parts),
        f"reordered: chunk({CHUNKS})": lambda: mixed.chunk(CHUNKS),
        "reordered: concat": lambda: Batch.concat(mixed_parts),
    }
    seconds = {name: timed(run, times) for name, run in operations.items()}
    print(json.dumps({"seconds": seconds, "copied": copied_bytes() - before}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
