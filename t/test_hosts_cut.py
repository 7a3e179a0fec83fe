"""A cable that is dead for a while costs nothing, whoever sees it: only a goodbye is an
end, everything else is silence."""

import time

import pytest
from hosts import Net, obstacle
from test_hosts import LONG_GRACE_S, three

pytestmark = pytest.mark.skipif(obstacle() is not None, reason=str(obstacle()))

CUT_S = 4.0  # longer than a neighbour is remembered: what is sent then cannot be sent


@pytest.mark.parametrize("end", ["head", "lender", "driver"])
def test_a_healed_cut_costs_nothing(net: Net, end: str) -> None:
    head, _, driver = three(net, LONG_GRACE_S)
    host = next(host for host in net.hosts if host.name == end)
    for break_it, mend in ((net.cut, net.heal), (net.unplug, net.plug)):
        driver.do("f = c.execute_rank_zero_async('add', 2.0)")
        break_it(host)
        time.sleep(CUT_S)
        mend(host)
        driver.do("f.result(60)")
    time.sleep(CUT_S)  # what the healing brings has arrived
    # the cluster is there, with the worker that it had
    assert driver.do("c.execute_rank_zero_sync('total')") == 2
    assert driver.do("[n.name for n in muster.nodes() if n.alive]") == ["lender"]
    assert head.node("lender")["alive"]
    driver.do("d = muster.Cluster('d', Counter, world_size=1)")
    assert driver.do("d.execute_rank_zero_sync('add')") == 1
