"""One job on a Ray cluster, from the first question to its end."""

#     PYTHON -IS muster/ray_job.py ADDRESS ID ENTRYPOINT MUSTER CACHE_DIR POLITE_S IS_THERE [NAME PATH]...
#
# A process that src/orchestrator/ray/job/job.c starts. It needs nothing but the standard
# library, asks the cluster's version, uploads the package if the cluster has it not, submits
# the job, looks at it until it ends, and deletes the record that Ray has of it. Its lines are
# in doc/orchestrators.md, "The job's lines".

from __future__ import annotations

import os
import sys
import types

if __name__ == "__main__":
    # a bare package stands for `muster`, which may want a newer Python
    bare = types.ModuleType("muster")
    bare.__path__ = [os.path.dirname(os.path.abspath(__file__))]
    sys.modules["muster"] = bare

import errno
import json
import queue
import threading
import time
import traceback
from contextlib import suppress
from typing import Any

from muster._ray import Refused, archive
from muster._ray.dashboard import Answer, Dashboard, submission, with_log
from muster._ray.local import LocalRay

HERE = os.path.dirname(os.path.abspath(__file__))  # the package `muster`
UPLOAD_S = 600.0
STALL_S = 20.0  # of an upload that does not move
LOOK_S = 0.15  # between two looks, at first
LOOK_MAX_S = 1.0
AGAIN_S = 1.0
UNSURE_S = 5.0  # what was asked for is there then, or never
LOCAL_START_S = 120.0
LOCAL_LOOK_S = 0.2
NOT_BY_WAITING = (errno.ENOTSUP, errno.EACCES, errno.ECANCELED)
# Ray looks after a job a little longer than it runs, and if its record has gone then it
# makes a new one.
SETTLE_S = 2.5
TRIES = 3
ENDED = ("STOPPED", "SUCCEEDED", "FAILED")
LOG_PART = 64 << 10
LAST_LOG = 4096


