"""The actor that keeps a bundle that Ray has lent, and the agent that may be its child."""

# It is sent to the nodes by value: nothing of Muster has to be installed there, and it
# imports the standard library and ray alone.
#
# One thread starts the agent and waits for its end. It has to be that thread: the kernel
# kills the agent when the thread that started it is gone, however it went.

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import threading
import time
from typing import Any

import ray

PR_SET_PDEATHSIG = 1
TAIL_BYTES = 4096
STOP_GRACE_S = 5.0
LOOK_S = 0.5
# What Ray says to a worker about its devices is not for the workers of our agent.
VISIBLE = {
    "CUDA_VISIBLE_DEVICES": "nvidia",
    "HIP_VISIBLE_DEVICES": "amd",
    "ROCR_VISIBLE_DEVICES": "amd",
    "ASCEND_RT_VISIBLE_DEVICES": "huawei",
}
VARIABLES = {"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "HIP_VISIBLE_DEVICES"}


# ---- a NodeShape, as protobuf has it ---------------------------------------------------


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value) if value else b""


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode()) if value else b""


def pack_shape(spec: dict[str, Any], vendor: str) -> bytes:
    """What an agent is to lend: proto/muster.proto, NodeShape."""
    out = _text(1, spec["name"]) + _number(2, spec["cpus"])
    out += _number(3, spec["memory"])
    for one in spec["devices"]:
        variable = VARIABLES.get(vendor, "CUDA_VISIBLE_DEVICES")
        device = _text(1, "gpu") + _text(2, vendor) + _text(3, one)
        out += _bytes(4, device + _text(4, variable) + _number(7, -1))
    for what, amount in sorted(spec["resources"].items()):
        out += _bytes(5, _text(1, what) + _number(2, amount))
    for label, value in sorted(spec["labels"].items()):
        out += _bytes(6, f"{label}={value}".encode())
    return out


# ---- how a process ended ---------------------------------------------------------------


def _memory_kills() -> int:
    """How often the kernel has killed for memory in our control group."""
    try:
        with open("/proc/self/cgroup") as f:
            lines = [line.strip().split(":", 2) for line in f]
    except OSError:
        return 0
    for _, names, path in lines:
        if names == "":
            events = f"/sys/fs/cgroup{path}/memory.events"
        elif "memory" in names.split(","):
            events = f"/sys/fs/cgroup/memory{path}/memory.oom_control"
        else:
            continue
        try:
            with open(events) as f:
                for line in f:
                    if line.startswith("oom_kill "):
                        return int(line.split()[1])
        except OSError:
            continue
    return 0


def _said_since(offset: int) -> str:
    """The last lines on our stderr, which Ray keeps in a file."""
    try:
        with open("/proc/self/fd/2", "rb") as f:
            end = f.seek(0, os.SEEK_END)
            f.seek(max(offset, end - TAIL_BYTES))
            text = f.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines()]
    return "; ".join(line for line in lines if line and ":actor_name:" not in line)


def _stderr_size() -> int:
    try:
        return os.stat("/proc/self/fd/2").st_size
    except OSError:
        return 0


# ---- the actor -------------------------------------------------------------------------


