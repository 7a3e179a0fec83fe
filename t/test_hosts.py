"""Several machines: a head, agents and a driver on hosts of their own (hosts.py)."""

import re
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import until
from hosts import Driver, Head, Host, Net, needs_ipv6, obstacle

pytestmark = pytest.mark.skipif(obstacle() is not None, reason=str(obstacle()))

SUSPECT_S = 3.0
SLACK_S = 15.0  # a machine with few cores and many processes
GRACE_S = 8
LONG_GRACE_S = 25  # more than any cut and what follows it
HEAD_GRACE = ("--head-grace", "20")
GRACES = ("--link-grace", str(GRACE_S), *HEAD_GRACE)


def three(net: Net, grace_s: int = GRACE_S, **worker: Any) -> tuple[Head, Host, Driver]:
    """A head, a machine that lends itself, and a driver with one worker there."""
    head = net.host("head").head("--link-grace", str(grace_s), *HEAD_GRACE)
    lender = net.host("lender", **worker)
    lender.agent(head)
    driver = net.host("driver").driver(head)
    driver.do("c = muster.Cluster('c', Counter, world_size=1)")
    return head, lender, driver


def payloads(path: Path, port: int) -> bytes:
    """What TCP carried to and from this port, of IPv4 frames."""
    data, at, out = path.read_bytes(), 0, b""
    while at < len(data):
        (size,) = struct.unpack_from("<I", data.ljust(at + 4, b"\0"), at)
        frame = data[at + 4 : at + 4 + size]
        at += 4 + size
        if at > len(data):
            break  # it is being written
        if frame[12:14] != b"\x08\x00" or frame[23] != 6:
            continue
        total = struct.unpack_from("!H", frame, 16)[0]
        tcp = 14 + (frame[14] & 15) * 4
        source, target = struct.unpack_from("!HH", frame, tcp)
        if port in (source, target):
            out += frame[tcp + (frame[tcp + 12] >> 4) * 4 : 14 + total]
    return out


def test_calls_go_straight_to_the_worker_and_nobody_can_read_them(net: Net) -> None:
    head, lender, driver = three(net)
    address = driver.do("c.address(0)")
    assert re.fullmatch(rf"{lender.v4}:\d+", address)
    port = int(address.rsplit(":")[-1])
    with net.listen_in(lender) as seen:
        marked = "b'a mark that would be found' * 100"
        assert driver.do(f"c.execute_rank_zero_sync('echo', {marked}) == {marked}")
        bytes_seen = until(lambda: (p := payloads(seen, port)) and len(p) > 2700 and p)
    assert b"a mark" not in bytes_seen
    assert b"\x17\x03\x03" in bytes_seen  # records of TLS
    with net.listen_in(head.host) as at_head:
        assert driver.do("c.execute_rank_zero_sync('add')") == 1
        assert not payloads(at_head, port)  # the head has no part in it


def cut_until_suspect(net: Net, head: Head, host: Host) -> None:
    """Cut, and healed as soon as its silence is noticed."""
    net.cut(host)
    until(lambda: head.node("lender")["suspect"], within_s=SUSPECT_S + SLACK_S)
    net.heal(host)


def test_a_cut_is_suspected_and_a_healed_one_forgotten(net: Net) -> None:
    head, lender, driver = three(net, LONG_GRACE_S)
    assert not head.node("lender")["suspect"]
    cut_until_suspect(net, head, lender)
    until(lambda: not head.node("lender")["suspect"], within_s=SLACK_S)
    assert driver.do("c.execute_rank_zero_sync('add')") == 1


CALLS = "[c.execute_rank_zero('add', 0.1) for _ in range(80)]"
STREAM = "c.execute_rank_zero_sync('each', 80, 0.1)"