class Job:
    def __init__(self, words: list[str]) -> None:
        self.address, self.id, self.entrypoint, self.muster, self.cache_dir = words[:5]
        self.polite_s, self.is_there = float(words[5]), words[6] == "1"
        self.files = list(zip(words[7::2], words[8::2]))
        self.dashboard: Dashboard = None  # type: ignore[assignment]
        self.local: LocalRay | None = None
        self.package = ("", b"")
        self.answers: queue.Queue[dict[str, str]] = queue.Queue()  # env of "submit"
        self.poked = threading.Event()
        self.lock = threading.Lock()  # of the next three
        self.is_on_cluster = self.is_there  # or may be
        self.stop_until = self.polite_until = 0.0  # 0: it is not to be stopped
        self.unsure_until = 0.0  # it was asked for without an answer: it may be there
        self.is_stop_asked = self.is_silent = False
        self.log_len = 0  # that was told
        self.last_log = ""

    # ---- telling and hearing -----------------------------------------------------------

    def tell(self, event: str, **more: Any) -> None:
        line = json.dumps({"event": event, **more}, ensure_ascii=False)
        sys.stdout.buffer.write(line.encode(errors="replace") + b"\n")
        sys.stdout.buffer.flush()

    def tell_ended(self, rc: int, exit_code: int, why: str) -> None:
        self.tell("ended", rc=rc, exit_code=exit_code, why=why)

    def hear(self) -> None:
        """The thread that reads."""
        verb = ""
        for line in sys.stdin.buffer:
            m = json.loads(line)
            verb = m["do"]
            if verb == "submit":
                self.answers.put(m["env"])
            elif verb != "look":
                self._stop(verb == "end", float(m["within_s"]))
            self.poked.set()
        if verb != "end":
            os._exit(0)

    def _stop(self, is_end: bool, within_s: float) -> None:
        now = time.monotonic()
        with self.lock:
            # there is nothing to be stopped, or it ends with its Ray
            if is_end and (self.local or not self.is_on_cluster):
                if self.local:
                    self.local.end()
                os._exit(0)
            if is_end or not self.stop_until:
                self.stop_until = now + within_s
                self.polite_until = now + self.polite_s

    def wait(self, for_s: float) -> None:
        """Until that time has passed, or something has happened."""
        if self.poked.wait(for_s):
            self.poked.clear()

    def go_on(self) -> None:
        """Between two steps: raises when it was stopped before it was there."""
        if self.stop_until:
            raise Refused(errno.ECANCELED, "the job was stopped before it began")

    def set_gone(self) -> None:
        with self.lock:
            self.is_on_cluster = False

    # ---- until it is on the cluster ----------------------------------------------------

    def start(self) -> None:
        if self.address == "local":
            self._start_local()
        else:
            self.dashboard = Dashboard(self.address)
            self._check_cluster()
        if self.is_there:
            return
        self._upload()
        self.tell("submitting", local=self.dashboard.local_address())
        env = self._environment() | (self.local.env if self.local else {})
        self._submit(submission(self.id, self.entrypoint, self.package[0], env))

    def _check_cluster(self) -> None:
        """Raises when it does not answer, is not for us, or this was stopped."""
        self.go_on()
        self.dashboard.find_token()
        self.go_on()
        self.dashboard.check_version()
        self.go_on()

    def _environment(self) -> dict[str, str]:
        while True:
            with suppress(queue.Empty):
                return self.answers.get(timeout=LOOK_S)
            self.go_on()

    def _start_local(self) -> None:
        """A Ray of our own: until it answers."""
        with self.lock:
            self.local = LocalRay(self.muster)
        self.dashboard = Dashboard(self.local.address)
        until = time.monotonic() + LOCAL_START_S
        while True:
            self.go_on()
            self.wait(LOCAL_LOOK_S)
            self.local.check()
            try:
                self._check_cluster()
                return
            except Refused as e:
                if e.code in NOT_BY_WAITING:
                    raise
            if time.monotonic() >= until:
                raise self.local.failure(errno.ETIMEDOUT, "does not answer")

    def _upload(self) -> None:
        self.package = archive.make(self.muster, HERE, self.cache_dir, self.files)
        failed = self._upload_once()
        for _ in range(TRIES - 1):
            if failed is not None:
                self.wait(AGAIN_S)  # it may be there after all
                failed = self._upload_once()
        if failed is not None:
            why = f"the upload of {self.package[0]} failed {TRIES} times: {failed.why}"
            raise Refused(failed.code, why)

    def _upload_once(self) -> Refused | None:
        """A failure that may be tried again. The question also keeps the package there
        for ten minutes, by Ray's rules: until the job holds it."""
        self.go_on()
        name, data = self.package
        path = f"/api/packages/gcs/{name}"
        a = self.dashboard.ask("GET", path)
        if a.status != 404:
            self.dashboard.check(a, "look for a package")
            return None
        self.go_on()
        status = 0
        try:
            a = self.dashboard.ask("PUT", path, data, UPLOAD_S, STALL_S)
            status = a.status
            self.dashboard.check(a, "take Muster's package")
        except Refused as e:
            if status and status < 500:
                raise
            return e
        return None

    def _submit(self, body: bytes) -> None:
        """It is there when this returns, or (unsure_until) is to be stopped and may be."""
        for _ in range(TRIES):
            with self.lock:
                self.go_on()
                self.is_on_cluster = True
            # from here on it may be there, whether or not an answer comes
            self.unsure_until = time.monotonic() + UNSURE_S
            try:
                a = self.dashboard.ask("POST", "/api/jobs/", body)
            except Refused as e:
                failed = e
            else:
                self._submitted(a)
                return
            for is_known in (True, False):
                if self.stop_until:
                    return
                self.wait(AGAIN_S)
                if is_known and self._is_known():
                    self._submitted()
                    return
        raise failed

    def _is_known(self) -> bool:
        try:
            self.dashboard.job(self.id)
        except Refused:
            return False
        return True

    def _submitted(self, a: Answer | None = None) -> None:
        """It is there; or, by the answer to the submission, not."""
        self.unsure_until = 0.0
        try:
            if a is not None:
                self.dashboard.check(a, "start the job")
        except Refused:
            self.go_on()
            raise
        self.package = ("", b"")
        self.tell("submitted")

    # ---- until it has ended ------------------------------------------------------------

    def look(self) -> Answer | None:
        """How it is; None: Ray does not say. Raises when its end will not be known."""
        unheard = None
        try:
            a = self.dashboard.job(self.id)
        except Refused as e:
            if e.code == errno.ENOENT:
                self._is_unknown()
                return None
            a, unheard = None, e
        if self.stop_until and (a is None or a.get("status") not in ENDED):
            self._stop_job(unheard)
        self._set_silent(unheard.why if unheard else "")
        return a

    def follow(self) -> Answer:
        """Until it has ended: with its last answer."""
        pause_s = LOOK_S
        while True:
            if self.local:
                self.local.check()
            a = self.look()
            if a is None:
                pause_s = LOOK_MAX_S
            else:
                self.unsure_until = 0.0
                asked = time.monotonic()
                is_news = self._look_at_log()
                if a.get("status") in ENDED:
                    return a
                pause_s = LOOK_S if is_news else min(2 * pause_s, LOOK_MAX_S)
                # a long log takes long to send, and it is sent as a whole
                pause_s = max(pause_s, 10 * (time.monotonic() - asked))
            self.wait(LOOK_S if self.stop_until else pause_s)

    def _is_unknown(self) -> None:
        """To Ray; it may yet come."""
        if not self.unsure_until:
            raise Refused(
                errno.ECHILD,
                f"Ray at {self.dashboard.address} does not know the job {self.id} any "
                "more: it was started anew, or the job was deleted",
            )
        if time.monotonic() >= self.unsure_until:
            raise Refused(errno.ECANCELED, "the job was stopped before it began")

    def _stop_job(self, unheard: Refused | None) -> None:
        """It is to be stopped, and has not ended."""
        now = time.monotonic()
        if now >= self.stop_until and unheard:
            why = f"the job {self.id} could not be ended: {unheard.why}"
            raise Refused(unheard.code, why)
        if now >= self.stop_until:
            raise Refused(errno.ETIMEDOUT, f"the job {self.id} does not end")
        if not unheard and not self.is_stop_asked and now >= self.polite_until:
            with suppress(Refused):  # what Ray has not agreed to is asked again
                a = self.dashboard.ask("POST", f"/api/jobs/{self.id}/stop", b"")
                self.is_stop_asked = a.status == 200 and a.get("stopped") is True

    def _set_silent(self, why: str) -> None:
        if self.is_silent != bool(why):
            self.is_silent = bool(why)
            self.tell("silent", **({"why": why} if why else {}))

    def _look_at_log(self) -> bool:
        """Is its log longer? What is new in it is told."""
        try:
            log = self.dashboard.ask("GET", f"/api/jobs/{self.id}/logs").get("logs")
        except Refused:
            return False
        if not isinstance(log, str) or len(log) == self.log_len:
            return False
        self.last_log = log[-LAST_LOG:]
        if len(log) < self.log_len:
            return False
        new = log[self.log_len :]
        self.log_len = len(log)
        for at in range(0, len(new), LOG_PART):
            self.tell("log", text=new[at : at + LOG_PART])
        return True

    def conclude(self, a: Answer) -> None:
        """It has ended: that is told, and its record deleted."""
        said, how = a.get("driver_exit_code"), f"the job {self.id} on Ray has failed"
        code = said if isinstance(said, int) else -1
        if a.get("status") == "SUCCEEDED":
            self.tell_ended(0, 0, "")
        elif a.get("status") == "STOPPED":
            self.tell_ended(-errno.ECANCELED, code, f"the job {self.id} was stopped")
        else:
            if code >= 0:
                how += f" with exit code {code}"
            elif a.get("message"):
                how += f": {str(a.get('message'))[:240]}"
            self.tell_ended(-errno.ECHILD, code, with_log(how, self.last_log))
        until = time.monotonic() + SETTLE_S
        while (left := until - time.monotonic()) > 0:
            self.wait(left)
        with suppress(Refused):  # a record that stays is no harm
            self.dashboard.ask("DELETE", f"/api/jobs/{self.id}")

    def run(self) -> None:
        try:
            self.start()
            self.conclude(self.follow())
        except Refused as e:
            self.tell_ended(-e.code, -1, e.why)
        except Exception as e:  # nothing of it is left on the cluster
            traceback.print_exc()
            with suppress(Exception):
                self.dashboard.ask("POST", f"/api/jobs/{self.id}/stop", b"")
            self.tell_ended(-errno.EIO, -1, f"{type(e).__name__}: {e}")
        self.set_gone()


def main() -> None:
    job = Job(sys.argv[1:])
    threading.Thread(target=job.hear, daemon=True).start()
    job.run()
    if job.local:  # which ends when it is not needed any more
        while True:
            time.sleep(60)
    os._exit(0)  # the other thread holds the lock of stdin


if __name__ == "__main__":
    main()
