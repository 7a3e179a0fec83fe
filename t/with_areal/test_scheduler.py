"""MusterScheduler as AReaL's controllers use it, and what can go wrong."""

import asyncio
import gc
import getpass
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import muster
import pytest
import requests
import torch
from areal.api import Job, Scheduler
from areal.api.cli_args import (
    BaseExperimentConfig,
    ClusterSpecConfig,
    NameResolveConfig,
    SchedulingSpec,
    SchedulingStrategy,
)
from areal.infra.rpc.rtensor import RTensor, clear_fetch_buffer
from areal.infra.scheduler.exceptions import (
    EngineCallError,
    EngineCreationError,
    EngineImportError,
    WorkerCreationError,
    WorkerFailedError,
    WorkerNotFoundError,
    WorkerTimeoutError,
)
from areal.utils import seeding
from areal_engines import Engine
from helpers import until
from muster.areal import MusterScheduler
from muster.areal.shards import ShardId

ENGINE = f"{Engine.__module__}.Engine"
pytestmark = pytest.mark.filterwarnings("ignore:http_open")


def spec(**fields: Any) -> SchedulingSpec:
    return SchedulingSpec(**{"cpu": 0, "mem": 0, "gpu": 1, **fields})


def beside(target: str, fork: bool = True) -> SchedulingStrategy:
    return SchedulingStrategy(type="colocation", target=target, fork=fork)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def made(session: Any, folder: Path) -> Iterator[Any]:
    names = {"experiment_name": "e", "trial_name": "t", "fileroot": str(folder)}
    yield MusterScheduler(**names)


@pytest.fixture
def scheduler(made: Any) -> Iterator[Any]:
    yield made
    clear_fetch_buffer()
    made.delete_workers()
    assert muster.ResourceManager().placement_group([{"GPU": 4}]).remove() is None


@pytest.fixture
def create(scheduler: Any) -> Callable[..., Any]:
    """Makes the workers of a role, with an engine in each if they are not another's."""

    def make(role: str, replicas: int = 1, engine: str = ENGINE, **fields: Any) -> Any:
        strategy = fields.pop("strategy", SchedulingStrategy())
        tasks = fields.pop("tasks", None) or [spec(**fields)]
        job = Job(role=role, replicas=replicas, tasks=tasks)
        job.scheduling_strategy = strategy
        ids = scheduler.create_workers(job)
        for index, worker_id in enumerate(ids):
            name = f"{role}/{index}"
            asyncio.run(scheduler.create_engine(worker_id, engine, name))
        return ids

    return make


# ---- workers --------------------------------------------------------------------------


def test_workers_have_ids_addresses_and_ports(scheduler: Any, create: Any) -> None:
    assert isinstance(scheduler, Scheduler)
    assert scheduler.n_gpus_per_node == 4
    assert create("actor", 2, port_count=3) == ["actor/0", "actor/1"]
    workers = scheduler.get_workers("actor", timeout=30)
    assert [w.id for w in workers] == ["actor/0", "actor/1"]
    ports = [p for w in workers for p in w.worker_ports]
    assert len(set(ports)) == 6 and all(isinstance(p, str) for p in ports)
    for worker in workers:
        url = f"http://{worker.ip}:{worker.worker_ports[0]}"
        health = requests.get(f"{url}/health", timeout=10).json()
        assert health["status"] == "healthy" and health["engines"] == [worker.id]
        with socket.socket() as store:  # as torch binds MASTER_PORT
            store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            store.bind((worker.ip, int(worker.worker_ports[1])))
            store.listen()


def test_environment(scheduler: Any, create: Any) -> None:
    tricky = {"NCCL_IB_HCA": "mlx5_0,mlx5_1", "OPTIONS": "a=1,b=2", "PATHS": " x y=,"}
    create("actor", 1, env_vars=tricky | {"OMP_NUM_THREADS": "3"}, cpu=2)
    asyncio.run(scheduler.set_worker_env("actor/0", {"RANK": "7", "X": "=,="}))
    asyncio.run(scheduler.set_worker_env("actor/0", {}))
    names = (*tricky, "RANK", "X", "CUDA_VISIBLE_DEVICES", "MKL_NUM_THREADS")
    seen = scheduler.call_engine("actor/0", "environ", None, *names)
    assert seen == [*tricky.values(), "7", "=,=", "0", "2"]
    assert scheduler.call_engine("actor/0", "threads") == 3


