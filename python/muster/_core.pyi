"""The C extension: what the thin Python above it may rely on.

Payloads. `dumps`/`loads` given to `setup` turn objects into bytes and back; the extension
itself pickles plain arguments (numbers, strings, bytes, None, and tuples, lists and dicts
of those, numpy arrays) without asking.

Codecs (wire/frame.h): 0 bytes, one argument and a result; 1 pickle; 2 plain data, whose
tensors `tensor_of` takes apart and `tensor` puts together.

Failures. A failed call becomes an exception through `make_error(kind, message, type,
traceback, exception, exit, where)` given to `setup`; `kind` is one of the names of
Failure.Kind in proto/muster.proto, in lower case ("raised", "worker_died", ...).

Waiting functions let go of the GIL, and run signal handlers (Ctrl-C raises from them).
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict

class ExitInfo(TypedDict):
    signaled: bool
    code: int
    out_of_memory: bool
    requested: bool
    last_lines: list[str]
    node: str
    pid: int
    detail: str
    log_path: str
    unreachable: bool
    how: str  # it ended, in words

version: str

# C facts. Built-in operations and codecs: wire/frame.h; failures, starts, visible devices:
# proto/muster.proto; the rest: base/limits.h.
OP_CONFIGURE: int
OP_SET_ENV: int
OP_CREATE_ENGINE: int
OP_DESTROY_ENGINE: int
OP_LOOK: int
OP_FINISH: int
OP_HTTP_CONFIGURE: int
OP_HTTP_SET_ENV: int
OP_HTTP_CREATE_ENGINE: int
OP_HTTP_CALL: int
CODEC_BYTES: int
CODEC_PICKLE: int
CODEC_PLAIN: int
RAISED: int
NO_ENGINE: int
NO_METHOD: int
CANCELLED: int
BAD_ARGUMENT: int
BAD_RESULT: int
META_MAX: int
NAME_MAX: int  # characters of the name of a cluster, a node or a session
KV_VALUE_MAX: int  # bytes of a value of the key-value store
ANSWER_S: float  # of what an agent or a worker's I/O thread answers
HEAD_ANSWER_S: float  # of a head that may just be coming back
STOP_GRACE_S: float  # SIGTERM until SIGKILL
HOLD_MAX_S: float  # of one question that waits: it is asked again then
SESSION_TTL_S: float  # of sessions of generation without a turn
WAIT_S: float  # for a call, a key or a barrier, unless told otherwise
DTYPES: list[str]  # of tensors in plain data, by their codes

def setup(
    *,
    dumps: Callable[[Any], tuple[bytes, list[Any], list[Held]]],
    dumps_call: Callable[[Any], tuple[bytes, list[Any], list[Held]]],
    dumps_alone: Callable[[Any], tuple[bytes, list[Any], list[Held]]],
    loads: Callable[[Any, list[Any]], Any],
    make_error: Callable[
        [str, str, str, str, bytes, ExitInfo | None, str], BaseException
    ],
    error: type[Exception],
    tensor_of: Callable[[Any], Any],
    tensor: Callable[[int, tuple[int, ...], memoryview], Any],
    site: Callable[[], str],
) -> None:
    """Once, at import. `error` is raised for what fails outside of calls."""

Message = dict[str, Any]  # of proto/muster.proto: its fields by their names

class Refused(LookupError):
    """(text, table, errno): the head refused."""

class Operation:
    """What a head was asked."""

    @property
    def done(self) -> bool: ...
    def result(self, timeout: float | None, /) -> Message:
        """Its answer (None where that has no fields). Refused(text, table,
        errno): the head does not. What workers said is raised as their calls raise it.
        TimeoutError: not yet."""

Kept = Any  # keeps what an argument refers to in the store

def encode_operation(
    argument: Any, codec: int, is_call: bool, /
) -> tuple[int, bytes, list[dict[str, Any]], Kept | None]:
    """(codec, bytes, the objects that they name, what keeps those). Of a call the argument
    is a tuple, the positional ones."""

def decode_answer(codec: int, body: bytes, /) -> Any:
    """What a worker answered."""

def class_is_native(worker_cls: str, /) -> bool:
    """ "library.so:symbol"."""

def role_spec(
    *,
    name: str,
    worker_cls: str,
    start: str | list[str],
    env: list[str],
    preload: list[str],
    python: list[str],
    mesh: dict[str, int],
    visible: str,
    memory: int,
    working_dir: str,
    http_open: bool,
    cpu_milli: int,
    step_ns: int,
    detached: bool,
) -> dict[str, Any]:
    """A ClusterSpec without places and steps, by the rules that C drivers and jobs have.
    worker_cls: its path, or "" for a class that is sent otherwise."""

class Head:
    """The embedded head: starts on construction, or raises `error` saying why not."""

    def __init__(
        self,
        *,
        agent_path: str,
        node_name: str | None,
        num_gpus: int,
        num_cpus: int,
        num_nodes: int,
        nodes: str | None,
        log_to_driver: bool,
        python: list[str],
        sys_path: list[str],
        env: list[str],
        working_dir: str,
        script: str,
        timeout: float,
        address: str | None = None,
        secret_file: str | None = None,
        tls: str = "auto",
        http: str | None = None,
        listen: str | None = None,
        store_limit: int = -1,
        lender: str | None = None,
        lent_by: str | None = None,
        spill: str | None = "",
        spill_limit: int = 0,
        preload: list[str],
    ) -> None:
        """With a lender, an orchestrator, all nodes are lent: lent_by is its address.
        With an address the head that listens there is joined: agent_path, node_name
        and the numbers mean nothing then. Without one, `secret_file` and `listen` let
        agents of other machines come."""

    @property
    def session(self) -> str: ...
    @property
    def session_dir(self) -> str: ...
    @property
    def http_address(self) -> str: ...
    @property
    def http_token(self) -> str: ...
    @property
    def joined(self) -> bool:
        """The head runs elsewhere."""

    @property
    def changes(self) -> int:
        """Of any cluster, that this process knows of."""

    @property
    def is_recording(self) -> bool:
        """A timeline is written."""

    def record(self, path: str | None, /) -> None:
        """Write a timeline to this file, or to that of the session's folder."""
    def record_end(self) -> None: ...
    def add_span(
        self,
        track: str,
        name: str,
        begin_ns: int,
        end_ns: int,
        flow: int,
        nests: bool,
        args: str | None,
        /,
    ) -> None:
        """Times are those of time.monotonic_ns(); args is a JSON object."""
    def add_mark(
        self, track: str, name: str, at_ns: int, args: str | None, /
    ) -> None: ...
    def add_count(self, track: str, name: str, at_ns: int, value: float, /) -> None: ...
    @property
    def alive(self) -> bool:
        """False once the agent is lost or the head was stopped."""

    def ask(self, verb: str, fields: Message, /) -> Operation:
        """Any request of proto/muster.proto: the name of its field in DriverToHead, and its
        fields. What is no field is a TypeError."""

    def request(self, verb: str, fields: Message, timeout: float | None, /) -> Message:
        """The same, and its answer. What the head refuses is FileExistsError, TimeoutError or
        the `error` of `setup`."""

    def status(self, timeout: float | None, /) -> str:
        """JSON: all that there is, with what each worker does."""

    def redirect(self, former: int, uid: int, address: str, /) -> None:
        """Whoever calls the worker `former` from here calls this one."""

    def peer(self, address: str, uid: int, label: str) -> Peer: ...
    def next_logs(self, timeout: float) -> list[tuple[str, int, str, bool, str]] | None:
        """(cluster, rank, node, is_stderr, text); [] after the timeout, None at the end."""

    def next_nodes(self, timeout: float | None) -> list[Message] | None:
        """NodeStatus: agents on other machines that have come, fallen silent, or gone; [] after the
        timeout, None at the end."""

    def stop(self, grace: float, failed: bool = False, /) -> None:
        """End everything and wait for it. Idempotent. `failed`: the driver has, and agents
        that have joined end with exit code 1."""

    def stop_at_exit(self) -> None:
        """The same when Python has ended, and the exit code says whether it has failed."""

    def forget(self) -> None:
        """In a forked child: this is of no use any more. What was inherited is closed
        already."""

