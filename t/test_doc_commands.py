"""The commands of the documentation, and its C, do what the pages say."""

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import muster
import pytest
from cli_rig import CLI, Lines
from doc_rig import ROOT, blocks_of
from helpers import MARK, leftovers, new_mark, processes, wait_gone
from test_c_driver import BUILD, EXAMPLES, Kit

RUN_S = 250.0  # below pytest's limit
JOIN = """\
import muster
muster.init({address})
with muster.Cluster("c", "collections:Counter", world_size=2) as c:
    print("done", len(c.execute_all_sync("total")))
muster.shutdown()
"""


class Shell:
    """Runs lines of a page, as a person would: in one folder, with muster in the path."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder
        self.mark = new_mark()
        tools = f"{Path(CLI).parent}:{Path(sys.executable).parent}"
        self.env = os.environ | {"MUSTER_HOME": str(home), MARK: self.mark}
        self.env["PATH"] = f"{tools}:{self.env['PATH']}"
        self.began: list[Lines] = []

    def run(self, line: str) -> str:
        done = subprocess.run(
            ["bash", "-c", line],
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=RUN_S,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self, line: str) -> Lines:
        """In the background, with what it says on stderr among its lines."""
        command = ["bash", "-c", f"cd {self.folder}; exec 2>&1; exec {line}"]
        self.began.append(Lines(command, self.env))
        return self.began[-1]

    def end(self) -> None:
        for one in reversed(self.began):
            if one.process.poll() is None:
                one.process.send_signal(signal.SIGTERM)
                one.wait()
            one.close()
        wait_gone(processes(self.mark))
        assert leftovers(self.mark) == []


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    home = tempfile.mkdtemp(prefix="mdoc-", dir="/tmp")  # short: sockets are below it
    one = Shell(tmp_path, Path(home))
    yield one
    one.end()
    shutil.rmtree(home)


def free_ports(count: int) -> list[int]:
    """Not of those that the kernel gives to connections meanwhile."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found: list[int] = []
    for port in random.sample(range(first // 2, first), 1000):
        with socket.socket() as s, suppress(OSError):
            s.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no ports are free")


def typed(block: str) -> list[str]:
    """What is typed on this and other machines, on a loopback of one."""
    ports = dict(zip(("7777", "29500"), map(str, free_ports(2)), strict=True))
    lines = re.findall(r"^[\w-]+ *\$ (.*?)(?: +#.*)?$", block, re.M)
    assert lines
    for old, new in ports.items():
        lines = [line.replace(f":{old}", f":{new}") for line in lines]
        lines = [line.replace(f"PORT={old}", f"PORT={new}") for line in lines]
    return [line.replace("10.0.0.1", "127.0.0.1") for line in lines]


# ---- one machine -----------------------------------------------------------------------


def test_while_the_first_cluster_runs(shell: Shell) -> None:
    (example,) = blocks_of("README.md", "python", "import os")
    script = example.replace("muster.shutdown()", "print('here')\ninput()")
    (shell.folder / "first.py").write_text(script)
    (shell.folder / "train.py").write_text(JOIN.format(address=""))
    (job,) = blocks_of("doc/orchestrators.md", "yaml")
    (shell.folder / "job.yaml").write_text(job)
    driver = shell.start("python first.py")
    driver.until("here")
    (commands,) = blocks_of("README.md", "sh", ".venv/bin/muster status")
    said = {}
    for line in commands.splitlines():
        command = line.partition("#")[0].strip().removeprefix(".venv/bin/")
        if " -f " in command:
            shell.start(command)  # ends with the test
        else:
            said[command] = shell.run(command)
    assert "actor_train" in said["muster status"]
    assert len(said["muster list workers"].splitlines()) == 5
    assert "thread" in said["muster stack actor_train/0"]
    assert "done 2" in said["muster run job.yaml"]
    assert "actor" in said["muster plan job.yaml"]


def test_objects_have_these_columns(shell: Shell, own_session: Any) -> None:
    (block,) = blocks_of("doc/data.md", "", "$ muster list objects")
    shell.env["MUSTER_HOME"] = os.environ["MUSTER_HOME"]
    command, shown, *_ = block.splitlines()
    kept = muster.put(bytes(1 << 20))
    listed = shell.run(command.removeprefix("$ ")).splitlines()
    assert listed[0].split() == shown.split()
    assert Path(__file__).name in listed[1]
    del kept


def test_the_token_without_a_driver(shell: Shell, own_session: Any) -> None:
    (commands,) = blocks_of("doc/http.md", "", "token=")
    made = commands.splitlines()[0].replace("SESSION", own_session.head.session_dir)
    assert shell.run(made + '; echo "$token"').strip() == muster.http_token()


def test_the_paths_of_the_head() -> None:
    (listed,) = blocks_of("doc/http.md", "", "GET ")
    described = json.loads((ROOT / "doc/openapi.json").read_text())["paths"]
    workers = "/clusters/{name}/workers"
    told = re.sub(r"\.\.\./workers", workers, listed).replace("/api/v1", "")
    paths = set(re.findall(r"\s(/[\w/{}]+)", told))
    paths.add("/openapi.json")  # in words
    assert paths == {path.removeprefix("/api/v1") for path in described}


# ---- several machines ------------------------------------------------------------------


def words_of(line: str) -> list[str]:
    """Without what differs between machines: addresses and paths."""
    return re.sub(r"\d\S*:\d+|/\S+/secret", "", line).split()


@pytest.mark.parametrize("page", ["README.md", "doc/multi-machine.md"])
def test_head_agent_and_driver(shell: Shell, page: str) -> None:
    language = "sh" if page == "README.md" else ""
    (block,) = blocks_of(page, language, "node-a$ muster head")
    head, agent, driver, *others = typed(block)
    init = re.search(r"# muster\.init\((.*)\)", block)
    assert init is not None
    address = re.search(r"127\.0\.0\.1:\d+", head)
    assert address is not None
    wanted = init[1].replace("10.0.0.1:7777", address[0])
    (shell.folder / "train.py").write_text(JOIN.format(address=wanted))
    said = shell.start(head).until("copy that file")
    for line in re.findall(r"^muster head: .*", block, re.M):
        assert words_of(line) in [words_of(one) for one in said]
    secret = re.search(r"(/\S+/secret)", said[-1])
    assert secret is not None
    shutil.copy(secret[1], shell.folder / "secret")
    shell.start(agent).until("has joined")
    assert "done 2" in shell.run(driver)
    for line in others:
        assert "8" in shell.run(line)


def test_the_same_script_on_every_node(shell: Shell) -> None:
    (block,) = blocks_of("doc/multi-machine.md", "", "node-a$ RANK=0")
    (shell.folder / "train.py").write_text(JOIN.format(address=""))
    (shell.folder / "secret").write_text(os.urandom(32).hex())
    (shell.folder / "secret").chmod(0o600)
    first, second = typed(block)
    other = shell.start(f"env {second}")
    assert "done 2" in shell.run(first)
    assert other.wait() == 0


def test_run_on_this_machine(shell: Shell) -> None:
    (job,) = blocks_of("doc/orchestrators.md", "yaml")
    (shell.folder / "job.yaml").write_text(job)
    (shell.folder / "train.py").write_text(JOIN.format(address=""))
    lines = blocks_of("doc/orchestrators.md", "", "muster run --on local")
    assert "done 2" in shell.run(lines[0].splitlines()[0])


# ---- C ---------------------------------------------------------------------------------

MAIN = """\
#include <muster/muster.h>
#include <stdio.h>

int main(void)
{{
    {before}
    {block}
    {after}
    return 0;
}}
"""


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Kit:
    if not (BUILD / "build.ninja").exists():
        pytest.skip("there is nothing to install from")
    return Kit(tmp_path_factory.mktemp("kit"))


def run_c(kit: Kit, before: str, block: str, after: str) -> str:
    source = kit.folder / "block.c"
    source.write_text(MAIN.format(before=before, block=block, after=after))
    return kit.run(str(kit.program_of(source)))


def test_c_of_the_first_page(kit: Kit) -> None:
    (block,) = blocks_of("README.md", "c")
    kit.library_of(EXAMPLES / "reward.c")
    after = """
    if (!reward)
        printf("%s\\n", err.message);
    else
        printf("%u workers\\n", muster_cluster_world_size(reward));
    muster_cluster_destroy(reward, 0);
    muster_shutdown(session, 0);
    """
    assert run_c(kit, "", block, after) == "3 workers\n"


def test_c_in_a_group(kit: Kit) -> None:
    (block,) = [b for b in blocks_of("doc/c.md", "c") if "muster_group_create" in b]
    server = kit.folder / "server.c"
    server.write_text(f'#define reward server\n#include "{EXAMPLES}/reward.c"\n')
    kit.library_of(server)
    before = """
    struct muster_error err;
    struct muster_session_options o = MUSTER_SESSION_OPTIONS;
    struct muster_session *session;
    struct muster_group *group;
    struct muster_cluster *servers;

    o.num_gpus = 8;
    o.num_cpus = 32;
    session = muster_init(&o, &err);
    """
    say = """
    if (!group || !servers)
        printf("%s\\n", err.message);
    else
        printf("%u workers\\n", muster_cluster_world_size(servers));
    """
    block = block.replace("...\n", say)
    assert run_c(kit, before, block, "muster_shutdown(session, 0);") == "8 workers\n"


def test_cc_of_the_first_page(tmp_path: Path) -> None:
    """As printed, in a shell that knows nothing of this tree but its folder."""
    (lines,) = blocks_of("README.md", "sh", "export PKG_CONFIG_PATH")
    for name, folder in {
        ".venv": Path(sys.prefix),
        "examples": EXAMPLES.parent,
    }.items():
        (tmp_path / name).symlink_to(folder)
    known = {name: os.environ[name] for name in ("PATH", "HOME", "MUSTER_HOME")}
    done = subprocess.run(
        ["sh", "-ec", lines],
        env=known | {MARK: (mark := new_mark())},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("0.417 0.800") == 3
    wait_gone(processes(mark))
    assert leftovers(mark) == []


# ---- installing ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "command"), [("build", "apt-get"), ("fedora", "dnf")]
)
def test_the_packages_are_those_of_the_setup(variable: str, command: str) -> None:
    (block,) = blocks_of("README.md", "sh", "# Debian")
    (listed,) = re.findall(rf"^{command} install (.*)$", block, re.M)
    setup = (ROOT / "tools/setup").read_text()
    (wanted,) = re.findall(rf'^{variable}="([^"]*)"', setup, re.M)
    assert listed.split() == wanted.split()
