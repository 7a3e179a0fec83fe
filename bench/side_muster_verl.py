"""Muster's half of the rows against verl: muster.verl, in verl's environment, because its
workers import the same modules."""

import os
import platform
import time
from typing import Any

os.environ["BENCH_VERL_API"] = "muster.verl"

import muster
import muster.verl
from serve import serve
from verl_side import VerlSide
from verl_worker import MODULES, Empty


class MusterVerl(VerlSide):
    def __init__(self) -> None:
        super().__init__(muster.verl, Empty)

    def version(self) -> dict[str, str]:
        return {"muster_verl": muster.__version__, "python": platform.python_version()}

    def init(self, preload: bool = False) -> float:
        start = time.perf_counter()
        muster.init(preload=MODULES if preload else ())
        return time.perf_counter() - start

    def end_group(self, group: Any) -> None:
        group.destroy()
        group.resource_pool.remove()

    def close(self) -> None:
        if muster.is_initialized():
            muster.shutdown()


if __name__ == "__main__":
    serve(MusterVerl())
