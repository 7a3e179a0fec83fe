"""Code that goes to other nodes: init(working_dir=DIR)."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import muster
import pytest
from daemon_rig import Daemon, daemon  # noqa: F401  (fixture)
from helpers import Driver
from muster import api
from muster._session import package as _package
from muster.errors import MusterError

MODULE = """
import os
from . import values

class Reader:
    def read(self):
        with open("data/text") as file:
            return file.read(), values.VALUE, os.getcwd(), os.path.dirname(__file__)

    def read_in_another(self):
        import muster
        self.inner = muster.Cluster("inner", Reader)
        return self.inner.execute_rank_zero_sync("read")
"""

DRIVER = """
import os, sys
sys.path.insert(0, os.environ["CODE"])
import muster
from muster import api
from job.reader import Reader

muster.init(working_dir=os.environ["CODE"], **eval(os.environ.get("OPTIONS", "{}")))
c = muster.Cluster("c", Reader, world_size=int(os.environ.get("SIZE", "3")))
print(*sorted(set(c.execute_all_sync("read"))), sep="\\n", flush=True)
if os.environ.get("LOSE"):
    import shutil
    c.destroy()
    for key in muster.kv.keys("muster/package/"):
        muster.kv.delete(key)
    shutil.rmtree(os.path.join(os.environ["MUSTER_HOME"], "packages"))
    c = muster.Cluster("c", Reader)
    print(c.execute_rank_zero_sync("read"), flush=True)
print("sent", api.session().package.sent, flush=True)
muster.shutdown()
"""


@pytest.fixture
def code() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="mpkg-", dir="/tmp"))
    (folder / "job").mkdir()
    (folder / "job" / "__init__.py").touch()
    (folder / "job" / "reader.py").write_text(MODULE)
    (folder / "job" / "values.py").write_text("VALUE = 42\n")
    (folder / "data").mkdir()
    (folder / "data" / "text").write_text("some data")
    (folder / "empty").mkdir()
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run").chmod(0o755)
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("not for others")
    yield folder
    shutil.rmtree(folder)


# ---- what is in a folder ------------------------------------------------------------------


def paths(package: _package.Package) -> list[str]:
    return [entry[0] for entry in package.entries]


def test_the_hash_is_of_names_modes_and_contents(code: Path, tmp_path: Path) -> None:
    first = _package.read(str(code))
    assert paths(first) == sorted(
        ["data/", "data/text", "empty/", "job/", "job/__init__.py", "job/reader.py"]
        + ["job/values.py", "run"]
    )
    copy = tmp_path / "copy"
    shutil.copytree(code, copy)
    (copy / ".git" / "HEAD").write_text("other")
    (copy / "job" / "__pycache__").mkdir()
    (copy / "job" / "x.pyc").touch()
    assert _package.read(str(copy)).hash == first.hash
    changes = [
        lambda: (copy / "run").chmod(0o644),
        lambda: (copy / "data" / "text").write_text("some datb"),
        lambda: (copy / "data" / "text").rename(copy / "data" / "texu"),
        lambda: (copy / "empty").rmdir(),
    ]
    seen = {first.hash}
    for change in changes:
        change()
        seen.add(_package.read(str(copy)).hash)
    assert len(seen) == 5


def test_excludes_and_links(code: Path) -> None:
    (code / "link").symlink_to("data/text")
    assert "link" in paths(_package.read(str(code)))
    assert paths(_package.read(str(code), ["data", "job/v*", "link"])) == sorted(
        ["empty/", "job/", "job/__init__.py", "job/reader.py", "run"]
    )
    (code / "out").symlink_to("/etc/passwd")
    with pytest.raises(MusterError, match=r"'out' is a link to '/etc/passwd'"):
        _package.read(str(code))
    (code / "out").unlink()
    (code / "up").symlink_to("../../etc")
    with pytest.raises(MusterError, match="'up' is a link"):
        _package.read(str(code))


def test_a_folder_that_is_too_big_says_what_is_in_it(code: Path) -> None:
    with open(code / "weights.bin", "wb") as file:
        file.truncate(_package.SIZE_MAX + 1)
    with pytest.raises(MusterError, match=r"64 MiB.*weights.bin.*excludes"):
        _package.read(str(code))
    assert _package.read(str(code), ["*.bin"]).entries
    with pytest.raises(MusterError, match="no such folder"):
        _package.read(str(code / "nowhere"))


# ---- on nodes -----------------------------------------------------------------------------


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="mpkr-", dir="/tmp"))
    monkeypatch.setenv("MUSTER_HOME", str(folder))
    yield folder
    shutil.rmtree(folder)


def run(code: Path, tmp_path: Path, **env: str) -> tuple[list[str], int]:
    driver = Driver(DRIVER, tmp_path, CODE=str(code), **env)
    try:
        status, out, err = driver.end()
    finally:
        driver.process.kill()
    assert status == 0, err
    assert driver.left() == []
    *lines, sent = out.splitlines()
    return lines, int(sent.split()[1])


def test_workers_have_it_as_their_folder(
    code: Path, root: Path, tmp_path: Path
) -> None:
    lines, sent = run(code, tmp_path)
    name = _package.read(str(code)).hash
    at = root / "packages" / name
    assert lines == [str(("some data", 42, str(at), str(at / "job")))]
    assert 0 < sent < 10_000
    assert os.access(at / "run", os.X_OK)
    assert not (at / ".git").exists()
    before = at.stat().st_ino
    assert run(code, tmp_path, SIZE="1")[0] == lines  # unpacked once
    assert at.stat().st_ino == before
    (code / "job" / "values.py").write_text("VALUE = 43\n")
    lines, _ = run(code, tmp_path)
    assert "43" in lines[0] and str(at) not in lines[0]


def test_a_head_that_has_lost_it_gets_it_again(
    code: Path, root: Path, tmp_path: Path
) -> None:
    lines, _ = run(code, tmp_path, LOSE="1")
    assert len(lines) == 2 and lines[0] == lines[1]


def test_two_may_sweep_at_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = root / "packages"
    folder.mkdir()
    (folder / "kept").mkdir()
    monkeypatch.setattr(os, "listdir", lambda path: ["kept", "swept"])
    _package._sweep(str(folder))
    assert (folder / "kept").is_dir()


def test_old_ones_go_but_not_those_in_use(code: Path, root: Path) -> None:
    folder = root / "packages"
    folder.mkdir()
    for i in range(_package.KEPT_MAX + 3):
        (folder / f"{i:02}").mkdir()
        os.utime(folder / f"{i:02}", (i, i))
    import fcntl

    with open(folder / "00.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        _package._sweep(str(folder))
    left = sorted(p.name for p in folder.iterdir() if p.is_dir())
    assert left == ["00"] + [f"{i:02}" for i in range(4, _package.KEPT_MAX + 3)]


NESTED = """
import os, sys
sys.path.insert(0, os.environ["CODE"])
import muster
from job.reader import Reader
from helpers import below, describe