def ns(seconds: float, /) -> int:
    """As messages have a duration; 0 if it is not positive."""

def host_id() -> str:
    """Of this machine, as NodeStatus has it."""

def session_root() -> str:
    """The folder of this user's sessions; it exists, and no other user can read it."""

def find_head(
    address: str | None, secret_file: str | None
) -> tuple[str | None, str | None]:
    """Which head a driver means, and the file with its secret: the address and the file,
    found in the environment and among the heads that run here where they are not given;
    (None, None): a head of its own."""

def session_env(driver: list[str]) -> list[str]:
    """The environment that workers start from, "NAME=value", made from the driver's."""

def device_ids(text: str) -> list[int]:
    """Of a device mapping such as "0-7,16"; ValueError says what is wrong with it."""

def parse_size(text: str, /) -> int | None:
    """Bytes, of "512MiB"; None: it is no size."""

def check_env(env: list[str], /) -> None:
    """ValueError for a variable, "NAME=value", that a role cannot have."""

def nearest(
    word: str, candidates: list[str] | tuple[str, ...], /
) -> tuple[str, int] | None:
    """The name that was probably meant, and how many mistakes are in the word."""

class Peer:
    """One worker, seen from here."""

    @property
    def uid(self) -> int: ...
    @property
    def label(self) -> str: ...
    def call(
        self,
        engine: str,
        method: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        timeout: float | None,
        waits: bool = False,
        codec: int = 1,
        /,
    ) -> Call:
        """`waits`: the caller will wait for it before it does anything else."""

    def call_sync(
        self,
        engine: str,
        method: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        timeout: float | None,
        waits: bool = True,
        codec: int = 1,
        /,
    ) -> Any:
        """call().result(), in one step: the fast path."""

    def operation(
        self, op: int, argument: Any, timeout: float | None, codec: int = 1, /
    ) -> Call:
        """A built-in operation of the engine's thread (wire/frame.h, enum ms_op)."""

    def control(self, name: str, fields: Message, timeout: float, /) -> Message:
        """ "health", "stack" or "alloc_ports", which the worker's I/O thread answers."""

