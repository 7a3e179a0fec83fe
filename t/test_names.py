"""One rule for names, whoever gives them: a bad one is an error, and breaks nothing."""

from collections.abc import Callable
from typing import Any

import muster
import pytest

BAD = ["", "\ud800", "a\nb", "a\0b", "\x7f", "a\x85b", "e" * 257]


class Worker:
    def ping(self) -> str:
        return "pong"


@pytest.fixture
def workers(cluster: Callable[..., Any]) -> Any:
    return cluster(Worker, 2)


def test_engines(workers: Any) -> None:
    for name in BAD:
        with pytest.raises(ValueError, match="engine"):
            workers.create_engine(name, Worker)
    for name in ("second", "actor/0", "größer als eins"):
        view = workers.create_engine(name, Worker)
        assert view.execute_all_sync("ping") == ["pong", "pong"]
        workers.destroy_engine(name)


@pytest.mark.parametrize("name", BAD)
def test_engines_in_the_worker(workers: Any, name: str) -> None:
    """Who does not ask first is told there, and the next engine is made."""
    spec = {"name": name, "cls": Worker}
    with pytest.raises(muster.RemoteError, match="engine"):
        workers._operate(18, spec, 20)
    assert workers.create_engine("next", Worker).execute_all_sync("ping")
    workers.destroy_engine("next")


@pytest.mark.parametrize("name", BAD[:-1])
def test_methods(workers: Any, name: str) -> None:
    with pytest.raises(ValueError):
        workers.execute_all_sync(name)
    assert workers.execute_all_sync("ping") == ["pong", "pong"]


@pytest.mark.parametrize("name", [*BAD, "a/b", ".hidden", "c" * 65])
def test_clusters(session: Any, name: str) -> None:
    with pytest.raises((ValueError, muster.MusterError)):
        muster.Cluster(name, Worker, world_size=1)


@pytest.mark.parametrize("key", [*BAD[:-1], "k" * 513])
def test_keys(session: Any, key: str) -> None:
    with pytest.raises((ValueError, muster.MusterError)):
        muster.kv.put(key, b"x")
