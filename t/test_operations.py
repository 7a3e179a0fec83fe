"""Operations of a worker that are no calls of an engine."""

import os
import random
import socket
from typing import Any

import muster
import pytest


class Probe:
    def env(self, name: str) -> str | None:
        return os.environ.get(name)

    def config(self) -> Any:
        return muster.worker_config()

    def dice(self) -> float:
        return random.random()


def test_configure_gives_a_config_and_a_seed(cluster: Any) -> None:
    c = cluster(Probe, 2)
    assert c.execute_all_sync("config") == [None, None]
    c.configure({"lr": 0.1})
    assert c.execute_all_sync("config") == [{"lr": 0.1}] * 2
    first = c.execute_all_sync("dice")
    assert first[0] != first[1]
    c.configure({})
    assert c.execute_all_sync("dice") == first
    assert muster.worker_config() is None


def test_set_env(cluster: Any) -> None:
    c = cluster(Probe, 2)
    c[1].set_env({"SOME_NAME": "x"})
    assert c.execute_all_sync("env", "SOME_NAME") == [None, "x"]


def test_alloc_ports_are_held_and_can_be_used(cluster: Any) -> None:
    c = cluster(Probe)
    host, ports = c.alloc_ports(3)
    assert len(set(ports)) == 3 and c.health()["ports"] == ports
    with socket.socket() as taken:
        with pytest.raises(OSError):
            taken.bind((host, ports[0]))
    with socket.socket() as mine:
        mine.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        mine.bind((host, ports[0]))
        mine.listen()
    with pytest.raises(muster.MusterError, match="ports"):
        c.alloc_ports(0)
    c.destroy(grace=1)
    with socket.socket() as freed:
        freed.bind((host, ports[1]))


def test_sizes_of_the_mesh(cluster: Any) -> None:
    c = cluster(Probe, 4, mesh={"tp": 2})
    assert (c.dp_size, c.tp_size, c.pp_size, c.cp_size) == (2, 2, 1, 1)
    assert cluster(Probe, 3).dp_size == 3
