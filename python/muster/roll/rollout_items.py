"""The items of a dataset: in which order they come, and what makes columns of them; and how
long calls took."""

from __future__ import annotations

import dataclasses
import random
import time
from contextlib import contextmanager
from typing import Any

from muster._adapters.checks import WrongValue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


class Order:
    """Which item of a dataset is next."""

    def __init__(self, seed: int, size: int) -> None:
        if size == 0:
            raise WrongValue("the dataset is empty")
        self._seed = seed
        self._indices = list(range(size))
        self.count = 0  # items given out

    def next(self) -> int:
        epoch, at = divmod(self.count, len(self._indices))
        if at == 0:
            random.Random(self._seed + epoch).shuffle(self._indices)
        self.count += 1
        return self._indices[at]

    def skip(self, count: int) -> None:
        for _ in range(count):
            self.next()


class Durations:
    """How long calls took since the last `log`."""

    def __init__(self) -> None:
        self._seconds: list[float] = []

    @contextmanager
    def track(self) -> Iterator[None]:
        begun = time.monotonic()
        try:
            yield
        finally:
            self._seconds.append(time.monotonic() - begun)

    def log(self) -> dict[str, float]:
        seen, self._seconds = self._seconds or [0.0], []
        count = 0 if seen == [0.0] else len(seen)
        mean = sum(seen) / len(seen)
        return {"count": count, "min": min(seen), "max": max(seen), "mean": mean}


def collect_fn_of(cls: Any, kwargs: dict[str, Any] | None, actor: Any) -> Any:
    """With the tokenizer of the actor's model, unless `kwargs` has one."""
    given = dict(kwargs or {})
    model = getattr(getattr(actor, "worker_config", None), "model_args", None)
    path = getattr(model, "model_name_or_path", None)
    if "tokenizer" not in given:
        given["tokenizer"] = _of_model("AutoTokenizer", path)
    wanted = {f.name for f in dataclasses.fields(cls)} if _is_dataclass(cls) else set()
    if "processor" in wanted and "processor" not in given:
        given["processor"] = _of_model("AutoProcessor", path)
    return cls(**given)


def _is_dataclass(cls: Any) -> bool:
    return dataclasses.is_dataclass(cls)


def _of_model(kind: str, path: str | None) -> Any:
    if not path:
        return None
    import transformers  # type: ignore[import-not-found]

    return getattr(transformers, kind).from_pretrained(path, trust_remote_code=True)
