"""Workers in C, called from Python; examples/c/reward.c is one of them."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import muster
import pytest
from helpers import wait_gone

numpy = pytest.importorskip("numpy")

ROOT = Path(__file__).resolve().parent.parent

ODD = r"""
#include <muster/worker.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct muster_context *context;

static int create(const struct muster_context *ctx, const struct muster_value *args,
                  const struct muster_value *kwargs, void **self, struct muster_error *err)
{
    const char *why = muster_value_get_text(muster_list_at(args, 0), NULL);

    (void)kwargs;
    context = ctx;
    if (why && strcmp(why, "silent") == 0)
        return -EIO;
    if (why)
        return muster_error_set(err, -EPERM, "odd.Error", "I do not want to: %s", why);
    *self = NULL;
    return 0;
}

static void destroy(void *self)
{
    const char *path = getenv("DESTROYED");

    (void)self;
    if (path)
        fclose(fopen(path, "w"));
}

static int echo(void *self, struct muster_call *call, struct muster_error *err)
{
    (void)self; (void)err;
    return muster_call_reply(call, muster_value_copy(muster_call_arg(call, 0)));
}

static int named(void *self, struct muster_call *call, struct muster_error *err)
{
    (void)self; (void)err;
    return muster_call_reply(call, muster_value_copy(muster_call_kwargs(call)));
}

static int who(void *self, struct muster_call *call, struct muster_error *err)
{
    struct muster_value *map = muster_value_map(), *devices = muster_value_list();
    const char *env = getenv("FLAVOUR");

    (void)self; (void)err;
    for (size_t i = 0; muster_context_device(context, i); i++)
        muster_list_append(devices, muster_value_text(muster_context_device(context, i)));
    muster_map_set(map, "rank", muster_value_int(muster_context_rank(context)));
    muster_map_set(map, "world_size", muster_value_int(muster_context_world_size(context)));
    muster_map_set(map, "cluster", muster_value_text(muster_context_cluster(context)));
    muster_map_set(map, "node", muster_value_text(muster_context_node(context)));
    muster_map_set(map, "devices", devices);
    muster_map_set(map, "flavour", env ? muster_value_text(env) : muster_value_null());
    muster_map_set(map, "config", muster_value_copy(muster_context_config(context)));
    muster_map_set(map, "method", muster_value_text(muster_call_method(call)));
    muster_map_set(map, "pid", muster_value_int(getpid()));
    return muster_call_reply(call, map);
}

static int fail(void *self, struct muster_call *call, struct muster_error *err)
{
    (void)self; (void)call;
    return muster_error_set(err, -EDOM, "odd.Error", "it is %d", 42);
}

static int silent(void *self, struct muster_call *call, struct muster_error *err)
{
    (void)self; (void)call; (void)err;
    return -EDOM;
}

static int nothing(void *self, struct muster_call *call, struct muster_error *err)
{
    (void)self; (void)call; (void)err;
    return 0;
}

static int twice(void *self, struct muster_call *call, struct muster_error *err)
{
    (void)self; (void)err;
    if (muster_call_reply(call, muster_value_int(1)) != 0)
        return -EIO;
    if (muster_call_reply(call, muster_value_int(2)) != -EALREADY)
        abort();
    return 0;
}

static int too_deep(void *self, struct muster_call *call, struct muster_error *err)
{
    struct muster_value *v = muster_value_null();

    (void)self; (void)err;
    for (int i = 0; i < 100; i++) {
        struct muster_value *outer = muster_value_list();

        muster_list_append(outer, v);
        v = outer;
    }
    return muster_call_reply(call, v) == 0; /* it is not: and the caller hears of it */
}

static int wait_for_cancel(void *self, struct muster_call *call, struct muster_error *err)
{
    const char *bell = muster_value_get_text(muster_call_arg(call, 0), NULL);
    FILE *f = fopen(bell, "w");

    (void)self; (void)err;
    fputc('!', f);
    fclose(f);
    while (!muster_call_is_cancelled(call))
        usleep(1000);
    f = fopen(bell, "w");
    fputc('!', f);
    fclose(f);
    return 0;
}

static int time_left(void *self, struct muster_call *call, struct muster_error *err)
{
    (void)self; (void)err;
    return muster_call_reply(
        call, muster_value_float((double)muster_call_time_left_ns(call) / 1e9));
}

static int infinite(void *self, struct muster_call *call, struct muster_error *err)
{
    (void)self; (void)err;
    return muster_call_reply(call, muster_value_float(1e308 * 10));
}

static int forever(void *self, struct muster_call *call, struct muster_error *err)
{
    int64_t sent = 0;
    int rc;

    (void)self; (void)err;
    while ((rc = muster_call_item(call, muster_value_int(sent))) == 0)
        sent++;
    printf("stopped with %d\n", rc);
    return 0;
}

static int shout(void *self, struct muster_call *call, struct muster_error *err)
{
    size_t len = 0;
    const char *text = muster_value_get_bytes(muster_call_arg(call, 0), &len);
    char *copy = malloc(len + 1);

    (void)self; (void)err;
    for (size_t i = 0; i < len; i++)
        copy[i] = (char)(text[i] & ~0x20);
    muster_call_reply_bytes(call, copy, len);
    free(copy);
    return 0;
}

