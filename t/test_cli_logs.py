"""`muster logs`: of sessions that run and that have ended."""

import json
import os
import re
from datetime import UTC, datetime
from typing import Any

from cli_rig import Driver, FakeSession, Home

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"


def test_logs_of_an_ended_session(home: Home, ended: FakeSession) -> None:
    assert home.run("logs").stdout == (ended.logs / "merged.log").read_text()
    assert home.run("logs", "actor/0").stdout == "a0 one\na0 two\n"
    assert home.run("logs", "actor/0@n").stdout == "a0 one\na0 two\n"
    assert home.run("logs", "actor/0", "-n1").stdout == "a0 two\n"
    assert home.run("logs", "actor/0", "-n", "0").stdout == ""
    assert home.run("logs", "actor").stdout.splitlines() == [
        "actor/0: a0 one",
        "actor/0: a0 two",
        "actor/1: a1 one",
        "actor/10: a10 one",
    ]
    assert home.run("logs", "actor-2").stdout == "actor-2/0: of another cluster\n"
    assert home.run("logs", "--agent").stdout == "agent here\n"
    # following what has ended prints it and ends
    assert home.run("logs", "-f", "-n1", "actor/0").stdout == "a0 two\n"


def test_logs_as_json(home: Home, ended: FakeSession) -> None:
    def lines(*args: str) -> list[Any]:
        done = home.run("logs", "--json", *args)
        assert done.returncode == 0
        return [json.loads(line) for line in done.stdout.splitlines()]

    merged = {"cluster": "actor", "rank": 0, "node": "n", "line": "  a0 two"}
    assert lines()[-1] == merged
    assert lines("actor/1") == [{"cluster": "actor", "rank": 1, "line": "a1 one"}]
    with open(ended.logs / "actor-1.log", "ab") as f:
        f.write(b"\xff\x00\n unfinished")
    assert [line["line"] for line in lines("actor/1")][1:] == [
        "\ufffd\0",
        " unfinished",
    ]


def test_logs_that_are_not_there(home: Home, ended: FakeSession) -> None:
    for args in (["critic"], ["actor/3"]):
        done = home.run("logs", *args)
        assert done.returncode == 5
        assert args[0] in done.stderr
    for args in (["../actor/0"], ["actor/"], ["actor/x"], [".."], ["a/b/0"], [""]):
        assert home.run("logs", *args).returncode == 2
    assert home.run("logs", "--session", "../x").returncode == 3
    done = home.run("logs", "--session", ended.name[:-1] + "8")
    assert done.returncode == 3
    assert ended.name in done.stderr
    done = home.run("status", "--session", ended.name)
    assert done.returncode == 3
    assert "has ended" in done.stderr


def test_logs_choose_the_newest(home: Home, ended: FakeSession) -> None:
    newer = FakeSession(home, "20261115-130000-18", alive=False)
    newer.log("merged.log", "newer\n")
    assert home.run("logs").stdout == "newer\n"
    assert "a0 one" in home.run("logs", "--session", ended.name).stdout
    older = FakeSession(home, "20261115-110000-16", alive=True)
    older.log("merged.log", "alive\n")
    assert home.run("logs").stdout == "alive\n"


def stamp(second: int) -> str:
    """Of a day in 2026, as agents write it before each line."""
    return f"2026-11-15T12:00:{second:02}.000000Z "


def timed(home: Home) -> FakeSession:
    """Two ranks that took turns, each line with its time."""
    session = FakeSession(home, "20261115-120000-17", alive=False)
    for second in range(10):
        rank = second % 2
        session.log(f"actor-{rank}.log", f"{stamp(second)}step {second}\n")
        session.log("merged.log", f"{stamp(second)}actor/{rank}@n: step {second}\n")
    return session


def test_lines_in_the_order_of_their_times(home: Home) -> None:
    session = timed(home)
    want = [f"actor/{i % 2}: step {i}" for i in range(10)]
    assert home.run("logs", "actor").stdout.splitlines() == want
    assert home.run("logs").stdout.splitlines()[3] == "actor/1@n: step 3"
    # two of each worker, still in order
    assert home.run("logs", "-n2", "actor").stdout.splitlines() == want[-4:]
    # a line without a time stays behind the one before it
    session.log("actor-0.log", f"{stamp(20)}Traceback:\n  File x\n")
    session.log("actor-1.log", f"{stamp(21)}last\n")
    assert home.run("logs", "actor").stdout.splitlines()[-3:] == [
        "actor/0: Traceback:",
        "actor/0:   File x",
        "actor/1: last",
    ]
    for more in ([], ["-g", "File|last"]):  # and has its time
        assert home.run("logs", "actor", "-n1", "-T", *more).stdout == (
            f"{stamp(20)}actor/0:   File x\n{stamp(21)}actor/1: last\n"
        )


