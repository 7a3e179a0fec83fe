"""torchrun whose nodes meet through a head of Muster.

torchrun --rdzv-backend=muster --rdzv-endpoint=HOST:PORT --rdzv-id=JOB --nnodes=2:4 train.py

`HOST:PORT` is `muster head`; `auto` is the head of this machine and user. The package
registers the backend with torch ("torchrun.handlers"); a torch that does not look there is
started by this module, with the same arguments:

python -m muster.torchrun --rdzv-endpoint=HOST:PORT --rdzv-id=JOB --nnodes=2:4 train.py

In a role of a submitted job, `python -m muster.torchrun train.py` is enough: the head, the name
and the number of nodes are the role's.

--rdzv-conf takes `last_call_timeout`, `join_timeout` (seconds), `unit`, `key` (the node's, the
same when it comes back, so that it keeps its rank) and `secret_file`.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from datetime import timedelta

import torch.distributed as dist  # type: ignore[import-not-found]
import torch.distributed.elastic.rendezvous as elastic  # type: ignore[import-not-found]

from muster import _core, api, kv
from muster._session.addresses import own_address
from muster.errors import DeadlineExceeded, MusterError, RendezvousClosed
from muster.rendezvous import JOIN_S, LAST_CALL_S, Rendezvous, role_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

BACKEND = "muster"
STORE_S = 300.0  # torch's own default for its stores


class Store(dist.Store):  # type: ignore[misc]
    """A torch.distributed store whose entries are in the head's key-value store, below a
    prefix. Of each process that has joined the head, or is a worker of it."""

    def __init__(self, prefix: str, timeout: timedelta | None = None) -> None:
        super().__init__()
        self._prefix = prefix
        self._timeout = timeout or timedelta(seconds=STORE_S)

    def _key(self, key: str) -> str:
        return f"{self._prefix}/{key}"

    # torch calls these by their names and from its own threads; values are bytes or str

    def set(self, key: str, value: bytes | str) -> None:
        kv.put(self._key(key), _bytes(value), owner="none")

    def get(self, key: str) -> bytes:
        self.wait([key])
        found = kv.get(self._key(key))
        return b"" if found is None else bytes(found)

    def add(self, key: str, amount: int) -> int:
        return kv.add(self._key(key), amount)

    def compare_set(
        self, key: str, expected: bytes | str, desired: bytes | str
    ) -> bytes:
        """The entry as it is then; where there is none, what was expected."""
        known = _bytes(expected)
        now = kv.compare_set(self._key(key), known, _bytes(desired))
        return known if now is None else now

    def append(self, key: str, value: bytes | str) -> None:
        more = _bytes(value)
        before = kv.get(self._key(key), b"")
        while True:
            now = kv.compare_set(self._key(key), before, before + more)
            if now == before + more:
                return
            before = now or b""

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        left = (timeout or self._timeout).total_seconds()
        if not kv.wait([self._key(key) for key in keys], left):
            missing = [key for key in keys if not self.check([key])]
            raise dist.DistStoreError(
                f"wait timeout after {left:g} s, keys: {', '.join(missing)}"
            )

    def check(self, keys: Sequence[str]) -> bool:
        return kv.wait([self._key(key) for key in keys], 0)

    def delete_key(self, key: str) -> bool:
        return kv.delete(self._key(key))

    def num_keys(self) -> int:
        return len(kv.keys(f"{self._prefix}/"))

    def list_keys(self) -> list[str]:
        skip = len(self._prefix) + 1
        return [key[skip:] for key in kv.keys(f"{self._prefix}/")]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        self.wait(keys)
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[bytes | str]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def has_extended_api(self) -> bool:
        return True

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    @property
    def timeout(self) -> timedelta:
        return self._timeout

    def clone(self) -> Store:
        return Store(self._prefix, self._timeout)

    # as torch's own C++ calls them
    getNumKeys = num_keys
    deleteKey = delete_key


def _bytes(value: bytes | str | list[int]) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


class Handler(elastic.RendezvousHandler):  # type: ignore[misc]
    """torchrun's agent on one node, as a member of a rendezvous of the head."""

    def __init__(self, params: Any) -> None:
        self._params = params
        self._has_begun = not api.is_initialized()
        if self._has_begun:
            endpoint = params.endpoint or os.environ.get("MUSTER_ADDRESS") or "auto"
            secret = params.get("secret_file")
            api.init(endpoint, secret_file=secret, log_to_driver=False, min_nodes=0)
        unit = params.get("unit")
        self._meeting = Rendezvous(
            _name(params.run_id),
            params.min_nodes,
            params.max_nodes,
            unit=None if unit is None else int(unit),
            last_call=float(params.get("last_call_timeout", LAST_CALL_S)),
            timeout=float(params.get("join_timeout", params.get("timeout", JOIN_S))),
            key=params.get("key"),
        )

    def get_backend(self) -> str:
        return BACKEND

    @property
    def use_agent_store(self) -> bool:
        """Rank 0 of the workers has a store of its own, new in each round."""
        return False

    def get_run_id(self) -> str:
        return str(self._params.run_id)

    def next_rendezvous(self) -> Any:
        address = self._params.local_addr or _own_address()
        try:
            world = self._meeting.join(address.encode())
        except RendezvousClosed as e:
            raise elastic.RendezvousClosedError(str(e)) from None
        except DeadlineExceeded as e:
            raise elastic.RendezvousTimeoutError(str(e)) from None
        except MusterError as e:
            raise elastic.RendezvousConnectionError(str(e)) from None
        store = Store(world.prefix)
        try:
            at = elastic.RendezvousStoreInfo.build(world.rank, store, address)
        except dist.DistStoreError as e:  # rank 0 has died in between
            raise elastic.RendezvousTimeoutError(str(e)) from None
        return elastic.RendezvousInfo(store, world.rank, world.size, at)

    def is_closed(self) -> bool:
        return bool(self._status()["closed"])

    def set_closed(self) -> None:
        self._meeting.close()

    def num_nodes_waiting(self) -> int:
        """Above 0 also if a node of this world has gone: the others meet again at once,
        which spends none of --max-restarts."""
        status = self._status()
        if status["closed"]:
            return 0
        if status["wanted"] or status["round"] != self._meeting.round:
            return max(1, int(status["waiting"]))
        return 0

    def _status(self) -> _core.Message:
        try:
            return self._meeting.status()
        except (MusterError, TimeoutError) as e:
            raise elastic.RendezvousConnectionError(str(e)) from None

    def shutdown(self) -> bool:
        """torchrun calls this after a failure too. In a job the controller decides whether
        this rank comes again, so the others are not kept from meeting it."""
        role = role_of(os.environ)
        try:
            if role is not None and role.name == self._meeting.name:
                self._meeting.leave()
            else:
                self._meeting.close()
        except (MusterError, TimeoutError):
            return False
        finally:
            if self._has_begun:
                api.shutdown(grace=0)
        return True


