"""Drivers in C, built with what an installation has: headers, library, pkg-config."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers import BUILD, DEADLINE_S, MARK, leftovers, new_mark, processes, wait_gone

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples/c"

pytestmark = pytest.mark.skipif(
    not (BUILD / "build.ninja").exists(), reason="there is nothing to install from"
)

PYTHON_WORKER = '''
import os


class Model:
    """In Python, called from C."""

    def __init__(self, scale=1):
        self.scale = scale

    def double(self, numbers, *, shift=0):
        return {"out": [2 * self.scale * n + shift for n in numbers], "pid": os.getpid()}

    def total(self, tensor):
        return float(tensor.sum())

    def fail(self):
        raise ValueError("not today")

    def items(self, n):
        yield from range(n)

    def strange(self):
        return object()
'''

DRIVER = r"""
#include <muster/driver.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                             \
    do {                                                                        \
        if (!(what)) {                                                          \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, err.message); \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

int main(int argc, char **argv)
{
    struct muster_session_options so = MUSTER_SESSION_OPTIONS;
    struct muster_cluster_options o = MUSTER_CLUSTER_OPTIONS;
    struct muster_call_options co = MUSTER_CALL_OPTIONS;
    struct muster_error err = {0};
    struct muster_session *s = muster_init(&so, &err);
    struct muster_cluster *c;
    struct muster_value *args = muster_value_list(), *kwargs = muster_value_map();
    struct muster_value *numbers = muster_value_list(), *result = NULL, *item = NULL;
    const float floats[] = {1, 2, 3.5f};
    const uint64_t shape[] = {3};
    struct muster_future *f;
    double total = 0;
    int64_t n = 0;

    CHECK(s);
    o.name = "model";
    o.worker_cls = "cmodel.Model";
    o.world_size = 2;
    o.exec = argc > 1 && strcmp(argv[1], "exec") == 0;
    muster_map_set(kwargs, "scale", muster_value_int(10));
    o.kwargs = kwargs;
    c = muster_cluster_create(s, &o, &err);
    CHECK(c);
    if (argc > 1 && strcmp(argv[1], "wait") == 0) {
        printf("ready\n");
        fflush(stdout);
        getchar();
    }
    muster_list_append(numbers, muster_value_int(4));
    muster_list_append(args, numbers);
    muster_value_destroy(kwargs);
    kwargs = muster_value_map();
    muster_map_set(kwargs, "shift", muster_value_int(1));
    co.kwargs = kwargs;
    CHECK(muster_cluster_call_sync(c, 1, "double", args, &co, &result, &err) == 0);
    CHECK(muster_value_get_int(muster_list_at(muster_map_find(result, "out"), 0), &n) == 0);
    CHECK(n == 81);
    CHECK(muster_value_get_int(muster_map_find(result, "pid"), &n) == 0);
    CHECK(n == muster_cluster_pid(c, 1));
    muster_value_destroy(result);
    muster_value_destroy(args);

    args = muster_value_list();
    muster_list_append(args, muster_value_tensor_view(MUSTER_FLOAT32, shape, 1, floats));
    CHECK(muster_cluster_call_sync(c, 0, "total", args, NULL, &result, &err) == 0);
    CHECK(muster_value_get_float(result, &total) == 0 && total == 6.5);
    muster_value_destroy(result);
    muster_value_destroy(args);

    CHECK(muster_cluster_call_sync(c, 0, "fail", NULL, NULL, NULL, &err) == -EREMOTEIO);
    CHECK(strcmp(err.type, "builtins.ValueError") == 0 && strstr(err.message, "not today"));
    CHECK(muster_cluster_call_sync(c, 0, "strange", NULL, NULL, NULL, &err) == -EBADMSG);
    CHECK(err.kind == MUSTER_ERROR_BAD_RESULT);
    CHECK(muster_cluster_call_sync(c, 0, "nope", NULL, NULL, NULL, &err) == -ENOSYS);

    args = muster_value_list();
    muster_list_append(args, muster_value_int(3));
    f = muster_cluster_call(c, 0, "items", args, NULL, &err);
    CHECK(f);
    for (int64_t i = 0; i < 3; i++) {
        CHECK(muster_future_next(f, MUSTER_NEVER, &item, &err) == 1);
        CHECK(muster_value_get_int(item, &n) == 0 && n == i);
        muster_value_destroy(item);
    }
    CHECK(muster_future_next(f, MUSTER_NEVER, &item, &err) == 0);
    muster_future_destroy(f);
    muster_value_destroy(args);
    muster_value_destroy(kwargs);
    muster_cluster_destroy(c, 3000000000);
    muster_shutdown(s, 3000000000);
    printf("all right\n");
    return 0;
}
"""


class Kit:
    """An installation in a folder of its own, and how to build with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run(
            [sys.executable, "-m", "mesonbuild.mesonmain", "install", "--no-rebuild"]
            + ["--quiet", "-C", str(BUILD), "--destdir", str(folder / "root")],
            check=True,
        )
        (pc,) = (folder / "root").rglob("muster.pc")
        self.library = pc.parent.parent
        self.env = os.environ | {
            "PKG_CONFIG_LIBDIR": str(pc.parent),
            "PKG_CONFIG_SYSROOT_DIR": str(folder / "root"),
            "LD_LIBRARY_PATH": str(self.library),
            "MUSTER_PYTHON": sys.executable,
            "PYTHONPATH": str(folder),
        }
        self.env.pop("MUSTER_BIN", None)

    def flags(self, *what: str) -> list[str]:
        done = subprocess.run(
            ["pkg-config", *what, "muster"],
            env=self.env,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.split()

    def library_of(self, source: Path) -> Path:
        to = self.folder / f"lib{source.stem}.so"
        flags = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
        command = ["cc", *flags, *self.flags("--cflags"), "-o", str(to), str(source)]
        subprocess.run(command, check=True)
        return to

    def program_of(self, source: Path) -> Path:
        to = self.folder / source.stem
        flags = ["-Wall", "-Wextra", "-Werror", "-o", str(to), str(source)]
        command = ["cc", *flags, *self.flags("--cflags", "--libs")]
        subprocess.run(command, check=True)
        return to

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command,
            env=self.env | {MARK: (mark := new_mark())},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        wait_gone(processes(mark))
        assert leftovers(mark) == []
        return done.stdout


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Kit:
    made = Kit(tmp_path_factory.mktemp("kit"))
    (made.folder / "cmodel.py").write_text(PYTHON_WORKER)
    (made.folder / "other.c").write_text(DRIVER)
    return made


def test_examples_need_pkg_config_alone(kit: Kit) -> None:
    worker = kit.library_of(EXAMPLES / "reward.c")
    driver = kit.program_of(EXAMPLES / "driver.c")
    out = kit.run(str(driver), f"{worker}:reward")
    assert out.count("0.417 0.800") == 3
    assert (
        "sum: 21" in out and "died of signal 6" in out and "complains: TypeError" in out
    )


def test_a_worker_may_be_linked_with_the_library(kit: Kit) -> None:
    to = kit.folder / "liblinked.so"
    flags = ["-shared", "-fPIC", "-Wl,--no-undefined", "-o", str(to)]
    command = [*flags, str(EXAMPLES / "reward.c"), *kit.flags("--cflags", "--libs")]
    subprocess.run(["cc", *command], check=True)
    driver = kit.program_of(EXAMPLES / "driver.c")
    assert "sum: 21" in kit.run(str(driver), f"{to}:reward")


@pytest.mark.parametrize("how", ["fork", "exec"])
def test_python_workers_from_c(kit: Kit, how: str) -> None:
    pytest.importorskip("numpy")
    driver = kit.program_of(kit.folder / "other.c")
    assert kit.run(str(driver), how).endswith("all right\n")


def test_a_killed_driver_leaves_nothing(kit: Kit) -> None:
    driver = kit.program_of(kit.folder / "other.c")
    mark = new_mark()
    process = subprocess.Popen(
        [str(driver), "wait"],
        env=kit.env | {MARK: mark},
        cwd=kit.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    there = processes(mark)
    assert len(there) > 3  # the driver, an agent, a zygote, workers
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=DEADLINE_S)
    assert wait_gone(there) == []
    assert leftovers(mark) == []


def test_nothing_else_is_exported(kit: Kit) -> None:
    library = kit.library / "libmuster.so"
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", library],
        check=True,
        capture_output=True,
        text=True,
    )
    names = {line.split()[-1].partition("@")[0] for line in listed.stdout.splitlines()}
    headers = "".join(h.read_text() for h in (ROOT / "include/muster").glob("*.h"))
    assert names and all(name in headers for name in names), names
    assert all(name.startswith("muster_") for name in names)


@pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")
def test_headers_are_also_cpp(kit: Kit) -> None:
    source = kit.folder / "plus.cpp"
    source.write_text(
        "#include <muster/muster.h>\n"
        "static const muster_method methods[] = {{nullptr, nullptr}};\n"
        'extern "C" MUSTER_EXPORT const muster_worker_class plus = {\n'
        '    MUSTER_WORKER_CLASS, .name = "Plus", .create = nullptr,\n'
        "    .destroy = nullptr, .methods = methods};\n"
        "muster_session_options so = MUSTER_SESSION_OPTIONS;\n"
        "muster_cluster_options co = MUSTER_CLUSTER_OPTIONS;\n"
        "muster_call_options call = MUSTER_CALL_OPTIONS;\n"
        "muster_group_options group = MUSTER_GROUP_OPTIONS;\n"
        "static_assert(sizeof so && sizeof co && sizeof call && sizeof group);\n"
    )
    warnings = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]
    flags = [*warnings, *kit.flags("--cflags")]
    subprocess.run(["g++", "-std=c++20", *flags, str(source)], check=True)