def call_many(
    peers: list[Peer],
    engine: str,
    method: str,
    parts: list[tuple[tuple[Any, ...], dict[str, Any] | None]],
    which: list[int] | None,
    timeout: float | None,
    waits: bool,
    codec: int,
    /,
) -> list[Call]:
    """Peer i is called with parts[which[i]], or all with the first; each part is encoded
    once. None is the call where which[i] is -1."""

# chunks, chunk of each rank (-1: not called), who gets the rows, who collects, and those
# that collect in the order of their results
Vectors = tuple[int, list[int], list[bool], list[bool], list[int]]

def dispatch_vectors(mode: str, ranks: list[tuple[int, int, int, int]], /) -> Vectors:
    """Of ranks at (tp, cp, dp, pp); src/dispatch/dispatch.h. ValueError says why not."""

def dispatch_registered(ranks: list[tuple[int, bool]], /) -> Vectors:
    """Of ranks that have registered (dp_rank, is_collect)."""

def mesh_ranks(
    world_size: int, tp: int, cp: int, dp: int, pp: int, ep: int, /
) -> list[tuple[int, int, int, int]]:
    """(tp, cp, dp, pp) of each rank; sizes of 0 are found out."""

def chunk_bounds(rows: int, chunks: int, /) -> list[int]:
    """Where each chunk begins, and the end of the last."""

def wait_all(calls: list[Call], seconds: float, /) -> bool:
    """Wait for all of them, for a moment only: signals are not looked at. True if each
    is done, or has an item."""

class Call:
    @property
    def peer(self) -> Peer: ...
    def done(self) -> bool: ...
    def failed(self) -> bool:
        """It is done, and its result is a failure."""

    def wait(self, timeout: float | None) -> bool:
        """True when it is done; False after the timeout."""

    def result(self) -> Any:
        """Of a done call: the value, or the failure raised. The same object each time.
        A stream that was not asked for item by item gives a `Stream`."""

    def cancel(self) -> None: ...
    def is_stream(self) -> bool:
        """An item has arrived, or it ended as a stream. Meaningful once known."""

    def next_item(self, timeout: float | None) -> tuple[bool, Any]:
        """(True, item), or (False, None) at the end; raises what the generator raised,
        TimeoutError after the timeout."""

    def try_item(self) -> tuple[int, Any]:
        """(1, item); (0, None): none is there yet; (-1, None): ended."""

    def stored(self) -> tuple[bytes, list[Held]] | None:
        """A result that is in a store and was not yet read."""

    def notify(self, inbox: Inbox, tag: int) -> None: ...

