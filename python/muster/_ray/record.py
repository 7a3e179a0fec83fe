"""Deletes the record of the bridge's job in Ray's list if the controller cannot."""

# A controller deletes it, and one that is killed cannot. Nor can the job, as Ray deletes no
# record of a job that runs. So a process of its own waits beside the bridge until that has
# ended, in whatever way, and gives a controller that lives LATE_S to read how. It costs a
# bare Python, and Ray is imported by it at the end alone.

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from typing import Any

NAME = "MUSTER_BRIDGE_NAME"  # of a bridge that has a process above it,
WITH = "MUSTER_BRIDGE_WITH"  # and that is in a job of its controller
ID = "job_submission_id"
LATE_S = 20.0
GIVE_UP_S = 120.0  # after the end of the bridge
NAP_S = 1.0
LOST_MAX = 3  # connections in a row that break: Ray is no more
WATCH = """
import os, signal, sys, time
if os.fork():
    os._exit(0)
told = sys.stdin.read()  # until the bridge has ended
if told:
    os._exit(0)
address, job, late, most, nap, lost_max = *sys.argv[1:3], *map(float, sys.argv[3:])
signal.alarm(int(most + late) + 1)  # whatever Ray does, and if it does not answer
from ray.job_submission import JobSubmissionClient

def ask(call, *args):
    lost = 0
    while True:
        try:
            return call(*args)
        except RuntimeError as e:
            if "status code 404" in str(e):
                os._exit(0)  # it was deleted
        except ConnectionError:
            raise  # Ray has gone
        except OSError:
            lost += 1
            if lost >= lost_max:
                raise
        time.sleep(nap)

client = ask(JobSubmissionClient, address)
while not ask(client.get_job_status, job).is_terminal():
    time.sleep(nap)
time.sleep(late)
ask(client.delete_job, job)
"""


class Record:
    """Made once Ray is connected to; of a bridge that is no job there is none."""

    def __init__(self, config: dict[str, Any], dashboard: str | None) -> None:
        job = str((config.get("metadata") or {}).get(ID) or "")
        self.watch: Any = None
        is_alone = NAME in os.environ and WITH not in os.environ
        if not job or not dashboard or not is_alone:
            return
        limits = [str(n) for n in (LATE_S, GIVE_UP_S, NAP_S, LOST_MAX)]
        self.watch = subprocess.Popen(
            [sys.executable, "-c", WATCH, f"http://{dashboard}", job, *limits],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # Ray ends the job's group
        )
        self.watch.wait()  # it has forked, and its child goes on

    def leave(self) -> None:
        """The controller is there: it reads the record, and deletes it."""
        if self.watch is not None:
            with suppress(OSError):  # it has ended meanwhile
                self.watch.stdin.write(b"1")
                self.watch.stdin.close()
