"""init and shutdown: the session of this process."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import warnings
from contextlib import suppress
from errno import ENOENT, ETIMEDOUT
from time import monotonic

from muster import _core
from muster._arguments import options_checked
from muster._session import launch as _launch
from muster._session import options as _options
from muster._session import package as _package
from muster._session import under_torchrun
from muster._session.logs import LogPump
from muster._session.nodes import Node, NodeWatch, by_name, wait_for
from muster._session.programs import find_executable, interpreter, session_env
from muster.errors import DeadlineExceeded, MusterError, NotInitialized, refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from muster._session.reservation import Reservation

__all__ = [
    "http_address",
    "http_token",
    "init",
    "is_initialized",
    "nodes",
    "on_node",
    "shutdown",
    "status",
]

START_S = 60.0  # of `init`, where no other machines are waited for
ANSWER_S = _core.HEAD_ANSWER_S
_NOT_THE_HEADS = ("dedup_logs", "lent_nodes", "min_nodes", "package")  # options


class Session:
    """What `init` started."""

    def __init__(
        self,
        options: dict[str, Any],
        head: _core.Head,
        package: _package.Package | None = None,
    ) -> None:
        self.package = package
        self.options = options
        self.head = head
        self.pid = os.getpid()
        self.reservations: dict[str, Reservation] = {}  # by name
        self.job: dict[str, Any] | None = (
            None  # what its file says of roles, once asked
        )
        self.is_shared = False  # other processes of this job lend their machines
        self._has_store = False
        self.pump = LogPump(head, options.get("dedup_logs", True))
        self.watch = NodeWatch(head)
        self.watch.is_waiting = options["lender"] is not None  # all that come

    @property
    def code(self) -> str:
        """The folder of the job's package, if there is one: a worker has it later than its
        session where it has to ask the head for it."""
        return self.package.folder if self.package else _package.entered

    def open_store(self) -> None:
        """That of a node of this machine, once there is one."""
        if self._has_store:
            return
        here = _core.host_id()
        for node in self._status():
            if node["alive"] and node["session_dir"] and node["host_id"] == here:
                who = f"driver {os.getpid()}"
                _core.store_open(self.head, node["session_dir"], node["name"], who)
                if warning := _core.store_warning():
                    warnings.warn(warning, RuntimeWarning, stacklevel=2)
                self._has_store = True
                return

    def wait_for_nodes(self, ranks: bool, timeout: float) -> None:
        self.watch.is_waiting = True
        wait_for(self, self.options["min_nodes"], ranks, timeout)
        self.watch.is_waiting = False

    def check_detached(self, detached: bool, error: type[MusterError]) -> None:
        if detached and not self.head.joined:
            raise error(
                "detached=True needs a head that outlives this process: start one with "
                '`muster head`, and muster.init(address="HOST:PORT")'
            )

    def ask(
        self,
        verb: str,
        fields: _core.Message,
        otherwise: type[MusterError],
        timeout: float | None = _core.HEAD_ANSWER_S,
    ) -> _core.Message:
        """The head's answer. `otherwise`: what a refusal is, in general."""
        try:
            return self.head.ask(verb, fields).result(timeout)
        except _core.Refused as e:
            raise refused(e, otherwise) from None

    def nodes(self, timeout: float = ANSWER_S) -> list[Node]:
        """All of the head's, by name: "n2" before "n10"."""
        return sorted(map(Node, self._status(timeout)), key=by_name)

    def _status(self, timeout: float = ANSWER_S) -> list[_core.Message]:
        found: list[_core.Message] = self.head.request("status", {}, timeout)["nodes"]
        return found

    def destroy_clusters(self, grace: float) -> None:
        """All that this driver has made."""
        status = self.head.request("status", {}, ANSWER_S)
        asked = {"own": True, "grace_ns": _core.ns(grace)}
        ends = [
            self.head.ask("destroy", {"name": cluster["name"], **asked})
            for cluster in status["clusters"]
        ]
        for end in ends:
            with suppress(_core.Refused, TimeoutError):
                end.result(grace + ANSWER_S)

    def destroy_cluster(self, name: str, own: bool, uid: int, grace: float) -> None:
        """`own`: only if this driver has made it. `uid`: only if rank 0 is or was that
        one; 0: any. It may be gone already."""
        asked = {"name": name, "own": own, "uid": uid, "grace_ns": _core.ns(grace)}
        try:
            self.head.ask("destroy", asked).result(grace + ANSWER_S)
        except _core.Refused as e:
            text, _, code = e.args
            if code == ETIMEDOUT:
                raise TimeoutError(text) from None
            if code != ENOENT:
                raise MusterError(text) from None


