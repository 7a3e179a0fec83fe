"""One Ray cluster for all tests of a file that change nothing in it."""

from collections.abc import Callable, Iterator

import pytest
from ray_rig import PYTHON, Bridge, RayCluster

NODES = 3

if not PYTHON:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """Three nodes. Whoever breaks one starts a cluster of its own."""
    one = RayCluster(NODES)
    yield one
    one.stop()


@pytest.fixture
def bridge(
    ray_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bridge]:
    """With agents that only say that they have joined, and end as they are told."""
    one = ray_cluster.bridge(muster=fake_agent(tmp_path_factory))
    yield one
    if one.process.poll() is None:
        one.quit()


def fake_agent(folders: pytest.TempPathFactory) -> str:
    path = folders.mktemp("agent") / "muster"
    path.write_text(FAKE_AGENT)
    path.chmod(0o700)
    return str(path)


# SIGUSR1: exit code 7. What it was started with is kept for the test.
FAKE_AGENT = """#!/bin/sh
words="$*"
while [ $# -gt 0 ]; do
    case $1 in
    --ready-fd) ready=$2 ;;
    --secret-file) secret=$2 ;;
    esac
    shift
done
[ -z "$FAKE_DIR" ] || { echo "$words"; cat "$secret"; } >"$FAKE_DIR/$$"
if [ -n "$FAKE_FAIL" ]; then echo "the head said no" >&2; exit 3; fi
trap 'exit 7' USR1
trap 'exit 0' TERM
if [ -z "$FAKE_LATE" ]; then printf 1 >"/proc/self/fd/$ready"; fi
while :; do sleep 1000 & wait $!; done
"""

MakeBridge = Callable[[], Bridge]