def _in_memory(name: str, data: bytes) -> int:
    """A file that is on no disk and ends with its last descriptor."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    os.fchmod(fd, 0o600)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _by_number(device: str) -> tuple[bool, int, str]:
    number = int(device) if device.isdecimal() else 0
    return not device.isdecimal(), number, device


class MusterBundle:
    """Holds one bundle. One of those on a node has the agent, too."""

    def __init__(self) -> None:
        self.process: Any = None
        self.has_joined = False
        self.failure = ""  # why there is no agent
        self.end: dict[str, Any] = {}
        self.is_started = threading.Event()
        self.is_settled = threading.Event()  # joined, or ended before it has
        self.is_ended = threading.Event()

    def devices(self) -> list[str]:
        """What Ray tells only the actor itself."""
        return list(ray.get_runtime_context().get_accelerator_ids().get("GPU", []))

    def start(self, spec: dict[str, Any]) -> dict[str, Any]:
        """The agent's process; with our own devices if none are named. Whether it joins,
        `joined` tells."""
        if spec["devices"] is None:
            spec = {**spec, "devices": sorted(self.devices(), key=_by_number)}
        thread = threading.Thread(target=self._run, args=(spec,), daemon=True)
        thread.start()
        self.is_started.wait()
        if self.failure:
            raise RuntimeError(self.failure)
        return {"devices": spec["devices"], "folder": os.getcwd()}

    def joined(self) -> bool:
        self.is_settled.wait()
        return self.has_joined

    def ended(self) -> dict[str, Any]:
        self.is_ended.wait()
        return self.end

    def hold(self) -> None:
        """Never returns: the bridge waits for it, to hear of our death."""
        threading.Event().wait()

    def stop(self) -> None:
        """Ask the agent to end, and see to it that it does."""
        deadline = time.monotonic() + STOP_GRACE_S
        if self.process is None or self.is_ended.is_set():
            return
        self.process.send_signal(signal.SIGTERM)
        if not self.is_ended.wait(max(0.0, deadline - time.monotonic())):
            self.process.kill()

    # -- the thread of the agent

    def _run(self, spec: dict[str, Any]) -> None:
        kills, said = _memory_kills(), _stderr_size()
        try:
            ready = self._spawn(spec)
        except Exception as e:  # whatever it is: `start` raises it
            self.failure = f"cannot start {spec['muster'] or 'bin/muster'}: {e}"
            self.is_started.set()
            return
        self.is_started.set()
        self.has_joined = self._hear(ready)
        os.close(ready)
        if self.has_joined:
            self.is_settled.set()
        code = self.process.wait()
        self.end = {
            "code": abs(code),
            "signaled": code < 0,
            "joined": self.has_joined,
            "oom": code == -signal.SIGKILL and _memory_kills() > kills,
            "said": _said_since(said)[-600:],
        }
        self.is_ended.set()
        self.is_settled.set()

    def _hear(self, ready: int) -> bool:
        """That it has joined; or it has ended, also if another process has the pipe open."""
        while not select.select([ready], [], [], LOOK_S)[0]:
            if self.process.poll() is not None:
                return False
        return os.read(ready, 1) != b""

    def _spawn(self, spec: dict[str, Any]) -> int:
        """The pipe by which it says that it has joined."""
        vendors = [v for k, v in VISIBLE.items() if k in os.environ]
        env = {k: v for k, v in os.environ.items() if k not in VISIBLE}
        packed = pack_shape(spec, vendors[0] if vendors else "nvidia")
        shape, secret = _in_memory("shape", packed), -1
        ready, theirs = os.pipe()
        # where the package is: by default our own working directory
        folder = spec["package"] or os.getcwd()
        own = os.path.join(folder, "bin", "muster")
        command = [own if os.path.exists(own) else spec["muster"] or own, "agent"]
        command += ["--node-name", spec["name"], "--end-with", str(os.getpid())]
        command += ["--shape-fd", str(shape), "--ready-fd", str(theirs)]
        command += ["--join-within", str(spec["join_within_s"])]
        if spec["head"]:
            command += ["--head", spec["head"]]
        if spec["secret"]:
            secret = _in_memory("secret", spec["secret"].encode() + b"\n")
            command += ["--secret-file", f"/proc/self/fd/{secret}"]
        if spec["head"].startswith("127."):
            command += ["--bind", "127.0.0.1"]  # all it talks to is on this machine
        fds = [fd for fd in (shape, theirs, secret) if fd >= 0]
        try:
            self.process = subprocess.Popen(
                command,
                env={**env, **spec["env"]},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=fds,
                preexec_fn=self._die_with_us(),
            )
        except BaseException:
            os.close(ready)
            raise
        finally:
            for fd in fds:
                os.close(fd)
        return ready

    @staticmethod
    def _die_with_us() -> Any:
        libc, parent = ctypes.CDLL(None), os.getpid()

        def before_exec() -> None:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

        return before_exec
