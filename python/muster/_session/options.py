"""What `init` was asked for, checked, and as the head takes it."""

from __future__ import annotations

import os

from muster import _core
from muster._arguments import check_count
from muster.config import parse_size, words_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from muster._session.launch import Launch

_LOOK = -1  # a number that the head finds out


# What describes this machine, and how it is left open.
_MACHINE = {"num_cpus": None, "num_gpus": None, "num_nodes": None, "nodes": None}


def leave_machine_open(asked: dict[str, Any]) -> str:
    """A script that describes its machine may run where a head was set up for it, by
    `muster run` or MUSTER_ADDRESS: what that has is taken. Returns what was dropped."""
    if asked["orchestrator"] or asked["address"]:
        return ""
    if not _core.find_head(None, asked["secret_file"])[0]:
        return ""
    given = [f"{name}={asked[name]!r}" for name in _MACHINE if asked[name] is not None]
    asked.update(_MACHINE)
    return ", ".join(given)


def of(asked: dict[str, Any]) -> dict[str, Any]:
    """From the arguments of `init`, by their names. What cannot be is a ValueError."""
    lent = asked["orchestrator"] is not None
    num_nodes, nodes, tls = asked["num_nodes"], asked["nodes"], asked["tls"]
    if tls not in ("auto", "on", "off"):
        raise ValueError(f'tls: must be "auto", "on" or "off": {tls!r}')
    meant = "local" if lent else asked["address"]
    address, secret_file = _core.find_head(meant, asked["secret_file"])
    options = {
        "address": address,
        "secret_file": secret_file,
        "tls": tls,
        "num_cpus": _number(asked["num_cpus"], "num_cpus"),
        "num_gpus": _number(asked["num_gpus"], "num_gpus"),
        "num_nodes": num_nodes or 1
        if lent
        else _number(1 if num_nodes is None else num_nodes, "num_nodes", least=1),
        "nodes": None if nodes is None else os.path.abspath(nodes),
        "lender": asked["orchestrator"],
        "lent_by": asked["address"] if lent else None,
        "lent_nodes": num_nodes if lent else None,
        "log_to_driver": bool(asked["log_to_driver"]),
        "dedup_logs": bool(asked["dedup_logs"]),
        "http": asked["http"],
        "listen": asked["listen"],
        "preload": words_of(asked["preload"], "preload"),
        "store_limit": _size(asked, "store_limit", -1),
        "spill": _folder(asked["spill"]),
        "spill_limit": _size(asked, "spill_limit", 0),
    }
    if nodes is not None and _has_numbers(asked) and not lent:
        raise ValueError(
            f"nodes={nodes!r} describes all there is: leave num_nodes, num_cpus and "
            "num_gpus out"
        )
    if asked["spill_limit"] is not None and not options["spill_limit"]:
        raise ValueError(
            "spill_limit: must not be 0; spill=False switches spilling off"
        )
    if address:
        _refuse_what_is_the_heads(asked, address)
    return options


_NAMES = {"lender": "orchestrator", "lent_by": "address"}  # what the user calls them


def differences(begun: dict[str, Any], asked: dict[str, Any]) -> str:
    """Of the options of two calls of `init`, in the words of the user."""
    said: list[str] = []
    for name in sorted(begun.keys() | asked.keys()):
        was, now = begun.get(name), asked.get(name)
        if was == now:
            continue
        if name == "package":
            said.append("another working_dir, or other files in it")
        else:
            said.append(f"{_NAMES.get(name, name)}={_shown(was)}, now {_shown(now)}")
    return "; ".join(said)


def _shown(value: Any) -> str:
    return "None" if value == _LOOK else repr(value)


def of_worker(host: _core.Host) -> dict[str, Any]:
    """Of a worker that joins its head."""
    address, tls = host.head
    return {
        "num_cpus": _LOOK,
        "num_gpus": _LOOK,
        "num_nodes": 0,
        "nodes": None,
        "node_name": None,
        "min_nodes": 1,
        "lender": None,
        "log_to_driver": True,
        "preload": host.preload,
        "address": address,
        "tls": tls,
    }


def is_open(asked: dict[str, Any], options: dict[str, Any]) -> bool:
    """Whether nothing says which head is meant, or what its nodes are."""
    return not (options["address"] or asked["listen"] or _is_described(asked))


def nodes_awaited(min_nodes: int | None, launch: Launch | None, is_joined: bool) -> int:
    """0 only of a head that is joined: one of our own has a node."""
    if min_nodes is None:
        return launch.world_size if launch else 1
    return check_count(min_nodes, "min_nodes", 0 if is_joined else 1)


def _has_numbers(asked: dict[str, Any]) -> bool:
    numbers = (asked["num_cpus"], asked["num_gpus"], asked["num_nodes"] or 1)
    return numbers != (None, None, 1)


def _is_described(asked: dict[str, Any]) -> bool:
    return (asked["num_nodes"] or 1) != 1 or asked["nodes"] is not None


def _refuse_what_is_the_heads(asked: dict[str, Any], address: str) -> None:
    """One that was joined has settled these."""
    if _has_numbers(asked) or _is_described(asked):
        raise ValueError(
            "num_cpus, num_gpus, num_nodes and nodes describe this machine: give them to "
            f"`muster agent`, not to the head at {address}"
        )
    stores = (asked["store_limit"], asked["spill"], asked["spill_limit"])
    if stores != (None, True, None):
        raise ValueError(
            "store_limit, spill and spill_limit are options of the head and its agents: "
            "`muster head --store-limit`, `muster agent --store-limit`"
        )
    for name in ("http", "listen"):
        if asked[name] is not None:
            raise ValueError(
                f"{name}: is an option of the head: `muster head --{name}`"
            )


def _size(asked: dict[str, Any], field: str, otherwise: int) -> int:
    value = asked[field]
    return otherwise if value is None else parse_size(value, field)


def _folder(spill: str | os.PathLike[str] | bool) -> str | None:
    """As the head takes it: "" is the session's own, None is nowhere."""
    if isinstance(spill, bool):
        return "" if spill else None
    path = os.fspath(spill)
    if not isinstance(path, str) or not path:
        raise ValueError(f"spill: must be a folder, True or False: {spill!r}")
    return os.path.abspath(path)


def _number(value: int | None, field: str, least: int = 0) -> int:
    return _LOOK if value is None else check_count(value, field, least)
