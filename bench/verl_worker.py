"""The worker of both sides of the rows against verl, of one text: BENCH_VERL_API names the
package that it is written against. It imports what verl's workers import at the least."""

import os
import sys

import numpy  # noqa: F401
import tensordict  # noqa: F401
import torch  # noqa: F401
import transformers.tokenization_utils_base  # noqa: F401

if os.environ["BENCH_VERL_API"] == "verl":
    from verl import DataProto
    from verl.single_controller.base import Worker
    from verl.single_controller.base.decorator import Dispatch, register
else:
    from muster.verl import DataProto, Dispatch, Worker, register

PAGE = 4096
MODULES = (
    "numpy",
    "tensordict",
    "torch",
    "transformers.tokenization_utils_base",
)


def sum_pages(data: DataProto) -> int:
    """Of columns of int64."""
    step = PAGE // 8
    return sum(
        int(data.batch[name].view(-1)[::step].sum()) for name in data.batch.keys()
    )


class Empty(Worker):  # type: ignore[misc]
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def empty(self) -> None:
        pass

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def read(self, data: DataProto) -> DataProto:
        """One number of every page; gives back numbers alone."""
        return DataProto(meta_info={"metrics": {"sum": sum_pages(data)}})

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def echo(self, data: DataProto) -> DataProto:
        sum_pages(data)
        return data

    def has_modules(self) -> bool:
        return all(name in sys.modules for name in MODULES)