_lock = threading.RLock()
_session: Session | None = None
_inherited: list[Session] = []  # of the process that forked us: never touched again


def session() -> Session:
    """The session of this process, or NotInitialized. A worker joins its own head when
    that is needed first."""
    if _session is None and (host := _core.in_worker()) is not None:
        return _join_from_worker(host)
    if _session is None:
        raise NotInitialized("call muster.init() first")
    return _session


def live_head() -> _core.Head:
    """The session's. A worker joins its head when that is needed first, or again."""
    head = session().head
    if not head.alive and _core.in_worker() is not None:
        shutdown(grace=0)
        head = session().head
    return head


def ask(verb: str, fields: _core.Message, wait: float = 0.0) -> _core.Message:
    """Ask the session's head, which may take `wait` seconds for it."""
    return live_head().request(verb, fields, wait + ANSWER_S)


def holds(timeout: float | None) -> Iterator[float]:
    """How long each question to the head may be held, one question after the other, until
    `timeout` seconds are over; None: two hours."""
    deadline = monotonic() + (_core.WAIT_S if timeout is None else timeout)
    while True:
        left = max(0.0, deadline - monotonic())
        yield min(left, _core.HOLD_MAX_S)
        if left <= _core.HOLD_MAX_S:
            return


def is_initialized() -> bool:
    return _session is not None


def changes() -> int:
    """Of any cluster, that this process knows of: a handle looks again when it grows."""
    host = _core.in_worker()
    if host is not None:
        return host.changes
    return _session.head.changes if _session is not None else 0


def status(timeout: float = ANSWER_S) -> dict[str, Any]:
    """What runs, as `muster status --json` shows it: nodes, drivers, groups and clusters with
    their workers, and in each worker's "activity" what it does now."""
    import json

    asked = session()
    try:
        found: dict[str, Any] = json.loads(asked.head.status(timeout))
    except TimeoutError:
        at = f" at {asked.options['address']}" if asked.head.joined else ""
        raise DeadlineExceeded(
            f"status: the head{at} has not answered within {timeout} s"
        ) from None
    return found


def nodes() -> list[Node]:
    """The machines that lend themselves to this session's head."""
    return session().nodes()


def on_node(callback: Callable[[Node], object]) -> None:
    """Have `callback(node)` called, on a thread of Muster's, when an agent on another
    machine has come, has fallen silent (`node.suspect`) or is heard again, or has gone
    (not `node.alive`; `node.detail` says why)."""
    session().watch.add(callback)


def http_token() -> str:
    """What HTTP clients of this session show: `Authorization: Bearer <token>`."""
    return session().head.http_token


def http_address() -> str | None:
    """Where the head of this process speaks HTTP, "HOST:PORT"; None: nowhere."""
    return session().head.http_address or None