def test_times_are_shown_if_they_are_wanted(home: Home) -> None:
    timed(home)
    assert home.run("logs", "actor/1", "-n1").stdout == "step 9\n"
    shown = home.run("logs", "actor/1", "-n1", "--timestamps").stdout
    assert shown == stamp(9) + "step 9\n"
    assert home.run("logs", "-T", "-n1").stdout == stamp(9) + "actor/1@n: step 9\n"
    assert home.run("logs", "-T", "-n1", "actor").stdout == (
        f"{stamp(8)}actor/0: step 8\n{stamp(9)}actor/1: step 9\n"
    )
    (line,) = home.run("logs", "actor/1", "-n1", "--json").stdout.splitlines()
    assert json.loads(line)["time"] == stamp(9).strip()


def test_since(home: Home) -> None:
    session = timed(home)

    def since(time: str, *args: str) -> list[str]:
        return home.run("logs", "actor", "--since", time, *args).stdout.splitlines()

    assert since("2026-11-15T12:00:07Z") == [
        "actor/1: step 7",
        "actor/0: step 8",
        "actor/1: step 9",
    ]
    assert since("2026-11-15T14:00:07+02:00") == since("2026-11-15T12:00:07Z")
    assert since("2026-11-15T12:00:07Z", "-n1") == [
        "actor/0: step 8",
        "actor/1: step 9",
    ]
    assert since("2026-11-15T12:00:07Z", "-g", "[78]") == [
        "actor/1: step 7",
        "actor/0: step 8",
    ]
    assert len(since("2000-01-01")) == 10
    assert since("10m") == []
    session.log(
        "actor-0.log",
        datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ") + " just now\n",
    )
    assert since("10m") == ["actor/0: just now"]
    for bad in ("", "soon", "10", "2026-11-15T25:00"):
        done = home.run("logs", "--since", bad)
        assert done.returncode == 2
        assert "--since" in done.stderr and done.stderr.count("\n") == 1


def test_grep(home: Home) -> None:
    session = timed(home)
    assert home.run("logs", "--grep", "step (3|8)$").stdout.splitlines() == [
        "actor/1@n: step 3",
        "actor/0@n: step 8",
    ]
    # the last ones that match, of each worker; the label and the time are no text
    assert home.run("logs", "actor", "-n1", "--grep", "[0-4]").stdout == (
        "actor/1: step 3\nactor/0: step 4\n"
    )
    assert home.run("logs", "actor", "--grep", "actor|2026").stdout == ""
    session.log("actor-0.log", b"\xff\0 NaN \0\n".decode("latin-1"))
    assert "NaN" in home.run("logs", "actor/0", "-g", "NaN").stdout
    for bad in ("(", "[", "a{2,1}", "*("):
        done = home.run("logs", "--grep", bad)
        assert done.returncode == 2
        assert f"'{bad}'" in done.stderr and done.stderr.count("\n") == 1


def test_following_with_filters(home: Home) -> None:
    session = FakeSession(home, "20261115-120000-17", alive=True)
    session.log("actor-0.log", f"{stamp(1)}loss 1\n{stamp(2)}other\n{stamp(3)}loss 3\n")
    follow = home.start("logs", "-f", "-n1", "-g", "loss", "actor")
    try:
        assert follow.line() == "actor/0: loss 3"
        session.log("actor-0.log", f"{stamp(4)}nothing\n{stamp(5)}loss 5\n")
        assert follow.line() == "actor/0: loss 5"
        session.log("actor-1.log", f"{stamp(6)}noise\n{stamp(7)}loss of rank 1\n")
        assert follow.line() == "actor/1: loss of rank 1"
        session.end()
        assert follow.wait() == 0
    finally:
        follow.close()


def test_old_logs_go_when_a_session_begins(home: Home) -> None:
    names = [f"20261115-12000{i}-17" for i in range(4)]
    ended = [FakeSession(home, name, alive=False) for name in names]
    for session in ended:
        session.log("merged.log", "a/0@n: x\n" * 100)
    living = FakeSession(home, "20261114-120000-17", alive=True)
    living.log("merged.log", "a/0@n: alive\n")
    os.utime(living.logs / "merged.log", (0, 0))
    daemon = FakeSession(home, "head", alive=False)
    (daemon.dir / "daemon").touch()
    daemon.log("agent-n.log", "x")
    done = home.run("doctor")
    assert "5 ended sessions have" in done.stdout, done.stdout

    def begin(**env: str) -> list[str]:
        home.env.update(env)
        driver = Driver(home, "import muster\nmuster.init()\nmuster.shutdown()\n")
        try:
            assert driver.wait() == 0
        finally:
            driver.close()
        return [session.name for session in ended if session.logs.exists()]

    assert begin(MUSTER_LOGS_KEPT="3") == names[1:]
    # the newest stays whatever its size: the session that has just ended
    assert begin(MUSTER_LOGS_KEPT_SIZE="1500") == names[-1:]
    old = FakeSession(home, "20261116-120000-17", alive=False)
    old.log("merged.log", "x")
    os.utime(old.logs / "merged.log", (1_000_000_000, 1_000_000_000))
    assert begin(MUSTER_LOGS_KEPT_AGE="2d") == names[-1:]
    assert not old.logs.exists()
    assert living.logs.exists() and daemon.logs.exists()
    home.env["MUSTER_LOGS_KEPT_AGE"] = "soon"
    assert "MUSTER_LOGS_KEPT_AGE is not understood" in home.run("doctor").stdout


