"""The bridge at odd moments: verbs that cross each other, and a Ray that does not do what
it is asked. Without Ray: see small_ray."""

import asyncio
import errno
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_ray import ActorUnavailableError, SmallRay, forget_bridge

SOON_S = 10.0


class Rig:
    """A bridge, and what it says."""

    def __init__(self, ray: SmallRay, module: Any) -> None:
        self.ray, self.said = ray, list[dict[str, Any]]()
        self.bridge = module.Bridge(self, module.Package(), "")
        self.news = asyncio.Event()
        self.last = 0

    def say(self, message: dict[str, Any]) -> None:
        self.said.append(message)
        self.news.set()

    def ask(self, verb: str, **more: Any) -> int:
        """Its id."""
        self.last += 1
        self.bridge.on_line({"id": self.last, "verb": verb, "key": "job", **more})
        return self.last

    def launch(self, verb: str = "reserve", pieces: int = 1, timeout: float = 5) -> int:
        return self.ask(verb, pieces=[{"cpus": 1}] * pieces, timeout_s=timeout)

    async def until(self, what: Any) -> Any:
        """What the lines have to say: anything that is true."""

        async def look() -> Any:
            while not (found := what()):
                self.news.clear()
                await self.news.wait()
            return found

        return await asyncio.wait_for(look(), SOON_S)

    async def answer(self, number: int) -> int:
        def look() -> Any:
            return [m for m in self.said if m.get("id") == number]

        [answer] = await self.until(look)
        return int(answer["rc"])

    async def phase(self, phase: str, number: int = 0) -> None:
        def look() -> Any:
            told = [m for m in self.said if m.get("event") == "piece"]
            return [m for m in told if (m["phase"], m["number"]) == (phase, number)]

        await self.until(look)

    def is_clean(self) -> bool:
        return not (self.ray.groups or self.ray.living() or self.bridge.held)


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallRay]:
    small = SmallRay()
    forget_bridge()
    for name, module in small.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    yield small
    small.close()
    forget_bridge()


async def start(ray: SmallRay) -> Rig:
    module = importlib.import_module("muster.ray_bridge")
    module.AGAIN_S = 0.01  # type: ignore[attr-defined]
    rig = Rig(ray, module)
    await rig.bridge.nodes.refresh()
    return rig


def test_two_releases_of_the_same_pieces(ray: SmallRay) -> None:
    async def go() -> None:
        rig = await start(ray)
        assert await rig.answer(rig.launch(pieces=2)) == 0
        asked = [rig.ask("release", pieces=[0, 1]) for _ in range(2)]
        assert [await rig.answer(n) for n in asked] == [0, 0]
        assert rig.is_clean()

    asyncio.run(go())


def test_release_of_pieces_and_of_all(ray: SmallRay) -> None:
    async def go() -> None:
        rig = await start(ray)
        assert await rig.answer(rig.launch(pieces=2)) == 0
        asked = [rig.ask("release", pieces=[0, 1]), rig.ask("release")]
        assert [await rig.answer(n) for n in asked] == [0, 0]
        assert rig.is_clean()
        assert await rig.answer(rig.launch()) == 0  # the key is free

    asyncio.run(go())


def test_release_of_a_piece_on_its_way(ray: SmallRay) -> None:
    async def go() -> None:
        rig = await start(ray)
        assert await rig.answer(rig.launch()) == 0
        ray.agents_join = False
        grow = rig.launch("grow", pieces=2)
        await rig.phase("starting", 2)
        assert await rig.answer(rig.ask("release", pieces=[1])) == 0
        assert await rig.answer(grow) == -errno.ECHILD
        assert len(ray.groups) == 1 and len(ray.living()) == 1
        assert await rig.answer(rig.ask("release")) == 0
        assert rig.is_clean()

    asyncio.run(go())


def test_release_and_launch_in_one_moment(ray: SmallRay) -> None:
    """What is told to stop has not won, however far it is."""

    async def go() -> None:
        rig = await start(ray)
        reserve = rig.launch()
        await rig.phase("running")  # and its launch ends in this very turn
        release = rig.ask("release")
        assert await rig.answer(release) == 0
        assert await rig.answer(reserve) in (0, -errno.ECHILD)
        assert rig.is_clean()

    asyncio.run(go())


@pytest.mark.parametrize("what", ["kill", "remove"])
def test_ray_does_not_give_back_at_once(ray: SmallRay, what: str) -> None:
    async def go() -> None:
        rig = await start(ray)
        assert await rig.answer(rig.launch()) == 0
        ray.fails[what] = 3
        asked = [rig.ask("release"), rig.ask("release")]
        assert [await rig.answer(n) for n in asked] == [0, 0]
        assert rig.is_clean()
        ray.agents_join = False
        ray.fails[what] = 3
        assert await rig.answer(rig.launch(timeout=0.2)) == -errno.ETIMEDOUT
        assert rig.is_clean()

    asyncio.run(go())