@options_checked
def init(
    address: str | None = None,
    *,
    num_nodes: int | None = None,
    num_cpus: int | None = None,
    num_gpus: int | None = None,
    nodes: str | None = None,
    orchestrator: str | None = None,
    listen: str | None = None,
    min_nodes: int | None = None,
    timeout: float | None = None,
    log_to_driver: bool = True,
    dedup_logs: bool = True,
    secret_file: str | None = None,
    tls: str = "auto",
    http: str | None = None,
    store_limit: int | str | None = None,
    spill: str | os.PathLike[str] | bool = True,
    spill_limit: int | str | None = None,
    working_dir: str | None = None,
    excludes: Sequence[str] = (),
    preload: str | Sequence[str] = (),
) -> None:
    """Start a head in this process and an agent on this machine, and wait for them; or
    join a head that runs already.

    address: "HOST:PORT" of `muster head`, or "auto" for the one of this machine and user;
        None: what MUSTER_ADDRESS says, if anything; "local": a head of our own.
    secret_file: a file with that head's secret; None: what MUSTER_SECRET_FILE says, else
        that of the head of this machine.
    tls: "auto" (everywhere but on loopback), "on", or "off" (a trusted network).
    http: "HOST:PORT" where a head of our own also speaks HTTP (REST and metrics); port 0:
        any, see `http_address()`.
    num_gpus: devices to hand out, also where there are none; None: those that are found.
        Where MUSTER_ADDRESS names a head, as under `muster run`, what that has is used in
        place of num_cpus, num_gpus, num_nodes and nodes, and one line says so.
    num_nodes: so many nodes on this machine, called n0, n1, ..., each with an agent of its
        own, `num_cpus` (None: all of the machine) and `num_gpus` (None: none).
    orchestrator: "local" or "ray" lends all nodes to a head in this process: `num_nodes`
        of them (0: none yet), each with `num_gpus` and `num_cpus`; `reserve()` has more.
        `address` is then the orchestrator's ("http://HEAD:8265", or "local" for a Ray of
        our own), and `listen` where agents find the head (None: found out).
    nodes: a YAML file that describes the nodes of this machine, also unequal ones, as
        `muster plan` has it.
    listen: "HOST:PORT" where a head of our own takes agents of other machines (`muster
        agent --head HOST:PORT`); they have the secret of secret_file.
    min_nodes: return when so many nodes are there; DeadlineExceeded names those that are missing.
        0: of a head that is joined, wait for none.
    timeout: for all of that; None: 60 s, 600 s where machines are waited for, 120 s where
        they are lent.
    log_to_driver: what workers print appears here too, with a prefix.
    dedup_logs: a line that several ranks print within 5 s, but for its numbers, appears
        once, and then once more with "[repeated 7x across cluster]". False, or
        MUSTER_LOG_FOLD=0: all lines appear.
    preload: modules that every worker has, imported once on each node, beginning now:
        "torch". Worth it for what takes long to import; a class's own module needs no
        mention.
    store_limit: bytes, or "20GiB": what objects in shared memory may take on each node of
        this machine; None: 30 % of its memory; 0: no store.
    spill: a folder for unused objects when that limit is reached; True: the
        session's, if it is on a disk; False: nowhere.
    spill_limit: bytes, or "1TiB": what may be there; None: half of what is free.
    working_dir: a folder with the code of the job, which goes to every node that has
        workers, once, by what is in it; they have it as their current folder and first
        on sys.path. Without it they look for code in the same paths as this process.
    excludes: patterns of names and paths in it that stay here, besides .git,
        __pycache__, *.pyc and the like.

    Started on every node with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (one process
    on each node), as by torchrun, rank 0 listens and waits for WORLD_SIZE nodes; on the
    others `init` lends the machine until the job ends, and then ends the process.

    Everything ends with `shutdown()`, or with this process, however that ends; of a head
    that was joined, the clusters of this process that are not detached. A second call
    that asks for the same does nothing, as in a notebook's cell that is run again; one
    that asks for something else is an error.
    """
    global _session
    asked = dict(locals())
    if _core.in_worker() is not None:
        raise MusterError(
            "init() is for drivers: this process is a worker, which makes clusters without it"
        )
    if orchestrator is not None:
        from muster._session import reservation as _lent

        _lent.check(orchestrator, address, num_nodes)
        asked["listen"] = listen or _lent.listen_at(address)
        timeout = _lent.LENT_S if timeout is None else timeout
        min_nodes = None
    dropped = _options.leave_machine_open(asked)
    options = _options.of(asked)
    launch = None
    if address != "local" and _options.is_open(asked, options):
        launch = _launch.find(os.environ)
    options["min_nodes"] = _options.nodes_awaited(
        min_nodes, launch, bool(options["address"])
    )
    if timeout is None:
        timeout = _launch.NODES_S if options["min_nodes"] > 1 else START_S
    _let_others_come(options, launch, secret_file, timeout)
    package = None
    if working_dir is not None:
        package = _package.read(working_dir, excludes)
        options["package"] = package.variable
    with _lock:
        if _is_begun(options):
            return
        begun = monotonic()
        try:
            _session = _start(options, timeout, package)
        except TimeoutError as e:
            raise DeadlineExceeded(f"init: not ready within {timeout} s: {e}") from None
        try:
            left = timeout - (monotonic() - begun)
            if orchestrator is not None:
                whole = orchestrator == "local" and (nodes is None or num_nodes is None)
                _lent.begin(num_nodes, num_gpus, num_cpus, whole, left)
            else:
                _session.is_shared = launch is not None
                if launch is not None and launch.store:
                    _publish(launch, left)
                _session.wait_for_nodes(launch is not None, left)
            if package is not None:
                _package.send(package)
            if dropped:
                _tell_what_is_used(dropped, options["address"])
        except BaseException as e:
            shutdown(grace=0)
            if type(e) is TimeoutError:
                raise DeadlineExceeded(
                    f"init: not ready within {timeout} s: {e}"
                ) from None
            raise


def _publish(launch: _launch.Launch, timeout: float) -> None:
    at = session().head.request("status", {}, timeout)["addresses"]
    under_torchrun.publish(launch.host, launch.port, ",".join(at), timeout)


