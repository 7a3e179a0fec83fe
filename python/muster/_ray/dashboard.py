"""Ray's dashboard over HTTP: what is asked of it, and what its answers mean."""

# An answer of any status is an answer. Redirections are not followed. The address in a
# failure's text is the one that the user wrote.

from __future__ import annotations

import errno
import http.client
import json
import os
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from muster._ray import Refused

OLDEST = (2, 40)
ANSWER_S = 30.0
ANSWER_MAX = 256 << 20
PART = 64 << 10
TOKEN_MAX = 4096
TEXT_MAX = 512  # of an error: MS_ERROR_TEXT_MAX in src/base/error.h
STATUSES = ("PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED")
CODES: tuple[tuple[type[BaseException], int], ...] = (
    (ConnectionRefusedError, errno.ECONNREFUSED),
    (socket.gaierror, errno.ENXIO),
    (TimeoutError, errno.ETIMEDOUT),
    (ConnectionError, errno.ECONNRESET),
    (http.client.InvalidURL, errno.EINVAL),
    (http.client.HTTPException, errno.ECONNRESET),
    (OSError, errno.EIO),
    (ValueError, errno.EINVAL),
)


class Answer:
    def __init__(self, status: int, kind: str, body: bytes) -> None:
        self.status, self.kind, self.body = status, kind, body

    def get(self, name: str) -> Any:
        """A member of the object that the body is; None: there is none."""
        try:
            said = json.loads(self.body)
        except ValueError:
            return None
        return said.get(name) if isinstance(said, dict) else None

    def is_html(self) -> bool:
        start = self.body.lstrip()[:9].lower()
        return "html" in self.kind or start.startswith((b"<!doctype", b"<html"))

    def last_words(self) -> str:
        """The last line that says something; of a traceback that is the exception."""
        text = self.body.decode(errors="replace").rstrip()
        return text.rpartition("\n")[2][:240]


# Where distributions have the certificates that they trust; an interpreter from elsewhere
# knows only the place for which it was built.
_CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # Alpine
)


def _trust() -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not os.environ.get("SSL_CERT_FILE"):
        for path in filter(os.path.exists, _CERTIFICATES):
            context.load_verify_locations(path)
            break
    return context


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        return None


def base_url(address: str) -> str:
    """ "HEAD:8265", "http://HEAD:8265/": without a slash at its end"""
    scheme, sign, rest = address.rpartition("://")
    usual = f"'{address}' is not an address of Ray's dashboard: give http://HEAD:8265"
    if sign and scheme not in ("http", "https"):
        raise Refused(errno.EINVAL, f"{usual}, not the address of ray:// clients")
    if not rest or rest[0] == "/" or re.search(r"\s", rest):
        raise Refused(errno.EINVAL, usual)
    return (address if sign else f"http://{address}").rstrip("/")


def find_token() -> str:
    """RAY_AUTH_TOKEN, the file RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token, as Ray has it. No
    failure shows it."""
    token, path = (
        os.environ.get("RAY_AUTH_TOKEN"),
        os.environ.get("RAY_AUTH_TOKEN_PATH"),
    )
    usual = Path(os.environ.get("HOME", "/nonexistent"), ".ray", "auth_token")
    source = "RAY_AUTH_TOKEN" if token else path or str(usual)
    try:
        found = token or Path(source).read_bytes()[: TOKEN_MAX + 1].decode("latin-1")
    except OSError as e:
        if not path and e.errno == errno.ENOENT:
            why = "it wants a token, and there is none: set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH"
            raise Refused(errno.EACCES, why) from None
        why = f"cannot read the token in {source}: {e.strerror}"
        raise Refused(errno.EACCES, why) from None
    found = found.strip()
    if not found:
        raise Refused(errno.EACCES, f"{source} holds no token")
    if not re.fullmatch(r"[!-~]{1,4096}", found):
        raise Refused(errno.EACCES, f"what {source} holds is no token")
    return found


def with_log(text: str, log: str) -> str:
    """The last lines of a log behind a sentence, as many as an error has room for."""
    room, log = TEXT_MAX - len(text.encode()) - 24, log.rstrip()
    if not log or room < 16:
        return text
    kept = log.encode()[-room:].decode(errors="ignore")
    if kept != log and "\n" in kept:
        kept = kept.partition("\n")[2]  # whole lines
    return f"{text}. Its log ends: {kept}".replace("\n", "|")


def submission(job: str, entrypoint: str, package: str, env: dict[str, str]) -> bytes:
    """The body that asks for a job."""
    asks = {
        "submission_id": job,
        "entrypoint": entrypoint,
        "runtime_env": {"working_dir": f"gcs://{package}", "env_vars": env},
        "metadata": {"job_name": job},
    }
    return json.dumps(asks).encode()


