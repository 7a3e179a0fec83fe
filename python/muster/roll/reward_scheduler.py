"""RewardScheduler: the rewards of a batch, each row by the cluster of its domain."""

from __future__ import annotations

import asyncio
from typing import Any

from muster._adapters.checks import NoSuchKey
from muster.roll.protocol import (
    DataProto,
    pad_dataproto_to_divisor,
    unpad_dataproto,
)

__all__ = ["RewardScheduler"]


class RewardScheduler:
    def __init__(self) -> None:
        pass

    async def compute_rewards(
        self, data: DataProto, reward_clusters: dict[str, Any], pipeline_config: Any
    ) -> DataProto:
        """What `compute_rewards` of the clusters gives, in the order of the rows of `data`;
        their `domain` names the cluster. The clusters compute side by side. A domain may
        have fewer rows than its cluster has workers."""
        rows: dict[str, list[int]] = {}
        for row, domain in enumerate(data.non_tensor_batch["domain"]):
            rows.setdefault(str(domain), []).append(row)
        for domain in rows:
            if domain not in reward_clusters:
                raise NoSuchKey(f"no cluster computes rewards of domain {domain!r}")
        parts = await asyncio.gather(
            *(
                asyncio.to_thread(_rewards, reward_clusters[d], data.select_idxs(at))
                for d, at in rows.items()
            )
        )
        joined = DataProto.concat(parts)
        place = {row: i for i, row in enumerate(r for at in rows.values() for r in at)}
        joined.reorder([place[row] for row in range(len(data))])
        return joined


def _rewards(cluster: Any, data: DataProto) -> DataProto:
    padded, count = pad_dataproto_to_divisor(data, cluster.dp_size)
    rewards: DataProto = unpad_dataproto(cluster.compute_rewards(padded), count)
    return rewards