@pytest.mark.parametrize(
    ("begin", "result"), [(CALLS, "[one.result() for one in f]"), (STREAM, "list(f)")]
)
def test_healed_in_time_nothing_is_lost_and_nothing_runs_twice(
    net: Net, begin: str, result: str
) -> None:
    """It takes 8 s, and the cut is in between."""
    head, lender, driver = three(net, LONG_GRACE_S)
    driver.do(f"f = {begin}")
    driver.begin(f"result = {result}")
    cut_until_suspect(net, head, lender)
    assert driver.answer() == list(range(1, 81))
    assert driver.do("c.execute_rank_zero_sync('total')") == 80


def test_a_dead_host_is_named_after_the_grace(net: Net) -> None:
    head, lender, driver = three(net)
    driver.do("f = c.execute_rank_zero('add', 600.0)")
    began = time.monotonic()
    lender.kill()
    with pytest.raises(RuntimeError, match=r"WorkerUnreachable.*lender"):
        driver.do("f.result()")
    took = time.monotonic() - began
    assert GRACE_S - SUSPECT_S < took < GRACE_S + SLACK_S
    until(
        lambda: not (n := head.node("lender")) or not n["alive"],
        within_s=GRACE_S + SLACK_S,
    )


def test_an_agent_that_ends_is_known_at_once(net: Net) -> None:
    _, lender, driver = three(net)
    driver.do("f = c.execute_rank_zero('add', 600.0)")
    began = time.monotonic()
    lender.lines[0].process.kill()
    with pytest.raises(RuntimeError, match=r"WorkerDied.*lender"):
        driver.do("f.result()")
    assert time.monotonic() - began < GRACE_S  # which is not waited for


def test_a_cut_host_ends_its_workers(net: Net) -> None:
    _, lender, driver = three(net)
    pid = driver.do("c.execute_rank_zero_sync('pid')")
    net.cut(lender)
    until(lambda: not Path(f"/proc/{pid}").exists(), within_s=GRACE_S + SLACK_S)
    lender.lines[0].until("nothing was heard of the head")
    assert lender.lines[0].wait() == 1


def test_the_head_ends_and_comes_back(net: Net) -> None:
    head, lender, driver = three(net)
    pid = driver.do("c.execute_rank_zero_sync('pid')")
    head.lines.process.kill()
    head.lines.wait()
    assert driver.do("c.execute_rank_zero_sync('add')") == 1  # without a head
    head.begin()
    lender.lines[0].until("has joined")
    until(lambda: (n := head.node("lender")) and n["alive"], within_s=SLACK_S)
    assert driver.do("c.execute_rank_zero_sync('pid')") == pid
    driver.do("d = muster.Cluster('d', Counter, world_size=1)")
    assert driver.do("d.execute_rank_zero_sync('add')") == 1


def test_loss_and_delay(net: Net) -> None:
    head, lender, driver = three(net, shaped=True)
    net.spoil(lender, delay_ms=20, loss=0.03)
    big = "os.urandom(1 << 20)"
    for _ in range(3):
        assert driver.do(
            f"(b := {big}) == c.execute_rank_zero_sync('echo', b)",
        )
    assert driver.do("[c.execute_rank_zero_sync('add') for _ in range(20)][-1]") == 20
    assert head.node("lender")["alive"]


def test_little_bandwidth(net: Net) -> None:
    head, lender, driver = three(net)
    net.limit(lender, "20mbit")
    assert driver.do(
        "(b := os.urandom(4 << 20)) == c.execute_rank_zero_sync('echo', b)"
    )
    assert not head.node("lender")["suspect"]


@needs_ipv6
def test_a_host_with_ipv6_alone(net: Net) -> None:
    head = net.host("head").head(*GRACES)
    lender = net.host("six", v4=False)
    lender.agent(head, v6=True)
    driver = net.host("driver").driver(head)
    driver.do("c = muster.Cluster('c', Counter, world_size=1)")
    assert driver.do("c.address(0)").startswith(f"[{lender.v6}]:")
    assert driver.do("c.execute_rank_zero_sync('add')") == 1


