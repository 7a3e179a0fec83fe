"""Roles of a job's file, which its driver need not repeat."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import muster
import pytest
from cli_rig import CLI, DEADLINE_S, Home
from helpers import BUILD, MARK, new_mark, processes, wait_gone

ROOT = Path(__file__).resolve().parent.parent

FILE = """
name: roles
nodes: [{name: "n[0-1]", cpus: 4, gpus: 3}]
roles:
  actor:
    worker_cls: roles_workers.Actor
    device_mapping: "0-1,3-4"
    mesh: {tp: 2}
    args: [1, two, 3.5, null, "4", true]
    kwargs: {deep: {list: [1, 2]}}
    env: {FLAVOUR: plum, COUNT: 3}
    timeout: 30
  critic: {worker_cls: roles_workers.Actor, world_size: 2, num_cpus: 0.5}
  packed: {worker_cls: roles_workers.Actor, world_size: 2, bundle: {GPU: 1}, strategy: SPREAD}
  bare: {world_size: 3}
"""
WORKERS = """
import os

class Actor:
    def __init__(self, *args, **kwargs):
        self.given = args, kwargs
    def told(self):
        return self.given
    def shown(self):
        return repr(self.given)
    def env(self, name):
        return os.environ.get(name)
"""
HEAD = """
import muster
from roles_workers import Actor

class Other:
    def env(self, name):
        import os
        return os.environ.get(name)

muster.init()
def fails(*args, **kwargs):
    try:
        muster.Cluster(*args, **kwargs)
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    raise AssertionError("no error")
"""


class Job:
    def __init__(self, home: Home, folder: Path) -> None:
        self.home, self.folder = home, folder
        self.mark = home.env[MARK] = new_mark()
        for name in ("MUSTER_ADDRESS", "MUSTER_SECRET_FILE"):
            home.env.pop(name, None)
        (folder / "roles_workers.py").write_text(WORKERS)

    def script(self, text: str) -> Path:
        path = self.folder / "train.py"
        path.write_text(HEAD + text)
        return path

    def drive(self, text: str, file: str = FILE) -> list[str]:
        path = self.folder / "job.yaml"
        path.write_text(f"{file}driver: [{sys.executable}, {self.script(text)}]\n")
        return self.spoken([CLI, "run", str(path)])

    def drive_in_c(self, case: str, more: str = "") -> list[str]:
        path = self.folder / "job.yaml"
        path.write_text(f"{FILE}{more}driver: [{BUILD}/t/role_driver, {case}]\n")
        self.home.env |= {
            "MUSTER_PYTHON": sys.executable,
            "PYTHONPATH": str(self.folder),
        }
        return self.spoken([CLI, "run", str(path)])

    def alone(self, text: str) -> list[str]:
        return self.spoken([sys.executable, str(self.script(text))])

    def spoken(self, command: list[str]) -> list[str]:
        done = subprocess.run(
            command,
            env=self.home.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


@pytest.fixture
def job(home: Home, tmp_path: Path) -> Iterator[Job]:
    one = Job(home, tmp_path)
    yield one
    assert wait_gone(processes(one.mark)) == []


def test_a_line_for_each_role(job: Job) -> None:
    said = job.drive("""
c = {name: muster.Cluster(name) for name in muster.roles() if name != "bare"}
actor = c["actor"]
print(len(actor), actor.dp_size, actor.tp_size)
print(actor.execute_rank_zero_sync("told"))
print(actor.execute_all_sync("env", "CUDA_VISIBLE_DEVICES"))
print(actor.execute_rank_zero_sync("env", "FLAVOUR"), actor.execute_rank_zero_sync("env", "COUNT"))
print(len(c["critic"]), c["packed"].worker2nodes.values())
""")
    assert said == [
        "4 2 2",
        "((1, 'two', 3.5, None, '4', True), {'deep': {'list': [1, 2]}})",
        "['0', '1', '0', '1']",
        "plum 3",
        "2 dict_values(['n0', 'n1'])",
    ]


def test_what_the_driver_adds(job: Job) -> None:
    said = job.drive("""
a = muster.Cluster("actor", Actor, env={"MORE": "yes"}, device_mapping=[0, 1, 3, 4])
print(a.execute_rank_zero_sync("env", "MORE"), a.execute_rank_zero_sync("env", "FLAVOUR"))
b = muster.Cluster("b0", Other, role="bare")
print(len(b), b.name)
print(len(muster.Cluster(role="bare", worker_cls=Other, max_concurrency=2)))
print(len(muster.Cluster("of_its_own", Other, world_size=1)))
p = muster.Cluster("packed", muster.roles()["packed"]["worker_cls"])
p.destroy()
print(len(muster.Cluster("packed")))
""")
    assert said == ["yes plum", "3 b0", "3", "1", "2"]


def test_what_differs_is_one_error(job: Job) -> None:
    said = job.drive("""
