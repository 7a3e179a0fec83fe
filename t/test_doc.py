"""The examples of the documentation run, and print what they say they print.

All examples of a page run one after the other in one process, as a reader would do it.
`print(...)  # [1, 2]` is checked where the comment begins with a literal, and so is a
block of text right behind one of Python: it is what that prints.
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
from doc_rig import ROOT, blocks_of, outputs_of
from helpers import MARK, leftovers, new_mark, processes, wait_gone
from muster import api

RUN_S = 250.0  # below pytest's limit
PAGES = [
    "README.md",
    "doc/clusters.md",
    "doc/data.md",
    "doc/generation.md",
    "doc/resources.md",
    "doc/adapters.md",
]
PLANS = ["doc/resources.md", "doc/orchestrators.md"]

# What the examples leave to the reader.
BEFORE = """\
import muster

class Train: pass
class Infer: pass
class Reward: pass
class Server: pass
class Engine: pass

def _shows(is_value, want):
    print(is_value)
    assert is_value == want, f"the page says {want!r}"
"""


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


def _same_anywhere(text: str) -> str:
    """Without what is this machine's own: its memory, and how wide that is printed."""
    return re.sub(r"[\d.]+ [KMGT]iB", "SIZE", re.sub(r" +", " ", text))


def test_comments_are_checked() -> None:
    program = checked("print(f(1))  # [1, 2], in words\nprint(2)  # in words\n")
    assert program == "_shows(f(1), [1, 2])\nprint(2)"


def run(blocks: list[str], tmp_path: Path) -> str:
    """What they print."""
    script = tmp_path / "examples.py"
    script.write_text("\n".join([BEFORE, *map(checked, blocks)]))
    mark = new_mark()
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, MARK: mark},
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    wait_gone(processes(mark))
    assert leftovers(mark) == []
    return done.stdout


@pytest.mark.parametrize("page", PAGES)
def test_examples_of(page: str, tmp_path: Path) -> None:
    printed = run(blocks_of(page, "python"), tmp_path)
    for text in outputs_of(page):
        assert _same_anywhere(text) in _same_anywhere(printed)


def test_reservations_of_a_driver(tmp_path: Path) -> None:
    """On this machine, with as many described nodes as the page's Ray has."""
    (tmp_path / "nodes.yaml").write_text('nodes: [{name: "n[0-3]", gpus: 4}]')
    *_, block = blocks_of("doc/orchestrators.md", "python", "muster.init(orchestrator")
    there = 'orchestrator="ray", address="http://HEAD:8265"'
    assert there in block
    here = block.replace(there, 'orchestrator="local", nodes="nodes.yaml"')
    assert run([here], tmp_path).startswith("['n0', 'n1']")


def _ask(verb: str, path: Path) -> str:
    command = [api.find_executable(), verb, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("page", PLANS)
def test_plans_of(page: str, tmp_path: Path) -> None:
    for number, block in enumerate(blocks_of(page, "yaml")):
        file = tmp_path / f"{number}.yaml"
        file.write_text(block)
        assert "ROLE" in _ask("plan", file)


def test_job_files(tmp_path: Path) -> None:
    for number, block in enumerate(blocks_of("doc/jobs.md", "yaml")):
        file = tmp_path / f"{number}.yaml"
        driver = "" if "roles:" in block else "driver: [python, train.py]\n"
        file.write_text(driver + block)
        assert "is right" in _ask("check", file)


def test_plan_of_the_example() -> None:
    plan = _ask("plan", ROOT / "examples/grpo/job.yaml")
    for role in ("actor_train", "actor_infer", "reference", "reward"):
        assert re.search(rf"^{role} ", plan, re.M)
