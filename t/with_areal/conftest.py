"""Muster beside AReaL itself: `make test-areal` has it, other environments skip this folder."""

import importlib.util

if importlib.util.find_spec("areal") is None:
    collect_ignore_glob = ["test_*.py"]