def test_follow_to_the_end(home: Home) -> None:
    session = FakeSession(home, "20261115-120000-17", alive=True)
    session.log("actor-0.log", "old\nlast\n")
    follow = home.start("logs", "-f", "-n1", "actor")
    try:
        assert follow.line() == "actor/0: last"
        session.log("actor-0.log", "new\n")
        assert follow.line() == "actor/0: new"
        session.log("actor-1.log", "another rank\n")
        assert follow.line() == "actor/1: another rank"
        session.log("critic-0.log", "not asked for\n")
        session.log("actor-0.log", "before the rename\n")
        (session.logs / "actor-0.log").rename(session.logs / "actor-0.log.1")
        session.log("actor-0.log", "behind it\n")
        assert follow.line() == "actor/0: before the rename"
        assert follow.line() == "actor/0: behind it"
        session.log("actor-1.log", "no newline")
        session.end()
        assert follow.line() == "actor/1: no newline"
        assert follow.line() == ""
        assert follow.wait() == 0
    finally:
        follow.close()


def test_follow_before_there_is_anything(home: Home) -> None:
    session = FakeSession(home, "20261115-120000-17", alive=True)
    assert home.run("logs").returncode == 5
    follow = home.start("logs", "-f")
    try:
        session.log("merged.log", "a/0@n: first\n")
        assert follow.line() == "a/0@n: first"
        session.end()
        assert follow.wait() == 0
    finally:
        follow.close()


def test_logs_of_a_driver(home: Home, driver: Driver) -> None:
    follow = home.start("logs", "-f", "talker")
    try:
        driver.do("say it is said")
        assert {follow.line(), follow.line()} == {
            "talker/0: it is said",
            "talker/1: it is said",
        }
        assert home.run("logs", "talker/1").stdout == "it is said\n"
        merged = home.run("logs", "-n", "1").stdout
        assert re.fullmatch(r"talker/[01]@\S+: it is said\n", merged)
        session = home.json("status")["session"]
        assert driver.finish() == 0
        assert follow.line() == ""
        assert follow.wait() == 0
    finally:
        follow.close()
    # it has ended: no status, but logs
    assert home.run("status").returncode == 3
    assert home.run("logs", "talker/1").stdout == "it is said\n"
    assert home.run("logs", "--session", session, "fixed/0").stdout == "hello\n"


def test_following_a_driver_that_is_killed(home: Home, driver: Driver) -> None:
    follow = home.start("logs", "-f")
    try:
        driver.do("say before the end")
        follow.until("before the end")
        driver.process.kill()
        assert follow.wait() == 0
    finally:
        follow.close()
    assert home.run("status").returncode == 3
    assert "before the end" in home.run("logs").stdout


def test_logs_through_the_head(home: Home, driver: Driver) -> None:
    """As for workers of other machines: the head asks the node's agent for pieces."""
    far = ["--head", home.json("status")["session_dir"] + "/head.sock"]
    node = home.json("list", "nodes")[0]["name"]
    follow = home.start("logs", *far, "-f", "talker")
    try:
        driver.do("say far away")
        said = {follow.line(), follow.line()}
        assert said == {"talker/0: far away", "talker/1: far away"}
    finally:
        follow.close()
    assert home.run("logs", *far, "talker/1").stdout == "far away\n"
    assert sorted(home.run("logs", *far, "talker").stdout.splitlines()) == [
        "talker/0: far away",
        "talker/1: far away",
    ]
    assert f"fixed/0@{node}: hello\n" in home.run("logs", *far).stdout
    (line,) = home.run("logs", *far, "talker/0", "--json").stdout.splitlines()
    shown = json.loads(line)
    assert re.fullmatch(STAMP, shown.pop("time"))
    assert shown == {
        "cluster": "talker",
        "rank": 0,
        "node": node,
        "line": "far away",
    }
    follow = home.start("logs", *far, "-f", "-n1", "talker/0")
    try:
        assert follow.line() == "far away"
        driver.do("say more")
        assert follow.line() == "more"
        assert re.fullmatch(
            f"{STAMP} more\n",
            home.run("logs", *far, "-T", "-g", "^m", "-n1", "talker/0").stdout,
        )
        ago = home.run("logs", *far, "--since", "1h", "talker/0").stdout
        assert ago == "far away\nmore\n"
        late = ["--since", "2100-01-01", "talker/0"]
        assert home.run("logs", *far, *late).stdout == ""
        long = "x" * 300_000
        driver.do(f"say {long}")
        assert follow.line() + follow.line() == long[:16384] * 2
    finally:
        follow.close()
    done = home.run("logs", *far, "critic")
    assert done.returncode == 5 and "muster status" in done.stderr
    assert home.run("logs", *far, "--agent").returncode == 0