def test_each_worker_has_its_own_task(scheduler: Any, create: Any) -> None:
    tasks = [
        spec(gpu=1, env_vars={"A": "0", "B": "b"}),
        spec(gpu=2, env_vars={"A": "1"}),
    ]
    create("actor", 2, tasks=tasks)
    ask = ("environ", None, "A", "B", "CUDA_VISIBLE_DEVICES")
    (a, b, one), (c, d, two) = (
        scheduler.call_engine(f"actor/{i}", *ask) for i in (0, 1)
    )
    assert (a, b, c, d) == ("0", "b", "1", None)
    assert (len(one), len(two)) == (1, 3)


def test_the_platform_is_found_out_in_the_worker(scheduler: Any, create: Any) -> None:
    create("actor", 1)
    assert "uninitialized" in scheduler.call_engine("actor/0", "platform")


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        ({"replicas": 0}, "at least 1"),
        ({"replicas": 3, "tasks": [spec(), spec()]}, "one for each"),
        ({"replicas": 5}, "devices|free|bundle"),
        ({"replicas": 1, "tasks": [spec(gpu=5)]}, "5 devices asked for, 4 free"),
        ({"replicas": 1, "tasks": [spec(cmd="python -m x --port 3")]}, "--port"),
        ({"replicas": 1, "tasks": [spec(cmd="python -m http.server")]}, "Muster's own"),
        ({"replicas": 2, "scheduling_strategy": beside("")}, "target"),
        ({"replicas": 3, "scheduling_strategy": beside("there")}, "do not match"),
        (
            {"replicas": 1, "scheduling_strategy": beside("there", False)},
            "do not match",
        ),
    ],
)
def test_jobs_that_cannot_be(
    scheduler: Any, create: Any, job: dict[str, Any], reason: str
) -> None:
    create("there", 2, gpu=0)
    job = {"role": "actor", "tasks": [spec()], **job}
    with pytest.raises(WorkerCreationError, match=reason) as caught:
        scheduler.create_workers(Job(**job))
    assert caught.value.worker_key == "actor"
    with pytest.raises(WorkerNotFoundError):
        scheduler.get_workers("actor")
    create("actor", 4)  # nothing is held


def test_roles_are_unique_and_targets_exist(scheduler: Any, create: Any) -> None:
    create("actor", 1)
    with pytest.raises(WorkerCreationError, match="exists"):
        create("actor", 1)
    with pytest.raises(WorkerCreationError, match="exists"):
        scheduler.fork_workers("actor", "actor")
    with pytest.raises(WorkerNotFoundError, match="nobody"):
        create("ref", 1, strategy=beside("nobody"))
    with pytest.raises(WorkerNotFoundError, match="nobody"):
        scheduler.fork_workers("ref", "nobody")
    for unknown in ("ref/0", "actor/1", "actor/x", "actor", ""):
        with pytest.raises(WorkerNotFoundError):
            scheduler.call_engine(unknown, "run")
    scheduler.delete_workers("nobody")  # is no error


# ---- colocation -----------------------------------------------------------------------


def test_colocated_in_the_same_processes(scheduler: Any, create: Any) -> None:
    create("actor", 2)
    assert create("ref", 2, strategy=beside("actor", False)) == ["actor/0", "actor/1"]
    assert [w.id for w in scheduler.get_workers("ref")] == ["actor/0", "actor/1"]
    scheduler.call_engine("actor/1", "run", "ref/1", "a")
    assert scheduler.call_engine("actor/1", "run", "ref/1", "b") == ["a", "b"]
    assert scheduler.call_engine("actor/1", "run", "actor/1", "c") == ["c"]
    scheduler.delete_workers("ref")
    assert scheduler.call_engine("actor/1", "run", None, "d") == ["c", "d"]


