"""The rules of src/generate as Python has them."""

import pytest
from muster import _core


def test_staleness_follows_a_rollout() -> None:
    s = _core.Staleness(max_concurrent=64, batch=4, max_staleness=1)
    assert s.pending_max == 8
    assert s.capacity(0) == 8
    for _ in range(8):
        s.enqueue()
        s.submit()
    assert (s.enqueued, s.running, s.capacity(0)) == (0, 8, 0)
    s.reject()
    s.accept()
    assert (s.running, s.accepted, s.rejected) == (6, 1, 1)
    assert s.capacity(0) == 1
    assert s.capacity(1) == 5
    s.recover(3)
    assert (s.running, s.accepted, s.capacity(3)) == (0, 12, 8)
    s.max_staleness = 0
    assert s.capacity(3) == 4
    with pytest.raises(AttributeError):
        s.running = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        _core.Staleness(1, 2)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        s.capacity("1")  # type: ignore[arg-type]
