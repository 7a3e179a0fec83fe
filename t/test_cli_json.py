"""What programs read of every command, and what people see while it takes long."""

import json
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from cli_rig import Driver, FakeSession, Home, Lines

GROUPS = """
import sys
import muster
muster.init(num_gpus=4)
rm = muster.ResourceManager()
group = rm.placement_group([{"GPU": 2}, {"GPU": 1}], name="servers")
late = rm.placement_group([{"GPU": 4}], name="late", timeout=600, wait=False)
print("@@ ready", flush=True)
sys.stdin.read()
muster.shutdown()
"""


def commands(home: Home) -> list[str]:
    text = home.run("help").stdout.partition("\ncommands:\n")[2]
    return re.findall(r"^  ([a-z]+)  ", text.partition("\n\n")[0], re.MULTILINE)


def test_every_command_has_it(home: Home) -> None:
    without = [c for c in commands(home) if "--json" not in home.run("help", c).stdout]
    assert without == ["help"]


@contextmanager
def started(home: Home, *args: str) -> Iterator[Lines]:
    with closing(home.start(*args, "--json")) as one:
        yield one


def told(one: Lines) -> Any:
    return json.loads(one.line())


def test_a_head_and_an_agent(home: Home) -> None:
    with started(home, "head", "--listen", "127.0.0.1:0", "--name", "h") as head:
        said = told(head)
        assert said["event"] == "listening" and said["session"] == "h"
        assert said["secret_file"] == str(home.path / "h" / "secret")
        (address,) = said["addresses"]
        lend = ("agent", "--head", address, "--node-name", "n7", "--num-gpus", "3")
        with started(home, *lend) as agent:
            said = told(agent)
            assert said["event"] == "joined" and "n7 has joined h" in said["message"]
            assert (said["node"], said["devices"]) == ("n7", 3)
            assert said["head"] == address and said["addresses"]
            with started(home, *lend) as other:  # the name is taken
                said = told(other)
                assert (said["event"], said["head"]) == ("lost", address)
                assert "n7 has an agent already" in said["message"]
            agent.process.send_signal(signal.SIGTERM)
            assert told(agent)["event"] == "ends"
            assert agent.wait() == 0
        head.process.send_signal(signal.SIGTERM)
        assert told(head) == {"event": "ending"}
        assert head.wait() == 0


def test_a_head_that_cannot_listen(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        failure = home.json("head", "--listen", address, code=1)["error"]
    assert failure["exit_code"] == 1 and address in failure["message"]


@pytest.fixture
def holder(home: Home) -> Iterator[Driver]:
    one = Driver(home, GROUPS)
    one.until("@@ ready")
    yield one
    one.close()


def test_a_group(home: Home, holder: Driver) -> None:
    (node,) = home.json("list", "nodes")
    group = home.json("get", "group/servers")
    assert group in home.json("list", "groups")
    assert [piece["devices"] for piece in group["placement"]] == [[0, 1], [2]]
    text = home.run("get", "group/servers").stdout
    assert re.search(rf"^ +0  {node['name']} +0,1$", text, re.MULTILINE), text
    waiting = home.run("get", "group/late").stdout
    assert "waiting" in waiting and "BUNDLE" not in waiting
    missing = home.run("get", "group/server")
    assert missing.returncode == 5 and "mean 'servers'" in missing.stderr
    offered = home.run("complete", "get", "group/s").stdout
    assert offered.split("\t")[0].split() == ["group/servers"]


@pytest.mark.parametrize("command", [["status"], ["list", "nodes"], ["stack", "--all"]])
def test_who_waits_is_told_for_whom(home: Home, command: list[str]) -> None:
    session = FakeSession(home, "20261115-120000-17", alive=True)
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(session.dir / "head.sock"))
        deaf.listen()
        done = home.run(*command, "--timeout", "2")
    session.end()
    assert done.returncode == 4
    first, *_, last = done.stderr.splitlines()
    assert first.startswith(f"muster {command[0]}: waiting for the head of session ")
    assert re.search(r", [12] s$", first) and "does not answer" in last