class Dashboard:
    def __init__(self, address: str) -> None:
        self.address = self.base = base_url(address)
        self.token = ""
        https = urllib.request.HTTPSHandler(context=_trust())
        self._open = urllib.request.build_opener(_NoRedirect, https).open

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        within_s: float = ANSWER_S,
        stall_s: float = ANSWER_S,
    ) -> Answer:
        """Raises when there is no answer: within a time in all, and a shorter one in
        which nothing moves."""
        until = time.monotonic() + within_s
        headers = {"User-Agent": "muster"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if body is not None:
            is_json = body.startswith(b"{")
            headers["Content-Type"] = (
                f"application/{'json' if is_json else 'octet-stream'}"
            )
            headers["Content-Length"] = str(len(body))
        data = None if body is None else _parts(body, until)
        asked = urllib.request.Request(self.base + path, data, headers, method=method)
        try:
            try:
                got = self._open(asked, timeout=stall_s)
            except urllib.error.HTTPError as e:
                got = e
            with got:
                return Answer(
                    got.status, got.headers.get("Content-Type", ""), _read(got, until)
                )
        except tuple(kind for kind, _ in CODES) as e:
            raise self._no_answer(e) from None

    def _no_answer(self, error: BaseException) -> Refused:
        reason = getattr(error, "reason", None)
        cause = reason if isinstance(reason, BaseException) else error
        code = next(code for kind, code in CODES if isinstance(cause, kind))
        return Refused(
            code,
            f"no Ray dashboard answers at {self.address}: {getattr(cause, 'strerror', None) or cause}. "
            "Is Ray there, with its dashboard (ray[default])?",
        )

    def check(self, a: Answer, what: str = "") -> Answer:
        """An answer that we may have; with `what`, what was asked, one of status 200."""
        if a.status == 401:
            why = (
                f"the Ray cluster at {self.address} wants a token, and there is none: "
                "set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH"
            )
            raise Refused(errno.EACCES, why)
        if a.status == 403:
            why = (
                f"the Ray cluster at {self.address} does not accept this token: look at "
                "RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH and ~/.ray/auth_token"
            )
            raise Refused(errno.EACCES, why)
        if not what or a.status == 200:
            return a
        # a page is of a proxy between us and Ray: what Ray knows is not known
        words = "with a page for browsers" if a.is_html() else a.last_words()
        code = errno.ENOENT if a.status == 404 and not a.is_html() else errno.EPROTO
        why = f"Ray at {self.address} refuses to {what} (status {a.status}): {words}"
        raise Refused(code, why)

    def check_version(self) -> None:
        a = self.check(self.ask("GET", "/api/version"))
        version = a.get("ray_version")
        is_ray = isinstance(version, str) and a.status == 200 and not a.is_html()
        if not is_ray:
            gave = "no answer" if version else "no version of Ray"
            raise Refused(
                errno.EPROTO,
                f"what answers at {self.address} is not the dashboard of Ray: /api/version "
                f"gave {'a page for browsers' if a.is_html() else gave} (status {a.status})",
            )
        found = re.match(r"(\d+)\.(\d+)", version)
        if not found or (int(found[1]), int(found[2])) < OLDEST:
            raise Refused(
                errno.ENOTSUP,
                f"Ray at {self.address} is version {version}; Muster needs "
                f"{OLDEST[0]}.{OLDEST[1]} or newer",
            )

    def find_token(self) -> None:
        """If the cluster wants one; those that are too old to know of tokens do not."""
        a = self.ask("GET", "/api/authentication_mode")
        if (
            a.status != 401
            and (a.get("authentication_mode") or "disabled") == "disabled"
        ):
            return
        try:
            self.token = find_token()
        except Refused as e:
            raise Refused(
                e.code, f"the Ray cluster at {self.address}: {e.why}"
            ) from None

    def job(self, job: str) -> Answer:
        """Its status and exit code; ENOENT: there is no such job."""
        a = self.check(self.ask("GET", f"/api/jobs/{job}"), "say how the job is")
        if a.get("status") not in STATUSES:
            why = f"Ray at {self.address} says nothing of the job's status"
            raise Refused(errno.EPROTO, why)
        return a

    def local_address(self) -> str:
        """Ours, as the cluster sees it; "": not known."""
        to = urlsplit(self.base)
        port = to.port or (443 if to.scheme == "https" else 80)
        with suppress(OSError), socket.create_connection((to.hostname, port), 5) as s:
            return str(s.getsockname()[0])
        return ""


def _parts(body: bytes, until: float) -> Iterator[bytes]:
    for at in range(0, len(body), PART):
        if time.monotonic() > until:
            raise TimeoutError("timed out")
        yield body[at : at + PART]


def _read(answer: Any, until: float) -> bytes:
    out = bytearray()
    while part := answer.read1(PART):
        out += part
        if len(out) > ANSWER_MAX or time.monotonic() > until:
            raise TimeoutError("timed out, or too long an answer")
    return bytes(out)
