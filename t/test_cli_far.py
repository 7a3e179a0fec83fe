"""Commands against `muster head` with a node and a driver that has joined."""

import json
import os
from collections.abc import Iterator

import pytest
from cli_rig import CLI, DRIVER, Daemon, Driver, Home, Lines, workers
from helpers import until


@pytest.fixture
def daemon(home: Home) -> Iterator[Daemon]:
    one = Daemon(home)
    yield one
    one.close()


class Agent(Lines):
    def __init__(self, home: Home, daemon: Daemon, name: str) -> None:
        command = [CLI, "agent", "--head", daemon.address, "--node-name", name]
        options = ["--secret-file", daemon.secret, "--num-gpus", "2"]
        super().__init__([*command, *options, "--label", "zone=a"], home.env)


@pytest.fixture
def agent(home: Home, daemon: Daemon) -> Iterator[Agent]:
    one = Agent(home, daemon, "lender")
    until(lambda: home.json("list", "nodes"), one.process.poll)
    yield one
    one.process.terminate()
    one.wait()
    one.close()


@pytest.fixture
def joined(home: Home, daemon: Daemon, agent: Agent) -> Iterator[Driver]:
    """The usual driver, but its workers are elsewhere."""
    init = "muster.init(num_gpus=2, log_to_driver=False)"
    assert init in DRIVER
    join = f"muster.init(address={daemon.address!r}, secret_file={daemon.secret!r}, log_to_driver=False)"
    one = Driver(home, DRIVER.replace(init, join))
    one.until("@@ ready")
    yield one
    one.close()


def test_status_with_a_node(home: Home, joined: Driver) -> None:
    status = home.json("status")
    (node,) = status["nodes"]
    assert (node["name"], node["state"], node["gpus"]) == ("lender", "alive", 2)
    assert node["labels"] == ["zone=a"]
    (driver,) = status["drivers"]
    assert driver["pid"] == joined.process.pid
    assert home.json("get", f"driver/{driver['id']}") == driver
    assert {c["driver"] for c in status["clusters"]} == {driver["id"]}
    text = home.run("status").stdout
    assert "lender" in text and driver["id"] in text and "talker/1 " in text


def test_stack_and_logs_through_a_head(home: Home, joined: Driver) -> None:
    follow = home.start("logs", "-f", "talker")
    try:
        joined.do("say far away")
        said = {follow.line(), follow.line()}
        assert said == {"talker/0: far away", "talker/1: far away"}
    finally:
        follow.close()
    assert home.run("logs", "talker/1").stdout == "far away\n"
    assert sorted(home.run("logs", "talker").stdout.splitlines()) == [
        "talker/0: far away",
        "talker/1: far away",
    ]
    assert "fixed/0@lender: hello\n" in home.run("logs").stdout
    (line,) = home.run("logs", "talker/0", "--json").stdout.splitlines()
    shown = json.loads(line)
    assert shown.pop("time").endswith("Z")
    assert shown == {
        "cluster": "talker",
        "rank": 0,
        "node": "lender",
        "line": "far away",
    }
    follow = home.start("logs", "-f", "-n1", "talker/0")
    try:
        joined.do("say more")
        assert follow.until("more")
    finally:
        follow.close()
    assert home.run("logs", "-n1", "talker/0").stdout == "more\n"
    assert home.run("logs", "critic").returncode == 5
    assert home.json("stack", "talker/0")["workers"][0]["error"] is None


def test_stop_a_daemon_with_all(
    home: Home, daemon: Daemon, agent: Agent, joined: Driver
) -> None:
    pids = [w["pid"] for w in workers(home, "talker")]
    assert home.json("stop", "cluster", "talker")["workers"] == 2
    for pid in pids:
        assert not os.path.exists(f"/proc/{pid}")
    assert [c["name"] for c in home.json("list", "clusters")] == ["fixed"]
    said = home.json("stop", "session")
    assert said == {"clusters": 1, "workers": 2, "head": True}
    assert daemon.wait() == 0
    agent.wait()