def test_forked_beside_others(scheduler: Any, create: Any) -> None:
    create("actor", 2)
    assert create("ref", 2, strategy=beside("actor")) == ["ref/0", "ref/1"]
    devices = [
        scheduler.call_engine(f"{role}/{i}", "environ", None, "CUDA_VISIBLE_DEVICES")
        for role in ("actor", "ref")
        for i in (0, 1)
    ]
    assert devices == [["0"], ["1"], ["0"], ["1"]]
    assert scheduler.fork_workers("proxy", "ref") == ["proxy/0", "proxy/1"]
    ports = [
        w.worker_ports
        for role in ("actor", "ref", "proxy")
        for w in scheduler.get_workers(role)
    ]
    assert len({p for own in ports for p in own}) == 12
    scheduler.delete_workers("actor", reverse_order=True)  # and what runs beside them
    for role in ("ref", "proxy"):
        with pytest.raises(WorkerNotFoundError):
            scheduler.get_workers(role)


def test_grouped(scheduler: Any, create: Any) -> None:
    """Two servers of two devices over four trainers, and four trainers over two servers."""

    def devices(role: str, count: int) -> list[str]:
        ask = ("environ", None, "CUDA_VISIBLE_DEVICES")
        return [scheduler.call_engine(f"{role}/{i}", *ask)[0] for i in range(count)]

    create("trainer", 4)
    create("server", 2, strategy=beside("trainer"), gpu=2)
    assert devices("server", 2) == ["0,1", "2,3"]
    create("second", 2, strategy=beside("server"), gpu=2)
    assert devices("second", 2) == ["0,1", "2,3"]
    scheduler.delete_workers()
    create("server", 2, gpu=2, ray_placement_strategy="separate")
    assert len(muster.get_placement_group("server-1").placement) == 1
    create("trainer", 4, strategy=beside("server"))
    assert devices("trainer", 4) == ["0", "1", "2", "3"]


# ---- engines --------------------------------------------------------------------------


def test_engines_that_cannot_be_made(scheduler: Any, create: Any) -> None:
    create("actor", 1)

    def make(path: Any, name: str = "other", **kwargs: Any) -> None:
        asyncio.run(scheduler.create_engine("actor/0", path, name, **kwargs))

    for path in ("no.such.Engine", "areal_engines.Nothing", "Engine", ".Engine", ""):
        with pytest.raises(EngineImportError) as unknown:
            make(path)
        assert unknown.value.import_path == path
    with pytest.raises(EngineCreationError, match="already") as taken:
        make(ENGINE, "actor/0")
    assert (taken.value.worker_id, taken.value.status_code) == ("actor/0", 400)
    with pytest.raises(EngineCreationError, match="no model there") as failed:
        make(ENGINE, fails=True)
    assert failed.value.status_code == 500
    assert isinstance(failed.value.__cause__, RuntimeError)
    assert "areal_engines.py" in failed.value.reason  # its traceback
    with pytest.raises(EngineCreationError, match="import path"):
        make(Engine)
    make(ENGINE, config=3)  # the name is free
    assert scheduler.call_engine("actor/0", "run", "other", "x") == ["x"]


def test_a_worker_that_is_killed_while_an_engine_is_made(
    scheduler: Any, create: Any
) -> None:
    create("actor", 1)
    pid = scheduler._manager.roles["actor"].cluster.pids[0]
    threading.Timer(0.5, os.kill, (pid, signal.SIGKILL)).start()
    with pytest.raises(WorkerFailedError, match="SIGKILL") as caught:
        asyncio.run(scheduler.create_engine("actor/0", ENGINE, "slow", wait=60))
    assert (caught.value.worker_id, caught.value.exit_code) == ("actor/0", -9)
    for what in (
        lambda: scheduler.get_workers("actor"),
        lambda: scheduler.call_engine("actor/0", "run", None, "x"),
        lambda: asyncio.run(scheduler.set_worker_env("actor/0", {"A": "b"})),
    ):
        with pytest.raises(WorkerFailedError):
            what()