def _tell_what_is_used(dropped: str, address: str) -> None:
    there = nodes()
    count, gpus = len(there), sum(node.gpus for node in there)
    sys.stderr.write(
        f"muster: init({dropped}): not used, because the head at {address} has "
        f"{count} {'node' if count == 1 else 'nodes'} with {gpus} GPUs for this job\n"
    )


def _is_begun(options: dict[str, Any]) -> bool:
    """Whether there is a session of these options; one of others is an error."""
    if _session is None:
        return False
    if not _session.head.alive:
        shutdown()  # its agent was lost
        return False
    if differ := _options.differences(_session.options, options):
        raise MusterError(
            f"init() was called already, with {differ}: muster.shutdown() first, or ask "
            "for the same"
        )
    return True


def _start(
    options: dict[str, Any], timeout: float, package: _package.Package | None = None
) -> Session:
    env = session_env(os.environ)
    if package is not None:
        env[_package.VARIABLE] = package.variable
    elif _core.in_worker() is None:
        env.pop(_package.VARIABLE, None)  # of a job that has started this one
    sys_path, folder = _package.places()
    head = _core.Head(
        agent_path=find_executable(),
        python=interpreter(),
        sys_path=[os.path.abspath(p) for p in map(str, sys_path)],
        env=[f"{name}={value}" for name, value in env.items()],
        working_dir=folder if package is None else "/",
        script=sys.argv[0] if sys.argv else "",
        timeout=timeout,
        **{k: v for k, v in options.items() if k not in _NOT_THE_HEADS},
    )
    try:
        session = Session(options, head, package)
        session.open_store()
        return session
    except BaseException:
        head.stop(0)
        raise


def _join_from_worker(host: _core.Host) -> Session:
    """What a worker makes ends with it."""
    global _session
    with _lock:
        if _session is None:
            _session = _start(_options.of_worker(host), ANSWER_S)
        return _session


def _let_others_come(
    options: dict[str, Any],
    launch: _launch.Launch | None,
    secret_file: str | None,
    timeout: float,
) -> None:
    """Where a head of our own listens, and with which secret."""
    # Does not return on a node that is only lent.
    options["node_name"] = launch.name if launch else None
    if launch:
        if launch.local_rank > 0:
            raise SystemExit(0)  # another process speaks for this node
        secret = _launch.find_secret(secret_file, launch.host)
        if launch.rank > 0:
            agent = find_executable()
            raise SystemExit(_launch.lend(launch, agent, secret, options, timeout))
        options["listen"] = _launch.listen_at(launch)
        options["secret_file"] = secret
    elif options["listen"] and options["lender"] is None:
        host = options["listen"].rpartition(":")[0].strip("[]")
        options["secret_file"] = _launch.find_secret(secret_file, host)


def shutdown(*, grace: float = _core.STOP_GRACE_S) -> None:
    """End all workers and whatever `init` started, and wait until they are gone.

    Workers get SIGTERM, and SIGKILL `grace` seconds later. Arrays of results that were not
    read yet are fetched first, if they fit. Does nothing if there is nothing to end.
    """
    arrays = sys.modules.get("muster._data.remote_array")
    if _session is not None and arrays is not None:
        arrays.fetch_referred()
    raised = sys.exc_info()[1]
    is_end = isinstance(raised, SystemExit) and not raised.code
    _stop(grace, raised is not None and not is_end)


def _stop(grace: float, failed: bool = False) -> None:
    global _session
    with _lock:
        ending, _session = _session, None
        if ending is None:
            return
        try:
            _core.store_close()
            ending.head.stop(grace, failed and ending.is_shared)
        finally:
            ending.pump.join()
            ending.watch.join()


@atexit.register
def _at_exit() -> None:
    if _session is None or _session.pid != os.getpid():
        return
    if _session.is_shared and _session.head.alive:
        _stop_with_exit_code(_session)
    else:
        _stop(_core.STOP_GRACE_S)


def _stop_with_exit_code(session: Session) -> None:
    """Those that lend their machines end as this process does: its exit code is known
    when Python has ended. Workers end now, while what they print can be shown."""
    session.destroy_clusters(_core.STOP_GRACE_S)
    _core.store_close()
    session.head.stop_at_exit()
    session.pump.join()
    session.watch.join()


def _after_fork() -> None:
    """In a child: the session is its parent's, and a thread that does not exist may hold the lock."""
    global _session, _lock
    _lock = threading.RLock()
    if _session is not None:
        _session.head.forget()
        _core.store_forget()
        _inherited.append(_session)
        _session = None


os.register_at_fork(after_in_child=_after_fork)
