"""errors.py: remote exceptions as both classes, deaths as text. Pure."""

import pickle
from dataclasses import dataclass
from typing import Any

import pytest
from muster import errors
from muster._data import serialize as _serialize
from muster.errors import RemoteError, WorkerDied, make_error


def raised(error: BaseException, where: str = "actor/1@here") -> RemoteError:
    """As if a worker had raised it."""
    cls = type(error)
    made = make_error(
        "raised",
        str(error),
        f"{cls.__module__}.{cls.__qualname__}",
        "Traceback (most recent call last):\n  File ...\n",
        _serialize.dumps_exception(error),
        None,
        where,
    )
    assert isinstance(made, RemoteError)
    return made


class NeedsTwo(Exception):
    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what} failed")
        self.code = code


class KeywordOnly(Exception):
    def __init__(self, *, why: str) -> None:
        self.why = why


class Slotted(Exception):
    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        self.code = code


class RefusesNew(ValueError):
    def __new__(cls, *args: object) -> "RefusesNew":
        if not args:
            raise TypeError("needs an argument")
        return super().__new__(cls, *args)


class Final(Exception):
    def __init_subclass__(cls) -> None:
        raise TypeError("final")


class OddPickle(Exception):
    def __reduce__(self) -> str:
        raise TypeError("not me")


class OddText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


def test_is_of_both_classes() -> None:
    e = raised(ValueError("boom"))
    assert isinstance(e, ValueError) and isinstance(e, RemoteError)
    assert e.args == ("boom",)
    assert e.remote_type == "builtins.ValueError"
    assert "Traceback" in e.remote_traceback and e.remote_traceback in str(e) + "\n"
    assert str(e).startswith("ValueError: boom (in actor/1@here)")
    assert isinstance(e.cause, ValueError) and not isinstance(e.cause, RemoteError)
    with pytest.raises(ValueError, match="boom"):
        raise e
    assert type(raised(ValueError("x"))) is type(e)  # one class for each


@pytest.mark.parametrize(
    ("error", "attributes"),
    [
        (NeedsTwo("load", 7), {"code": 7, "args": ("load failed",)}),
        (KeywordOnly(why="because"), {"why": "because"}),
        (Slotted(5), {"code": 5}),
        (RefusesNew("a"), {"args": ("a",)}),
        (OddPickle("a"), {"args": ("a",)}),
        (Frozen(3), {"code": 3}),
        (FileNotFoundError(2, "gone", "/x"), {"errno": 2, "filename": "/x"}),
        (KeyError("k"), {"args": ("k",)}),
        (
            UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
            {"start": 0, "reason": "bad"},
        ),
        (ImportError("no", name="torch"), {"name": "torch"}),
        (SyntaxError("bad", ("f.py", 3, 1, "x")), {"lineno": 3}),
        (
            ExceptionGroup("two", [ValueError("a"), NeedsTwo("b", 1)]),
            {"message": "two"},
        ),
        (TimeoutError("late"), {}),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, BaseException) else "",
)
def test_survives_odd_classes(error: Exception, attributes: dict[str, object]) -> None:
    e = raised(error)
    assert isinstance(e, RemoteError) and isinstance(e, type(error))
    for name, value in attributes.items():
        assert getattr(e, name) == value
    str(e), repr(e)
    again = pickle.loads(pickle.dumps(e))
    assert type(again) is type(e) and str(again) == str(e)
    assert repr(again.args) == repr(e.args)


@pytest.mark.parametrize(
    "error", [Final("x"), StopIteration(1), SystemExit(3), KeyboardInterrupt()]
)
def test_plain_where_both_cannot_be(error: BaseException) -> None:
    e = raised(error)
    assert type(e) is RemoteError
    assert type(error).__name__ in str(e)
    assert type(pickle.loads(pickle.dumps(e))) is RemoteError


def test_parts_that_cannot_be_sent_are_left_out() -> None:
    import threading

    error = ValueError("boom", threading.Lock())
    error.lock = threading.Lock()  # type: ignore[attr-defined]
    error.code = 4  # type: ignore[attr-defined]
    e = raised(error)
    assert isinstance(e, ValueError)
    assert e.args[0] == "boom" and "lock" in e.args[1]
    assert e.code == 4  # type: ignore[attr-defined]
    assert not hasattr(e, "lock")