def zygotes():
    return [pid for pid in below(os.getpid()) if "_worker.zygote" in describe(pid)]

muster.init(working_dir=os.environ["CODE"])
c = muster.Cluster("c", Reader)
before = zygotes()
there, here = (c.execute_rank_zero_sync(m) for m in ("read_in_another", "read"))
assert there == here, (there, here)
print(len(before), zygotes() == before, flush=True)
"""


def test_a_cluster_of_a_worker(root: Path, code: Path, tmp_path: Path) -> None:
    driver = Driver(NESTED, tmp_path, CODE=str(code))
    status, out, err = driver.end()
    assert status == 0, err
    assert out == "1 True\n"  # it has come from the same zygote


def test_a_second_init_ships_nothing(
    code: Path,
    root: Path,
    tmp_path: Path,
    daemon: Daemon,  # noqa: F811
) -> None:
    daemon.agent("n1")
    daemon.agent("n2")
    where = {"MUSTER_ADDRESS": daemon.address, "MUSTER_SECRET_FILE": daemon.secret_file}
    lines, sent = run(code, tmp_path, **where)
    assert sent > 0 and len(lines) == 1
    again, sent = run(code, tmp_path, **where)
    assert sent == 0 and again == lines
    muster.init(address=daemon.address, secret_file=daemon.secret_file)
    try:
        assert len(muster.kv.keys("muster/package/")) == 2  # the package, in one piece
        asked = {"prefix": "muster/package/"}
        before = api.session().head.request("kv_keys", asked, 10)["entries"]
        run(code, tmp_path, **where)
        after = api.session().head.request("kv_keys", asked, 10)["entries"]
        assert before[1] == after[1]  # the piece was not put again
    finally:
        muster.shutdown()
