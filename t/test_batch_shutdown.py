"""What is left of results when the session has ended."""

import muster
import numpy as np
from batch_workers import Keeper
from muster import Batch

ROWS, WIDE = 1 << 10, 1 << 7


def test_results_can_be_read_after_the_shutdown() -> None:
    muster.init(num_cpus=2, num_nodes=2)
    try:
        keepers = muster.Cluster("keepers", Keeper, world_size=2)
        a = np.arange(ROWS * WIDE).reshape(ROWS, WIDE)
        got = keepers.only(Batch({"a": a}), "a")
        alone = keepers[1].execute_rank_zero_sync("only", Batch({"a": a}), "a")
        texts = [f"row {i}" for i in range(ROWS)]
        kept = keepers.echo(Batch({"a": a, "text": texts}))
        assert not kept.is_here("text")
    finally:
        muster.shutdown()
    assert (np.asarray(got["a"]) == 2 * a).all()
    assert (np.asarray(alone["a"]) == 2 * a).all()
    assert list(kept["text"]) == texts
