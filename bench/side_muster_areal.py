"""Muster's half of the rows against AReaL: MusterScheduler."""

from typing import Any

import muster
from areal_side import START_S, ArealSide
from muster.areal import MusterScheduler
from serve import serve


class MusterAreal(ArealSide):
    def new_scheduler(self, folder: str) -> Any:
        return MusterScheduler(log_dir=folder, startup_timeout=START_S)

    def close(self) -> None:
        super().close()
        muster.shutdown()


if __name__ == "__main__":
    serve(MusterAreal())