class Inbox:
    """Completions for an event loop: readable when `take` has something."""

    def __init__(self) -> None: ...
    def fileno(self) -> int: ...
    def take(self) -> list[int]: ...
    def rest(self) -> None:
        """Nobody waits for it any more."""

# ---- inside a worker ------------------------------------------------------------------

def zygote_next(fd: int) -> tuple[Any, ...] | None:
    """See src/agent/zygotes/process.h."""

def zygote_spare(fd: int) -> tuple[Any, ...] | None: ...
def zygote_loaded(fd: int, path: str, size: int, mtime_ns: int) -> None: ...
def zygote_changed(fd: int, entry: str) -> None: ...
def zygote_ready(fd: int, problem: str, forkable: bool) -> None: ...
def zygote_started(fd: int, uid: int, pid: int, errno: int) -> None: ...
def zygote_child(fd: int) -> int: ...
def zygote_fill() -> None:
    """Before forks: children begin with memory of their own (python/core/worker/zygote_fill.c)."""

def zygote_threads() -> int: ...

class Host:
    """The worker's RPC server; one per process, for as long as it lives.

    handler(op, argument) runs a built-in operation, resolve(engine, method) gives the
    engine that has the method, describe(exception, kind) gives (kind, type, message, traceback, pickled).
    """

    def __init__(
        self,
        control_fd: int,
        listen_fd: int,
        listen_tcp_fd: int,
        handler: Callable[[int, Any], Any],
        resolve: Callable[[str, str], Any],
        describe: Callable[[BaseException, int], tuple[int, str, str, str, bytes]],
        /,
    ) -> None: ...
    @property
    def changes(self) -> int:
        """Of any cluster, that this worker's agent has told of."""

    @property
    def uid(self) -> int: ...
    @property
    def cluster(self) -> str: ...
    @property
    def rank(self) -> int: ...
    @property
    def node(self) -> str: ...
    @property
    def address(self) -> str:
        """By which others reach this node."""

    def hold_port(self) -> int:
        """A free port of that address, bound and not listening until the process ends."""

    @property
    def head(self) -> tuple[str, str]:
        """Where the head is, and "auto", "on" or "off" for TLS."""

    @property
    def sys_path(self) -> list[str]: ...
    @property
    def preload(self) -> list[str]:
        """The modules that the driver wants in all its workers."""

    @property
    def stack(self) -> tuple[int, int]:
        """The signal for stacks of Python, and the descriptor that they go to."""

    @property
    def wake_fd(self) -> int:
        """A byte written here makes `serve` look for signals."""

    def debug_open(self, where: str, /) -> bool:
        """The program waits there; True: a client has attached."""

    def debug_write(self, text: str, /) -> None: ...
    def debug_read(self, prompt: str, /) -> str:
        """Block until a client has typed a line."""

    def debug_close(self) -> None:
        """The program goes on."""

    def serve(self) -> None:
        """Run requests, one at a time, in order, until `stop`."""

    def stop(self) -> None: ...
    def become_async(self) -> int:
        """A descriptor that is readable when `poll` has something, or a request was
        cancelled. There is no way back to `serve`."""

    def poll(self) -> Request | None: ...
    def peer(self, address: str, uid: int, label: str) -> Peer: ...
    def set_engines(self, names: list[str]) -> None:
        """What health reports; forgets what `resolve` gave."""

    def shard_add(
        self, id: str, dtype: str, shape: str, memory: Any, offset: int, nbytes: int, /
    ) -> None:
        """Keep a tensor for HTTP (/data): so many bytes of a Held, or a copy of another
        buffer. The shape is JSON."""

    def shard_find(
        self, id: str, /
    ) -> tuple[str, str, str, list[tuple[Any, int, int]], int] | None:
        """Its type ("tensor"), dtype, shape, the pieces of its bytes (memory, offset, bytes
        of it), and how many these are in all."""

    def shard_remove(self, id: str, /) -> bool: ...
    def end(self) -> None: ...
    def terminate(self, signum: int, /) -> bool:
        """For the handler of SIGTERM: raises SystemExit, and again until `leave`.
        True: it was raised for so long that it will not help."""

    def give_time(self, seconds: float, /) -> None:
        """The event loop ends by itself: do not raise within so many seconds."""

    def hold(self, on: bool, /) -> None:
        """The engines clean up: SIGTERM waits."""

    def leave(self) -> None:
        """The end has begun: SIGTERM no longer interrupts anything."""

    @property
    def is_ending(self) -> bool:
        """SIGTERM has come."""

    def forget(self) -> None:
        """In a forked child: close what was inherited."""