def test_reserve_of_what_is_leaving_keeps_its_deadline(ray: SmallRay) -> None:
    async def go() -> None:
        rig = await start(ray)
        assert await rig.answer(rig.launch()) == 0
        ray.fails["remove"] = 1 << 30
        release = rig.ask("release")
        assert await rig.answer(rig.launch(timeout=0.1)) == -errno.ETIMEDOUT
        waits = rig.launch(timeout=100)
        rig.ask("cancel", of=waits)
        assert await rig.answer(waits) == -errno.ECANCELED
        ray.fails["remove"] = 0
        assert await rig.answer(release) == 0
        assert rig.is_clean()

    asyncio.run(go())


def test_undo_of_what_has_won(ray: SmallRay) -> None:
    async def go() -> None:
        rig = await start(ray)
        reserve, grow = rig.launch(), 0
        assert await rig.answer(reserve) == 0
        grow = rig.launch("grow", pieces=2)
        assert await rig.answer(grow) == 0
        assert await rig.answer(rig.ask("cancel", of=grow)) == 0  # it had won
        assert len(ray.living()) == 3
        assert await rig.answer(rig.ask("cancel", of=grow, undo=True)) == 0
        assert len(ray.living()) == 1
        again = rig.launch()  # the same: it is another's too late
        assert await rig.answer(rig.ask("cancel", of=again, undo=True)) == 0
        assert len(ray.living()) == 1
        undo, after = rig.ask("cancel", of=reserve, undo=True), rig.launch()
        assert await rig.answer(undo) == 0 and await rig.answer(after) == 0
        assert len(ray.living()) == 1 and len(ray.groups) == 1

    asyncio.run(go())


def test_an_agent_ends_after_its_actor_was_away(ray: SmallRay) -> None:
    async def go() -> None:
        rig = await start(ray)
        assert await rig.answer(rig.launch()) == 0
        [actor] = ray.living()
        actor.break_calls(ActorUnavailableError("a moment, please"))
        await asyncio.wait_for(asyncio.to_thread(actor.is_asked.wait), SOON_S)
        actor.end_agent(7)
        await rig.phase("ended")
        assert [m["code"] for m in rig.said if m.get("phase") == "ended"] == [7]

    asyncio.run(go())


def test_resources_that_are_rays_own(ray: SmallRay) -> None:
    async def go() -> None:
        rig = await start(ray)
        wrong = [{"gpus": 4, "resources": {"GPU": 1}}]
        asked = rig.ask("reserve", pieces=wrong, timeout_s=5)
        assert await rig.answer(asked) == -errno.EINVAL

    asyncio.run(go())


# ---- the record of its job -------------------------------------------------------------

DASHBOARD = """
import os, sys
def step(name):
    said = open("said").read().split()
    open("asked", "a").write(name + "\\n")
    what = said[0] if said else "404"
    open("said", "w").write(" ".join(said[1:]))
    if what == "lost":
        raise OSError("connection reset")
    if what not in ("RUNNING", "STOPPED", "ok"):
        raise RuntimeError(f"Request failed with status code {what}: no.")
    return what
class Status(str):
    def is_terminal(self):
        return self == "STOPPED"
class JobSubmissionClient:
    def __init__(self, address):
        step("open")
    def get_job_status(self, job):
        return Status(step("status"))
    def delete_job(self, job):
        step("delete")
"""


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("ok RUNNING STOPPED ok", "open status status delete"),
        ("500 ok 500 lost RUNNING STOPPED 503 ok", "open*2 status*4 delete*2"),
        ("ok STOPPED 404 ok", "open status delete"),
        ("ok 404 ok", "open status"),
        ("ok lost lost lost ok", "open status*3"),
    ],
)
def test_record_of_a_killed_controller(
    ray: SmallRay, tmp_path: Path, said: str, asked: str
) -> None:
    """It goes, though the dashboard has a bad moment."""
    record = importlib.import_module("muster._ray.record")
    package = tmp_path / "ray"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "job_submission.py").write_text(DASHBOARD)
    (tmp_path / "said").write_text(said)
    watch = record.WATCH.replace("if os.fork():", "if False:")
    limits = ["0.01", "30", "0.01", "3"]
    subprocess.run(
        [sys.executable, "-c", watch, "http://x", "job", *limits],
        cwd=tmp_path,
        input=b"",
        stderr=subprocess.DEVNULL,
        timeout=SOON_S,
    )
    counts = [part.partition("*") for part in asked.split()]
    wanted = [name for name, _, n in counts for _ in range(int(n or 1))]
    assert (tmp_path / "asked").read_text().split() == wanted