JOINER = r"""
#include <muster/driver.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* joiner make WORKER_CLS: a detached cluster; joiner use: call it, then end it */
int main(int argc, char **argv)
{
    struct muster_session_options so = MUSTER_SESSION_OPTIONS;
    struct muster_cluster_options o = MUSTER_CLUSTER_OPTIONS;
    struct muster_value *args = muster_value_list(), *result = NULL;
    struct muster_error err = {0};
    struct muster_session *s;
    struct muster_cluster *c;
    int rc = 1;

    so.address = argc > 1 && strcmp(argv[1], "use") == 0 ? "auto" : NULL;
    s = muster_init(&so, &err);
    if (!s) {
        fprintf(stderr, "init: %s\n", err.message);
        return 1;
    }
    o.name = "kept";
    o.world_size = 2;
    o.detached = true;
    o.worker_cls = argc > 2 ? argv[2] : NULL;
    c = argc > 2 ? muster_cluster_create(s, &o, &err) : muster_cluster_open(s, "kept", &err);
    muster_list_append(args, muster_value_list());
    if (c)
        rc = muster_cluster_call_sync(c, 1, "score", args, NULL, &result, &err);
    if (rc != 0)
        fprintf(stderr, "%s\n", err.message);
    else
        printf("%d on %s\n", muster_cluster_pid(c, 1), muster_cluster_node(c, 1));
    muster_value_destroy(result);
    muster_value_destroy(args);
    if (argc > 2)
        muster_cluster_close(c);
    else
        muster_cluster_destroy(c, 1000000000);
    muster_shutdown(s, 1000000000);
    return rc != 0;
}
"""


