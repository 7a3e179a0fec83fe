"""Workers that get and give batches, and tell what came with them."""

from typing import Any

import muster
from muster import Batch, Dispatch, register


class Keeper:
    """Answers what has arrived; reads only what it is asked to."""

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def echo(self, batch: Batch) -> Batch:
        return batch

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def echoed(self, batch: Batch, read: str) -> Batch:
        """The same, after it was read."""
        if read:
            batch.read(read)
        return batch

    @register(dispatch_mode=Dispatch.DP_COMPUTE_METRIC)
    def here(self, batch: Batch, read: str = "") -> dict[str, Any]:
        if read:
            batch.read(read)
        return {name: batch.is_here(name) for name in batch.keys()}

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def only(self, batch: Batch, name: str) -> Batch:
        """One column, doubled."""
        return Batch({name: batch[name] * 2}, {"metrics": {"rows": len(batch)}})

    @register(dispatch_mode=Dispatch.DP_MP_DISPATCH_FIRST_COLLECT_ALL)
    def arrived(self, batch: Batch) -> tuple[int, list[str], dict[str, Any]]:
        return len(batch), batch.keys(), batch.meta

    def sums(self, batch: Batch, name: str) -> float:
        return float(batch[name].sum())

    def read_of(self, batch: Batch, name: str) -> Batch:
        """One column, as this rank has read it."""
        return Batch({name: batch[name]})

    def made(self, rows: int, wide: int) -> Batch:
        out = Batch.allocate(rows, {"a": ((wide,), "int64"), "b": ((wide,), "int64")})
        out.write("a")[:] = 3
        out.write("b")[:] = 4
        return out

    def tell(self, batch: Batch) -> Any:
        """Every column, as plain Python has it."""
        return {name: batch[name].tolist() for name in batch.keys()}, batch.meta

    def parts(self, batch: Batch, count: int) -> Any:
        """One after another."""
        yield from batch.chunk(count)

    def stats(self) -> dict[str, Any]:
        return muster.store_stats()