def test_two_interfaces_and_one_to_use(net: Net) -> None:
    head = net.host("head").head(*GRACES)
    lender = net.host("two", second=True)
    other = lender.v4.replace("10.77", "10.78")
    agent = lender.agent(head)
    driver = net.host("driver", second=True).driver(head)
    driver.do("c = muster.Cluster('c', Counter, world_size=1)")
    assert driver.do("c.address(0)").startswith(f"{lender.v4}:")  # the way to the head
    driver.do("c.destroy()")
    agent.process.terminate()
    assert agent.wait() == 0
    lender.agent(head, "--bind", other)
    driver.do("c = muster.Cluster('c', Counter, world_size=1)")
    assert driver.do("c.address(0)").startswith(f"{other}:")
    assert driver.do("c.execute_rank_zero_sync('add')") == 1


def test_a_name_that_is_taken(net: Net) -> None:
    head = net.host("head").head(*GRACES)
    first = net.host("same")
    first.agent(head)
    second = net.host("other")
    lines = second.start(
        *[*_agent(head), "--node-name", "same"],
    )
    lines.until("same has an agent already")
    assert head.node("same")["alive"]


def test_a_wrong_secret(net: Net) -> None:
    head = net.host("head").head(*GRACES)
    lender = net.host("lender")
    wrong = lender.home / "wrong"
    wrong.write_text("0" * 64)
    wrong.chmod(0o600)
    command = _agent(head)
    command[command.index("--secret-file") + 1] = str(wrong)
    lines = lender.start(*command)
    lines.until("has not joined the head")
    assert lines.wait() == 1


def _agent(head: Head) -> list[str]:
    from cli_rig import CLI

    return [CLI, "agent", "--head", head.v4, "--secret-file", str(head.secret)]


# ---- HTTP of the head ------------------------------------------------------------------

FETCH = """
import json, urllib.request, urllib.error
def fetch(url, method="GET", token=True):
    headers = {"Authorization": f"Bearer {muster.http_token()}"} if token else {}
    request = urllib.request.Request(url, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            body = answer.read()
            return answer.status, json.loads(body) if body[:1] in (b"[", b"{") else body.decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()
def numbers(url):
    status, body = fetch(url)
    said = [int(line.split()[0]) for line in body["lines"]] or [-1]
    return [status, body["is_cut"], said[0], said[-1], len(said)]
"""


def test_http_of_a_head_from_another_machine(net: Net) -> None:
    """`muster head --http`: who may, what there is, logs of a third machine, an end."""
    host = net.host("head")
    head = host.head(*GRACES, "--http", f"{host.v4}:7780")
    lender = net.host("lender")
    lender.agent(head)
    driver = net.host("driver").driver(head)
    driver.do("c = muster.Cluster('c', Counter, world_size=2)")
    driver.do(FETCH)
    api = f"http://{host.v4}:7780/api/v1"

    def get(path: str, **options: Any) -> tuple[int, Any]:
        return tuple(driver.do(f"fetch({api + path!r}, **{options!r})"))

    assert get("/status", token=False)[0] == 401
    status, body = get("/clusters/c")
    assert status == 200
    assert [w["node"] for w in body["workers"]] == ["lender", "lender"]
    driver.do("c.execute_rank_sync(1, 'say', 700)")
    log = f"{api}/clusters/c/workers/1/logs?lines="
    until(lambda: driver.do(f"numbers('{log}10000')[1:] == [False, 0, 699, 700]"))
    assert driver.do(f"numbers('{log}3')") == [200, True, 697, 699, 3]
    status, text = driver.do(f"fetch('http://{host.v4}:7780/metrics')")
    assert status == 200 and "muster" in text
    assert get("/clusters/c", method="DELETE")[0] == 204
    assert get("/clusters/c")[0] == 404
    lender.kill()
    driver.do("c = None")
