"""What one can do with the wheel on a machine that has Python and nothing else."""

import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from doc_rig import blocks_of
from ray_rig import PATIENCE, SAY, SAY_JOB
from wheel_rig import RAY_PYTHON, ROOT, BareMachine

pytestmark = pytest.mark.timeout(600)


def test_there_is_nothing_else(bare: BareMachine) -> None:
    seen = bare.say("ls /usr /usr/bin /lib/* 2>/dev/null; ls -d /usr/include || true")
    for name in ("gcc", "cc", "pkg-config", "include", "libcurl", "libevent", "hwloc"):
        assert name not in seen.split()
        assert f"{name}.so" not in seen
    assert bare.run(f"ls {ROOT}").returncode != 0


def test_the_first_cluster_of_the_readme(bare: BareMachine) -> None:
    (example,) = blocks_of("README.md", "python", "import os")
    bare.put("/tmp/first.py", example)
    assert "[10, 20, 30, 40, 50]" in bare.say("python first.py")


def test_the_command_line(bare: BareMachine) -> None:
    assert bare.say("muster version").startswith("muster 0.")
    assert bare.say("python -m muster version") == bare.say("muster version")
    assert bare.run("muster status").returncode == 3  # nothing runs
    assert "libmuster.so.0" in bare.say("ls $(python -m muster --pkgconfigdir)/..")


def test_it_comes_from_the_package(bare: BareMachine) -> None:
    code = "from muster.api import find_executable; print(find_executable())"
    assert bare.say(f"python -c '{code}'").endswith("site-packages/muster/bin/muster\n")


@pytest.mark.skipif(not RAY_PYTHON, reason="RAY_PYTHON is not set")
def test_ray(bare: BareMachine) -> None:
    bare.put("/tmp/job.yaml", SAY_JOB)
    bare.put("/tmp/train.py", SAY)
    path = f"/venv/bin:/usr/bin:{Path(RAY_PYTHON).parent}"
    out = bare.say(
        "muster run --on ray --address local job.yaml", PATH=path, **PATIENCE
    )
    assert "@ hello\n" in out


# ---- whom HTTPS trusts -----------------------------------------------------------------


class NoRay(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(404)
        self.end_headers()

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture(scope="module")
def https(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    """An address, and the certificate of who answers there."""
    import ssl

    folder = tmp_path_factory.mktemp("https")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        + ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
        + ["-keyout", str(folder / "key"), "-out", str(folder / "cert")],
        check=True,
        capture_output=True,
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), NoRay)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert", folder / "key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://localhost:{server.server_port}", (folder / "cert").read_text()
    server.shutdown()
    thread.join()
    server.server_close()


NOT_RAY = "is not the dashboard of Ray"


@pytest.mark.parametrize(
    "place",
    [
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/tmp/my-own.pem",
    ],
)
def test_https(bare: BareMachine, https: tuple[str, str], place: str) -> None:
    address, certificate = https
    bare.put("/tmp/job.yaml", SAY_JOB)
    command = f"muster run --on ray --address {address} job.yaml"
    before = bare.run(command)
    assert before.returncode == 1 and "certificate" in before.stderr.lower()
    bare.put(place, certificate)
    try:
        env = {"SSL_CERT_FILE": place} if place.startswith("/tmp") else {}
        done = bare.run(command, **env)
        assert done.returncode == 1 and NOT_RAY in done.stderr, done
    finally:
        (bare.root / place[1:]).unlink()
