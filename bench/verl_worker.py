"""The worker of both sides of the rows against verl, of one text: BENCH_VERL_API names the
package that it is written against. It imports what verl's workers import at the least."""

import os
import sys

import numpy  # noqa: F401
import tensordict  # noqa: F401
import torch  # noqa: F401
import transformers.tokenization_utils_base  # noqa: F401

if os.environ["BENCH_VERL_API"] == "verl":
    from verl.single_controller.base import Worker
    from verl.single_controller.base.decorator import Dispatch, register
else:
    from muster.verl import Dispatch, Worker, register

MODULES = ("numpy", "tensordict", "torch", "transformers")


class Empty(Worker):  # type: ignore[misc]
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def empty(self) -> None:
        pass

    def has_modules(self) -> bool:
        return all(name in sys.modules for name in MODULES)
