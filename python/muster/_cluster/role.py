"""What a job's file says of a role, beside what its driver says of the same cluster."""

# `muster run` puts it into the head's store (src/cli/run/job.c): {"file": NAME, "roles":
# {NAME: ROLE}, "generation": SETTINGS}, as the file has it. The head does so for a submitted job, with the job's
# name behind the key (src/head/jobs/spec.c), and creates the roles that have a class.

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from contextlib import suppress

from muster import _core, api
from muster.config import WorkerConfig
from muster.errors import ClusterError
from muster.groups import Bundle, amounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KEY = "muster/job"
_PLACES = ("bundle", "strategy", "same")
_NOT_CONFIG = ("worker_cls", *_PLACES)
_BUNDLE_KEYS = {"GPU": "gpus", "CPU": "cpus"}


def roles() -> dict[str, dict[str, Any]]:
    """What the job's file says of each of its roles, in a driver or worker of a job; else
    nothing. `{name: muster.Cluster(name) for name in muster.roles()}` makes them all
    where the file names their classes."""
    found: dict[str, dict[str, Any]] = _job(api.session())["roles"]
    return {name: dict(role) for name, role in found.items()}


def generation() -> dict[str, Any]:
    """What the job's file says of its generation schedulers; without a session nothing."""
    if not api.is_initialized() and _core.in_worker() is None:
        return {}
    return dict(_job(api.session()).get("generation") or {})


def _job(session: api.Session) -> dict[str, Any]:
    """Asked for once. A head in this process has no job."""
    if session.job is None and session.head.joined:
        import json

        job = submitted()
        key = f"{KEY}/{job}" if job else KEY
        entry = session.head.request("kv_get", {"key": key}, api.ANSWER_S)
        session.job = json.loads(entry["value"]) if entry["key"] else None
    if session.job is None:
        session.job = {"file": "", "roles": {}}
    return session.job


def submitted() -> str | None:
    """The name of the submitted job that this process is of; None: it is of none."""
    return os.environ.get("MUSTER_JOB") or None


def _no_role(job: dict[str, Any], name: str) -> str:
    return f"{job['file']} has no role {name!r}; it has {', '.join(job['roles'])}"