@contextmanager
def start(env: dict[str, str], said: str, *command: str | Path) -> Iterator[str]:
    """A service until the end of the block; its first line with this."""
    process = subprocess.Popen(
        [str(word) for word in command],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield next(line for line in process.stdout if said in line)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=DEADLINE_S)


def test_a_head_is_joined(kit: Kit) -> None:
    """Two C drivers one after the other, and a cluster that outlives the first."""
    worker = kit.library_of(EXAMPLES / "reward.c")
    source = kit.folder / "joiner.c"
    source.write_text(JOINER)
    joiner = str(kit.program_of(source))
    (program,) = (kit.folder / "root").rglob("bin/muster")
    mark = new_mark()

    def run(*words: str, **more: str) -> str:
        command = [joiner, *words]
        done = subprocess.run(
            command, env=env | more, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    # short: the path of a socket has 107 characters
    with tempfile.TemporaryDirectory(prefix="muster-c-", dir="/tmp") as home:
        env = kit.env | {MARK: mark, "MUSTER_HOME": home}
        head = (program, "head", "--listen", "127.0.0.1:0")
        with start(env, "listening", *head) as said:
            address = said.split()[-1]
            agent = (program, "agent", "--head", address, "--node-name", "n")
            with start(env, "has joined", *agent):
                far = {"MUSTER_SECRET_FILE": f"{home}/head/secret"}
                far["MUSTER_ADDRESS"] = address
                made = run("make", f"{worker}:reward", **far)
                assert made.endswith(" on n\n")
                assert run("use") == made  # the same process
                assert wait_gone([int(made.split()[0])]) == []
    assert wait_gone(processes(mark)) == []
