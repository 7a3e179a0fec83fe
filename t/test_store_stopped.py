"""A stopped agent: every wait for its store ends, with a reason, after a minute."""

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import muster
import numpy as np
import pytest
from data_rig import LONG
from helpers import until

pytestmark = pytest.mark.skipif(not LONG, reason="takes a minute: `make test-data`")

BIG = 1 << 20


def test_every_wait_ends(own_session: Any) -> None:
    refs = [muster.put(np.full(BIG, i)) for i in range(3)]
    waits: list[Callable[[], Any]] = [
        lambda: muster.put(np.ones(BIG)),
        lambda: muster.empty(BIG),
        lambda: refs[0].get(),
        muster.store_stats,
        muster.stored_objects,
    ]
    said: list[str] = []
    agent = muster.nodes()[0].agent_pid

    def wait(fn: Callable[[], Any]) -> None:
        try:
            fn()
            said.append("answered")
        except muster.DeadlineExceeded as error:
            said.append(str(error))

    threads = [threading.Thread(target=wait, args=(fn,)) for fn in waits]
    os.kill(agent, signal.SIGSTOP)
    begin = time.monotonic()
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        os.kill(agent, signal.SIGCONT)
    assert time.monotonic() - begin < 80
    assert len(said) == len(waits)
    assert all("is it stopped?" in text for text in said), said
    assert float(refs[1].get()[0]) == 1
    refs.clear()
    until(lambda: muster.store_stats()["objects"] == 0, muster.stored_objects)
