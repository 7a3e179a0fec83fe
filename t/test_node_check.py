"""`muster node-check`: two nodes that are checked together, and strangers at their port."""

import os
import socket
import subprocess
from collections.abc import Iterator

import pytest
from cli_rig import CLI
from jobs_rig import until

TOKEN = "0123456789abcdef" * 2
WAIT_S = 90.0


class Pair:
    """Both ranks, on this machine."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as s:
            self.port = s.getsockname()[1]
        self.ranks: list[subprocess.Popen[str]] = []

    def start(self, rank: int) -> None:
        env = os.environ | {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port),
            "MUSTER_CHECK_TOKEN": TOKEN,
        }
        self.ranks.append(
            subprocess.Popen(
                [CLI, "node-check"], env=env, text=True, stderr=subprocess.PIPE
            )
        )

    def connect(self) -> socket.socket | None:
        try:
            return socket.create_connection(("127.0.0.1", self.port), WAIT_S)
        except ConnectionRefusedError:  # it checks its memory first
            return None

    def end(self) -> list[tuple[str, int]]:
        said = [rank.communicate(timeout=WAIT_S)[1] for rank in self.ranks]
        return [(s, r.returncode) for s, r in zip(said, self.ranks, strict=True)]


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    for rank in made.ranks:
        rank.kill()
        rank.communicate()


def test_two_good_nodes(pair: Pair) -> None:
    pair.start(0)
    pair.start(1)
    assert pair.end() == [("", 0), ("", 0)]


def test_a_stranger_that_says_nothing(pair: Pair) -> None:
    """It is told nothing and keeps nobody waiting."""
    pair.start(0)
    with until(pair.connect) as stranger:
        pair.start(1)
        assert pair.end() == [("", 0), ("", 0)]
        assert stranger.recv(64) == b""


def test_a_stranger_that_guesses(pair: Pair) -> None:
    pair.start(0)
    with until(pair.connect) as stranger:
        stranger.sendall(b"x" * (len(TOKEN) // 2))
        assert stranger.recv(64) == b""
        pair.start(1)
        assert pair.end() == [("", 0), ("", 0)]
