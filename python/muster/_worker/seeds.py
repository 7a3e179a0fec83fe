"""Seeds of the random generators that are loaded in a worker."""

# The same numbers as AReaL's `set_random_seed` gives: the configuration's seed, and for
# each worker what its role and rank make of it.

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_seed: int | None = None
_done: set[str] = set()


def set_seed(base: int, key: str) -> None:
    """Of all that are loaded, and of those that are loaded later (`set_new`)."""
    global _seed
    from hashlib import sha256

    _seed = base + int.from_bytes(sha256(key.encode()).digest()[-4:], "big")
    _done.clear()
    if "areal" in sys.modules:
        from areal.utils import seeding  # type: ignore[import-not-found]

        seeding.set_random_seed(base, key=key)
        return
    os.environ["PYTHONHASHSEED"] = str(_seed % 2**32)  # more ends an interpreter
    import random

    random.seed(_seed)
    set_new()


def set_new() -> None:
    """Of those that were not loaded when the seed was set."""
    if _seed is None:
        return
    for name, seed in (("numpy", _seed_numpy), ("torch", _seed_torch)):
        module = sys.modules.get(name)
        if module is not None and name not in _done:
            _done.add(name)
            seed(module, _seed)


def _seed_numpy(numpy: Any, seed: int) -> None:
    numpy.random.seed(seed % 2**32)


def _seed_torch(torch: Any, seed: int) -> None:
    torch.manual_seed(seed)