static const struct muster_method methods[] = {
    {"echo", echo}, {"named", named}, {"who", who}, {"fail", fail}, {"silent", silent},
    {"nothing", nothing}, {"twice", twice}, {"too_deep", too_deep},
    {"wait_for_cancel", wait_for_cancel}, {"time_left", time_left},
    {"infinite", infinite}, {"forever", forever}, {"shout", shout}, {0}};

MUSTER_EXPORT const struct muster_worker_class odd = {
    MUSTER_WORKER_CLASS, .name = "Odd", .create = create, .destroy = destroy,
    .methods = methods};
MUSTER_EXPORT const struct muster_worker_class newer = {
    .abi = MUSTER_ABI + 1, .size = sizeof(struct muster_worker_class), .name = "Newer",
    .methods = methods};
MUSTER_EXPORT const struct muster_worker_class bare = {
    MUSTER_WORKER_CLASS, .methods = methods};
"""


def build(source: Path, library: Path) -> Path:
    flags = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}"]
    subprocess.run(["cc", *flags, "-o", library, source], check=True)
    return library


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    there = tmp_path_factory.mktemp("c")
    (there / "odd.c").write_text(ODD)
    build(there / "odd.c", there / "libodd.so")
    build(ROOT / "examples/c/reward.c", there / "libreward.so")
    return there


@pytest.fixture(scope="module")
def odd(session: Any, folder: Path) -> Any:
    with muster.Cluster("odd", f"{folder}/libodd.so:odd", world_size=2) as one:
        yield one


def test_example(cluster: Callable[..., Any], folder: Path) -> None:
    rewards = cluster(f"{folder}/libreward.so:reward", 2, kwargs={"scale": 2})
    texts = ["hello", "aaaa", ""]
    assert rewards.execute_all_sync("score", texts) == [[8 / 6, 2 / 5, 0]] * 2
    numbers = numpy.arange(100000, dtype=numpy.float32)
    assert rewards.execute_rank_zero_sync("sum", numbers) == numbers.sum(dtype="f8")
    assert list(rewards.execute_rank_zero_sync("count", 1000)) == list(range(1000))
    with pytest.raises(muster.RemoteError, match=r"texts\[1\] is no text") as e:
        rewards.execute_rank_zero_sync("score", ["x", 1, "y"])
    assert e.value.remote_type == "TypeError"


VALUES = [None, True, -(2**63), 0.25, "grüße", b"\0\1", [1, ["x", {}]], {"": [None]}]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values(odd: Any, value: Any) -> None:
    got = odd.execute_rank_zero_sync("echo", value)
    assert got == value and type(got) is type(value)


def test_tensors_and_names(odd: Any) -> None:
    array = numpy.arange(60000, dtype=numpy.int32).reshape(3, 20000)
    got = odd.execute_rank_zero_sync("named", a=array, b=[array[0], "x"])
    assert (got["a"] == array).all() and (got["b"][0] == array[0]).all()
    assert odd.execute_rank_zero_sync("named") == {}


def test_who(cluster: Callable[..., Any], folder: Path) -> None:
    two = cluster(
        f"{folder}/libodd.so:odd",
        None,
        device_mapping="0-3",
        num_gpus_per_worker=2,
        env={"FLAVOUR": "sour"},
        name="two",
    )
    two.configure({"lr": 0.5})
    first, second = two.execute_all_sync("who")
    assert (first["rank"], second["rank"]) == (0, 1)
    assert second["world_size"] == 2 and second["cluster"] == "two"
    assert first["devices"] == ["0", "1"] and second["devices"] == ["2", "3"]
    assert first["flavour"] == "sour" and first["config"] == {"lr": 0.5}
    assert first["node"] in two.execute_rank_zero_sync("who")["node"]
    assert [first["pid"], second["pid"]] == two.pids
    assert first["method"] == "who"
    two.set_env({"FLAVOUR": "sweet"})
    assert two.execute_rank_zero_sync("who")["flavour"] == "sweet"


def test_operations(odd: Any) -> None:
    health = odd.health()
    assert health["engines"] == ["default"] and health["rank"] == 0
    python, native = odd.stack()
    assert "runs no Python" in python and "muster" in native
    host, ports = odd.alloc_ports(2)
    assert host and len(ports) == 2 and all(ports)


def test_failures(odd: Any) -> None:
    with pytest.raises(muster.RemoteError, match="it is 42") as e:
        odd.execute_rank_zero_sync("fail")
    assert e.value.remote_type == "odd.Error"
    with pytest.raises(muster.RemoteError, match="-33"):
        odd.execute_rank_zero_sync("silent")
    with pytest.raises(muster.NoSuchMethod, match="'Odd' has no method 'fly'"):
        odd.execute_rank_zero_sync("fly")
    with pytest.raises(muster.SerializationError, match="cannot be sent"):
        odd.execute_rank_zero_sync("too_deep")
    with pytest.raises(muster.SerializationError, match="not pickle"):
        odd.options(codec="pickle").execute_rank_zero_sync("echo", {1, 2})
    assert odd.execute_rank_zero_sync("nothing") is None
    assert odd.execute_rank_zero_sync("twice") == 1


def test_bytes(odd: Any) -> None:
    raw = odd.options(codec="bytes")
    assert raw.execute_rank_zero_sync("shout", b"abc") == b"ABC"
    assert odd.execute_rank_zero_sync("shout", b"abc") == b"ABC"
    assert raw.execute_rank_zero_sync("nothing", b"") == b""
    with pytest.raises(muster.SerializationError, match="called with bytes"):
        raw.execute_rank_zero_sync("time_left", b"")


def test_deadline_and_cancel(odd: Any, bell: Callable[..., Any]) -> None:
    assert 1 < odd.options(timeout=5).execute_rank_zero_sync("time_left") <= 5
    ringing = bell()
    future = odd.execute_rank_zero_async("wait_for_cancel", ringing.path)
    ringing.hear()
    future.cancel()
    ringing.hear()
    with pytest.raises(muster.Cancelled):
        future.result()


def test_a_stream_that_nobody_wants(odd: Any) -> None:
    stream = odd.execute_rank_zero_sync("forever")
    assert [next(stream) for _ in range(300)] == list(range(300))
    stream.close()
    assert odd.options(timeout=10).execute_rank_zero_sync("echo", 1) == 1


def test_engines(odd: Any, folder: Path) -> None:
    second = odd.create_engine("second", f"{folder}/libodd.so:bare")
    assert second.execute_all_sync("echo", "x") == ["x", "x"]
    with pytest.raises(muster.ClusterError, match="already"):
        odd.create_engine("second", f"{folder}/libodd.so:bare")
    with pytest.raises(muster.ClusterError, match="do not share"):
        odd.create_engine("third", dict)
    odd.destroy_engine("second")
    with pytest.raises(muster.ClusterError, match="no engine 'second'"):
        second.execute_rank_zero_sync("echo", 1)
    with pytest.raises(muster.ClusterError, match="no engine 'second'"):
        odd.destroy_engine("second")


def test_clear_refusals(cluster: Callable[..., Any], folder: Path) -> None:
    with pytest.raises(muster.ClusterError, match="No such file"):
        cluster("libnothing.so:x")
    with pytest.raises(muster.ClusterError, match="no symbol 'even'"):
        cluster(f"{folder}/libodd.so:even")
    with pytest.raises(muster.ClusterError, match="version 2 of Muster's C interface"):
        cluster(f"{folder}/libodd.so:newer")
    with pytest.raises(muster.RemoteError, match="I do not want to: bad day") as e:
        cluster(f"{folder}/libodd.so:odd", args=("bad day",))
    assert e.value.remote_type == "odd.Error"
    with pytest.raises(muster.RemoteError, match="constructor of 'Odd' gave -5"):
        cluster(f"{folder}/libodd.so:odd", args=("silent",))
    with pytest.raises(muster.SerializationError, match="is a object"):
        cluster(f"{folder}/libodd.so:odd", args=(object(),))


def test_where_it_is_found(
    cluster: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = cluster("libodd.so:odd", env={"LD_LIBRARY_PATH": str(folder)})
    assert found.execute_rank_zero_sync("echo", 1) == 1
    monkeypatch.chdir(folder.parent)
    relative = cluster(f"{folder.name}/libodd.so:odd")
    assert relative.execute_rank_zero_sync("echo", 2) == 2
    here = cluster("libodd.so:odd", working_dir=str(folder))
    assert here.execute_rank_zero_sync("echo", 3) == 3


def test_death(cluster: Callable[..., Any], folder: Path) -> None:
    rewards = cluster(f"{folder}/libreward.so:reward", 2)
    with pytest.raises(muster.WorkerDied) as e:
        rewards.execute_rank_zero_sync("crash")
    assert e.value.signal == signal.SIGABRT
    assert "crashing after 0 texts" in e.value.last_lines
    assert rewards.execute_rank_sync(1, "score", ["x"]) == [0.5]
    os.kill(rewards.pids[1], signal.SIGKILL)
    with pytest.raises(muster.WorkerDied):
        rewards.execute_rank_sync(1, "score", ["x"])


def test_orderly_end(cluster: Callable[..., Any], folder: Path, tmp_path: Path) -> None:
    mark = tmp_path / "destroyed"
    one = cluster(f"{folder}/libodd.so:odd", env={"DESTROYED": str(mark)})
    pids = one.pids
    one.destroy(grace=20)
    assert wait_gone(pids) == []
    assert mark.exists()


def test_handles_travel(odd: Any, cluster: Callable[..., Any]) -> None:
    """A Python worker calls a C worker, by a handle that it was given."""

    class Caller:
        def call(self, other: Any, value: Any) -> Any:
            return other.execute_rank_sync(1, "echo", value)

    caller = cluster(Caller)
    assert caller.execute_rank_zero_sync("call", odd, {"x": 1}) == {"x": 1}
