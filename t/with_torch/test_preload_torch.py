"""Roles that preload torch are forked from a zygote, with what DDP and Adam import later."""

import os
import sys
from collections.abc import Iterator

import muster
import pytest

pytest.importorskip(
    "torch", reason="torch is not installed here: `make test-verl` has it"
)


class Trainer:
    def has(self, *modules: str) -> list[bool]:
        return [name in sys.modules for name in modules]

    def parent(self) -> str:
        with open(f"/proc/{os.getppid()}/cmdline") as file:
            return file.read()


@pytest.fixture
def session() -> Iterator[None]:
    muster.init(timeout=120)
    yield
    muster.shutdown()


def test_first_use_is_preloaded(session: None) -> None:
    cluster = muster.Cluster(
        "train", Trainer, world_size=2, preload="torch", timeout=120
    )
    modules = ("torch.distributed", "torch.nn.parallel", "torch._dynamo")
    assert cluster.execute_all_sync("has", *modules) == [[True] * 3] * 2
    assert all("zygote" in parent for parent in cluster.execute_all_sync("parent"))