class Role:
    """A role as its file has it."""

    def __init__(self, file: str, name: str, fields: dict[str, Any]) -> None:
        self.file = file
        self.name = name
        self.fields = fields

    @classmethod
    def find(cls, session: api.Session, name: str, is_needed: bool) -> Role | None:
        """None: nothing is said of it. `is_needed`: that is an error where there are
        others."""
        job = _job(session)
        fields = job["roles"].get(name)
        if fields is not None:
            return cls(job["file"], name, fields)
        if is_needed and job["roles"]:
            raise ClusterError(_no_role(job, name))
        return None

    def merge(
        self, worker_cls: Any, config: WorkerConfig, given: set[str], where: object
    ) -> tuple[Any, WorkerConfig]:
        """The class and the config of the cluster: what the driver has not `given` is as
        the file says; ClusterError names all in which they differ."""
        said = {k: v for k, v in self.fields.items() if k not in _NOT_CONFIG}
        try:
            ours = WorkerConfig(**said)
        except (TypeError, ValueError) as e:
            raise ClusterError(f"{self.file}: role {self.name!r}: {e}") from None
        differ: list[str] = []
        taken: dict[str, Any] = {}
        for name in said:
            here, there = getattr(config, name), getattr(ours, name)
            if name == "env":
                differ += _differences(here, there)
                taken[name] = there | here
            elif name not in given:
                taken[name] = there
            elif not _is_same(name, here, there):
                differ.append(f"{name} is {here!r} here and {there!r} there")
        path = self.fields.get("worker_cls")
        if path and worker_cls is not None and not _is_class(worker_cls, path):
            differ.append(f"worker_cls is {_path_of(worker_cls)} here and {path} there")
        if self.has_places and where is not None:
            differ.append("resource_manager is given here and a bundle there")
        if differ:
            raise ClusterError(
                f"role {self.name!r} is another one in {self.file} than here: "
                f"{'; '.join(differ)}. Leave it out in one of them"
            )
        return worker_cls or path, config.replace(**taken)

    @property
    def is_controllers(self) -> bool:
        """In a submitted job: the controller creates it, before the driver starts."""
        return bool(submitted() and self.fields.get("worker_cls"))

    def check_created(self, config: WorkerConfig, where: object) -> None:
        """Its workers are there: nothing can be added to them."""
        more = sorted(config.env.keys() - self.fields.get("env", {}).keys())
        if more or where is not None:
            what = "resource_manager" if where is not None else f"env {more}"
            raise ClusterError(
                f"role {self.name!r} was created by the job's controller, as {self.file} "
                f"says: {what} cannot be added here. Put it into the file"
            )

    @property
    def has_places(self) -> bool:
        """Its ranks stand in bundles."""
        return "bundle" in self.fields

    def request(
        self, cluster: str, session: api.Session, config: WorkerConfig
    ) -> _core.Message:
        """What is asked of placement: the cluster brings its bundles along, or those of
        the role whose they are."""
        fields, name = self.fields, cluster
        if isinstance(fields["bundle"], str):
            name = fields["bundle"]
            fields = _job(session)["roles"][name]
        bundle = {_BUNDLE_KEYS.get(k, k): v for k, v in fields["bundle"].items()}
        group = {"name": name, "bundles": [Bundle(**bundle)._message]}
        group |= {k: fields[k] for k in ("strategy", "same") if k in fields}
        count = config.world_size or 1
        return {"scope": {}, "world_size": count, "own_group": group, **amounts(config)}


def no_class(session: api.Session, name: str, role: Role | None) -> TypeError:
    job = _job(session)
    if role is not None:
        why = f"{role.file} has none for this role"
    elif job["roles"]:
        why = _no_role(job, name)
    else:
        why = "no job's file says it here (`muster run job.yaml` starts a driver with one)"
    return TypeError(f"Cluster({name!r}): worker_cls is missing: {why}")


def _differences(here: dict[str, str], there: dict[str, str]) -> list[str]:
    return [
        f"env[{name!r}] is {here[name]!r} here and {there[name]!r} there"
        for name in here.keys() & there.keys()
        if here[name] != there[name]
    ]


def _is_same(name: str, here: Any, there: Any) -> bool:
    if name == "device_mapping":
        here, there = (
            _core.device_ids(ids) if isinstance(ids, str) else ids
            for ids in (here, there)
        )
    return bool(here == there)


def _path_of(worker_cls: Any) -> str:
    if not isinstance(worker_cls, type):
        return str(worker_cls).replace(":", ".")
    module = worker_cls.__module__
    if module == "__main__":  # as others would import it
        script = getattr(sys.modules[module], "__file__", None) or ""
        module = os.path.basename(script).removesuffix(".py")
    return f"{module}.{worker_cls.__qualname__}"


def _is_class(worker_cls: Any, path: str) -> bool:
    """Also where the path leads to it by another name, as one of a package does that has
    it from its modules."""
    there = _path_of(path)
    if _path_of(worker_cls) == there:
        return True
    if not isinstance(worker_cls, type):
        return False
    module, _, name = there.rpartition(".")
    if worker_cls.__module__ == "__main__":  # importing it would run it again
        return worker_cls.__qualname__ == name and _is_script(module)
    with suppress(Exception):
        return getattr(importlib.import_module(module), name) is worker_cls
    return False


def _is_script(module: str) -> bool:
    """Is it what this process runs?"""
    script = getattr(sys.modules["__main__"], "__file__", None) or ""
    with suppress(Exception):
        spec = importlib.util.find_spec(module)
        return bool(spec and spec.origin and os.path.samefile(spec.origin, script))
    return False
