"""WorkerConfig: what the workers of one role are, and what they need."""

from __future__ import annotations

import functools

from muster import _core
from muster._arguments import check_count, options_checked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, Self

MESH = ("tp", "cp", "dp", "pp", "ep")  # its dimensions


def parse_size(value: int | float | str | None, field: str) -> int:
    """Bytes of 1024, "512MiB" or "2GB"; None is 0, which means: no limit."""
    if value is None:
        return 0
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        size = int(value)
    else:
        found = _core.parse_size(str(value))
        if found is None:
            raise ValueError(
                f'{field}: not a size: {value!r} (such as "512MiB", "2GB")'
            )
        size = found
    if size < 0:
        raise ValueError(f"{field}: must not be negative: {value!r}")
    return size


def _mapping(value: Any) -> str | list[int] | None:
    """A text is parsed where the devices are known."""
    if value is None or isinstance(value, str):
        return value
    devices = list(value)
    if not all(type(d) is int and d >= 0 for d in devices):
        raise ValueError(f"device_mapping: not a list of device ids: {value!r}")
    return devices


def _seconds(value: Any, field: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        raise ValueError(f"{field}: must be a positive number of seconds: {value!r}")
    return float(value)


def words_of(value: Any, field: str) -> list[str]:
    if isinstance(value, str):
        return [value]
    words = list(value)
    if not all(isinstance(w, str) for w in words):
        raise ValueError(f"{field}: must be a list of strings: {value!r}")
    return words


def _environment(value: Mapping[str, Any] | None) -> dict[str, str]:
    env = {}
    for name, content in (value or {}).items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise ValueError(f"env: not a variable's name: {name!r}")
        if not isinstance(content, (str, int, float)) or "\0" in str(content):
            raise ValueError(f"env[{name!r}]: must be a string: {content!r}")
        env[name] = str(content)
    _core.check_env([f"{name}={content}" for name, content in env.items()])
    return env


class WorkerConfig:
    """What the workers of one role are, and what they need.

    world_size: how many; with a device_mapping it follows from that.
    device_mapping: global device ids, "0-7,12", "list(range(0, 8))" or a list.
    num_gpus_per_worker: consecutive devices of the mapping that one worker gets (None: 1).
        Without a mapping: free devices of one node that each gets (None: none).
    num_cpus, gpu_memory, memory: asked for by each worker. `memory` is also its limit.
    mesh: sizes of tp, cp, pp, ep; dp is what is left over.
    args, kwargs: of the worker class's constructor.
    env: environment variables, over all others.
    preload: modules to import before the fork, beside the class's own.
    start: "fork" from a warm interpreter, "exec" of a fresh one, or a command line.
    python: another interpreter. working_dir: where the workers run.
    visible: "own": a worker sees its own devices alone, and LOCAL_RANK is 0; "node": it
        sees all that its cluster has on the node, and LOCAL_RANK counts.
    http_open: HTTP on the worker's port without a token: all that reach the port can run
        anything in it.
    max_concurrency: how many calls run at once: of a class with `async` methods on its
        loop (None: 1000), of others on threads, if it is above 1. Else one call after the
        other runs, on the main thread.
    timeout: seconds for each call (2 hours); start_timeout: for the constructor.
    """

    @options_checked
    def __init__(
        self,
        *,
        world_size: int | None = None,
        device_mapping: str | Iterable[int] | None = None,
        num_gpus_per_worker: int | None = None,
        num_cpus: float = 0,
        gpu_memory: int | str | None = None,
        memory: int | str | None = None,
        mesh: Mapping[str, int] | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        env: Mapping[str, Any] | None = None,
        preload: str | Iterable[str] = (),
        start: str | Sequence[str] = "fork",
        visible: str = "own",
        http_open: bool = False,
        max_concurrency: int | None = None,
        timeout: float | None = None,
        start_timeout: float | None = None,
        python: str | Sequence[str] | None = None,
        working_dir: str | None = None,
    ) -> None:
        if world_size is not None:
            check_count(world_size, "world_size", least=1)
        self.world_size = world_size
        self.device_mapping = _mapping(device_mapping)
        if num_gpus_per_worker is not None:
            check_count(num_gpus_per_worker, "num_gpus_per_worker", least=0)
        self.num_gpus_per_worker = num_gpus_per_worker
        if isinstance(num_cpus, bool) or not isinstance(num_cpus, (int, float)):
            raise ValueError(f"num_cpus: must be a number: {num_cpus!r}")
        if num_cpus < 0:
            raise ValueError(f"num_cpus: must not be negative: {num_cpus!r}")
        self.num_cpus = num_cpus
        self.gpu_memory = parse_size(gpu_memory, "gpu_memory")
        self.memory = parse_size(memory, "memory")
        self.mesh = dict(mesh or {})
        mesh_sizes(self.mesh, None)
        self.args = tuple(args)
        self.kwargs = dict(kwargs or {})
        self.env = _environment(env)
        self.preload = words_of(preload, "preload")
        self.start = start if isinstance(start, str) else words_of(start, "start")
        if not self.start or (isinstance(start, str) and start not in ("fork", "exec")):
            raise ValueError(
                f'start: must be "fork", "exec" or a command (a list): {start!r}'
            )
        if visible not in ("own", "node"):
            raise ValueError(f'visible: must be "own" or "node": {visible!r}')
        self.visible = visible
        if not isinstance(http_open, bool):
            raise ValueError(f"http_open: must be True or False: {http_open!r}")
        self.http_open = http_open
        if max_concurrency is not None:
            check_count(max_concurrency, "max_concurrency", least=1)
        self.max_concurrency = max_concurrency
        self.timeout = _seconds(timeout, "timeout")
        self.start_timeout = _seconds(start_timeout, "start_timeout")
        self.python = None if python is None else words_of(python, "python")
        self.working_dir = None if working_dir is None else str(working_dir)

    @classmethod
    def of(cls, value: Any, **changes: Any) -> Self:
        """From a WorkerConfig, a mapping, or any object with such attributes."""
        if value is None:
            fields = {}
        elif isinstance(value, WorkerConfig):
            fields = value.fields()
            if cls is WorkerConfig:  # what else a derived one has is its own matter
                fields = {k: fields[k] for k in fields_known() if k in fields}
        elif isinstance(value, dict):
            fields = dict(value)
        elif hasattr(value, "__dict__"):
            fields = {k: v for k, v in vars(value).items() if not k.startswith("_")}
        else:
            raise ValueError(f"worker_config: not a WorkerConfig: {value!r}")
        return cls(**fields | changes)

    def fields(self) -> dict[str, Any]:
        """As the constructor takes them."""
        return dict(vars(self))

    def replace(self, **changes: Any) -> Self:
        """A copy with other values of some fields."""
        return type(self)(**self.fields() | changes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WorkerConfig):
            return NotImplemented
        return vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        default = vars(WorkerConfig())
        fields = self.fields().items()
        changed = (f"{k}={v!r}" for k, v in fields if v != default.get(k, fields))
        return f"WorkerConfig({', '.join(changed)})"


def given_names(settings: WorkerConfig, given: Any) -> set[str]:
    """The fields of `settings`, which were made of `given`, that the caller has chosen."""
    default = vars(WorkerConfig())
    chosen = {name for name in default if getattr(settings, name) != default[name]}
    return chosen | set(given) if isinstance(given, dict) else chosen


@functools.cache
def fields_known() -> tuple[str, ...]:
    return tuple(vars(WorkerConfig()))


def mesh_sizes(mesh: Mapping[str, int], world_size: int | None) -> dict[str, int]:
    """The sizes of all dimensions: dp is what is left over, and ep divides it."""
    for name, size in mesh.items():
        if name not in MESH:
            raise ValueError(f"mesh: unknown dimension {name!r} (of {', '.join(MESH)})")
        check_count(size, f"mesh[{name!r}]", least=1)
    sizes = {name: mesh.get(name, 1) for name in MESH}
    if world_size is None:
        return sizes
    try:
        places = _core.mesh_ranks(world_size, *(mesh.get(name, 0) for name in MESH))
    except ValueError as e:
        raise ValueError(f"mesh: {e}") from None
    return sizes | {"dp": places[-1][2] + 1}
