"""WorkerGroup: the workers of one role, or of several in the same processes."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import MethodType
from typing import Any, Self

import muster
from muster import _core
from muster._adapters.actor import Handle
from muster._adapters.lease import WorkersLease, noted
from muster._arguments import argument_names, check_misspelt
from muster._cluster.binding import check_names
from muster._cluster.worker_class import modules_of
from muster._data.rows import Each, each_if_lists
from muster.config import WorkerConfig
from muster.future import Future, get
from muster.groups import GroupPart
from muster.verl import batch
from muster.verl.decorator import (
    DISPATCH_MODE_FN_REGISTRY,
    PREDEFINED,
    Dispatch,
    collect_all_to_all,
    dispatch_all_to_all,
    get_predefined_execute_fn,
    registration,
)
from muster.verl.init_args import ClassWithInitArgs
from muster.verl.pool import ResourcePool
from muster.view import View

# what tells a worker who it is
_PROTECTED = ("WORLD_SIZE", "RANK", "WG_PREFIX", "WG_BACKEND", "RAY_LOCAL_WORLD_SIZE")
_MASTER = ("MASTER_ADDR", "MASTER_PORT")
# further named arguments: verl's own versions differ in which they take
_OPTIONS = (
    *("use_gpu", "worker_env", "master_addr", "master_port", "master_port_range"),
    *("worker_nsight_options", "device_name", "profile_steps"),
)
_ONE = (Dispatch.RANK_ZERO, Dispatch.DIRECT_ROLLOUT_METHOD)  # rank 0 alone is called


class WorkerGroup:
    """Workers in the places of a pool, called together.

    Each method that was registered is one of the group. `execute_X_sync` gives results;
    `execute_X` and `execute_X_async` give futures, for `muster.get`.

    ray_cls_with_init: a ClassWithInitArgs; a colocated one makes a group of all its roles.
    bin_pack: False: the processes of one entry of the pool may be on several nodes.
    detached: the workers outlive the driver, if the head does (`muster head`).
    worker_env: environment variables of the workers.
    master_addr, master_port: together, in place of the port that Muster holds.
    """

    def __init__(
        self,
        resource_pool: ResourcePool | None = None,
        ray_cls_with_init: ClassWithInitArgs | None = None,
        bin_pack: bool = True,
        name_prefix: str | None = None,
        detached: bool = False,
        worker_names: list[str] | None = None,
        worker_handles: list[Handle] | None = None,
        ray_wait_register_center_timeout: int = 300,
        **kwargs: Any,
    ) -> None:
        if isinstance(ray_cls_with_init, type):
            raise TypeError(
                "ray_cls_with_init: give the class with its arguments: "
                f"RayClassWithInitArgs({ray_cls_with_init.__name__}, ...)"
            )
        self.ray_cls_with_init = ray_cls_with_init
        self.resource_pool = resource_pool
        self.name_prefix = os.urandom(3).hex() if name_prefix is None else name_prefix
        self.fused_worker_used = bool(ray_cls_with_init) and (
            ray_cls_with_init.fused_worker_used  # type: ignore[union-attr]
        )
        self.sub_cls_name = ""
        self.wg_dict: dict[str, WorkerGroup] | None = None
        self.method_names: list[str] = []
        self._methods: dict[str, Callable[..., Any]] = {}
        self._roles: dict[str, WorkerGroup] = {}
        self._dispatch_info: dict[str, list[int]] = {}
        self._collect_info: dict[str, list[bool]] = {}
        self._cluster: muster.Cluster | None = None
        known = (*argument_names(WorkerGroup.__init__), *_OPTIONS)
        check_misspelt("WorkerGroup()", kwargs, known)
        self._options = kwargs
        self._check_names()
        if resource_pool is None:
            self._attach(worker_names, worker_handles)
        else:
            self._create(resource_pool, "STRICT_PACK" if bin_pack else "PACK", detached)
        self._bind_methods()

    # ---- where the workers come from --------------------------------------------------

    def _create(self, pool: ResourcePool, strategy: str, detached: bool) -> None:
        made = self.ray_cls_with_init
        if made is None:
            raise TypeError("ray_cls_with_init: the class of the workers is needed")
        if self._options.get("use_gpu", False) and not pool.use_gpu:
            raise ValueError("use_gpu is True, and the pool has use_gpu=False")
        name = f"{self.name_prefix}{made.name}"
        fields = made.worker_fields()
        fields["env"] |= self._worker_env()
        fields["env"]["RAY_LOCAL_WORLD_SIZE"] = str(pool.store[0])
        roles = [modules_of(one.cls) for one in made.roles.values()]
        fields["preload"] = list(itertools.chain(*roles))
        # an embedded head ends with its driver
        detached = detached and muster.api.session().head.joined
        config = WorkerConfig(**fields)
        is_first = pool.pgs is None
        place = pool.place(strategy)
        try:
            self._start(name, made, place, config, detached)
        except BaseException:  # its traceback holds the place, and may be kept
            if is_first:
                with suppress(muster.MusterError):  # another group stands there by now
                    pool.remove()
            raise
        self._worker_names = [f"{name}_{n}:{i}" for n, i in pool.bundles()]

    def _start(
        self,
        name: str,
        made: ClassWithInitArgs,
        place: GroupPart,
        config: WorkerConfig,
        detached: bool,
    ) -> None:
        self._cluster = muster.Cluster(name, made.cls, place, config, detached=detached)
        if not detached:
            WorkersLease(self._cluster, place)
        self._take(self._cluster, None)
        try:
            for role, one in made.roles.items():
                fields = one.worker_fields()
                names = fields.keys() & {"args", "kwargs", "max_concurrency"}
                how = {name: fields[name] for name in names}
                self._view.create_engine(role, one.cls, **how)
        except BaseException:
            self._cluster.destroy(grace=0)
            raise

    def _worker_env(self) -> dict[str, str]:
        env = dict(self._options.get("worker_env") or {})
        if taken := sorted(set(env) & {*_PROTECTED, *_MASTER}):
            raise ValueError(f"worker_env: {', '.join(taken)} cannot be given")
        if self._options.get("master_port_range"):
            raise ValueError(
                "master_port_range: the port is held from the start; give master_addr "
                "and master_port to choose one"
            )
        if self._options.get("worker_nsight_options"):
            warnings.warn(
                "worker_nsight_options: profile a worker by its pid", stacklevel=4
            )
        master = [self._options.get(name.lower()) for name in _MASTER]
        if None not in master:
            env |= dict(zip(_MASTER, map(str, master), strict=True))
        elif master != [None, None]:
            raise ValueError("master_addr and master_port: give both, or neither")
        return env | {"WG_PREFIX": self.name_prefix, "WG_BACKEND": "muster"}

    def _attach(self, names: list[str] | None, handles: list[Handle] | None) -> None:
        """To workers that are there: by handles, or by all names of a detached group."""
        if handles:  # their workers may be of several clusters
            first = handles[0].view
            members = [member for handle in handles for member in handle.view._members]
            how = (first._engine, first._timeout, first._codec)
            self._take(muster.View(first.name, members, *how), names)
            return
        if not names:
            raise TypeError("give resource_pool, worker_names or worker_handles")
        cluster = names[0].rpartition("_")[0]
        found = muster.get_cluster(cluster)
        named = {name.rpartition("_")[0] for name in names}
        if len(names) != len(found) or named != {cluster}:
            raise ValueError(
                f"worker_names: must be those of all {len(found)} workers of {cluster!r}"
            )
        self._cluster = found
        self._take(found, names)

    def _take(self, view: View, names: list[str] | None) -> None:
        self._view = view
        self._workers = [Handle(one) for one in view]
        self._worker_names = names or [f"{view.name}-{rank}" for rank in view.ranks]

    @classmethod
    def from_detached(
        cls,
        name_prefix: str | None = None,
        worker_names: list[str] | None = None,
        worker_handles: list[Handle] | None = None,
        ray_cls_with_init: ClassWithInitArgs | None = None,
        **kwargs: Any,
    ) -> Self:
        """A group of workers that are there already."""
        return cls(
            None,
            ray_cls_with_init,
            name_prefix=name_prefix,
            worker_names=worker_names,
            worker_handles=worker_handles,
            **kwargs,
        )

    def destroy(self, *, grace: float = _core.STOP_GRACE_S) -> None:
        """End its workers. Without it they end with the last reference to this group, the
        groups of its roles, or its workers."""
        if self._cluster is not None:
            self._cluster.destroy(grace=grace)

    # ---- what it is -------------------------------------------------------------------

    @property
    def world_size(self) -> int:
        return len(self._workers)

    @property
    def workers(self) -> list[Handle]:
        return self._workers

    @property
    def worker_names(self) -> list[str]:
        return self._worker_names

    @property
    def master_address(self) -> str:
        return str(self._view.execute_rank_zero_sync("get_master_addr_port")[0])

    @property
    def master_port(self) -> str:
        return str(self._view.execute_rank_zero_sync("get_master_addr_port")[1])

    def __repr__(self) -> str:
        role = f", role {self.sub_cls_name!r}" if self.sub_cls_name else ""
        return f"<WorkerGroup of {self._view!r}{role}>"

    # ---- roles ------------------------------------------------------------------------

    def spawn(self, prefix_set: Iterable[str]) -> dict[str, WorkerGroup]:
        """A group of each of these roles, over the same workers."""
        for role in prefix_set:
            if role not in self._roles:
                raise ValueError(f"there is no role {role!r} (of {list(self._roles)})")
        return {role: self._roles[role] for role in prefix_set}

    def _role(self, role: str) -> WorkerGroup:
        made = self.ray_cls_with_init
        assert made is not None
        group = type(self).from_detached(
            name_prefix=self.name_prefix,
            worker_names=self._worker_names,
            worker_handles=[Handle(one) for one in self._view.options(engine=role)],
            ray_cls_with_init=made.roles[role],
        )
        group.sub_cls_name = role
        return group

    spawn_fused = spawn

    def fuse(self, prefix_set: Iterable[str]) -> None:
        """Make those groups attributes of this one."""
        if self.wg_dict is None:
            self.wg_dict = self.spawn(prefix_set)
        for role, group in self.wg_dict.items():
            setattr(self, role, group)

    # ---- calls ------------------------------------------------------------------------

    def _find(self, method: str) -> tuple[View, str]:
        """The view and the name there of a method, which may be `role_method`."""
        # On the group of all roles, and on that of the role.
        made = self.ray_cls_with_init
        for role, group in self._roles.items():
            name = method.removeprefix(f"{role}_")
            if name != method and hasattr(group.ray_cls_with_init.cls, name):  # type: ignore[union-attr]
                return group._view, name
        if self.sub_cls_name and made and not hasattr(made.cls, method):
            return self._view, method.removeprefix(f"{self.sub_cls_name}_")
        return self._view, method

    def execute_rank_zero_sync(
        self, method_name: str, *args: Any, **kwargs: Any
    ) -> Any:
        view, name = self._find(method_name)
        return view.execute_rank_zero_sync(name, *args, **kwargs)

    def execute_rank_zero_async(
        self, method_name: str, *args: Any, **kwargs: Any
    ) -> Future:
        view, name = self._find(method_name)
        made: Future = noted(view, view.execute_rank_zero_async(name, *args, **kwargs))
        return made

    execute_rank_zero = execute_rank_zero_async

    def execute_all_sync(
        self, method_name: str, *args: Any, **kwargs: Any
    ) -> list[Any]:
        """If every argument is a list of `world_size` elements, worker i gets element i
        of each; else all get everything."""
        view, name = self._find(method_name)
        args, kwargs = each_if_lists(args, kwargs, len(view))
        return view.execute_all_sync(name, *args, **kwargs)

    def execute_all_async(
        self, method_name: str, *args: Any, **kwargs: Any
    ) -> list[Future]:
        view, name = self._find(method_name)
        args, kwargs = each_if_lists(args, kwargs, len(view))
        made: list[Future] = noted(view, view.execute_all_async(name, *args, **kwargs))
        return made

    execute_all = execute_all_async

    # ---- registered methods -----------------------------------------------------------

    def _bind_methods(self) -> None:
        made = self.ray_cls_with_init
        if made is None:
            return
        self._bind_worker_method(made.cls)
        for role in made.roles:  # the methods of a role's group, under its name
            group = self._roles[role] = self._role(role)
            for name, attrs in _registered(made.roles[role].cls):
                direct = attrs["dispatch_mode"] == Dispatch.DIRECT_ROLLOUT_METHOD
                full = name if direct and "rollout" in role else f"{role}_{name}"
                setattr(self, full, getattr(group, name))

    def _check_names(self) -> None:
        """A registered method must not hide what a group has itself."""
        made = self.ray_cls_with_init
        if made is None:
            return
        for one in (made, *made.roles.values()):
            names = [name for name, _ in _registered(one.cls)]
            check_names(type(self), names, f" of {one.cls.__name__}")

    def _bind_worker_method(self, cls: type) -> list[str]:
        """Make the registered methods of a class methods of this group."""
        for name, attrs in _registered(cls):
            self._methods[name] = _method(name, attrs)
            self.method_names.append(name)
        return self.method_names

    def __getattr__(self, name: str) -> Any:
        """A registered method. It is bound here, so that no group refers to itself."""
        try:
            return MethodType(self.__dict__["_methods"][name], self)
        except KeyError:
            pass
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._methods]


RayWorkerGroup = WorkerGroup


def _registered(cls: type) -> list[tuple[str, dict[str, Any]]]:
    """The names of registered methods, and what they were registered with."""
    attrs = ((name, registration(getattr(cls, name, None))) for name in dir(cls))
    return [(name, one) for name, one in attrs if one is not None]


def _method(name: str, attrs: dict[str, Any]) -> Callable[..., Any]:
    mode, blocking = attrs["dispatch_mode"], attrs["blocking"]
    pair = mode if isinstance(mode, dict) else DISPATCH_MODE_FN_REGISTRY[mode]
    execute = get_predefined_execute_fn(attrs["execute_mode"])["execute_fn_name"]
    one = execute == "execute_rank_zero" or mode in _ONE
    if one and pair in PREDEFINED:  # one worker gets everything
        pair = {"dispatch_fn": dispatch_all_to_all, "collect_fn": collect_all_to_all}
    dispatch, collect = pair["dispatch_fn"], pair["collect_fn"]

    def call(group: WorkerGroup, /, *args: Any, **kwargs: Any) -> Any:
        view = group._view
        args, kwargs = dispatch(group, *args, **kwargs)
        padding = batch.Padding(kwargs.pop(batch.PADDING, 0), args, kwargs)
        if one:
            futures: Any = view.execute_rank_zero_async(name, *args, **kwargs)
        else:
            futures = _call_each(view, name, tuple(args), kwargs)
        output = collect(group, get(futures) if blocking else noted(view, futures))
        if isinstance(output, batch.DataProtoFuture):
            output.padding = padding
            return output
        if mode == Dispatch.DP_COMPUTE_METRIC:
            return output
        return padding.strip(output)

    call.__name__ = call.__qualname__ = name
    return call


def _call_each(
    view: View, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Future]:
    """As `execute_all` does; what several workers get is pickled once."""
    marked, marked_named = each_if_lists(args, kwargs, len(view))
    if not any(type(a) is Each for a in (*marked, *marked_named.values())):
        return view.execute_all_async(method, *args, **kwargs)
    known: dict[tuple[int, ...], int] = {}
    parts: list[tuple[tuple[Any, ...], dict[str, Any] | None]] = []
    which = []
    for rank in range(len(view)):
        mine = tuple(a[rank] for a in args)
        named = {key: value[rank] for key, value in kwargs.items()}
        same = tuple(map(id, (*mine, *named.values())))
        if same not in known:
            known[same] = len(parts)
            parts.append((mine, named or None))
        which.append(known[same])
    how = (view._timeout, False, view._codec)
    calls = _core.call_many(view._peers, view._engine, method, parts, which, *how)
    return [Future(call, method) for call in calls]
