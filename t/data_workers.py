"""Workers of test_data_hosts.py, each on a host of its own."""

import os
import time
import zlib
from typing import Any

import muster
import numpy as np


class Holder:
    """Makes objects, and reads those of others."""

    def put(self, size: int, seed: int) -> Any:
        """Nobody else could have made up these bytes."""
        data = muster.empty(size, np.uint8)
        data[:] = np.random.default_rng(seed).integers(0, 256, size, np.uint8)
        self.sum = zlib.crc32(data)
        return muster.put(data)

    def made(self) -> int:
        return self.sum

    def read(self, refs: list[Any]) -> list[int]:
        """Of each its checksum; it is fetched here, and not before."""
        return [zlib.crc32(ref.get()) for ref in refs]

    def column(self, rows: int, wide: int) -> Any:
        """A batch whose only column is one object."""
        batch = muster.Batch.allocate(rows, {"x": ((wide,), np.uint8)})
        values = np.random.default_rng(7).integers(0, 256, (rows, wide), np.uint8)
        batch.write("x")[:] = values
        self.sum = zlib.crc32(values[: rows // 2])
        return batch

    def read_rows(self, batch: Any) -> int:
        return zlib.crc32(batch["x"])

    def stats(self) -> dict[str, Any]:
        return muster.store_stats()

    def agent(self) -> int:
        return os.getppid()

    def empty(self) -> None:
        pass


class AsyncHolder:
    async def read(self, data: Any) -> int:
        return zlib.crc32(data)

    async def empty(self) -> None:
        pass


class Boss:
    """A driver on a host that has a store."""

    def __init__(self) -> None:
        self.space: dict[str, Any] = {
            "muster": muster,
            "time": time,
            "Holder": Holder,
            "AsyncHolder": AsyncHolder,
        }

    def do(self, code: str) -> Any:
        """The value of an expression, or of `result` after statements."""
        self.space["result"] = None
        try:
            return eval(code, self.space)
        except SyntaxError:
            exec(code, self.space)
            return self.space["result"]
