"""_serialize.py: what goes by value, out of band, and not at all. Pure."""

import pickle
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from muster._data import serialize as _serialize
from muster._data.serialize import BUFFER_MIN, PickledOnce, dumps, loads
from muster.errors import SerializationError


def round_trip(value: Any) -> Any:
    data, buffers, _ = dumps(value)
    return loads(data, [bytearray(b) for b in buffers])


@pytest.mark.parametrize(
    "value",
    [None, 1, "x", b"x", [1, (2, {"a": {3}})], {"k": range(3)}, ValueError, len],
)
def test_plain(value: Any) -> None:
    assert round_trip(value) == value


@pytest.mark.parametrize("order", ["C", "F"])
def test_big_arrays_go_out_of_band(order: str) -> None:
    array = np.asarray(np.arange(60_000.0).reshape(200, 300), order=order)  # type: ignore[call-overload]
    data, buffers, _ = dumps({"a": array, "b": [array]})
    assert len(data) < 1000 and len(buffers) == 1
    assert memoryview(buffers[0]).nbytes == array.nbytes
    again = loads(data, [bytearray(b) for b in buffers])
    assert np.array_equal(again["a"], array) and again["b"][0] is again["a"]
    assert again["a"].flags.writeable


def test_small_and_odd_arrays() -> None:
    small = np.arange(BUFFER_MIN // 8 - 1)
    assert dumps(small)[1] == []
    assert round_trip(small).flags.writeable
    for array in (small[::2], np.array([1, "a", None], dtype=object), np.zeros((0, 3))):
        assert np.array_equal(round_trip(array), array)


def test_what_main_defines_goes_by_value() -> None:
    script = """
import sys, pickle
sys.path[:0] = {path!r}
from muster._data.serialize import dumps
SCALE = 3
class Thing:
    def __init__(self, x): self.x = x
    def scaled(self): return self.x * SCALE
data, buffers, _ = dumps([Thing(2), Thing, lambda: SCALE])
sys.stdout.buffer.write(data)
"""
    done = subprocess.run(
        [sys.executable, "-c", script.format(path=sys.path)], capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
    thing, cls, function = loads(done.stdout, [])
    assert isinstance(thing, cls) and thing.scaled() == 6 and function() == 3


def test_closures_and_local_classes() -> None:
    offset = 5

    class Local:
        def get(self) -> int:
            return offset

    assert round_trip(Local)().get() == 5


class Device:
    def __init__(self, name: str) -> None:
        self.name, self.type = name, name.partition(":")[0]

    def __str__(self) -> str:
        return self.name


def fake_tensor(device: str) -> Any:
    """Quacks like a subclass of torch.Tensor; torch is not needed here."""
    cls = type("Tensor", (), {"__module__": "torch"})
    tensor = type("Parameter", (cls,), {})()
    tensor.device = Device(device)
    return tensor


def test_a_tensor_on_a_gpu_is_refused() -> None:
    with pytest.raises(SerializationError) as caught:
        dumps((([1, {"w": fake_tensor("cuda:1")}],), None))
    assert str(caught.value).startswith("args[0][1]['w']: a torch tensor on cuda:1")
    assert ".cpu()" in str(caught.value)


class Holder:
    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)


class SlotHolder:
    __slots__ = ("inner",)

    def __init__(self, inner: Any) -> None:
        self.inner = inner


LOCK = threading.Lock()


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (((1, {"lock": LOCK}), None), "args[1]['lock']: "),
        (((), {"a": [0, LOCK]}), "kwargs['a'][1]: "),
        (LOCK, "value: "),
        ({"a": Holder(b=Holder(lock=LOCK))}, "value['a'].b.lock: "),
        ([SlotHolder((LOCK,))], "value[0].inner[0]: "),
        ([lambda: LOCK], "value[0]<its global LOCK>: "),
        (Holder(m=Holder(lock=LOCK).__repr__), "value.m"),
        ([open], "value"),
    ],
    ids=range(8),
)
def test_the_part_that_cannot_be_sent_is_named(value: Any, path: str) -> None:
    if value == [open]:
        assert round_trip(value) == value
        return
    with pytest.raises(SerializationError) as caught:
        dumps(value)
    assert str(caught.value).startswith(path)
    assert "lock" in str(caught.value)


def test_a_part_that_fights_back() -> None:
    class Odd:
        def __reduce__(self) -> Any:
            raise RuntimeError("never")

        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            raise RuntimeError("nor this")

    with pytest.raises(SerializationError, match="never"):
        dumps([Odd()])


def test_recursion_is_an_error() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(SerializationError):
        dumps(deep)


def test_once_is_pickled_as_its_value() -> None:
    once = PickledOnce({"a": (1, np.arange(10_000))})
    data, buffers, _ = dumps(once)
    again = loads(data, buffers)
    assert type(again) is dict and again["a"][1].sum() == 49_995_000
    assert pickle.loads(data).keys() == {"a"}
    with pytest.raises(SerializationError, match="lock"):
        PickledOnce({"lock": LOCK})


def test_another_python_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    data, _, _ = dumps(PickledOnce(lambda: 1))
    plain, _, _ = dumps(PickledOnce({"cls": "a.B"}, plain=True))
    monkeypatch.setattr(_serialize, "PYTHON", "2.7")
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    with pytest.raises(
        SerializationError, match=f"Python {here}, this process Python 2.7"
    ):
        loads(data, [])
    assert loads(plain, []) == {"cls": "a.B"}


def test_another_cloudpickle_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import cloudpickle

    version = cloudpickle.__version__
    data, _, _ = dumps(PickledOnce(lambda: 1))
    monkeypatch.setattr(cloudpickle, "__version__", "1.0")
    assert loads(data, [])() == 1  # it can read it: nobody asks
    monkeypatch.setitem(sys.modules, "cloudpickle.cloudpickle", None)
    with pytest.raises(
        SerializationError, match=f"cloudpickle {version}, this process 1.0"
    ):
        loads(data, [])
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(SerializationError, match=f"{version}, this process none"):
        loads(data, [])
