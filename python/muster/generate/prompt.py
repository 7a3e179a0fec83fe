"""Prompts and samples as the core takes them: names of prompts as numbers, tokens as bytes."""

from __future__ import annotations

import hashlib
from array import array
from itertools import groupby

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable
    from typing import Any

    from muster.generate.group import Sample


def contents(prompt: Any) -> str:
    """The name of one that was given none."""
    return hashlib.blake2b(repr(prompt).encode(), digest_size=8).hexdigest()


def number(key: Hashable) -> int:
    """As the history knows it, in every process; to it 0 is no prompt."""
    if type(key) is int and 0 < key < 2**64:
        return key
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def behind(sample: Sample) -> tuple[bytes, bytes | None, bytes] | None:
    """What a request goes on behind, with its versions in runs of (version, tokens)."""
    if len(sample.versions) != len(sample.tokens):
        raise ValueError("resume: a version for each token")
    if not sample.tokens:
        return None
    runs = array("I")
    for version, of in groupby(sample.versions):
        runs.extend((version, sum(1 for _ in of)))
    logprobs = sample.logprobs
    return (
        array("i", sample.tokens).tobytes(),
        None if logprobs is None else array("f", logprobs).tobytes(),
        runs.tobytes(),
    )
