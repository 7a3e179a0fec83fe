"""Commands that ask a head: status, list, get, stack, stop."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from cli_rig import (
    DEADLINE_S,
    Driver,
    FakeSession,
    Home,
    ask_on_terminal,
    lasting,
    workers,
)
from daemon_rig import Daemon, daemon  # noqa: F401  (fixture)


def test_head_that_does_not_answer(home: Home) -> None:
    session = FakeSession(home, "20261115-120000-17", alive=True)
    done = home.run("status")
    assert done.returncode == 4
    assert session.name in done.stderr
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(session.dir / "head.sock"))
        deaf.listen()
        start = time.monotonic()
        assert home.run("status", "--timeout", "1").returncode == 4
        assert home.json("stack", "--all", "-t1", code=4)["error"]["exit_code"] == 4
        assert time.monotonic() - start < DEADLINE_S / 2
    session.end()


def test_peer_that_knows_nothing(home: Home) -> None:
    """A stranger on the socket: the secret is not proven, nothing is believed."""
    session = FakeSession(home, "20261115-120000-17", alive=True)
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(str(session.dir / "head.sock"))
        stranger.listen()
        status = home.start("status")
        try:
            peer, _ = stranger.accept()
            with peer:
                peer.settimeout(DEADLINE_S)
                assert peer.recv(4)
                peer.sendall(b"MSTR\x01\0\0\0" + bytes(32 + 8 + 32))
                assert status.wait() == 4
        finally:
            status.close()
    session.end()


def test_status_of_a_driver(home: Home, driver: Driver) -> None:
    status = home.json("status")
    assert status["driver_pid"] == driver.process.pid
    assert status["other_sessions"] == []
    assert status["uptime_ns"] > 0
    (node,) = status["nodes"]
    assert node["alive"] and node["gpus"] == 2 and node["cpus"] > 0
    os.kill(node["agent_pid"], 0)
    for cluster, devices in (("talker", [[], []]), ("fixed", [[0], [1]])):
        found = workers(home, cluster)
        assert [w["rank"] for w in found] == [0, 1]
        assert [w["devices"] for w in found] == devices
        assert {w["state"] for w in found} == {"running"}
        assert {w["exit"] for w in found} == {None}
        for w in found:
            os.kill(w["pid"], 0)
            unix, *_ = w["address"].split(",")
            assert Path(unix.split(":")[-1]).is_socket()

    text = home.run("status").stdout
    assert f"session {status['session']}" in text
    for w in workers(home, "fixed"):
        line = next(x for x in text.splitlines() if x.startswith(f"fixed/{w['rank']} "))
        assert line.split()[1] == "idle"
        assert line.split()[-3:] == [str(w["pid"]), w["node"], str(w["rank"])]


def test_status_of_workers_that_ended(home: Home, driver: Driver) -> None:
    driver.do("leave")
    driver.do("await 0")
    left = workers(home, "fixed")[0]
    assert left["state"] == "exited"
    assert left["exit"]["code"] == 3 and not left["exit"]["signaled"]
    assert "exit code 3" in home.run("status").stdout
    done = home.run("stack", "fixed/0")
    assert done.returncode == 4
    assert "exit code 3" in done.stderr and "muster logs fixed/0" in done.stderr

    driver.do("hang")
    os.kill(workers(home, "talker")[1]["pid"], signal.SIGKILL)
    driver.do("await 1")
    stays, killed = workers(home, "talker")
    assert (stays["state"], killed["state"]) == ("running", "exited")
    assert killed["exit"]["code"] == signal.SIGKILL and killed["exit"]["signaled"]
    assert "killed by SIGKILL" in home.run("status").stdout
    assert len(home.json("stack", "talker")["workers"]) == 1  # the one that runs


def test_stack_of_a_stuck_worker(home: Home, driver: Driver) -> None:
    follow = home.start("logs", "-f", "talker/0")
    try:
        driver.tell("hang")
        follow.until("hanging")
    finally:
        follow.close()
    said = home.json("stack", "talker/0")
    (worker,) = said["workers"]
    assert worker["cluster"] == "talker" and worker["rank"] == 0
    assert "hang_about" in worker["python"]
    assert worker["native"]
    assert worker["error"] is None

    text = home.run("stack", "talker/0").stdout
    assert re.match(r"talker/0@\S+  pid \d+\nPython\n", text)
    assert "hang_about" in text and "\nC\n" in text

    everybody = home.json("stack", "--all")["workers"]
    assert len(everybody) == 4
    assert len(home.json("stack", "talker")["workers"]) == 2
    assert home.run("stack", "critic").returncode == 5
    assert home.run("stack", "talker/7").returncode == 5


def test_two_drivers(home: Home, driver: Driver) -> None:
    other = Driver(home)
    try:
        other.until("@@ ready")
        status = home.json("status")
        assert status["driver_pid"] == other.process.pid
        (first,) = status["other_sessions"]
        assert first in home.run("status").stdout
        again = home.json("status", "--session", first)
        assert again["driver_pid"] == driver.process.pid
        assert other.finish() == 0
        assert home.json("status")["session"] == first
    finally:
        other.close()


def test_list(home: Home, driver: Driver) -> None:
    status = home.json("status")
    assert home.json("list", "nodes") == status["nodes"]
    clusters = home.json("list", "clusters")
    for one in (*clusters, *status["clusters"]):
        assert {w["activity"]["doing"] for w in one["workers"]} == {"idle"}
        one["workers"] = lasting(one["workers"])
    assert clusters == status["clusters"]
    assert [(w["cluster"], w["rank"]) for w in home.json("list", "workers")] == [
        ("talker", 0),
        ("talker", 1),
        ("fixed", 0),
        ("fixed", 1),
    ]
    assert home.json("list", "drivers") == status["drivers"]
    (session,) = home.json("list", "sessions")
    assert session["name"] == status["session"] and session["alive"]
    text = home.run("list", "workers").stdout.splitlines()
    assert text[0].split()[:3] == ["WORKER", "STATE", "FOR"] and len(text) == 5
    fixed = home.run("list", "clusters").stdout.splitlines()[2].split()
    assert fixed[:4] == ["fixed", "2", "2", "0"]
    assert status["nodes"][0]["name"] in home.run("list", "nodes").stdout
    done = home.run("list", "clutsers")
    assert done.returncode == 2 and "did you mean 'clusters'?" in done.stderr
    assert home.run("list").returncode == 2


def test_get(home: Home, driver: Driver) -> None:
    driver.do("leave")
    driver.do("await 0")
    worker = home.json("get", "worker/fixed/0")
    assert worker == workers(home, "fixed")[0]
    text = home.run("get", "worker/fixed/0").stdout
    assert re.search(r"^uid +[0-9a-f]{16}$", text, re.M)
    assert "exit code 3" in text and "    hello\n" in text  # its last line
    got = home.json("get", "cluster/talker")["workers"]
    assert lasting(got) == lasting(workers(home, "talker"))
    assert "talker/1 " in home.run("get", "cluster/talker").stdout
    (node,) = home.json("list", "nodes")
    assert home.json("get", f"node/{node['name']}") == node
    assert re.search(
        r"^state +alive$", home.run("get", f"node/{node['name']}").stdout, re.M
    )
    for thing, code in (
        ("cluster/talkre", 5),
        ("worker/talker/9", 5),
        ("worker/critic/0", 5),
        ("node/nowhere", 5),
        ("driver/0123456789abcdef", 5),
        ("worker/talker", 5),
        ("worker/../0", 2),
        ("cluster/", 2),
        ("thing/x", 2),
        ("talker", 2),
    ):
        assert home.run("get", thing).returncode == code, thing
    assert "did you mean 'talker'?" in home.run("get", "cluster/talkre").stderr


def test_stop_a_cluster(home: Home, driver: Driver) -> None:
    driver.do("hang")
    pids = [w["pid"] for w in workers(home, "talker")]
    assert home.run("stop").returncode == 2
    assert home.run("stop", "cluster").returncode == 2
    done = home.run("stop", "cluster", "talkre")
    assert done.returncode == 5 and "did you mean 'talker'?" in done.stderr
    said = home.json("stop", "cluster", "talker", "--grace", "0")
    assert said == {"clusters": 1, "workers": 2, "head": False}
    for pid in pids:  # they are gone when it returns
        assert not Path(f"/proc/{pid}").exists()
    driver.do("await 0")  # the pending calls have failed
    assert [c["name"] for c in home.json("list", "clusters")] == ["fixed"]
    assert home.run("stop", "cluster", "talker").returncode == 5


def test_stop_everything_of_a_session(home: Home, driver: Driver) -> None:
    other = Driver(home)
    try:
        other.until("@@ ready")
        done = home.run("stop", "session")
        assert done.returncode == 2 and "--session" in done.stderr
        sessions = {s["driver_pid"]: s["name"] for s in home.json("list", "sessions")}
        for name in sessions.values():
            assert name in done.stderr
        mine = sessions[driver.process.pid]
        done = home.run("stop", "session", "--session", mine)
        assert done.returncode == 0, done
        assert "ended 2 clusters, 4 workers" in done.stdout
        assert f"process {driver.process.pid}" in done.stdout
        assert home.json("status", "-s", mine)["clusters"] == []
        assert (
            len(home.json("list", "clusters", "-s", sessions[other.process.pid])) == 2
        )
        assert home.json("stop", "--all", "-s", mine)["clusters"] == 0
        assert driver.finish() == 0
        assert other.finish() == 0
    finally:
        other.close()


def test_stop_asks_on_a_terminal(home: Home, driver: Driver) -> None:
    said, code = ask_on_terminal(home, "n\n", "stop", "--all")
    assert code == 1 and "end 2 clusters with 4 living workers" in said
    assert "nothing was ended" in said
    assert len(home.json("list", "clusters")) == 2
    said, code = ask_on_terminal(home, "y\n", "stop", "cluster", "fixed")
    assert code == 0 and "ended 1 cluster, 2 workers" in said
    said, code = ask_on_terminal(home, "", "stop", "--all", "--yes")
    assert code == 0 and "[y/N]" not in said


STUBBORN = """
import signal, sys
import muster