def test_a_worker_that_does_not_answer(scheduler: Any, create: Any) -> None:
    create("actor", 2)
    pid = scheduler._manager.roles["actor"].cluster.pids[1]
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(WorkerTimeoutError) as caught:
        scheduler.get_workers("actor", timeout=0.5)
    assert (caught.value.worker_key, caught.value.timeout) == ("actor", 0.5)
    os.kill(pid, signal.SIGCONT)
    assert len(scheduler.get_workers("actor", timeout=30)) == 2
    os.kill(pid, signal.SIGSTOP)  # its end is not waited for
    begun = time.monotonic()
    scheduler.delete_workers("actor")
    assert time.monotonic() - begun < 15


def test_how_a_worker_ended(scheduler: Any, create: Any) -> None:
    create("actor", 2)
    with pytest.raises(WorkerFailedError) as caught:
        scheduler.call_engine("actor/1", "die", None, 3)
    assert caught.value.exit_code == 3
    assert "these are my last words" in caught.value.stderr
    assert isinstance(caught.value.__cause__, muster.WorkerDied)
    assert scheduler.call_engine("actor/0", "run", None, "x") == ["x"]


# ---- calls ----------------------------------------------------------------------------


def test_what_a_method_raises(scheduler: Any, create: Any) -> None:
    create("actor", 1)
    with pytest.raises(EngineCallError) as caught:
        scheduler.call_engine("actor/0", "fail")
    error = caught.value
    assert (error.worker_id, error.method, error.attempt) == ("actor/0", "fail", 1)
    assert isinstance(error.__cause__, KeyError)
    assert "KeyError: 'on purpose'" in error.reason and "in fail" in error.reason


def test_no_such_method_is_not_an_attribute_error_inside(
    scheduler: Any, create: Any
) -> None:
    create("actor", 1)
    with pytest.raises(EngineCallError, match="has no method 'nothing'") as missing:
        scheduler.call_engine("actor/0", "nothing")
    assert "Traceback" not in missing.value.reason
    with pytest.raises(EngineCallError, match="nothing_like_that") as inside:
        scheduler.call_engine("actor/0", "inner")
    assert "has no method" not in inside.value.reason
    assert "in inner" in inside.value.reason


def test_a_call_that_is_retried_runs_once(scheduler: Any, create: Any) -> None:
    create("actor", 1)
    often = {"http_timeout": 0.2, "retry_delay": 0.1}
    assert scheduler.call_engine("actor/0", "run", None, "a", 0.7, **often) == ["a"]

    async def again() -> Any:
        return await scheduler.async_call_engine(
            "actor/0", "run", None, "b", 0.7, **often
        )

    assert asyncio.run(again()) == ["a", "b"]
    assert scheduler.call_engine("actor/0", "run", None, "c") == ["a", "b", "c"]


