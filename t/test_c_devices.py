"""Devices that are not NVIDIA's: drivers and workers in C tell and read their vendor's variable."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import muster
import pytest
from daemon_rig import Daemon, Process, daemon  # noqa: F401  (fixture)
from helpers import DEADLINE_S
from test_c import ODD, build
from test_c_driver import Kit, kit, pytestmark  # noqa: F401  (fixture)

DRIVER = r"""
#include <muster/driver.h>

#include <stdio.h>

/* driver WORKER_CLS: which devices do its ranks see? */
int main(int argc, char **argv)
{
    struct muster_session_options so = MUSTER_SESSION_OPTIONS;
    struct muster_cluster_options o = MUSTER_CLUSTER_OPTIONS;
    struct muster_error err = {0};
    struct muster_session *s = muster_init(&so, &err);
    struct muster_cluster *c = NULL;

    o.name = "seeing";
    o.worker_cls = argc > 1 ? argv[1] : "";
    o.device_mapping = "3,1";
    if (s)
        c = muster_cluster_create(s, &o, &err);
    for (uint32_t rank = 0; c && rank < 2; rank++) {
        struct muster_value *who = NULL;
        const struct muster_value *devices;

        if (muster_cluster_call_sync(c, rank, "who", NULL, NULL, &who, &err) < 0)
            break;
        devices = muster_map_find(who, "devices");
        for (size_t i = 0; muster_list_at(devices, i); i++)
            printf("%u:%s\n", rank, muster_value_get_text(muster_list_at(devices, i), NULL));
        muster_value_destroy(who);
    }
    muster_cluster_destroy(c, 1000000000);
    muster_shutdown(s, 1000000000);
    if (err.code)
        fprintf(stderr, "%s\n", err.message);
    return err.code != 0;
}
"""


@pytest.fixture
def npus(daemon: Daemon) -> Iterator[Daemon]:  # noqa: F811
    """A node of four NPUs."""
    args = ["agent", "--head", daemon.address, "--node-name", "n", "--num-gpus", "4"]
    args += ["--device-kind", "npu", "--secret-file", daemon.secret_file]
    daemon.agents["n"] = Process([*args, "--bind", "127.0.0.1"], daemon.env)
    daemon.agents["n"].wait_line("has joined")
    yield daemon


@pytest.fixture
def odd(tmp_path: Path) -> str:
    (tmp_path / "odd.c").write_text(ODD)
    build(tmp_path / "odd.c", tmp_path / "libodd.so")
    return f"{tmp_path}/libodd.so:odd"


def test_a_worker_in_c_reads_its_vendors_variable(npus: Daemon, odd: str) -> None:
    muster.init(address=npus.address, secret_file=npus.secret_file)
    try:
        two = muster.Cluster("seeing", odd, device_mapping="3,1")
        assert [who["devices"] for who in two.execute_all_sync("who")] == [["3"], ["1"]]
    finally:
        muster.shutdown()


def test_a_driver_in_c_tells_its_vendors_variable(
    npus: Daemon,
    odd: str,
    kit: Kit,  # noqa: F811
) -> None:
    source = kit.folder / "seeing.c"
    source.write_text(DRIVER)
    env = npus.env | {
        "MUSTER_ADDRESS": npus.address,
        "MUSTER_SECRET_FILE": npus.secret_file,
        "LD_LIBRARY_PATH": kit.env.get("LD_LIBRARY_PATH", ""),
    }
    done = subprocess.run(
        [kit.program_of(source), odd],
        env=env,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0:3", "1:1"]
