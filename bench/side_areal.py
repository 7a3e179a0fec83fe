"""AReaL's half of the rows against it: its LocalScheduler with its own servers."""

from typing import Any

from areal.infra.scheduler import LocalScheduler
from areal_side import START_S, ArealSide
from serve import serve


class Areal(ArealSide):
    def new_scheduler(self, folder: str) -> Any:
        return LocalScheduler(
            gpu_devices=[0],
            log_dir=folder,
            startup_timeout=START_S,
            nfs_record_root=folder,  # where its own default may not be
        )


if __name__ == "__main__":
    serve(Areal())
