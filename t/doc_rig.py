"""What the pages of the documentation have in their blocks of code."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def blocks_of(page: str, language: str, first: str = "") -> list[str]:
    """Those of one language ("": of none) that begin so."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)
    blocks = [text for kind, text in found if kind == language]
    blocks = [text for text in blocks if text.startswith(first)]
    assert blocks, f"{page} has no such block"
    return blocks


def outputs_of(page: str) -> list[str]:
    """Blocks that follow a block of Python: what it prints."""
    pattern = r"^```python\n[^`]*^```\n\n```\n([^`]*)^```$"
    return re.findall(pattern, (ROOT / page).read_text(), re.M)