print(fails("actor", Other, device_mapping="0-1", env={"FLAVOUR": "pear"}, timeout=30.0))
print(fails("critic", config=muster.WorkerConfig(num_cpus=1)))
print(fails("packed", resource_manager=muster.ResourceManager()))
print(fails("bare"))
print(fails(role="actr"))
print(fails("nobody"))
print(sorted(muster.roles()))
""")
    assert said[0] == (
        "ClusterError: role 'actor' is another one in job.yaml than here: device_mapping "
        "is '0-1' here and '0-1,3-4' there; env['FLAVOUR'] is 'pear' here and 'plum' there; "
        "worker_cls is train.Other here and roles_workers.Actor there. Leave it out in one "
        "of them"
    )
    assert "num_cpus is 1 here and 0.5 there" in said[1]
    assert "resource_manager is given here and a bundle there" in said[2]
    assert said[3] == (
        "TypeError: Cluster('bare'): worker_cls is missing: job.yaml has none for this role"
    )
    assert said[4] == (
        "ClusterError: job.yaml has no role 'actr'; it has actor, critic, packed, bare"
    )
    assert said[5] == (
        "TypeError: Cluster('nobody'): worker_cls is missing: job.yaml has no role "
        "'nobody'; it has actor, critic, packed, bare"
    )
    assert said[6] == "['actor', 'bare', 'critic', 'packed']"


in_c = pytest.mark.skipif(
    not (BUILD / "build.ninja").exists(), reason="there is no program in C to run"
)


@in_c
def test_a_driver_in_c_takes_them(job: Job) -> None:
    library = job.folder / "libreward.so"
    source = str(ROOT / "examples/c/reward.c")
    flags = ["-shared", "-fPIC", f"-I{ROOT / 'include'}"]
    subprocess.run(["cc", *flags, "-o", str(library), source], check=True)
    native = f"  native: {{worker_cls: '{library}:reward', world_size: 3}}\n"
    said = job.drive_in_c("take", native)
    assert "mesh" in said.pop(5)
    assert said == [
        "4",
        "((1, 'two', 3.5, None, '4', True), {'deep': {'list': [1, 2]}})",
        "1",
        "plum",
        "yes",
        "critic",
        "n0 n1",
        "n0 n1",
        "3",
    ]


@in_c
def test_a_driver_in_c_says_the_same(job: Job) -> None:
    in_python = job.drive("""
print(fails("actor", Other, device_mapping="0-1", env={"FLAVOUR": "pear"}, timeout=30.0))
print(fails("bare"))
print(fails(role="actr"))
print(fails("nobody"))
""")
    broken = "{worker_cls: roles_workers.Missing, world_size: 2, bundle: {CPU: 3}}"
    said = job.drive_in_c("differ", f"  broken: {broken}\n")
    said[2:4] = (line.removesuffix(", broken") for line in said[2:4])
    for line, other in zip(said, in_python, strict=False):
        kind, _, text = other.partition(": ")
        if kind == "TypeError":  # of Python's argument, before anything is asked
            text = text.replace("Cluster('", "cluster '").replace("')", "'", 1)
        assert line == text
    assert "Missing" in said[4]
    assert "tp" in said[5]
    assert "Missing" in said[6] and "Missing" in said[7]


def test_a_class_by_another_name(job: Job) -> None:
    """Of a package that has it from its module; and of the script, as part of one."""
    package = job.folder / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("from pack.impl import Inner, Wrong\n")
    (package / "impl.py").write_text("class Inner: pass\nclass Wrong: pass\n")
    (job.folder / "__init__.py").write_text("")
    said = job.drive(
        f"""
import sys
sys.path.insert(0, {str(job.folder.parent)!r})
from pack import Inner, Wrong
print(len(muster.Cluster("inner", Inner)))
print(fails("wrong", Wrong))
print(len(muster.Cluster("script", Other)))
""",
        f"""
roles:
  inner: {{worker_cls: pack.Inner, world_size: 1}}
  wrong: {{worker_cls: pack.Inner, world_size: 1}}
  script: {{worker_cls: {job.folder.name}.train.Other, world_size: 1}}
""",
    )
    assert said[0] == "1" and said[2] == "1"
    assert "worker_cls is pack.impl.Wrong here and pack.Inner there" in said[1]


def test_the_same_script_alone(job: Job) -> None:
    """With arguments of its own it works; without it says what is missing."""
    said = job.alone("""
print(muster.roles())
print(len(muster.Cluster("actor", Actor, world_size=2)))
print(len(muster.Cluster(role="critic", worker_cls=Actor)))
print(fails(role="actor"))
print(fails())
""")
    assert said[:3] == ["{}", "2", "1"]
    assert said[3] == (
        "TypeError: Cluster('actor'): worker_cls is missing: no job's file says it here "
        "(`muster run job.yaml` starts a driver with one)"
    )
    assert said[4].startswith("TypeError: name: a cluster's name is a str")


def test_workers_know_the_roles_too(job: Job) -> None:
    said = job.drive("""
