"""The package on the nodes: where it is, and who keeps it there."""

# Ray starts one more Python for an actor that has a working directory than for one that has
# none. So only the first actors on a node have it: Ray unpacks the package for them, and
# they say where that is. From then on a second driver, which does nothing else, keeps the
# package on all nodes, as Ray counts who uses it; the actors that follow are told the path.

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from muster._ray.nodes import asked

JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # of a driver that was submitted as a job
END_S = 5.0
KEEP = """
import os, sys, ray
ray.init(
    address=os.environ.get("RAY_ADDRESS", "auto"),
    log_to_driver=False,
    logging_level="warning",
)
print(flush=True)
sys.stdin.read()
ray.shutdown()
"""


def _take_config() -> dict[str, Any]:
    """What the job gives its drivers; this one goes on without a working directory."""
    try:
        config = json.loads(os.environ.get(JOB_CONFIG, ""))
    except ValueError:
        return {}
    if not isinstance(config, dict):
        return {}
    bare = {name: value for name, value in config.items() if name != "runtime_env"}
    os.environ[JOB_CONFIG] = json.dumps(bare | {"runtime_env": {}})
    return config


class Package:
    """Make it before Ray is connected to. Without a job there is no package."""

    def __init__(self) -> None:
        self.config = _take_config()
        self.uri = str((self.config.get("runtime_env") or {}).get("working_dir") or "")
        self.paths: dict[str, str] = {}  # of nodes
        self.second_driver: Any = None  # its process
        self.is_kept = False

    def path(self, node: str) -> str:
        """Where it is, and stays; "": an actor there has to ask Ray for it."""
        if not self.is_kept or self.second_driver.poll() is not None:
            return ""
        return self.paths.get(node, "")

    def options(self, node: str) -> dict[str, Any]:
        """Of an actor there."""
        if not self.uri or self.path(node):
            return {}
        return {"runtime_env": {"working_dir": self.uri}}

    def found(self, node: str, path: str) -> None:
        if self.uri:
            self.paths[node] = path

    def lost(self, node: str) -> None:
        self.paths.pop(node, None)

    async def keep(self) -> None:
        """See that it stays on the nodes."""
        if self.uri and self.second_driver is None:
            self.second_driver = self._start()
            self.is_kept = await asked(self.second_driver.stdout.readline) != b""

    def _start(self) -> Any:
        config = self.config | {"runtime_env": {"working_dir": self.uri}}
        return subprocess.Popen(
            [sys.executable, "-c", KEEP],
            env=os.environ | {JOB_CONFIG: json.dumps(config)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def let_go(self) -> None:
        """The second driver ends, when it can; see `close`."""
        if self.second_driver is not None:
            self.second_driver.stdin.close()

    def close(self) -> None:
        if self.second_driver is None:
            return
        try:
            self.second_driver.wait(END_S)
        except subprocess.TimeoutExpired:
            self.second_driver.kill()
