"""Muster at Python's prompt: what is pasted there works, also a second time."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import termios

import pytest
from doc_rig import blocks_of
from helpers import DEADLINE_S, MARK, leftovers, new_mark


class Prompt:
    """`python -q` on a wide terminal."""

    def __init__(self) -> None:
        self.mark = new_mark()
        # short: the path of a socket has 107 characters
        self.home = tempfile.mkdtemp(prefix="muster-p-", dir="/tmp")
        self.ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (25, 500))
        env = os.environ | {"MUSTER_HOME": self.home, MARK: self.mark, "TERM": "dumb"}
        self.process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", sys.executable, "-q"],
            env=env | {"PYTHON_BASIC_REPL": "1"},  # of 3.13 and newer
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self.said = ""
        self._next()

    def paste(self, text: str) -> str:
        """Line by line; what it says until the last prompt."""
        said = ""
        for line in text.splitlines():
            os.write(self.ours, line.encode() + b"\n")
            said += self._next()
        return said

    def _next(self) -> str:
        """What it says until it is ready for another line."""
        before = len(self.said)
        while not re.search(r"(?:^|\n)(?:>>>|\.\.\.) $", self.said[before:]):
            ready, _, _ = select.select([self.ours], [], [], DEADLINE_S)
            assert ready, f"no prompt came: {self.said}"
            self.said += os.read(self.ours, 65536).decode().replace("\r", "")
        return self.said[before:]

    def interrupt(self) -> None:
        """Ctrl-C, again if the prompt was not quite there."""
        while not self.said.endswith("KeyboardInterrupt\n>>> "):
            os.write(self.ours, b"\x03")
            while select.select([self.ours], [], [], 1.0)[0]:
                self.said += os.read(self.ours, 65536).decode().replace("\r", "")

    def end(self) -> None:
        os.write(self.ours, b"exit()\n")
        assert self.process.wait(DEADLINE_S) == 0, self.said
        os.close(self.ours)
        shutil.rmtree(self.home)
        assert leftovers(self.mark) == []


SHOWN = {
    "import os\nimport muster": (
        "[10, 20, 30, 40, 50]",
        "[70]",
        "[40, 50]",
        "{'sample': 2}",
    ),
    "import muster\n\nclass Engine": ("256",),
}


@pytest.mark.parametrize("begin", SHOWN)
def test_a_snippet_of_the_readme_pasted(begin: str) -> None:
    (snippet,) = blocks_of("README.md", "python", begin)
    prompt = Prompt()
    said = prompt.paste(snippet)
    assert "Error" not in said, said
    for shown in SHOWN[begin]:
        assert f"\n{shown}\n" in said
    prompt.end()


CELL = """\
import muster
muster.init(num_gpus=2)
class Actor:
    def number(self):
        return NUMBER

actor = muster.Cluster("actor", Actor, world_size=2)
actor.execute_all_sync("number")
"""


def test_a_cell_twice() -> None:
    prompt = Prompt()
    first = prompt.paste(CELL.replace("NUMBER", "1"))
    assert "Error" not in first and "\n[1, 1]\n" in first
    again = prompt.paste(CELL.replace("NUMBER", "2"))
    (error,) = re.findall("^.*Error: .*$", again, re.M)
    assert "there is a cluster 'actor' already" in error
    assert "muster.get_cluster('actor').destroy()" in error
    assert "\n[1, 1]\n" in again  # `actor` is what it was
    prompt.paste("muster.get_cluster('actor').destroy()")
    third = prompt.paste(CELL.replace("NUMBER", "3"))
    assert "Error" not in third and "\n[3, 3]\n" in third
    other = prompt.paste("muster.init(num_gpus=4)")
    assert "num_gpus=2, now 4: muster.shutdown() first" in other
    assert "store_limit" not in other
    prompt.paste("muster.shutdown()")
    fourth = prompt.paste(CELL.replace("NUMBER", "4"))
    assert "Error" not in fourth and "\n[4, 4]\n" in fourth
    prompt.end()


def test_ctrl_c_at_the_prompt_is_for_the_prompt() -> None:
    prompt = Prompt()
    prompt.paste(CELL.replace("NUMBER", "1"))
    prompt.interrupt()
    assert "\n[1, 1]\n" in prompt.paste('actor.execute_all_sync("number")')
    prompt.end()
