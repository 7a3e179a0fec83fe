"""Links between the pages lead somewhere, and doc/architecture.md names what there is."""

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from doc_rig import ROOT

PAGES = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "doc/*.md", "examples/*/*.md")
    for path in ROOT.glob(pattern)
)
ARCHITECTURE = (ROOT / "doc/architecture.md").read_text()
WORDS_MAX = 40
SUFFIXES = r"\.(?:c|h|py)"


def _without_code(page: str) -> str:
    return re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.M | re.S)


def _anchors(page: str) -> set[str]:
    """As GitHub makes them of headings."""
    heads = re.findall(r"^#+ +(.*)$", _without_code(page), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES)
def test_links_of(page: str) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", _without_code(page)):
        if link.startswith(("http://", "https://")):
            continue
        target, _, anchor = link.partition("#")
        path = (ROOT / page).parent / target if target else ROOT / page
        assert path.exists(), f"{page} links to {link}"
        if anchor:
            there = _anchors(str(path.resolve().relative_to(ROOT)))
            assert anchor in there, f"{page} links to {link}"


def test_the_glossary_is_short() -> None:
    words = ARCHITECTURE.split("\n## Words\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (?!word )(\w[^|]*?) \|", words, re.M)
    assert 0 < len(rows) <= WORDS_MAX
    assert len(set(rows)) == len(rows)


def _tracked() -> list[str]:
    command = ["git", "ls-files", "-co", "--exclude-standard", "*.c", "*.h", "*.py"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a checkout")
    return listed.stdout.splitlines()


WALKS = re.findall(r"^## (The path of .*)\n((?:(?!^## ).*\n)*)", ARCHITECTURE, re.M)


@pytest.mark.parametrize(("walk", "text"), WALKS, ids=[walk for walk, _ in WALKS])
def test_walk(walk: str, text: str) -> None:
    """A file without its folder is in that of the file named before it, or the only one."""
    tracked = _tracked()
    named: Counter[str] = Counter()
    folder = ""
    for name in re.findall(rf"`([\w/]+{SUFFIXES})`", text):
        paths = [p for p in tracked if p == name or p.endswith(f"/{name}")]
        beside = [p for p in paths if p == f"{folder}/{name}"]
        (path,) = beside or paths  # which file `name` is must be clear
        named[path] += 1
        folder = str(Path(path).parent)
    assert [path for path, times in named.items() if times > 1] == []
    assert len(named) > 2


def test_there_are_four_walks_and_more() -> None:
    assert {"a call", "a death", "a creation", "a big payload"} <= {
        walk.removeprefix("The path of ") for walk, _ in WALKS
    }
