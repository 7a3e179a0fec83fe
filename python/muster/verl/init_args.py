"""ClassWithInitArgs: a worker's class and what its constructor is given."""

from __future__ import annotations

import warnings
from typing import Any

from muster._adapters.actor import plain_class

__all__ = [
    "ClassWithInitArgs",
    "RayClassWithInitArgs",
    "create_colocated_worker_cls",
    "create_colocated_worker_cls_fused",
]

# options of actors that say something here; the others place or name an actor
_USED = ("max_concurrency", "num_cpus", "runtime_env")


class ClassWithInitArgs:
    """Made by the user, constructed in each worker of a group."""

    def __init__(self, cls: Any, *args: Any, **kwargs: Any) -> None:
        self.cls = plain_class(cls)
        self.args = args
        self.kwargs = kwargs
        self.fused_worker_used = False
        self.roles: dict[str, ClassWithInitArgs] = {}  # of a colocated class
        self._options: dict[str, Any] = {}

    def __call__(self) -> Any:
        return self.cls(*self.args, **self.kwargs)

    def update_options(self, options: dict[str, Any]) -> None:
        """max_concurrency, num_cpus, and env_vars of runtime_env; others are warned of."""
        for name in options:
            if name not in _USED:
                warnings.warn(
                    f"option {name!r} says nothing here: a group places and names its "
                    "workers itself",
                    stacklevel=2,
                )
        self._options.update(options)

    def set_additional_resource(self, additional_resource: dict[str, Any]) -> None:
        self.update_options(additional_resource)

    @property
    def name(self) -> str:
        """Of the class; of a colocated one "WorkerDict"."""
        return "WorkerDict" if self.roles else str(self.cls.__name__)

    def worker_fields(self) -> dict[str, Any]:
        """As a WorkerConfig takes them."""
        fields = {k: v for k, v in self._options.items() if k in _USED}
        runtime_env = fields.pop("runtime_env", {})
        fields["env"] = dict(runtime_env.get("env_vars", {}))
        return fields | {"args": self.args, "kwargs": self.kwargs}


RayClassWithInitArgs = ClassWithInitArgs


def create_colocated_worker_cls(
    class_dict: dict[str, ClassWithInitArgs],
) -> ClassWithInitArgs:
    """A class for one group of workers, in each of which all these objects live. The
    group has their registered methods as `role_method`; `spawn` gives a group of each
    role, `fuse` makes those its attributes. In a worker, `self.fused_worker_dict` has all
    objects by role."""
    from muster.verl.worker import Worker

    if not class_dict:
        raise ValueError("no role was given")
    for role, one in class_dict.items():
        if not (isinstance(one.cls, type) and issubclass(one.cls, Worker)):
            raise TypeError(f"role {role!r}: {one.cls!r} is not derived from Worker")
    made = ClassWithInitArgs(Worker)
    made.roles = dict(class_dict)
    return made


def create_colocated_worker_cls_fused(
    class_dict: dict[str, ClassWithInitArgs],
) -> ClassWithInitArgs:
    """The same; in verl this one is newer."""
    made = create_colocated_worker_cls(class_dict)
    made.fused_worker_used = True
    return made
