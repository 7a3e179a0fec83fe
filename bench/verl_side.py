"""What the two sides of the rows against verl do; they differ in what they import."""

import time
from typing import Any

from serve import time_each


class VerlSide:
    """Groups of one pool, made and called as verl's users do."""

    def __init__(self, api: Any, worker_cls: Any) -> None:
        self.api = api
        self.worker_cls = worker_cls
        self.group: Any = None

    def new_group(self, ranks: int) -> Any:
        pool = self.api.RayResourcePool([ranks], use_gpu=False, max_colocate_count=1)
        made = self.api.RayClassWithInitArgs(cls=self.worker_cls)
        return self.api.RayWorkerGroup(pool, made)

    def open(self, ranks: int) -> None:
        self.group = self.new_group(ranks)
        self.group.execute_all_sync("empty")

    def fan_out(self, count: int, warm_up: int) -> list[float]:
        group = self.group
        return time_each(lambda: group.execute_all_sync("empty"), count, warm_up)

    def start(self, ranks: int) -> float:
        """Of a group until all of its workers answer."""
        start = time.perf_counter()
        group = self.new_group(ranks)
        have = group.execute_all_sync("has_modules")
        seconds = time.perf_counter() - start
        assert have == [True] * ranks
        self.end_group(group)
        return seconds

    def end_group(self, group: Any) -> None:
        raise NotImplementedError
