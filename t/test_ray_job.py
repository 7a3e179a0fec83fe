"""A job on Ray without one: what the dashboard's answers mean, and what is in the package.

How a job runs is shown by src/orchestrator/ray/job/job_test.c, and with a real Ray."""

import errno
import json
import os
import stat
import sys
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from muster._ray import Refused, archive, dashboard
from muster._ray.dashboard import Answer, Dashboard

JSON = "application/json"


def answered(status: int, kind: str, body: str) -> Dashboard:
    """A dashboard that says this, whatever it is asked."""
    d = Dashboard("http://h:8265")
    d.ask = lambda *_: Answer(status, kind, body.encode())  # type: ignore[method-assign]
    return d


def fails(code: int, what: Any, *args: Any) -> str:
    with pytest.raises(Refused) as caught:
        what(*args)
    assert caught.value.code == code
    return caught.value.why


@pytest.mark.parametrize("version", ["2.60.0", "2.40.0", "3.0.0.dev0"])
def test_versions(version: str) -> None:
    answered(200, JSON, json.dumps({"ray_version": version})).check_version()


def test_too_old() -> None:
    old = answered(200, JSON, '{"ray_version":"2.39.0"}')
    text = fails(errno.ENOTSUP, old.check_version)
    assert "2.39.0" in text and "2.40" in text


@pytest.mark.parametrize(
    "status, kind, body, words",
    [
        (200, "text/html", "<!DOCTYPE html><html>", "page for browsers"),
        (200, "text/plain", " <HTML>hello", "page for browsers"),
        (200, JSON, "[1]", "no version of Ray"),
        (200, JSON, '{"ray_ver', "no version of Ray"),
        (404, "text/plain", "404: Not Found", "status 404"),
    ],
)
def test_what_is_not_ray(status: int, kind: str, body: str, words: str) -> None:
    assert words in fails(errno.EPROTO, answered(status, kind, body).check_version)


def test_answers_about_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "abc")
    refused = answered(401, "text/plain", "")
    assert "wants a token" in fails(errno.EACCES, refused.check_version)
    refused = answered(403, "text/plain", "")
    assert "does not accept this token" in fails(errno.EACCES, refused.check_version)
    for status, mode, token in (
        (200, "token", "abc"),
        (200, "disabled", ""),
        (404, "x", ""),
    ):
        body = json.dumps({"authentication_mode": mode}) if status == 200 else "404"
        d = answered(status, JSON, body)
        d.find_token()
        assert d.token == token


def test_nobody_answers() -> None:
    text = fails(errno.ECONNREFUSED, Dashboard("127.0.0.1:1").check_version)
    assert "http://127.0.0.1:1" in text and "Connection refused" in text


def test_addresses() -> None:
    assert dashboard.base_url("head:8265") == "http://head:8265"
    assert dashboard.base_url("http://head:8265///") == "http://head:8265"
    assert dashboard.base_url("https://ray.example/x/") == "https://ray.example/x"
    for bad in ("", "ray://head:10001", "http://", "a b:1", "/x"):
        fails(errno.EINVAL, dashboard.base_url, bad)


def test_jobs() -> None:
    said = '{"status":"FAILED","message":"m","driver_exit_code":3}'
    a = answered(200, JSON, said).job("x")
    assert (a.get("status"), a.get("driver_exit_code")) == ("FAILED", 3)
    for status, kind, body, code in (
        (404, "text/plain", "Job x does not exist", errno.ENOENT),
        (404, "text/html", "<html>no such page</html>", errno.EPROTO),  # of a proxy
        (200, JSON, '{"status":"ODD"}', errno.EPROTO),
    ):
        fails(code, answered(status, kind, body).job, "x")
    failed = answered(500, "text/plain", "Traceback:\n  x\nValueError: no\n")
    assert "ValueError: no" in fails(errno.EPROTO, failed.job, "x")


def test_submission() -> None:
    body = dashboard.submission("id", "run", "p.zip", {"A": "b=c", "Q": '"x"'})
    said = json.loads(body)
    assert said["submission_id"] == "id"
    assert said["runtime_env"]["working_dir"] == "gcs://p.zip"
    assert said["runtime_env"]["env_vars"] == {"A": "b=c", "Q": '"x"'}