class Request:
    """A call that waits for its answer; exactly one `reply` or `fail`."""

    @property
    def op(self) -> int: ...
    @property
    def cancelled(self) -> bool: ...
    @property
    def is_remote(self) -> bool:
        """Objects of other nodes are in its argument: to read that takes time."""

    def function(self) -> Callable[..., Any] | None:
        """The bound method; None for a built-in operation."""

    def argument(self) -> Any:
        """Once."""

    def reply(self, value: Any) -> None: ...
    def fail(self, error: BaseException, kind: int) -> None: ...
    def begin_stream(self) -> None: ...
    def item(self, value: Any) -> int:
        """1: sent; 0: the window is closed; -1: the caller has gone."""

def in_worker() -> Host | None: ...
def progress() -> None: ...

class Rows:
    """Which rows of which blocks; constant (src/batch/rows.h)."""

    def __init__(self, count: int) -> None: ...
    def __len__(self) -> int: ...
    @property
    def view(self) -> tuple[int, int, int] | None:
        """(block, first, step) where all rows are one run."""
    @staticmethod
    def concat(parts: list[tuple[Rows, list[int]]], /) -> Rows:
        """With each, what its blocks are called in the result."""
    @staticmethod
    def load(runs: bytes, /) -> Rows: ...
    def slice(self, first: int, count: int, step: int, /) -> Rows: ...
    def take(self, indexes: Any, /) -> Rows:
        """int64."""
    def repeat(self, times: int, interleave: bool, /) -> Rows: ...
    def same(self, other: Rows, /) -> bool:
        """True: the same rows in the same order. False may mean: not found out."""
    def spans(self, blocks: int, /) -> list[tuple[int, int, int, int]]:
        """(block, first, end, rows) of each block that has rows here."""
    def moved(self, to: list[tuple[int, int]], /) -> Rows:
        """Row `first` of each block is row 0 of `block` then."""
    def packed(self) -> tuple[Rows, list[int]]:
        """The same without blocks that have no rows, and what its blocks are here."""
    def where(self, blocks: Any, rows: Any, /) -> None:
        """Write block and row of each, int64."""
    def gather(self, blocks: list[Any], row_bytes: int, out: Any, /) -> None: ...
    def gather_ragged(
        self,
        values: list[Any],
        offsets: list[Any],
        element_bytes: int,
        out: Any,
        wants_offsets: bool,
        /,
    ) -> None: ...

def partition(
    weights: Any, parts: int, differencing: bool, equal: bool, out: Any, /
) -> None:
    """int64 in, the part of each row as uint32 out (src/batch/partition.h)."""

# ---- the store ------------------------------------------------------------------------

class RolloutSample(NamedTuple):
    tokens: list[int]
    logprobs: list[float] | None
    versions: list[int]
    finish_reason: str
    replica: int  # -1: none
    attempt: int
    seq: int
    rid: str
    failure: str
    is_done: bool  # it belongs to the group

class RolloutGroup(NamedTuple):
    id: int
    key: int
    why: str | None  # it was dropped
    samples: list[RolloutSample]

class RolloutMark(NamedTuple):
    at_ns: int
    name: str  # of the event or decision
    is_decision: bool
    request: int
    group: int
    seq: int
    replica: int  # -1: none
    attempt: int
    tokens: int
    version: int
    why: str | None

