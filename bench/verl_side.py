"""What the two sides of the rows against verl do; they differ in what they import."""

import pickle
import time
from typing import Any

import torch
from serve import time_each
from verl_worker import DataProto, sum_pages

# what a batch of token ids, masks and the like has, all of int64
COLUMNS = (
    "input_ids",
    "attention_mask",
    "position_ids",
    "prompts",
    "responses",
    "response_mask",
    "labels",
    "loss_mask",
)
LENGTH = 1000


class VerlSide:
    """Groups of one pool, made and called as verl's users do."""

    def __init__(self, api: Any, worker_cls: Any) -> None:
        self.api = api
        self.worker_cls = worker_cls
        self.group: Any = None
        self.data: Any = None

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

    # ---- batches ----

    def make_batch(self, rows: int) -> int:
        """Its bytes."""
        made = {name: torch.ones(rows, LENGTH, dtype=torch.int64) for name in COLUMNS}
        self.data = DataProto.from_dict(made)
        return sum(tensor.nbytes for tensor in made.values())

    def make_tensor(self, shape: list[int]) -> int:
        tensor = torch.ones(*shape, dtype=torch.int64)
        self.data = DataProto.from_dict({"input_ids": tensor})
        return int(tensor.nbytes)

    def dispatch(self, count: int, warm_up: int) -> list[float]:
        return time_each(lambda: self.group.read(self.data), count, warm_up)

    def echo(self, count: int, warm_up: int) -> list[float]:
        return time_each(lambda: self.group.echo(self.data), count, warm_up)

    def echo_read(self, count: int, warm_up: int) -> list[float]:
        return time_each(lambda: sum_pages(self.group.echo(self.data)), count, warm_up)

    def serialise(self, count: int, warm_up: int) -> list[float]:
        """Pickled, and back."""
        return time_each(lambda: pickle.loads(pickle.dumps(self.data)), count, warm_up)

    def memcpy(self, count: int, warm_up: int) -> list[float]:
        """Of the first column, into memory that is there."""
        whole = self.data.batch["input_ids"]
        other = torch.empty_like(whole)
        return time_each(lambda: other.copy_(whole), count, warm_up)

    # ---- the end ----

    def end_group(self, group: Any) -> None:
        raise NotImplementedError
