"""The examples of the documentation run, and print what they say they print.

All examples of a page run one after the other in one process, as a reader would do it.
`print(...)  # [1, 2]` is checked where the comment begins with a literal.
"""

import ast
import io
import os
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest
from helpers import MARK, leftovers, new_mark
from muster import api

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    "README.md",
    "doc/clusters.md",
    "doc/data.md",
    "doc/resources.md",
    "doc/adapters.md",
]
PLANS = ["doc/resources.md"]
BLOCK = r"^```{}\n(.*?)^```$"

# What the examples leave to the reader.
BEFORE = """\
import muster

class Train: pass
class Infer: pass
class Reward: pass
class Server: pass

def _shows(is_value, want):
    print(is_value)
    assert is_value == want, f"the page says {want!r}"
"""


def blocks_of(page: str, language: str) -> list[str]:
    pattern = BLOCK.format(language)
    blocks = re.findall(pattern, (ROOT / page).read_text(), re.M | re.S)
    assert blocks
    return blocks


def _comments(source: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT
    }


def _literal(comment: str) -> ast.expr | None:
    """What a comment begins with, before it goes on in words."""
    for end in [len(comment), *(m.start() for m in re.finditer(", ", comment))]:
        try:
            ast.literal_eval(comment[:end])
        except (ValueError, SyntaxError):
            continue
        return ast.parse(comment[:end], mode="eval").body
    return None


def checked(source: str) -> str:
    """The same program, with prints that have a literal beside them checked."""
    comments = _comments(source)
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "print"
            and len(node.args) == 1
            and (want := _literal(comments.get(node.end_lineno or 0, "-")))
        ):
            node.func.id = "_shows"
            node.args.append(want)
    return ast.unparse(ast.fix_missing_locations(tree))


def test_comments_are_checked() -> None:
    program = checked("print(f(1))  # [1, 2], in words\nprint(2)  # in words\n")
    assert program == "_shows(f(1), [1, 2])\nprint(2)"


@pytest.mark.parametrize("page", PAGES)
def test_examples_of(page: str, tmp_path: Path) -> None:
    blocks = blocks_of(page, "python")
    script = tmp_path / "examples.py"
    script.write_text("\n".join([BEFORE, *map(checked, blocks)]))
    mark = new_mark()
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, MARK: mark},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert leftovers(mark) == []


def _plan(path: Path) -> str:
    command = [api.find_executable(), "plan", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("page", PLANS)
def test_plans_of(page: str, tmp_path: Path) -> None:
    for number, block in enumerate(blocks_of(page, "yaml")):
        file = tmp_path / f"{number}.yaml"
        file.write_text(block)
        assert "ROLE" in _plan(file)


def test_plan_of_the_example() -> None:
    plan = _plan(ROOT / "examples/grpo/job.yaml")
    for role in ("actor_train", "actor_infer", "reference", "reward"):
        assert re.search(rf"^{role} ", plan, re.M)