class Nested:
    def make(self):
        import muster
        with muster.Cluster("critic") as c:
            return len(c)

print(muster.Cluster("n", Nested, world_size=1).execute_rank_zero_sync("make"))
""")
    assert said == ["2"]


def test_a_role_that_fails_gives_its_bundles_back(job: Job) -> None:
    said = job.drive(
        """
class Broken:
    def __init__(self):
        raise ValueError("broken")

print(fails("held", Broken).splitlines()[0])
g = muster.ResourceManager().placement_group([{"GPU": 1}] * 4)
print(len(g))
""",
        """
nodes: [{name: n0, gpus: 4}]
roles: {held: {world_size: 4, bundle: {GPU: 1}}}
""",
    )
    assert "broken" in said[0]
    assert said[1] == "4"


def test_its_bundles_end_with_a_cluster_whoever_ends_it(job: Job) -> None:
    said = job.drive(
        f"""
import subprocess
def state():
    status = muster.status()
    return [c["name"] for c in status["clusters"]], len(status["groups"])
made = muster.Cluster("held", Actor)
print(state())
muster.get_cluster("held").destroy()
print(state())
again = muster.Cluster("held", Actor)
print(again.execute_all_sync("env", "NONE"))
subprocess.run([{CLI!r}, "stop", "cluster", "held"], check=True, stdout=subprocess.PIPE)
print(state())
third = muster.Cluster("held", Actor)
made.destroy()
again.destroy()
print(state())
third.destroy()
print(state())
""",
        """
nodes: [{name: n0, gpus: 4}]
roles: {held: {world_size: 4, bundle: {GPU: 1}}}
""",
    )
    assert said == [
        "(['held'], 1)",
        "([], 0)",
        "[None, None, None, None]",
        "([], 0)",
        "(['held'], 1)",
        "([], 0)",
    ]


def test_two_roles_in_the_same_bundles(job: Job) -> None:
    said = job.drive(
        """
a, b = muster.Cluster("held", Actor), muster.Cluster("mate", Actor)
print(b.world_size, b.rank2devices == a.rank2devices, len(muster.status()["groups"]))
a.destroy()
print(len(muster.status()["groups"]))
b.destroy()
print(len(muster.status()["groups"]))
""",
        """
nodes: [{name: n0, gpus: 4}]
roles: {held: {world_size: 2, bundle: {GPU: 2}}, mate: {bundle: held}}
""",
    )
    assert said == ["2 True 1", "1", "0"]


@pytest.mark.parametrize(
    ("role", "why"),
    [
        ("{worker_cls: Actor}", "'worker_cls' must be a text such as package.module"),
        ("{worker_cls: [a.b]}", "'worker_cls' must be a text"),
        ("{args: 1}", "a list is wanted here"),
        ("{kwargs: [1]}", "a map of names and values is wanted here"),
        ("{env: {A: [1]}}", "the value of A must be a text"),
        ("{env: {'A=B': 1}}", "no name of a variable"),
        ("{env: {A: null}}", "the value of A must be a text"),
        ("{start: thread}", "'start' must be fork, exec or a command"),
        ("{start: []}", "'start' must be fork, exec or a command"),
        ("{visible: all}", "'visible' must be own or node"),
        ("{timeout: 0}", "more than 0 is wanted here"),
        ("{timeout: soon}", "a number is wanted here, not 'soon'"),
        ("{http_open: 1}", "true or false is wanted here"),
        ("{preload: {a: b}}", "a text or a list of texts"),
        ("{mesh: {tpp: 2}}", "a mesh has no key 'tpp'; is 'tp' meant?"),
        ("{world_size: 3, mesh: {tp: 2}}", "job.yaml:2:"),
        (
            "{device_mapping: '0-5', num_gpus_per_worker: 2, mesh: {tp: 2}}",
            "job.yaml:2:",
        ),
        ("{wrker_cls: a.b}", "is 'worker_cls' meant?"),
    ],
)
def test_bad_roles(job: Job, role: str, why: str) -> None:
    path = job.folder / "job.yaml"
    path.write_text(f"driver: ['true']\nroles: {{r: {role}}}\n")
    for command in ("run", "plan"):
        done = job.home.run(command, str(path))
        assert done.returncode == 2, done
        assert why in done.stderr


def test_a_bad_value_names_the_file(job: Job) -> None:
    said = job.drive(
        'print(fails("r", Actor))',
        "roles: {r: {world_size: 1, max_concurrency: 1.5}}\n",
    )
    assert said[0].startswith("ClusterError: job.yaml: role 'r': max_concurrency: must")


def test_plan_takes_the_same_file(job: Job) -> None:
    path = job.folder / "job.yaml"
    path.write_text(FILE)
    done = job.home.run("plan", str(path), "--json")
    assert done.returncode == 0, done
    assert "packed" in json.dumps(json.loads(done.stdout))
    assert "worker_cls" not in muster.WorkerConfig().fields()
