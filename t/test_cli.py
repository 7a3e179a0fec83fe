"""The command line itself: words, help, output, folders."""

import os
import re
import subprocess

from cli_rig import CLI, FakeSession, Home, commands, on_terminal


def test_nothing_is_running(home: Home) -> None:
    for args in (["status"], ["stack", "--all"], ["logs"]):
        done = home.run(*args)
        assert done.returncode == 3
        assert done.stdout == ""
        assert "nothing is running on this machine" in done.stderr
        assert "muster.init()" in done.stderr
        assert done.stderr.count("\n") == 1
        assert home.json(*args, code=3)["error"]["exit_code"] == 3


def test_unknown_words(home: Home) -> None:
    done = home.run("statsu")
    assert done.returncode == 2
    assert "did you mean `muster status`?" in done.stderr
    done = home.run("logs", "--folow")
    assert done.returncode == 2
    assert "did you mean --follow?" in done.stderr
    done = home.run("frobnicate")
    assert done.returncode == 2
    assert "muster help" in done.stderr
    assert home.run().returncode == 2
    assert "--lines" in home.json("logs", "-n", "x", code=2)["error"]["message"]
    assert home.run("stack").returncode == 2
    assert home.run("stack", "a", "--all").returncode == 2
    assert home.run("status", "actor").returncode == 2
    assert home.run("agent").returncode == 2


def test_help_is_complete(home: Home) -> None:
    found = commands(home)
    assert {"status", "logs", "stack", "doctor", "version"} <= set(found)
    assert "complete" not in found
    for command in found:
        done = home.run(command, "--help")
        assert done.returncode == 0
        assert f"usage: muster {command}" in done.stdout
        assert "exit codes:" in done.stdout
        assert home.run("help", command).stdout == done.stdout


def test_version(home: Home) -> None:
    said = home.json("version")
    assert re.fullmatch(r"\d+\.\d+\.\d+", said["version"])
    assert home.run("version").stdout.startswith(f"muster {said['version']} ")
    assert home.run("--version").stdout == home.run("version").stdout


def test_full_stdout_is_a_failure(home: Home) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([CLI, "version"], env=home.env, stdout=full)
    assert done.returncode == 1


def test_folder_of_others_is_refused(home: Home) -> None:
    home.path.chmod(0o777)
    for args in (["status"], ["logs"]):
        done = home.run(*args)
        assert done.returncode == 1
        assert str(home.path) in done.stderr
    checks = {c["check"]: c for c in home.json("doctor", code=1)["checks"]}
    assert checks["root"]["level"] == "fail"
    assert checks["root"]["advice"]
    home.path.chmod(0o700)


def test_colours_only_on_a_terminal(home: Home, ended: FakeSession) -> None:
    assert "\033[" not in home.run("logs").stdout
    assert "\033[" in on_terminal(home, "logs")
    assert "\033[" not in on_terminal(home, "logs", NO_COLOR="1")
    assert "\033[" not in on_terminal(home, "logs", TERM="dumb")
    assert "\033[" not in on_terminal(home, "logs", "--json")


def test_closed_pipe_ends_quietly(home: Home, ended: FakeSession) -> None:
    ended.log("merged.log", "actor/0@n: much\n" * 100_000)
    for ignored in (False, True):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(
            [CLI, "logs"],
            env=home.env,
            stdout=writer,
            stderr=subprocess.PIPE,
            restore_signals=not ignored,
        )
        os.close(writer)
        assert done.stderr == b""
