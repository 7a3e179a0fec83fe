"""A module whose import says that it began, and waits until it may go on."""

import os

from workers import Echo, say

__all__ = ["Echo"]

if "PYTHON_REVIEW_BEGAN" in os.environ:
    say(os.environ["PYTHON_REVIEW_BEGAN"])
    with open(os.environ["PYTHON_REVIEW_GO_ON"], "rb") as f:
        f.read(1)
