"""What a worker is that was forked from the zygote: a process like any other."""

import logging
import os
import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import muster
import numpy as np
import pytest

PRELOADED = "xmlrpc.client"  # nobody imports that by chance


@pytest.fixture(scope="module")
def session() -> Iterator[None]:
    muster.init(preload=PRELOADED)
    yield
    muster.shutdown()


class Forked:
    def numbers(self) -> tuple[float, float]:
        return random.random(), float(np.random.random())

    def native_ids(self) -> tuple[int, int]:
        return threading.main_thread().native_id or 0, os.getpid()

    def thread(self) -> str:
        said: list[str] = []
        thread = threading.Thread(target=lambda: said.append("here"))
        thread.start()
        thread.join()
        return said[0]

    def threads_of_a_child(self) -> int:
        """How many it sees: only the one that forked; and logging works there."""
        release = threading.Event()
        other = threading.Thread(target=release.wait)
        other.start()
        pid = os.fork()
        if pid == 0:
            logging.getLogger("child").warning("a lock of its own")
            os._exit(threading.active_count())
        release.set()
        other.join()
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def registers(self) -> str:
        """Whose function notes the hooks of forks."""
        return os.register_at_fork.__module__

    def has(self, module: str) -> bool:
        return module in sys.modules


def test_workers_draw_different_numbers(cluster: Any) -> None:
    drawn = cluster(Forked, 4).execute_all_sync("numbers")
    assert len({a for a, _ in drawn}) == len({b for _, b in drawn}) == 4


def test_threads(cluster: Any) -> None:
    workers = cluster(Forked, 2)
    assert workers.execute_all_sync("thread") == ["here"] * 2
    assert all(a == b for a, b in workers.execute_all_sync("native_ids"))


def test_a_worker_forks_as_everybody_does(cluster: Any) -> None:
    assert cluster(Forked, 1).execute_all_sync("threads_of_a_child") == [1]


def test_fork_hooks_as_they_are(cluster: Any) -> None:
    [replaced] = cluster(Forked, 1).execute_all_sync("registers")
    assert replaced.startswith("muster.")
    plain = cluster(Forked, 1, env={"MUSTER_FORK_HOOKS": "all"})
    assert plain.execute_all_sync("registers") == ["posix"]
    assert plain.execute_all_sync("threads_of_a_child") == [1]


def test_modules_of_all_workers(cluster: Any) -> None:
    assert cluster(Forked, 2).execute_all_sync("has", PRELOADED) == [True, True]


def test_what_torch_imports_on_first_use(cluster: Any, tmp_path: Path) -> None:
    """A role that preloads torch has it: a stand-in of that name here."""
    torch = tmp_path / "torch"
    for part in ("", "distributed", "nn", "nn/parallel", "_dynamo"):
        (torch / part).mkdir()
        (torch / part / "__init__.py").touch()
    c = cluster(Forked, 1, preload="torch", env={"PYTHONPATH": str(tmp_path)})
    assert c.execute_all_sync("has", "torch._dynamo") == [True]
    assert c.execute_all_sync("has", "torch.nn.parallel") == [True]