class Rollout:
    """Generation on clusters (src/rollout/rollout.h). Nothing waits but `wait`: None means
    not yet."""

    def __init__(
        self,
        *,
        engine: str,
        role: str | None,
        policy: str,
        seed: int,
        chunk: int,
        max_staleness: int,
        batch: int,
        filter: bool,
        poison: int,
        silence: float,
        probe: float,
        rebalance: float,
        ageing: float,
        max_bias: float,
        history: str | None,
        history_prompts: int,
        version: int,
        slots: int,
        kv_tokens: int,
        mesh: tuple[int, int, int],  # tp, cp, pp
        session_ttl: float,
    ) -> None: ...
    @staticmethod
    def history_of(role: str, /) -> str | None:
        """The file of the history that it has where none is given: None is none."""

    @property
    def version(self) -> int: ...
    def close(self) -> None: ...
    def wait(self, seen: int, seconds: float | None, /) -> int:
        """The number of news, as soon as it is not `seen`, at most after that time."""

    def listen(self) -> int: ...
    def unlisten(self, fd: int, /) -> None: ...
    def follow(self, peers: list[Peer], /) -> None:
        """The workers of the role now, by rank. What is not so yet becomes so by itself."""

    def limit(self, replicas: int | None, /) -> bool | None:
        """Replicas from this number on are not used. None: some still have requests."""

    def drain(self, ranks: list[int], /) -> bool | None: ...
    def undrain(self, ranks: list[int], /) -> None: ...
    def rank(self, replica: int, /) -> int:
        """The first one of it."""

    def submit(
        self,
        key: int,
        prompt: Any,
        sampling: dict[str, Any] | None,
        samples: int,
        surplus: int,
        keeps_surplus: bool,
        prompt_tokens: int,
        max_new_tokens: int,
        hint: int,
        session: int,  # 0: none
        seconds: float | None,
        before: tuple[bytes, bytes | None, bytes] | None,
        /,
    ) -> int: ...
    def session_open(self, key: int, turn: int, /) -> int: ...
    def session_finish(self, session: int, /) -> None: ...
    def session_replica(self, session: int, /) -> int | None: ...
    def pull(self, groups: int, /) -> list[RolloutGroup] | None: ...
    def lease(self, groups: int, /) -> tuple[int, list[RolloutGroup]] | None: ...
    def consumed(self, batch: int, /) -> None: ...
    def give_back(self, batch: int, /) -> None: ...
    def take(self, group: int, /) -> RolloutGroup | None: ...
    def take_dropped(self) -> RolloutGroup | None: ...
    def judge(self) -> RolloutGroup | None: ...
    def verdict(self, group: int, keep: bool, /) -> None: ...
    def take_refill(self) -> int: ...
    def cancel(self, group: int, /) -> None: ...
    def cancel_rid(self, rid: str, /) -> None: ...
    def cancel_all(self) -> None: ...
    def rid(self, group: int, seq: int, /) -> str: ...
    def weights_begin(
        self, version: int, mode: int, rolling: bool, seconds: float | None, /
    ) -> None: ...
    def weights_next(self) -> int | None:
        """-1: there is none left."""

    def weights_ready(self, replica: int, /) -> None: ...
    def weights_failed(self) -> None: ...
    def restored(self, rank: int, /) -> bool | None: ...
    def pause(self, mode: int, /) -> None: ...
    def is_paused(self) -> bool: ...
    def resume(self) -> None: ...
    def stats(self) -> dict[str, Any]: ...
    def explain(self, rid: str, /) -> dict[str, Any]: ...
    def marks(self, number: int, /) -> tuple[list[RolloutMark], int]: ...

class Staleness:
    """How many rollouts may begin: AReaL's rule (src/generate/staleness.h).

    Not locked: for one thread, or under a lock of its user's.
    """

    max_concurrent: int
    batch: int
    max_staleness: int
    def __init__(self, max_concurrent: int, batch: int, max_staleness: int) -> None: ...
    @property
    def enqueued(self) -> int: ...
    @property
    def running(self) -> int: ...
    @property
    def accepted(self) -> int: ...
    @property
    def rejected(self) -> int: ...
    @property
    def pending_max(self) -> int: ...
    def capacity(self, version: int, /) -> int: ...
    def enqueue(self) -> None: ...
    def submit(self) -> None: ...
    def accept(self) -> None: ...
    def reject(self) -> None: ...
    def recover(self, version: int, /) -> None:
        """Restored at this version: so many batches were accepted, nothing runs."""

