"""An agent that dies while `init` waits is an answer at once, with the cause."""

import os
import signal
import time
from typing import Any

import muster
import pytest
from helpers import agents_of, below, until
from muster import api

AT_ONCE_S = 5.0


def kill_agent() -> None:
    (agent,) = agents_of(below(os.getpid()))
    os.kill(agent, signal.SIGKILL)


def fails_at_once() -> None:
    start = time.monotonic()
    with pytest.raises(muster.MusterError, match="killed by signal 9") as caught:
        muster.init(timeout=30)
    assert time.monotonic() - start < AT_ONCE_S
    assert not isinstance(caught.value, TimeoutError)
    assert not muster.is_initialized()


def test_when_it_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for = api.wait_for

    def wait(session: Any, *args: Any) -> None:
        kill_agent()
        until(lambda: not all(node.alive for node in session.nodes()))
        wait_for(session, *args)

    monkeypatch.setattr(api, "wait_for", wait)
    fails_at_once()


def test_before_its_store_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    open_store = api.Session.open_store

    def killed(self: Any) -> None:
        kill_agent()
        until(lambda: not all(node.alive for node in self.nodes()))
        open_store(self)

    monkeypatch.setattr(api.Session, "open_store", killed)
    fails_at_once()
