"""The key-value store of the head, for drivers and workers.

Small things that other processes must find: addresses, names, who is first. Keys are shared by all
that joined the head, as names of clusters are: begin them with your job's. An entry goes with
its `owner`: "driver" (the default; of a worker in a detached cluster: that worker), "worker",
or "none", which stays until it is deleted. A head that was started again begins with an
empty store.

A key has at most 512 characters, a value 4 MiB when pickled, a store 65,536 entries and 256
MiB.
"""

from __future__ import annotations

import threading
from time import monotonic

from muster import _core, api
from muster._core import CODEC_BYTES, CODEC_PICKLE
from muster._data.serialize import loads, to_bytes
from muster.errors import DeadlineExceeded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Literal

    Owner = Literal["driver", "worker", "none"]

_NOTHING: Any = object()


def put(key: str, value: Any, *, owner: Owner = "driver") -> None:
    """Store it, whatever was there."""
    _put(key, value, owner, False)


def put_if_absent(key: str, value: Any, *, owner: Owner = "driver") -> bool:
    """Store it if there is nothing: True for exactly one of those that try."""
    return _put(key, value, owner, True)


def _put(key: str, value: Any, owner: str, only_if_absent: bool) -> bool:
    codec = CODEC_BYTES if type(value) is bytes else CODEC_PICKLE
    data = value if codec == CODEC_BYTES else to_bytes(value)
    asked = {"key": key, "value": data, "codec": codec, "owner": owner}
    asked["only_if_absent"] = only_if_absent
    return bool(api.ask("kv_put", asked)["done"])


def get(key: str, default: Any = _NOTHING, *, timeout: float | None = 0) -> Any:
    """The value; else `default`, which is None. With a timeout (None: two hours) the key
    is waited for, and DeadlineExceeded says that it did not come, unless there is a
    default."""
    for hold in api.holds(timeout):
        entry = api.ask("kv_get", {"key": key, "wait_ns": _core.ns(hold)}, hold)
        if entry["key"]:
            return _value(entry)
    if default is not _NOTHING or timeout == 0:
        return None if default is _NOTHING else default
    raise DeadlineExceeded(f"kv: {key!r} was not put within {timeout} s")


def delete(key: str) -> bool:
    """False: there was none."""
    return bool(api.ask("kv_delete", {"key": key})["done"])


def add(key: str, amount: int) -> int:
    """Add to a whole number, which is 0 where there is none, and return what it is then. It
    is stored as digits, and stays until it is deleted."""
    return int(api.ask("kv_add", {"key": key, "amount": amount})["value"])


def compare_set(key: str, expected: bytes, value: bytes) -> bytes | None:
    """Store `value` if the entry is `expected`; b"" also if there is none. Returns the entry
    as it is then; None: there is none."""
    asked = {"key": key, "expected": expected, "value": value}
    entry = api.ask("kv_compare_set", asked)
    return _value(entry) if entry["key"] else None


def wait(keys: Sequence[str], timeout: float) -> bool:
    """Until there is an entry of each key; False: not within so many seconds."""
    for hold in api.holds(timeout):
        asked = {"keys": list(keys), "wait_ns": _core.ns(hold)}
        if api.ask("kv_wait", asked, hold)["done"]:
            return True
    return False


def keys(prefix: str = "") -> list[str]:
    """Those that begin with it, in order."""
    found = api.ask("kv_keys", {"prefix": prefix})
    return [entry["key"] for entry in found["entries"]]


class Event:
    """What `watch` gives: `kind` is "put" or "delete"; of a delete the value is None."""

    __slots__ = ("key", "kind", "revision", "value")

    def __init__(self, kind: str, key: str, value: Any, revision: int) -> None:
        self.kind = kind
        self.key = key
        self.value = value
        self.revision = revision  # of the store; it grows with every change

    def __repr__(self) -> str:
        return f"<muster.kv.Event {self.kind} {self.key!r} #{self.revision}>"


class Watch:
    """An endless iterator of what happens below a prefix. Nothing is missed: it goes on
    where it was after a broken connection, and tells the difference after more changes
    than the head remembers, or a new head. `close()` ends it, also from another thread."""

    def __init__(self, prefix: str, existing: bool) -> None:
        self.prefix = prefix
        self._store = self._revision = 0
        self._known: dict[str, int] = {}  # key -> revision
        self._ready: list[_core.Message] = []
        self._closed = threading.Event()
        if not existing:
            self._poll(0)
            self._ready.clear()

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        event = self.next()
        if event is None:
            raise StopIteration
        return event

    def next(self, timeout: float | None = None) -> Event | None:
        """The next event; None after the timeout, or when it was closed. The head is asked
        once at least. A value that cannot be read here is raised once; the events after
        it follow."""
        deadline = None if timeout is None else monotonic() + timeout
        asked = False
        while not self._ready and not self._closed.is_set():
            left = _core.HOLD_MAX_S if deadline is None else deadline - monotonic()
            if left <= 0 and asked:
                return None
            self._poll(max(0.0, min(left, _core.HOLD_MAX_S)))
            asked = True
        return None if self._closed.is_set() else _event(self._ready.pop(0))

    def close(self) -> None:
        """A thread that waits in it returns at the next change, or within a minute."""
        self._closed.set()

    def _poll(self, wait: float) -> None:
        asked = {
            "prefix": self.prefix,
            "store": self._store,
            "revision": self._revision,
            "wait_ns": _core.ns(wait),
        }
        answer = api.ask("kv_watch", asked, wait)
        is_new = answer["store"] != self._store
        self._store, self._revision = answer["store"], answer["revision"]
        if answer["is_all"]:
            self._catch_up(answer["entries"], is_new)
            return
        for entry in answer["entries"]:
            self._add(entry)

    def _catch_up(self, entries: list[_core.Message], is_new: bool) -> None:
        """From all that there is: only what is new to us."""
        here = {entry["key"] for entry in entries}
        for key in [key for key in self._known if key not in here]:
            self._add({"key": key, "revision": self._revision, "deleted": True})
        for entry in entries:
            if is_new or self._known.get(entry["key"]) != entry["revision"]:
                self._add(entry)

    def _add(self, entry: _core.Message) -> None:
        if entry["deleted"]:
            self._known.pop(entry["key"], None)
        else:
            self._known[entry["key"]] = entry["revision"]
        self._ready.append(entry)


def watch(prefix: str = "", *, existing: bool = True) -> Watch:
    """What happens below a prefix from now on; first, what is there already."""
    return Watch(prefix, existing)


def _event(entry: _core.Message) -> Event:
    kind, value = ("delete", None) if entry["deleted"] else ("put", _value(entry))
    return Event(kind, entry["key"], value, entry["revision"])


def _value(entry: _core.Message) -> Any:
    data = entry["value"]
    return data if entry["codec"] == CODEC_BYTES else loads(data, [])