class Replay:
    """Which prompts may begin and which are handed out: ROLL's rules
    (src/generate/replay.h). Nothing waits in here; not locked."""

    def __init__(self, ratio: float, additional: bool, additional_max: int) -> None: ...
    @property
    def budget(self) -> int: ...
    @property
    def running(self) -> int: ...
    @property
    def additional(self) -> int: ...
    @property
    def completed(self) -> int: ...
    @property
    def used(self) -> int: ...
    def advance(self, step: int, batch: int, /) -> None: ...
    def poll(self) -> int: ...
    def admit(self, id: int, /) -> bool:
        """False: there is no place yet."""
    def begin(self, id: int, /) -> int | None:
        """The step that it is bound to; None: wait for the next one. LookupError: it was
        aborted."""
    def commit(self, id: int, samples: int, /) -> bool:
        """False: it was committed, aborted or collected before."""
    def abort(self, id: int, /) -> None: ...
    def want(self, samples: int, /) -> None: ...
    def take(self) -> tuple[list[int], bool]:
        """Prompts of the batch, and whether it is whole."""
    def unwant(self) -> None: ...
    def gc(self) -> tuple[list[int], list[int]]:
        """Prompts that ran, and finished ones that were not taken."""

class Held:
    """An object of the store that this process holds; its bytes are its buffer."""

    @property
    def node(self) -> int: ...
    @property
    def id(self) -> int: ...
    @property
    def nbytes(self) -> int: ...

def store_open(head: Head, folder: str, node: str, name: str) -> bool:
    """Of a driver. False: there is none."""

def store_close() -> None: ...
def store_forget() -> None:
    """In a forked child."""

def store_empty(nbytes: int, site: str) -> Any:
    """A Held with a buffer that can be written."""

def store_map_private(buffer: Any, nbytes: int) -> Any:
    """The memory from the buffer's beginning on, in one object of the store, as something
    that this process may write privately. None: copy it."""

def spare_new(nbytes: int) -> Any:
    """Memory to be written, perhaps used before: what is in it is not defined. Whatever
    points into it keeps it. None: so little that it is not worth it."""

def spare_stats() -> tuple[int, int]:
    """Bytes that are kept to be used again; how often one was."""

def store_put(value: Any) -> tuple[bytes, list[Held]]: ...
def store_get(meta: bytes) -> Any: ...
def store_hold(meta: bytes) -> tuple[bytes, list[Held]]: ...
def store_node() -> tuple[int, int] | None:
    """(id, limit) of this process's store."""

def store_stats(with_objects: bool, /) -> Message:
    """A StoreStats; with the oldest objects too, if that is wanted."""

def ask_jobs(verb: str, fields: dict[str, Any], timeout: float, /) -> str:
    """Ask the head that hosts this user's jobs once; JSON, as the program prints it."""

def jobs_elsewhere() -> list[str]:
    """Names of this user's jobs whose head is on other machines."""

def check_engine_name(name: str) -> None: ...
def store_warning() -> str: ...
def store_copied() -> int: ...

# Sizes in bytes at which the path of a payload forks (src/store/payload.h).
PAYLOAD_BUFFER_MIN: int
PAYLOAD_ARRAY_MIN: int
PAYLOAD_MATES_MAX: int

# Bytes in a store that are read only when they are wanted.
PieceName = tuple[int, int, int, int, str]

def piece_can() -> bool:
    """Whether this process has a store to write to."""

def piece_write(buffers: list[Any]) -> list[tuple[Held, int]]:
    """Of each its object, and where in it; what lies in the store already is not
    copied."""

def piece_is_stored(buffer: Any) -> bool: ...
def piece_count(nbytes: int) -> None:
    """So many were written into what store_empty gave."""

def piece_name(held: Held) -> PieceName: ...
def piece_hold(name: PieceName) -> Held:
    """Without its bytes."""

def piece_read(wanted: list[tuple[Held, int, int]]) -> list[tuple[Any, int, bool]]:
    """Of each object, from an offset on, so many bytes, from its node if need be: memory,
    where in it they are, and whether it has them alone."""