def test_late_answers_of_a_loop_are_told(
    scheduler: Any, create: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one timer for all of its calls, whichever of them is late first."""
    create("actor", 4)
    told: list[Any] = []  # worker, seconds, attempt
    monkeypatch.setattr(
        "muster.areal.attempts.logger.warning",
        lambda text, method, worker, *rest: told.append((worker, *rest[:2])),
    )

    async def call(rank: int, seconds: float, timeout: float) -> Any:
        often = {"http_timeout": timeout, "retry_delay": 5}
        told = (f"actor/{rank}", "run", None, "x", seconds)
        return await scheduler.async_call_engine(*told, **often)

    async def all_of_them() -> Any:
        calls = call(0, 0, 60), call(1, 1.6, 0.9), call(2, 1.6, 0.4), call(3, 0, 60)
        return await asyncio.gather(*calls)

    assert asyncio.run(all_of_them()) == [["x"]] * 4
    assert told == [("actor/2", 0.4, 1), ("actor/1", 0.9, 1)]


def test_a_call_that_is_given_up(scheduler: Any, create: Any) -> None:
    create("actor", 1)
    first = threading.Thread(
        target=scheduler.call_engine, args=("actor/0", "run", None, "slow", 3)
    )
    first.start()
    view = scheduler._manager.roles["actor"].workers[0].view
    until(lambda: view.health()["running_seconds"] > 0)
    often = {"http_timeout": 0.2, "retry_delay": 0.1, "max_retries": 2}
    with pytest.raises(EngineCallError, match="Timeout") as caught:
        scheduler.call_engine("actor/0", "run", None, "queued", **often)
    assert caught.value.attempt == 2
    assert isinstance(caught.value.__cause__, TimeoutError)
    scheduler.get_workers("actor", timeout=1)  # it answers while it computes
    first.join()
    assert scheduler.call_engine("actor/0", "run", None, "last") == ["slow", "last"]


def test_an_engine_that_is_not_there_yet(scheduler: Any, create: Any) -> None:
    create("actor", 1)
    quick = {"retry_delay": 0.2}
    with pytest.raises(EngineCallError, match="no engine 'late'") as caught:
        scheduler.call_engine("actor/0", "run", "late", "x", retry_delay=0.01)
    assert caught.value.attempt == 3

    async def both() -> Any:
        call = scheduler.async_call_engine("actor/0", "run", "late", "x", **quick)
        waiting = asyncio.ensure_future(call)
        await asyncio.sleep(0.1)
        await scheduler.create_engine("actor/0", ENGINE, "late")
        return await waiting

    assert asyncio.run(both()) == ["x"]


def test_futures_and_coroutines(scheduler: Any, create: Any) -> None:
    create("actor", 1)
    assert scheduler.call_engine("actor/0", "later") == 5
    create("rollout", 1, engine="areal_engines.AsyncEngine")
    assert scheduler.call_engine("rollout/0", "later") == 5

    async def many() -> list[float]:
        calls = [
            scheduler.async_call_engine("rollout/0", "agenerate", None, 0.5)
            for _ in range(20)
        ]
        return await asyncio.gather(*calls)

    begun = time.monotonic()
    assert asyncio.run(many()) == [0.5] * 20
    assert time.monotonic() - begun < 5  # side by side


def test_arguments_that_cannot_be_sent(scheduler: Any, create: Any) -> None:
    create("actor", 1)
    with pytest.raises(EngineCallError, match="lock"):
        scheduler.call_engine("actor/0", "echo", None, threading.Lock())
    for wrong in ({"http_timeout": 0}, {"max_retries": 0}, {"retry_delay": -1}):
        with pytest.raises(ValueError, match="must be positive"):
            scheduler.call_engine("actor/0", "run", None, "x", **wrong)
    with pytest.raises(EngineCallError, match="broadcast"):
        scheduler.call_engine("actor/0", "run", None, "x", rpc_meta={"broadcast": 1})


# ---- tensors --------------------------------------------------------------------------


def test_results_stay_where_they_are(scheduler: Any, create: Any) -> None:
    create("actor", 2, gpu=0)
    rows = scheduler.call_engine("actor/0", "rows", None, 3, 1 << 20)
    assert all(isinstance(v, RTensor) for row in rows for v in row.values())
    assert rows[0]["hidden"].dtype == torch.bfloat16
    sums = [3.0 + 3 * i + i * (1 << 20) for i in range(3)]
    assert scheduler.call_engine("actor/1", "total", None, rows) == sums
    here = RTensor.localize(rows)
    assert here[2]["hidden"].dtype == torch.bfloat16
    assert float(here[2]["hidden"].float().sum()) == 2 << 20
    assert scheduler.call_engine("actor/1", "add_one", None, rows[1]) == 2 << 20
    assert scheduler.call_engine("actor/1", "total", None, rows) == sums
    row = scheduler.call_engine("actor/0", "padded")
    assert row["input_ids"].shape == (1, 3)  # without what the mask leaves out


def test_tensors_go_with_their_handles(scheduler: Any, create: Any) -> None:
    create("actor", 2, gpu=0)
    before = muster.store_stats()["used"]

    def is_empty() -> bool:
        gc.collect()
        return bool(muster.store_stats()["used"] <= before)

    rows = scheduler.call_engine("actor/0", "rows", None, 4, 1 << 20)
    assert muster.store_stats()["used"] >= before + (6 << 20)
    scheduler.call_engine("actor/1", "total", None, rows)
    del rows
    until(is_empty)
    rows = scheduler.call_engine("actor/0", "rows", None, 4, 1 << 20)
    [address] = RTensor.collect_shards(rows)
    ids = RTensor.collect_shards(rows)[address]
    assert all(isinstance(one, ShardId) for one in ids)
    asyncio.run(RTensor.clear_node(address, ids))  # as clear_batches does
    until(is_empty)
    with pytest.raises(KeyError, match="cleared"):
        RTensor.localize(rows)


def test_tensors_themselves(made: Any, create: Any) -> None:
    """Without handles, for those who have no use for them."""
    plain = MusterScheduler(rtensors=False, log_dir=made.log_dir)
    plain.create_workers(Job(role="plain", replicas=1, tasks=[spec(gpu=0)]))
    asyncio.run(plain.create_engine("plain/0", ENGINE))
    given = torch.arange(1 << 20, dtype=torch.float16)
    assert torch.equal(plain.call_engine("plain/0", "echo", None, given), given)
    kinds = plain.call_engine("plain/0", "kinds", None, {"x": given, "y": given[:2]})
    assert kinds == {"x": "Tensor torch.float16", "y": "Tensor torch.float16"}
    plain.delete_workers()


def test_the_seed_is_areals(session: Any, tmp_path: Path) -> None:
    (tmp_path / "names").mkdir()
    resolve = NameResolveConfig(type="nfs", nfs_record_root=f"{tmp_path}/names")
    cluster = ClusterSpecConfig(fileroot=str(tmp_path), name_resolve=resolve)
    names = {"experiment_name": "e", "trial_name": "seeded"}
    config = BaseExperimentConfig(**names, cluster=cluster, seed=5)
    seeded = MusterScheduler(exp_config=config)
    seeded.create_workers(Job(role="actor", replicas=2, tasks=[spec(gpu=0)]))
    got = []
    for i in (0, 1):
        asyncio.run(seeded.create_engine(f"actor/{i}", ENGINE))
        got.append(seeded.call_engine(f"actor/{i}", "random"))
    seeded.delete_workers()
    assert seeded.log_dir == str(tmp_path / "logs" / getpass.getuser() / "e" / "seeded")
    want = []
    with torch.random.fork_rng():
        for i in (0, 1):
            seeding.set_random_seed(5, key=f"actor{i}")
            want.append([float(x) for x in torch.rand(3)])
    assert got == want


# ---- logs, HTTP, commands -------------------------------------------------------------


def test_logs_are_where_areals_users_look(
    scheduler: Any, create: Any, folder: Path
) -> None:
    create("speaker", 2)
    for i in (0, 1):
        scheduler.call_engine(f"speaker/{i}", "say", None, f"rank {i} was here")
    logs = next(folder.glob("logs/*/e/t"))
    assert str(logs) == scheduler.log_dir

    def lines(name: str) -> list[str]:
        path = logs / name
        return path.read_text().splitlines() if path.exists() else []

    until(lambda: len(lines("speaker.log")) == 2)
    assert sorted(lines("speaker.log")) == ["rank 0 was here", "rank 1 was here"]
    assert "[speaker] rank 1 was here" in lines("merged.log")


def test_areals_http_reaches_the_engines(scheduler: Any, create: Any) -> None:
    """What AReaL's controllers and clients send straight to a worker's first port."""
    create("actor", 1)
    [worker] = scheduler.get_workers("actor")
    url = f"http://{worker.ip}:{worker.worker_ports[0]}"

    def post(path: str, **body: Any) -> Any:
        answer = requests.post(f"{url}{path}", json=body, timeout=30)
        assert answer.status_code == 200, answer.text
        return answer.json()

    call = {"method": "run", "args": ["by HTTP"]}
    assert post("/call", engine_name="actor/0", **call)["result"] == ["by HTTP"]
    assert scheduler.call_engine("actor/0", "run", None, "x") == ["by HTTP", "x"]
    post("/create_engine", engine=ENGINE, engine_name="other", init_args=[3])
    assert scheduler.call_engine("actor/0", "run", "other", "y") == ["y"]
    post("/set_env", env={"A": "b=,c"})
    assert scheduler.call_engine("actor/0", "environ", None, "A") == ["b=,c"]
    assert len(post("/alloc_ports", count=2)["ports"]) == 2
    post("/configure", config={"seed": 3}, role="actor", rank=0)
    health = requests.get(f"{url}/health", timeout=30).json()
    assert health["engines"] == ["actor/0", "other"] and health["engine_count"] == 2


@pytest.mark.filterwarnings("default:http_open")
def test_whoever_wants_a_token(made: Any) -> None:
    with pytest.warns(UserWarning, match="http_open"):
        made.create_workers(Job(role="open", replicas=1, tasks=[spec(gpu=0)]))
    closed = MusterScheduler(http_open=False, log_dir=made.log_dir)
    closed.create_workers(Job(role="closed", replicas=1, tasks=[spec(gpu=0)]))
    answers = []
    for scheduler, role in ((made, "open"), (closed, "closed")):
        [worker] = scheduler.get_workers(role)
        url = f"http://{worker.ip}:{worker.worker_ports[0]}/alloc_ports"
        answers.append(requests.post(url, json={"count": 1}, timeout=10).status_code)
        scheduler.delete_workers()
    assert answers == [200, 401]


def test_commands_that_end(scheduler: Any, create: Any) -> None:
    """How they ended is told at once, and what they printed."""
    create("rollout", 2)
    begun = time.monotonic()
    with pytest.raises(WorkerCreationError, match="exited with code 1") as wrong:
        scheduler.fork_workers("proxy", "rollout", "no.such.module")
    assert time.monotonic() - begun < 30
    assert wrong.value.worker_key == "proxy"
    assert "No module named" in wrong.value.details
    with pytest.raises(WorkerNotFoundError):
        scheduler.get_workers("proxy")
    scheduler.fork_workers("proxy", "rollout", "muster.areal.rpc_server")
    path = "areal_engines.Engine"
    asyncio.run(scheduler.create_engine("proxy/1", path))
    for _ in range(2):
        with pytest.raises(WorkerFailedError) as caught:
            scheduler.call_engine("proxy/1", "die", None, 3)
        error = caught.value
        assert (error.worker_id, error.exit_code) == ("proxy/1", 3)
        assert "these are my last words" in error.stderr
    with pytest.raises(WorkerFailedError):
        scheduler.get_workers("proxy")
    asyncio.run(scheduler.create_engine("proxy/0", path))


def test_a_command_beside_each_worker(scheduler: Any, create: Any) -> None:
    """AReaL's own server, as its proxies are started; calls to it are its HTTP."""
    folder = Path(scheduler.log_dir)
    create("rollout", 1)
    command = "areal.infra.rpc.rpc_server"
    assert scheduler.fork_workers("proxy", "rollout", command) == ["proxy/0"]
    [worker] = scheduler.get_workers("proxy")
    with pytest.raises(EngineImportError, match="nothing"):
        asyncio.run(scheduler.create_engine("proxy/0", "nothing.Engine"))
    asyncio.run(scheduler.create_engine("proxy/0", "areal_rig.Engine", start=2))
    assert scheduler.call_engine("proxy/0", "add", None, 3, twice=True) == 8
    with pytest.raises(EngineCallError, match="on purpose"):
        scheduler.call_engine("proxy/0", "fail")
    with pytest.raises(EngineCallError, match="no_such"):
        scheduler.call_engine("proxy/0", "no_such")
    until(lambda: (folder / "proxy.log").exists())  # what it prints
    scheduler.delete_workers("proxy")
    with pytest.raises(requests.ConnectionError):
        requests.get(f"http://{worker.ip}:{worker.worker_ports[0]}/health", timeout=5)
