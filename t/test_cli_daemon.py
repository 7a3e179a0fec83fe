"""Commands against `muster head`: by its folder, by its address, to its end."""

import json
import os
from collections.abc import Iterator

import pytest
from cli_rig import Daemon, Home


@pytest.fixture
def daemon(home: Home) -> Iterator[Daemon]:
    one = Daemon(home)
    yield one
    one.close()


def test_status_of_a_daemon(home: Home, daemon: Daemon) -> None:
    status = home.json("status")
    assert status["is_daemon"] and status["session"] == "head"
    assert status["addresses"] == [daemon.address]
    assert status["driver_pid"] == daemon.process.pid
    assert status["nodes"] == status["drivers"] == status["clusters"] == []
    text = home.run("status").stdout
    assert f"listening on {daemon.address}" in text
    for nothing in ("no nodes", "no drivers", "no workers"):
        assert nothing in text
    (session,) = home.json("list", "sessions")
    assert session["is_daemon"] and session["name"] == "head"
    assert home.json("list", "nodes") == []
    done = home.run("stack", "--all")
    assert done.returncode == 5 and "no workers run" in done.stderr


def test_daemon_by_its_address(home: Home, daemon: Daemon) -> None:
    here = home.json("status")
    by_option = home.json(
        "status", "--head", daemon.address, "--secret-file", daemon.secret
    )
    assert by_option["session"] == here["session"]
    assert home.json("status", "--head", daemon.address)["session"] == "head"
    env = {"MUSTER_ADDRESS": daemon.address, "MUSTER_SECRET_FILE": daemon.secret}
    by_env = home.run("status", "--json", **env)
    assert json.loads(by_env.stdout)["session"] == "head"
    assert home.run("status", "--json", MUSTER_ADDRESS="auto").returncode == 0
    wrong = home.path / "wrong"
    wrong.write_text("0" * 64)
    wrong.chmod(0o600)
    done = home.run("status", "--head", daemon.address, "--secret-file", str(wrong))
    assert done.returncode == 4
    assert "secret" in done.stderr and "--secret-file" in done.stderr


def test_nobody_at_that_address(home: Home, daemon: Daemon) -> None:
    daemon.process.kill()
    assert daemon.wait() < 0
    done = home.run("status", "--head", daemon.address, "--secret-file", daemon.secret)
    assert done.returncode == 4
    assert daemon.address in done.stderr and "muster head" in done.stderr
    assert home.run("status").returncode == 3  # nothing runs here


def test_stop_a_daemon(home: Home, daemon: Daemon) -> None:
    said = home.json("stop", "session")
    assert said == {"clusters": 0, "workers": 0, "head": True}
    assert home.run("status").returncode == 3  # it is gone when `stop` returns
    assert daemon.wait() == 0
    assert oct(os.stat(daemon.secret).st_mode & 0o777) == "0o600"  # it stays
