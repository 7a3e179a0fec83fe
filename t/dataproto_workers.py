"""Workers that get and give DataProtos, whatever their tensors are."""

from typing import Any

import muster
import numpy as np
from muster import roll, verl
from muster._adapters.lazy_column import LazyColumn

_RollDispatch = roll.Dispatch


def what_arrived(data: Any) -> dict[str, Any]:
    """How many rows, of which columns, and what may be written."""
    cells = {} if data.batch is None else data.batch.cells()
    return {
        "rows": len(data),
        "columns": sorted([*cells, *data.non_tensor_batch]),
        "meta": data.meta_info,
        "writable": [c.flags.writeable for c in cells.values() if hasattr(c, "flags")],
        "bytes": sum(
            getattr(getattr(c, "column", c), "nbytes", 0) for c in cells.values()
        ),
    }


class RollActor(roll.Worker):
    @roll.register(dispatch_mode=_RollDispatch.DP_MP_COMPUTE)
    def double(self, data: Any, more: Any = None) -> Any:
        out = data.select(["ids"], [])
        out.batch["doubled"] = data.batch["wide"] * 2
        out.meta_info["metrics"] = {"rows": len(data), "rank": [self.rank]}
        if more is not None:
            out.meta_info["more"] = more.meta_info
        return out

    @roll.register(dispatch_mode=_RollDispatch.DP_MP_COMPUTE)
    def echo(self, data: Any) -> Any:
        return data

    @roll.register(dispatch_mode=_RollDispatch.DP_MP_COMPUTE)
    def measure(self, data: Any) -> Any:
        """Numbers alone."""
        return roll.DataProto(meta_info={"metrics": {"rows": len(data)}})

    @roll.register(dispatch_mode=_RollDispatch.DP_MP_DISPATCH_FIRST_COLLECT_ALL)
    def arrived(self, data: Any) -> Any:
        return what_arrived(data)

    @roll.register(dispatch_mode=_RollDispatch.DP_MP_COMPUTE)
    def scribble(self, data: Any) -> Any:
        """Writes into what it got."""
        data.batch["ids"][:] = -1
        return data


class VerlActor(verl.Worker):
    @verl.register(dispatch_mode=verl.Dispatch.DP_COMPUTE_PROTO)
    def double(self, data: Any) -> Any:
        out = data.select(["ids"], [])
        out.batch["doubled"] = data.batch["wide"] * 2
        out.meta_info["metrics"] = {"rows": len(data)}
        return out

    @verl.register(dispatch_mode=verl.Dispatch.DP_COMPUTE_PROTO, blocking=False)
    def later(self, data: Any) -> Any:
        return data.repeat(2)

    @verl.register(dispatch_mode=verl.Dispatch.DP_COMPUTE_PROTO, blocking=False)
    def make(self, data: Any) -> Any:
        """As many rows of its own, in its own memory."""
        rows = len(data)
        numbers = np.arange(rows * 64, dtype=np.int64).reshape(rows, 64)
        texts = np.array([f"{i:0>99}" for i in range(rows)], dtype=object)
        return verl.DataProto.from_dict(
            {"big": numbers + self.rank, "other": numbers}, {"text": texts}
        )

    @verl.register(dispatch_mode=verl.Dispatch.DP_COMPUTE_METRIC)
    def look(self, data: Any, names: Any = ()) -> Any:
        """What of it was read, when some columns were."""
        for name in names:
            _ = data.batch[name]
        cells = data.batch.cells()
        return {n: not isinstance(c, LazyColumn) for n, c in cells.items()}

    @verl.register(dispatch_mode=verl.Dispatch.ONE_TO_ALL)
    def stats(self) -> Any:
        return muster.store_stats()

    @verl.register(dispatch_mode=verl.Dispatch.ONE_TO_ALL)
    def count(self, data: Any) -> Any:
        return len(data), int(data.batch["big"].sum())

    @verl.register(dispatch_mode=verl.Dispatch.DP_COMPUTE_PROTO, blocking=False)
    def fail(self, data: Any) -> Any:
        raise ValueError("no luck")

    @verl.register(dispatch_mode=verl.Dispatch.DP_COMPUTE_PROTO)
    def measure(self, data: Any) -> Any:
        return verl.DataProto(meta_info={"metrics": {"rows": len(data)}})


class Plain:
    """Of a cluster of muster's own."""

    @muster.register(dispatch_mode=muster.Dispatch.DP_MP_COMPUTE, pad=True)
    def padded(self, data: Any) -> Any:
        data = data.select()
        data.meta_info["metrics"] = {"rows": len(data)}
        return data