class Stubborn:
    def __init__(self):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    def ready(self):
        return True

if __name__ == "__main__":
    muster.init(num_gpus=0, log_to_driver=False)
    c = muster.Cluster(name="stubborn", worker_cls=Stubborn,
                       worker_config=muster.WorkerConfig(world_size=1))
    c.execute_all_sync("ready")
    print("@@ ready", flush=True)
    sys.stdin.read()
    muster.shutdown()
"""


def test_stop_shows_progress(home: Home) -> None:
    stubborn = Driver(home, STUBBORN)
    try:
        stubborn.until("@@ ready")
        done = home.run("stop", "--all", "--grace", "2")
        assert done.returncode == 0, done
        assert re.search(r"ending 1 worker, [12] s$", done.stderr, re.M)
        assert "\033" not in done.stderr
        assert stubborn.finish() == 0
    finally:
        stubborn.close()


# ---- heads by address ------------------------------------------------------------------


def secret(home: Home, mode: int = 0o600) -> str:
    path = home.path / "a-secret"
    path.write_text("cd" * 32 + "\n")
    path.chmod(mode)
    return str(path)


def test_head_by_address_wants_its_secret(home: Home) -> None:
    done = home.run("status", "--head", "127.0.0.1:1")
    assert done.returncode == 2 and "--secret-file" in done.stderr
    done = home.run("status", "--head", "127.0.0.1:1", "--secret-file", "/none")
    assert done.returncode == 1 and "/none" in done.stderr
    open_to_all = secret(home, 0o644)
    done = home.run("status", "--head", "127.0.0.1:1", "--secret-file", open_to_all)
    assert done.returncode == 1 and "chmod 600" in done.stderr
    assert "cdcd" not in done.stderr
    done = home.run("status", "--head", "h:1", "--session", "x")
    assert done.returncode == 2


def test_wrong_secret_for_a_head(home: Home, driver: Driver) -> None:
    sock = home.json("status")["session_dir"] + "/head.sock"
    right = home.json("status")["session_dir"] + "/secret"
    done = home.run("status", "--head", sock, "--secret-file", secret(home))
    assert done.returncode == 4
    assert "secret" in done.stderr and "cdcd" not in done.stderr
    by_option = home.json("status", "--head", sock, "--secret-file", right)
    by_env = home.run("status", "--json", MUSTER_ADDRESS=sock, MUSTER_SECRET_FILE=right)
    assert json.loads(by_env.stdout)["session"] == by_option["session"]
    # the only session of this machine is a good guess
    here, there = (
        home.json("list", "workers"),
        home.json("list", "workers", "--head", sock),
    )
    assert lasting(there) == lasting(here)


# ---- what a head says of itself --------------------------------------------------------


TIME = r"muster head: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d "


def test_head_says_who_comes_and_goes(daemon: Daemon) -> None:  # noqa: F811
    head = daemon.head
    one = daemon.agent("a", gpus=3)
    said = head.wait_line("node a ")
    assert re.fullmatch(
        TIME + r"node a at 127\.0\.0\.1 has joined: 3 GPUs, \d+ CPUs?, [\d.]+ GiB", said
    )
    ends = {
        "muster.shutdown()": "it said goodbye",
        "import os; os.kill(os.getpid(), 9)": "its process has ended",
    }
    for end, why in ends.items():
        code = f"import muster, sys; muster.init(address=sys.argv[1]); {end}"
        process = subprocess.Popen(
            [sys.executable, "-c", code, daemon.address], env=daemon.env
        )
        process.wait(DEADLINE_S)
        who = rf"{TIME}driver {process.pid} on \S+( \[127\.0\.0\.1:\d+\])? \(-c\) has "
        assert re.fullmatch(f"{who}joined", head.wait_line(f"driver {process.pid} "))
        assert re.fullmatch(f"{who}gone: {why}", head.wait_line("has gone"))
        head.said = ""
    one.kill()
    assert "the agent on node a (pid" in head.wait_line(
        "node a at 127.0.0.1 has gone: "
    )
    head.signal(signal.SIGTERM)
    assert head.end() == 0
    assert "muster head: ending (SIGTERM)\n" in head.said
