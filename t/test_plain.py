"""Plain data and bytes as codecs of calls."""

import math
import sys
from typing import Any

import muster
import pytest

numpy = pytest.importorskip("numpy")


class Echo:
    """Gives back what it gets."""

    def echo(self, *args: Any, **kwargs: Any) -> Any:
        return [list(args), kwargs]

    def same(self, value: Any) -> Any:
        return value

    def type_of(self, value: Any) -> str:
        return type(value).__qualname__

    def strange(self) -> Any:
        return {"x": [1, Echo]}

    def fail(self) -> None:
        raise KeyError("no such thing")

    def count(self, n: int) -> Any:
        yield from range(n)

    def nothing(self, data: bytes) -> None:
        assert data == b"x"


@pytest.fixture(scope="module")
def plain(session: Any) -> Any:
    with muster.Cluster("echo", Echo) as one:
        yield one.options(codec="plain")


VALUES = [
    None,
    True,
    False,
    0,
    -1,
    2**63 - 1,
    -(2**63),
    0.5,
    math.inf,
    "",
    "grüße \0 \U0001f600",
    b"",
    b"\0\xff" * 20000,
    [],
    {},
    [1, [2, [3, []]], {"a": {"b": None}}],
    {"": 1, "ü": [None, True]},
    list(range(1000)),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda v: repr(v)[:20])
def test_round_trip(plain: Any, value: Any) -> None:
    got = plain.execute_rank_zero_sync("same", value)
    assert got == value
    assert type(got) is type(value)


def test_arguments(plain: Any) -> None:
    got = plain.execute_rank_zero_sync("echo", 1, (2, 3), x={"y": [4]}, z=None)
    assert got == [[1, [2, 3]], {"x": {"y": [4]}, "z": None}]
    assert plain.execute_rank_zero_sync("echo") == [[], {}]


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "uint16", "int32", "uint64", "float16", "float32", "complex128"],
)
def test_tensors(plain: Any, dtype: str) -> None:
    array = numpy.arange(24).reshape(2, 3, 4).astype(dtype)
    got = plain.execute_rank_zero_sync("same", {"a": ["x", array]})["a"][1]
    assert got.dtype == array.dtype and got.shape == array.shape
    assert (got == array).all()
    assert got.ctypes.data % 16 == 0  # where C code wants it
    got[0] = 0  # the message is ours


def test_odd_tensors(plain: Any) -> None:
    big = numpy.arange(1 << 20, dtype=numpy.int64)
    for array in (
        big,
        big[::3],
        big.reshape(1024, 1024).T,
        numpy.array(5.0),
        numpy.zeros((0, 3)),
        numpy.arange(5, dtype=">i4"),
    ):
        got = plain.execute_rank_zero_sync("same", array)
        assert got.shape == array.shape and (got == array).all()
    many = [numpy.full(5000, i) for i in range(40)]
    for i, got in enumerate(plain.execute_rank_zero_sync("same", many)):
        assert (got == i).all()
    assert plain.execute_rank_zero_sync("same", numpy.float32(0.5)) == 0.5
    assert plain.execute_rank_zero_sync("same", numpy.int16(-3)) == -3


def test_torch(plain: Any) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    got = plain.execute_rank_zero_sync("same", tensor.T)
    assert isinstance(got, numpy.ndarray) and (got == tensor.T.numpy()).all()
    half = torch.ones(3, dtype=torch.bfloat16)
    assert torch.equal(plain.execute_rank_zero_sync("same", half), half)


class Foo:
    pass


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((1, {"x": Foo()}), {}, "args[1]['x'] is a Foo"),
        (([0, [1, Foo()]],), {}, "args[0][1][1] is a Foo"),
        ((), {"lr": {1, 2}}, "kwargs['lr'] is a set"),
        ((2**63,), {}, "args[0] is an int beyond 64 bits"),
        (({"a": {3: 4}},), {}, "args[0]['a'][3] has a key that is no str"),
        (("\ud800",), {}, "args[0] is a str that UTF-8 does not have"),
        ((["x", numpy.array(["a"])],), {}, "args[0][1] is a numpy array of"),
        ((numpy.zeros((1,) * 20),), {}, "args[0] is a tensor of 20 dimensions"),
    ],
)
def test_what_does_not_fit(
    plain: Any, args: tuple[Any, ...], kwargs: dict[str, Any], text: str
) -> None:
    with pytest.raises(muster.SerializationError) as e:
        plain.execute_rank_zero_sync("echo", *args, **kwargs)
    assert text in str(e.value)


def test_depth(plain: Any) -> None:
    value: list[Any] = []
    for _ in range(60):
        value = [value]
    assert plain.execute_rank_zero_sync("same", value) == value
    circle: list[Any] = []
    circle.append(circle)
    before = sys.getrefcount(circle)
    with pytest.raises(muster.SerializationError, match="nested deeper"):
        plain.execute_rank_zero_sync("same", circle)
    assert sys.getrefcount(circle) == before


def test_result_that_does_not_fit(plain: Any) -> None:
    with pytest.raises(muster.SerializationError) as e:
        plain.execute_rank_zero_sync("strange")
    assert "value['x'][1] is a type" in str(e.value)
    assert plain.execute_rank_zero_sync("same", 1) == 1


def test_errors_come_without_pickle(plain: Any) -> None:
    with pytest.raises(muster.RemoteError) as e:
        plain.execute_rank_zero_sync("fail")
    assert not isinstance(e.value, KeyError)
    assert e.value.remote_type == "builtins.KeyError"
    assert "no such thing" in str(e.value)


def test_streams(plain: Any) -> None:
    assert list(plain.execute_rank_zero_sync("count", 5)) == [0, 1, 2, 3, 4]


def test_views_and_all(session: Any) -> None:
    with muster.Cluster("three", Echo, world_size=3) as three:
        plain = three.options(codec="plain")
        assert plain.execute_all_sync("same", 7) == [7, 7, 7]
        assert plain.execute_all_sync("same", muster.each([(1,), (2,), (3,)])) == [
            [1],
            [2],
            [3],
        ]
        assert plain[1:].execute_rank_sync(0, "same", (5,)) == [5]
        assert three.execute_rank_zero_sync("same", (5,)) == (5,)
        assert three.options(codec="plain").options(codec="pickle").execute_rank_sync(
            0, "same", {1, 2}
        ) == {1, 2}


def test_bytes(plain: Any) -> None:
    raw = plain.options(codec="bytes")
    assert raw.execute_rank_zero_sync("same", b"abc\0") == b"abc\0"
    assert raw.execute_rank_zero_sync("same", bytearray(b"q") * 200000) == b"q" * 200000
    assert raw.execute_rank_zero_sync("nothing", b"x") == b""
    with pytest.raises(muster.SerializationError, match=r"args\[0\] is a int"):
        raw.execute_rank_zero_sync("same", 5)
    with pytest.raises(muster.SerializationError, match="takes one argument"):
        raw.execute_rank_zero_sync("same", b"a", b"b")
    with pytest.raises(muster.SerializationError, match="value is a str"):
        raw.execute_rank_zero_sync("type_of", b"a")


def test_unknown_codec(plain: Any) -> None:
    with pytest.raises(ValueError, match="codec"):
        plain.options(codec="json")
