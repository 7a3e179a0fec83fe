"""RankInfo: where a worker is in the mesh of its cluster."""

from __future__ import annotations

import dataclasses

from muster import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self


@dataclasses.dataclass
class RankInfo:
    """Owned by the worker, which may change it until `initialize` has returned."""

    world_size: int = 1
    tp_size: int = 1
    dp_size: int = 1
    pp_size: int = 1
    cp_size: int = 1

    rank: int = 0
    tp_rank: int = 0
    dp_rank: int = 0
    pp_rank: int = 0
    cp_rank: int = 0

    @property
    def is_pipeline_last_stage(self) -> bool:
        return self.pp_rank == self.pp_size - 1

    @classmethod
    def of(cls, rank: int, world_size: int, mesh: Mapping[str, int]) -> Self:
        """rank = tp + TP * (cp + CP * (dp + DP * pp)), as Megatron counts; without a
        mesh all are data parallel."""
        asked = [mesh.get(dim, 0) for dim in ("tp", "cp", "dp", "pp", "ep")]
        places = _core.mesh_ranks(world_size, *asked)
        tp, cp, dp, pp = places[rank]
        last = places[-1]
        return cls(
            world_size=world_size,
            tp_size=last[0] + 1,
            cp_size=last[1] + 1,
            dp_size=last[2] + 1,
            pp_size=last[3] + 1,
            rank=rank,
            tp_rank=tp,
            cp_rank=cp,
            dp_rank=dp,
            pp_rank=pp,
        )
