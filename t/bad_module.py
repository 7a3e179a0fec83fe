"""A module that cannot be imported; for test_badluck.py."""

raise RuntimeError("not today")