def test_class_that_is_not_here() -> None:
    e = make_error("raised", "boom", "vllm.Odd", "tb", b"not a pickle", None, "a/0@n")
    assert type(e) is RemoteError
    assert str(e).startswith("vllm.Odd: boom (in a/0@n)")


def test_through_two_workers() -> None:
    inner = raised(KeyError("k"), "b/0@n")
    outer = raised(inner, "a/0@n")
    assert isinstance(outer, KeyError) and outer.args == ("k",)
    assert outer.where == "a/0@n"
    assert isinstance(outer.cause, RemoteError) and outer.cause.where == "b/0@n"


def test_a_death_seen_by_a_worker() -> None:
    death = WorkerDied("b/0@n died")
    death.signal = 9
    e = raised(death)
    assert isinstance(e, WorkerDied) and isinstance(e, RemoteError)
    assert e.signal == 9


def test_text_that_raises() -> None:
    e = make_error(
        "raised", "", "x.OddText", "", _serialize.dumps_exception(OddText()), None, ""
    )
    assert isinstance(e, OddText) and str(e) == "x.OddText"


def exit_info(**changes: object) -> Any:
    info = {
        "signaled": False,
        "code": 0,
        "out_of_memory": False,
        "requested": False,
        "last_lines": [],
        "node": "n",
        "pid": 42,
        "detail": "",
        "log_path": "/logs/a-1.log",
        "how": "ended somehow",  # src/wire/client/exit_text.c
    }
    return info | changes


def died(**changes: object) -> WorkerDied:
    e = make_error("worker_died", "", "", "", b"", exit_info(**changes), "a/b/1@n")
    assert isinstance(e, WorkerDied)
    return e


def test_death_by_signal() -> None:
    e = died(signaled=True, code=9, last_lines=["one", "two"])
    assert (e.signal, e.exit_code, e.pid, e.node) == (9, None, 42, "n")
    assert (e.cluster, e.rank, e.last_lines) == ("a/b", 1, ("one", "two"))
    text = str(e)
    for part in ("a/b/1@n (pid 42) ended somehow", "dmesg", "| two", "/logs/a-1.log"):
        assert part in text
    again = pickle.loads(pickle.dumps(e))
    assert str(again) == text and again.signal == 9 and again.rank == 1


def test_death_by_exit() -> None:
    e = died(code=3, detail="the zygote could not import numpy")
    assert (e.signal, e.exit_code) == (None, 3)
    assert "ended by itself" in str(e) and "import numpy" in str(e)


def test_death_for_memory() -> None:
    e = died(signaled=True, code=9, out_of_memory=True)
    assert e.out_of_memory and "memory=" in str(e) and "dmesg" not in str(e)


def test_death_on_request_and_unseen() -> None:
    assert "signal" not in str(died(requested=True, signaled=True, code=15))
    e = make_error("worker_died", "", "", "", b"", None, "a/0@n")
    assert isinstance(e, WorkerDied) and e.exit_code is None and e.rank == 0


@pytest.mark.parametrize(
    ("kind", "cls"),
    [
        ("deadline", TimeoutError),
        ("deadline", errors.DeadlineExceeded),
        ("cancelled", errors.Cancelled),
        ("no_method", AttributeError),
        ("no_engine", errors.ClusterError),
        ("refused", errors.ClusterError),
        ("bad_argument", errors.SerializationError),
        ("bad_result", errors.SerializationError),
        ("deadlock", errors.DeadlockError),
        ("unreachable", errors.WorkerUnreachable),
        ("shutting_down", errors.WorkerUnreachable),
        ("placement", errors.PlacementError),
        ("no_memory", errors.MusterError),
        ("lost", errors.MusterError),
        ("something_new", errors.MusterError),
    ],
)
def test_kinds(kind: str, cls: type) -> None:
    e = make_error(kind, "said", "", "", b"", None, "a/0@n")
    assert isinstance(e, cls) and isinstance(e, errors.MusterError)
    assert str(e) == "a/0@n: said"
    assert str(pickle.loads(pickle.dumps(e))) == str(e)


def test_placement_error_has_its_table() -> None:
    e = errors.PlacementError("does not fit", "a table")
    assert e.table == "a table" and "a table" in str(e)
    assert str(pickle.loads(pickle.dumps(e))) == str(e)
