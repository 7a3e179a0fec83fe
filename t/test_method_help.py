"""What help() and inspect show of a cluster's methods: what their author wrote."""

import inspect
import pickle
import pydoc
from collections.abc import Iterator
from typing import Any

import dispatch_workers as dw
import muster
import pytest


@pytest.fixture
def trainer(session: Any) -> Iterator[muster.Cluster]:
    with muster.Cluster("trainer", dw.Trainer, world_size=1) as one:
        yield one


def test_help_of_a_method_is_the_users(trainer: muster.Cluster) -> None:
    told = trainer.told
    assert told.__name__ == "told" and told.__doc__ == dw.Trainer.told.__doc__
    full = inspect.signature(dw.Trainer.told)
    assert inspect.signature(told) == full.replace(
        parameters=list(full.parameters.values())[1:]
    )
    assert str(inspect.signature(trainer.static)) == "(x: int = 1) -> int"
    text = pydoc.plain(pydoc.render_doc(told))
    assert "told(rows: list[int], /, lr: float = 0.5, *more: " in text
    assert "    rows: what it learns from." in text
    assert trainer.static.__doc__ is None


def test_help_travels_with_a_handle(session: Any) -> None:
    """Also of a class that is not imported here: as text where it is no constant."""
    with muster.Cluster("by_path", "dispatch_workers.Trainer", world_size=1) as c:
        assert c.told.__doc__ == dw.Trainer.told.__doc__
        sent = pickle.loads(pickle.dumps(c))
        for one in (c, sent, muster.get_cluster("by_path")):
            told = inspect.signature(one.told)
            assert str(told) == (
                "(rows: list[int], /, lr: float = 0.5, *more: typing.Any, "
                "way: typing.Any = dispatch_workers.Batch, **kw: typing.Any) -> int"
            )
            assert told.parameters["lr"].default == 0.5
            assert str(inspect.signature(one.static)) == "(x: int = 1) -> int"
