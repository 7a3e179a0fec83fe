"""A Ray cluster of several raylets on this machine, for ray_rig.py; runs with Ray's Python.

Orders come as lines of JSON on stdin, each is answered by one on stdout. At the end of
input everything ends. All that Ray writes is below RAY_TMPDIR.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from ray.cluster_utils import Cluster

HEAD = "head"
LOOPBACK = "127.0.0.1"


class Machines:
    def __init__(self) -> None:
        self.cluster = Cluster()
        self.nodes: dict[str, Any] = {}

    def start(
        self, dashboard: bool, config: dict[str, Any], port: int = 0
    ) -> dict[str, Any]:
        """The head, which lends nothing. `port`: of its dashboard; 0: any."""
        more = {"_system_config": config} if config else {}
        self.nodes[HEAD] = self.cluster.add_node(
            num_cpus=0,
            gcs_server_port=0,
            node_name=HEAD,
            node_ip_address=LOOPBACK,
            include_dashboard=dashboard,
            dashboard_port=port,
            dashboard_agent_listen_port=0,
            ray_client_server_port=None,
            **more,
        )
        return {"gcs": self.cluster.address, "url": self.cluster.webui_url or ""}

    def add(
        self, nodes: list[dict[str, Any]], env: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """Their raylets have this in their environment, too."""
        env = env or {}
        os.environ.update(env)
        for one in nodes:
            self.nodes[one["node_name"]] = self.cluster.add_node(
                wait=False, node_ip_address=LOOPBACK, **one
            )
        for name in env:
            del os.environ[name]
        self.cluster.wait_for_nodes(120)
        return {"done": True}

    def kill(self, what: str, node: str = HEAD) -> dict[str, Any]:
        """`raylet` or `gcs_server`, by SIGKILL; nobody sees a zombie of it."""
        [one] = self.nodes[node].all_processes[what]
        one.process.kill()
        one.process.wait()
        return {"done": True}

    def forget(self, node: str) -> dict[str, Any]:
        """One whose raylet was killed, with what Ray left of it."""
        self.cluster.remove_node(self.nodes.pop(node), allow_graceful=False)
        return {"done": True}

    def held(self) -> dict[str, Any]:
        """What Ray has, by its own word: living actors, placement groups, free CPUs."""
        state = self.cluster.global_state
        actors = [a for a in state.actor_table(None).values() if a["State"] != "DEAD"]
        groups = [
            g
            for g in state.placement_group_table(None).values()
            if g["state"] != "REMOVED"
        ]
        return {
            "actors": [
                {"pid": a["Pid"], "class": a["ActorClassName"], "job": a["JobID"]}
                for a in actors
            ],
            "groups": [g["name"] for g in groups],
            "free": state.available_resources(),
            "total": state.cluster_resources(),
        }


def main() -> None:
    machines = Machines()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: input ends then
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = getattr(machines, order.pop("do"))(**order)
        except Exception as e:
            answer = {"failed": repr(e)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    machines.cluster.shutdown()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    main()
