"""Processes beside the workers of a cluster, on the same devices."""

from __future__ import annotations

from muster import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

    from muster.api import Session


class Processes:
    """One process beside each worker of a cluster, by a command. They end with
    `destroy()`, and each with the worker that it runs beside."""

    def __init__(
        self, name: str, workers: list[dict[str, Any]], session: Session
    ) -> None:
        self.name = name
        self.pids = [one["pid"] for one in workers]
        self.log_paths = [one["log_path"] for one in workers]
        self._session = session
        self._uid = workers[0]["uid"]
        self._gone = False

    def __len__(self) -> int:
        return len(self.pids)

    def __repr__(self) -> str:
        return f"<muster.Processes {self.name!r}: {len(self)}>"

    def destroy(self, *, grace: float = _core.STOP_GRACE_S) -> None:
        """End them: SIGTERM, and SIGKILL `grace` seconds later. Idempotent."""
        if not self._gone and self._session.head.alive:
            self._session.destroy_cluster(self.name, True, self._uid, grace)
        self._gone = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.destroy()