def test_last_lines_of_a_log() -> None:
    text = dashboard.with_log("it failed", f"{('x' * 49 + chr(10)) * 99}the very end\n")
    assert text.startswith("it failed. Its log ends: xxx")
    assert text.endswith("|the very end") and "\n" not in text
    assert len(text) < dashboard.TEXT_MAX
    assert dashboard.with_log("it failed", "\n \n") == "it failed"
    assert dashboard.with_log("it failed", "y" * 5000).endswith("y")


def test_tokens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert "there is none: set RAY_AUTH_TOKEN" in fails(
        errno.EACCES, dashboard.find_token
    )
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text(" abc\n")
    assert dashboard.find_token() == "abc"
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "none"))
    assert "cannot read" in fails(errno.EACCES, dashboard.find_token)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "x\r\nEvil: header")
    assert "Evil" not in fails(errno.EACCES, dashboard.find_token)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "def")
    assert dashboard.find_token() == "def"


def test_lines_of_the_loader() -> None:
    lines = """\tlinux-vdso.so.1 (0x7ff)
\tlibx.so.1 => /l/libx.so.1 (0x7ff)
\tlibx.so.1 => /other/libx.so.1 (0x7ff)
\tlibc.so.6 => /l/libc.so.6 (0x7ff)
\t/lib64/ld-linux-x86-64.so.2 (0x7ff)
"""
    assert archive.parse_libraries(lines) == {"libx.so.1": "/l/libx.so.1"}
    gone = "\tlibgone.so => not found\n"
    assert "libgone.so" in fails(errno.ENOENT, archive.parse_libraries, gone)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "muster" / "__pycache__").mkdir(parents=True)
    (tmp_path / "cloudpickle").mkdir()
    (tmp_path / "cloudpickle" / "__init__.py").write_text("x")
    (tmp_path / "muster" / "ray_bridge.py").write_text("x")
    (tmp_path / "muster" / "__pycache__" / "y.pyc").write_text("y")
    return tmp_path


def make(site: Path, *files: tuple[str, str]) -> tuple[str, bytes]:
    program = os.environ.get("MUSTER_CLI") or str(
        Path(sys.executable).parent / "muster"
    )
    return archive.make(program, str(site / "muster"), str(site / "cache"), list(files))


def test_package_is_named_by_what_is_in_it(site: Path) -> None:
    name, data = make(site)
    with zipfile.ZipFile(BytesIO(data)) as z:
        assert z.testzip() is None
        names = z.namelist()
        program = z.getinfo("bin/muster")
    assert stat.S_IMODE(program.external_attr >> 16) == 0o755
    assert program.compress_size < program.file_size
    assert {"muster/ray_bridge.py", "cloudpickle/__init__.py"} <= set(names)
    assert any(n.startswith("lib/libcrypto.so") for n in names)
    assert not any(n.startswith("lib/libc.so") or n.endswith("pyc") for n in names)
    assert make(site) == (name, data)  # from the cache
    (site / "cache" / "packages" / name).unlink()
    assert make(site) == (name, data)  # the same in, the same out
    (site / "muster" / "ray_bridge.py").write_text("z")
    assert make(site)[0] != name


def test_cache_keeps_some_packages(site: Path) -> None:
    for i in range(archive.KEPT + 2):
        (site / "muster" / "ray_bridge.py").write_text(str(i))
        name, _ = make(site)
    kept = list((site / "cache" / "packages").iterdir())
    assert len(kept) == archive.KEPT and name in {p.name for p in kept}


def test_files_of_a_job(site: Path) -> None:
    path = site / "train.yaml"
    files = ("train.yaml", str(path))
    assert str(path) in fails(errno.ENOENT, make, site, files)
    path.write_text("name: x")
    with zipfile.ZipFile(BytesIO(make(site, files)[1])) as z:
        assert z.read("job/train.yaml") == b"name: x"


def test_folder_within_itself(site: Path) -> None:
    (site / "muster" / "again").symlink_to(site / "muster")
    text = fails(errno.ELOOP, make, site)
    assert "the package needs the folder" in text
