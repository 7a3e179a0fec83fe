"""Columns that are put together in memory that is used again."""

import gc
import os

import numpy as np
import pytest
from muster import Batch, Ragged
from muster._core import spare_new, spare_stats

ROWS, WIDTH = 1024, 512  # of int64: 4 MiB
NBYTES = ROWS * WIDTH * 8


def read(value: int) -> np.ndarray:
    """A column of two parts, put together."""
    half = np.full((ROWS // 2, WIDTH), value, dtype=np.int64)
    return Batch.concat([Batch({"x": half}), Batch({"x": half})])["x"]


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@pytest.fixture(autouse=True)
def _nothing_else_dies():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_memory_that_nothing_points_to_is_used_again():
    first = read(1)
    where = address(first)
    del first
    kept, reused = spare_stats()
    assert kept >= NBYTES
    second = read(2)
    assert address(second) == where
    assert spare_stats() == (kept - NBYTES, reused + 1)
    assert (second == 2).all()


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[5:6],
        lambda a: a.reshape(-1)[::4096],
        lambda a: a.T[3],
        memoryview,
        lambda a: memoryview(a)[7:8],
        lambda a: np.frombuffer(a, dtype=np.int32),
        lambda a: np.from_dlpack(a.view()) if a.flags.writeable else a[1:],
    ],
)
def test_memory_is_not_used_again_while_a_view_lives(view):
    kept = view(read(1))
    copy = np.array(kept)
    others = [read(value) for value in range(2, 6)]
    assert (np.asarray(kept) == copy).all()
    assert all((a == v).all() for a, v in zip(others, range(2, 6), strict=True))


def test_a_batch_keeps_what_it_has_read():
    half = np.full((ROWS // 2, WIDTH), 1, dtype=np.int64)
    batch = Batch.concat([Batch({"x": half}), Batch({"x": half})])
    where = address(batch["x"])
    read(2)
    assert address(batch["x"]) == where
    assert (batch["x"] == 1).all()


def test_ragged_values_too():
    def make(value):
        half = Ragged.of([np.full(WIDTH, value)] * (ROWS // 2))
        whole = Batch.concat([Batch({"x": half}), Batch({"x": half})])
        return whole["x"].values

    where = address(first := make(1))
    del first
    again = make(2)
    assert address(again) == where
    assert (again == 2).all()


def test_small_columns_do_without():
    assert spare_new(1000) is None
    with pytest.raises(MemoryError):
        spare_new(1 << 60)
    with pytest.raises(OverflowError):
        spare_new(1 << 70)


def test_what_is_read_cannot_be_written():
    with pytest.raises(ValueError, match="read-only"):
        read(1)[0] = 2


def test_a_forked_child_has_memory_of_its_own():
    mine = read(1)
    read(2)  # kept, for both
    pid = os.fork()
    if pid == 0:
        others = [read(value) for value in range(3, 7)]
        good = (mine == 1).all() and all((a >= 3).all() for a in others)
        os._exit(0 if good else 1)
    later = [read(value) for value in range(7, 11)]
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert (mine == 1).all()
    assert all((a == v).all() for a, v in zip(later, range(7, 11), strict=True))
