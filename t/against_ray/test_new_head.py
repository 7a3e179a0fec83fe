"""Ray is gone, with all that it had, and a new one is at the same address."""

import socket

import muster
import pytest
from helpers import until
from ray_rig import SLOW_S, RayCluster
from workers import Echo

pytestmark = pytest.mark.timeout(600)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def test_a_new_head_at_the_same_address() -> None:
    port = free_port()
    first = RayCluster(1, dashboard=True, port=port)
    try:
        url = f"http://127.0.0.1:{port}"
        muster.init(orchestrator="ray", address=url, num_gpus=1, timeout=2 * SLOW_S)
        c = muster.Cluster("echo", Echo, device_mapping="0")
        assert c.execute_all_sync("rank") == [0]
    except BaseException:
        muster.shutdown()
        first.stop()
        raise
    first.kill()
    second = RayCluster(1, dashboard=True, port=port)
    try:
        # what the first one had lent is gone, and that is said
        own = muster.reservation()
        until(lambda: own.pieces[0].phase == "ended", lambda: own.pieces, SLOW_S)
        with pytest.raises(muster.WorkerDied):
            c.execute_all_sync("rank")
        c.destroy()
        # the second one lends
        again = muster.reserve("again", num_gpus=2, timeout=2 * SLOW_S)
        more = muster.Cluster(
            "more", Echo, again.resource_manager(), device_mapping="0-1"
        )
        assert more.execute_all_sync("rank") == [0, 1]
        muster.shutdown()
        second.assert_nothing_held()
    finally:
        muster.shutdown()
        second.stop()
