"""`batch` of muster.roll.DataProto, as code written against ROLL uses it."""

import pickle
from collections.abc import MutableMapping

import numpy as np
import pytest
from muster import roll, verl


def test_a_batch_has_a_shape_and_pops() -> None:
    data = roll.DataProto.from_dict({"x": np.zeros((3, 2))})
    assert data.batch.shape[0] == data.batch.batch_size[0] == 3
    assert data.batch.pop("absent", None) is None
    with pytest.raises(KeyError, match="absent"):
        data.batch.pop("absent")
    assert data.batch.pop("x", None).shape == (3, 2)
    assert isinstance(data.batch, MutableMapping)


def test_a_batch_without_columns() -> None:
    data = roll.DataProto()
    assert (len(data), len(data.batch), list(data.batch.keys())) == (0, 0, [])
    assert data.batch.shape == (0,)
    assert "x" not in data.batch and not data.has_columns()
    again = pickle.loads(pickle.dumps(data))
    assert again == data and not again.has_columns()
    data.batch["x"] = np.arange(4)
    assert len(data) == 4
    with pytest.raises(ValueError, match="has 3 rows"):
        data.batch["y"] = np.arange(3)
    assert verl.DataProto().batch is None  # as verl has it


def test_one_without_columns_is_joined() -> None:
    full = roll.DataProto.from_dict({"x": np.arange(2)})
    empty = roll.DataProto(meta_info={"step": 1})
    assert len(empty.batch) == 0
    assert len(roll.DataProto.concat([full, empty, full])) == 4
    assert len(empty.union(full)) == 2
    both = roll.DataProto().union(roll.DataProto())
    assert not both.has_columns()


def test_the_batch_beside_arrays() -> None:
    arrays = {"text": np.array(["a", "b"], dtype=object)}
    data = roll.DataProto(non_tensor_batch=arrays)
    assert len(data.batch) == len(data) == 2
    with pytest.raises(ValueError, match="has 3 rows"):
        data.batch["y"] = np.arange(3)
    data.batch["y"] = np.arange(2)
    assert data[1:]["y"].tolist() == [1]
