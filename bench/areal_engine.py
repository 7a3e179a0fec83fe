"""The engine of both sides of the rows against AReaL."""

from typing import Any

from areal.api import TrainEngine


class Empty(TrainEngine):  # type: ignore[misc]
    """Not initialized: nothing is broadcast."""

    @property
    def initialized(self) -> bool:
        return False

    def empty(self) -> None:
        pass

    def echo(self, value: Any) -> Any:
        return value

    def destroy(self) -> None:
        pass


Empty.__abstractmethods__ = frozenset()  # what is not called need not be there
