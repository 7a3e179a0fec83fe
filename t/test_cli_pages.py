"""Manual pages, completion of shells and service files: what is made from one table."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cli_rig import CLI, DEADLINE_S, Driver, FakeSession, Home, commands

ROOT = Path(__file__).resolve().parent.parent


# ---- pages -------------------------------------------------------------------------------


def test_manual_pages_are_right(home: Home) -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("there is no groff to read manual pages with")
    for command in [None, *commands(home)]:
        page = home.run("help", "--format", "man", *filter(None, [command])).stdout
        done = subprocess.run(
            [groff, "-man", "-ww", "-Tutf8"],
            input=page,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert done.returncode == 0 and done.stderr == "", (command, done.stderr)
        text = re.sub(r"\x1b\[\d+m|.\x08", "", done.stdout)
        for part in ("NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "SEE ALSO"):
            assert re.search(rf"^{part}$", text, re.M), (command, part)
        assert f"muster{'-' + command if command else ''}(1)" in text.lower()


def test_pages_have_every_option(home: Home) -> None:
    for command in commands(home):
        options = re.findall(
            r"^ +(?:-\w, )?--([\w-]+)", home.run(command, "-h").stdout, re.M
        )
        assert "help" in options
        man = home.run("help", command, "--format", "man").stdout.replace("\\-", "-")
        markdown = home.run("help", command, "--format", "markdown").stdout
        for option in options:
            assert f"--{option}\\fR" in man
            assert re.search(rf"--{option}[ `]", markdown)
    whole = home.run("help", "--format", "markdown").stdout
    assert re.findall(r"^## muster (\w+)", whole, re.M) == commands(home)
    assert home.run("help", "--format", "troff").returncode == 2
    assert home.run("help", "status", "--format", "bash").returncode == 2


def test_every_command_has_an_installed_page(home: Home) -> None:
    build = (ROOT / "deploy/meson.build").read_text()
    listed = re.search(r"foreach command : \[(.*?)\]", build, re.S)
    assert listed is not None
    assert sorted(re.findall(r"'(\w+)'", listed[1])) == sorted(commands(home))


# ---- completion --------------------------------------------------------------------------

# Completes as readline would: prints what it would offer.
COMPLETE = """
source <("$1" help --format bash)
shift
COMP_WORDS=("$@")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
complete -p muster >/dev/null || exit 9
_muster
printf '%s\\n' "${COMPREPLY[@]}"
"""


def complete(home: Home, *words: str) -> list[str]:
    """What bash offers for the last word."""
    done = subprocess.run(
        ["bash", "-c", COMPLETE, "bash", CLI, CLI, *words],
        env=home.env,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        cwd=home.path,
    )
    assert done.returncode == 0 and done.stderr == "", done
    return [line for line in done.stdout.splitlines() if line]


def test_completion_of_words(home: Home) -> None:
    assert sorted(complete(home, "")) == sorted(commands(home))
    assert complete(home, "st") == ["status", "stack", "stop"]
    assert complete(home, "logs", "--f") == ["--follow"]
    assert complete(home, "help", "ver") == ["version"]
    assert complete(home, "list", "w") == ["workers"]
    assert complete(home, "list", "workers", "") == []
    kinds = ["node/", "cluster/", "worker/", "driver/", "group/"]
    assert complete(home, "get", "") == kinds
    assert complete(home, "help", "--format", "f") == ["fish"]
    assert complete(home, "help", "--format", "=", "ma") == ["man", "markdown"]
    assert complete(home, "help", "--format", "=", "") == [
        "text", "man", "markdown", "bash", "zsh", "fish",
    ]  # fmt: skip
    assert complete(home, "nonsense", "") == []
    assert complete(home, "stop", "c") == ["cluster"]
    assert complete(home, "status", "--timeout", "") == []
    assert "--fd" not in complete(home, "agent", "--")  # it is for programs
    (home.path / "my-secret").touch()
    (home.path / "muster").mkdir()
    assert complete(home, "status", "--secret-file", "my") == ["my-secret"]
    assert set(complete(home, "status", "--secret-file", "=", "m")) == {
        "muster",
        "my-secret",
    }


def test_completion_where_nothing_runs(home: Home, ended: FakeSession) -> None:
    assert complete(home, "logs", "--session", "") == [ended.name]
    assert complete(home, "logs", "-s", "2026") == [ended.name]
    assert complete(home, "logs", "-fs", "2026") == [ended.name]
    assert complete(home, "stack", "") == []
    assert complete(home, "stop", "cluster", "") == []


def test_completion_of_what_runs(home: Home, driver: Driver) -> None:
    assert complete(home, "stack", "") == ["talker", "fixed"]
    assert complete(home, "stack", "--json", "t") == ["talker"]
    assert complete(home, "logs", "-f", "talker/") == ["talker/0", "talker/1"]
    assert complete(home, "logs", "talker/0", "") == []
    assert complete(home, "get", "worker/f") == ["worker/fixed/0", "worker/fixed/1"]
    assert complete(home, "get", "cluster/") == ["cluster/talker", "cluster/fixed"]
    (node,) = home.json("list", "nodes")
    assert complete(home, "get", "n") == ["node/"]
    assert complete(home, "get", "node/") == [f"node/{node['name']}"]
    assert complete(home, "stop", "cluster", "f") == ["fixed"]
    (session,) = home.json("list", "sessions")
    assert complete(home, "status", "--session", "=", "") == [session["name"]]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_scripts(home: Home, shell: str) -> None:
    script = home.run("help", "--format", shell).stdout
    assert "muster" in script
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    check = [shell, "--no-execute" if shell == "fish" else "-n"]
    done = subprocess.run(check, input=script, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr


# ---- services ----------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["muster-head", "muster-agent"])
def test_services_are_right(unit: str, tmp_path: Path) -> None:
    text = (ROOT / f"deploy/systemd/{unit}.service").read_text()
    assert "LoadCredential=secret:" in text and "NoNewPrivileges=yes" in text
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here")
    there = tmp_path / f"{unit}.service"
    there.write_text(text.replace("ExecStart=muster", f"ExecStart={CLI}"))
    command = ["systemd-analyze", "verify", "--man=no", str(there)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0 and str(there) not in done.stderr, done.stderr
    there.write_text(text.replace("ExecStart=muster", "ExecStart=/nonexistent/muster"))
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode != 0