def _name(run_id: str) -> str:
    """Of the rendezvous: a name as the head has them."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", run_id).lstrip(".-")[:128]
    return name or "none"


def _own_address() -> str:
    """Where the other nodes find this one: of a job's rank the address from which it reaches
    the head, else this host's name."""
    host, _, port = os.environ.get("MUSTER_ADDRESS", "").rpartition(":")
    if role_of(os.environ) is None or not host or not port.isdecimal():
        return socket.getfqdn()
    return own_address(host, int(port))


def handler() -> Callable[[Any], Handler]:
    """What torch's registry asks an entry point for."""
    return Handler


def main(arguments: Sequence[str] | None = None) -> None:
    """torchrun's own main, with this backend unless another one is named."""
    from torch.distributed import run

    args = list(sys.argv[1:] if arguments is None else arguments)
    role = role_of(os.environ)
    if role is not None:  # torchrun reads these where it has no option
        os.environ.setdefault("PET_RDZV_ID", role.name)
        os.environ.setdefault("PET_NNODES", f"{role.min}:{role.max}")
    registry = elastic.rendezvous_handler_registry
    if BACKEND not in registry._registry:
        registry.register(BACKEND, Handler)
    named = ("--rdzv-backend", "--rdzv_backend", "--standalone")
    if not any(arg.startswith(named) for arg in args):
        args.insert(0, f"--rdzv-backend={BACKEND}")
    run.main(args)


if __name__ == "__main__":
    main()
