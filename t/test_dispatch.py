"""Registered methods: who gets what, and what becomes of the results."""

import asyncio
import itertools
import pickle
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dispatch_workers as dw
import muster
import pytest
from helpers import Bell, Driver
from muster import Dispatch, register
from muster._core import chunk_bounds, dispatch_registered, dispatch_vectors, mesh_ranks


@pytest.fixture(scope="module")
def eight(session: Any) -> Iterator[muster.Cluster]:
    """ROLL's: 8 ranks, tp 2 x dp 2 x pp 2."""
    one = muster.Cluster("eight", dw.Trainer, world_size=8, mesh={"tp": 2, "pp": 2})
    yield one
    one.destroy(grace=0.2)


# ---- the vectors -----------------------------------------------------------------------


def slow_vectors(mode: str, at: list[tuple[int, int, int, int]]) -> Any:
    """(chunk, gets rows, collects) of each rank of a whole mesh, as the rules say."""
    last = max(pp for *_, pp in at)
    out: list[tuple[int, bool, bool]] = []
    for rank, (tp, cp, dp, pp) in enumerate(at):
        first = (tp, cp, pp) == (0, 0, 0)
        collects = (tp, cp, pp) == (0, 0, last)
        out.append(
            {
                "ONE_TO_ALL": (0, True, True),
                "ONE_TO_ALL_ONE": (0, True, rank == 0),
                "ALL_TO_ALL": (rank, True, True),
                "RANK_ZERO": (-1 if rank else 0, rank == 0, rank == 0),
                "DP_COMPUTE_PROTO": (rank, True, True),
                "DP_MP_COMPUTE": (dp, True, collects),
                "DP_MP_DISPATCH_FIRST": (dp, first, collects),
                "DP_MP_DISPATCH_FIRST_COLLECT_ALL": (dp, first, True),
            }[mode]
        )
    return out


def test_vectors_of_random_meshes_are_as_the_rules_say() -> None:
    rng = random.Random(5)
    modes = "ONE_TO_ALL ONE_TO_ALL_ONE ALL_TO_ALL RANK_ZERO DP_COMPUTE_PROTO"
    modes += " DP_MP_COMPUTE DP_MP_DISPATCH_FIRST DP_MP_DISPATCH_FIRST_COLLECT_ALL"
    for _ in range(500):
        tp, cp, dp, pp = (rng.choice([1, 2, 3, 4]) for _ in range(4))
        at = mesh_ranks(tp * cp * dp * pp, tp, cp, 0, pp, 0)
        assert len(set(at)) == len(at)
        for mode in modes.split():
            chunks, chunk_of, receives, collects, order = dispatch_vectors(mode, at)
            want = slow_vectors(mode, at)
            got = list(zip(chunk_of, receives, collects, strict=True))
            assert got == want
            assert chunks == max(chunk_of) + 1
            counts = [r for r in range(len(at)) if want[r][2]]
            assert order == sorted(counts, key=lambda r: (want[r][0], r))


def test_vectors_that_the_ranks_have_registered() -> None:
    assert dispatch_registered([(0, True), (1, False), (1, True)]) == (
        2, [0, 1, 1], [True] * 3, [True, False, True], [0, 2],
    )  # fmt: skip
    with pytest.raises(ValueError, match="no rank has dp rank 1 of 3"):
        dispatch_registered([(0, True), (2, True), (2, True)])
    with pytest.raises(ValueError, match="no rank collects"):
        dispatch_registered([(0, False)])


def test_chunks_are_as_numpy_splits() -> None:
    for rows in range(20):
        for chunks in range(1, 9):
            bounds = chunk_bounds(rows, chunks)
            sizes = [b - a for a, b in itertools.pairwise(bounds)]
            each, longer = divmod(rows, chunks)
            assert sizes == [each + (i < longer) for i in range(chunks)]


# ---- the modes, on 8 ranks of tp 2 x dp 2 x pp 2 ---------------------------------------


def test_all_get_the_same(eight: muster.Cluster) -> None:
    assert eight.who() == list(range(8))
    assert eight.who([1], k="v") == [(i, ([1],), {"k": "v"}) for i in range(8)]
    assert eight.one("x") == (0, "x")
    assert eight.zero([1, 2]) == eight.zero_too([1, 2]) == eight.direct([1, 2])
    assert eight.zero([1, 2]) == (0, [1, 2])


def test_element_i_to_rank_i(eight: muster.Cluster) -> None:
    rows, names = list(range(8)), tuple("abcdefgh")
    assert eight.each(rows, 5, k=names, s=muster.same([1])) == [
        (i, (i, 5), {"k": names[i], "s": [1]}) for i in range(8)
    ]
    with pytest.raises(ValueError, match="list of 3 for 8 ranks"):
        eight.each([1, 2, 3])
    assert eight.dp(rows) == [(i, i) for i in range(8)]


def test_chunks_go_to_dp_groups_and_results_come_from_the_last_stage(
    eight: muster.Cluster,
) -> None:
    # rank = tp + 2 * (dp + 2 * pp): the last stage with tp 0 is ranks 4 and 6
    assert eight.compute([1, 2, 3, 4]) == [(4, 1), (4, 2), (6, 3), (6, 4)]
    assert eight.compute([1, 2, 3]) == [(4, 1), (4, 2), (6, 3)]
    assert eight.compute([1]) == [(4, 1)]
    assert eight.compute([]) == []
    assert eight.compute((1, 2), "x", k=["p", "q"]) == [
        (4, 1, "x", ["p"]),
        (6, 2, "x", ["q"]),
    ]
    assert eight.count([1, 2, 3]) == [2, 1]
    assert eight.columns(["a", "b", "c"]) == {"x": ["a", "b", "c"], "rank": [4, 4, 6]}
    with pytest.raises(ValueError, match="1 has 3 rows, but argument 0 has 2"):
        eight.compute([1, 2], [1, 2, 3])
    assert eight.compute([1, 2], muster.same([1, 2, 3])) == [
        (4, 1, [1, 2, 3]),
        (6, 2, [1, 2, 3]),
    ]


def test_arrays_are_divided_and_joined(eight: muster.Cluster) -> None:
    np = pytest.importorskip("numpy")
    for rows in (0, 1, 5, 6):
        whole = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
        got = eight.same_type(whole)
        assert got.dtype == np.float32 and got.shape == whole.shape
        assert (got == whole).all()
    assert eight.compute([1, 2], np.float64(3)) == [(4, 1, 3.0), (6, 2, 3.0)]


def test_batches_are_divided_and_joined(eight: muster.Cluster) -> None:
    for rows in range(1, 5):
        got = eight.same_type(dw.Batch(list(range(rows)), {"step": 3}))
        assert isinstance(got, dw.Batch)
        assert got.batch == list(range(rows)) and got.meta_info == {"step": 3}
    assert eight.proto(dw.Batch(list(range(19)))).batch == list(range(19))


def test_rows_go_to_the_first_stage_alone(eight: muster.Cluster) -> None:
    batch = dw.Batch([1, 2, 3], {"step": 3})
    got = eight.first_all(batch, [7, 8, 9])
    assert got == [
        (0, [1, 2], {"step": 3}, [7, 8]),
        (1, None, {"step": 3}, [7, 8]),
        (2, [3], {"step": 3}, [9]),
        (3, None, {"step": 3}, [9]),
        *((i, None, {"step": 3}, [7, 8] if i < 6 else [9]) for i in range(4, 8)),
    ]
    assert eight.first([1, 2, 3]) == [1, 2, 3]  # a list goes to all


def test_verl_modes_have_a_chunk_for_each_rank(eight: muster.Cluster) -> None:
    assert eight.proto(list(range(19))) == list(range(19))
    assert eight.with_func(lambda row: row * row, [1, 2, 3]) == [1, 4, 9]
    assert eight.metric([1] * 10) == [2, 2, 1, 1, 1, 1, 1, 1]


def test_padding_makes_equal_chunks_and_leaves_no_trace(eight: muster.Cluster) -> None:
    assert eight.padded([1, 2, 3]) == {"row": [1, 2, 3], "size": [2, 2, 2]}
    assert eight.padded([]) == {"row": [], "size": []}
    np = pytest.importorskip("numpy")
    got = eight.padded(np.arange(5))["row"]
    assert got.tolist() == [0, 1, 2, 3, 4]


def test_functions_of_the_users(eight: muster.Cluster) -> None:
    rows = list(range(11))
    assert eight.own(rows) == [(row % 8, row) for row in rows]


def test_a_list_for_all_of_execute_all(eight: muster.Cluster) -> None:
    rows = list(range(8))
    assert eight.execute_all_sync("each", rows)[3] == (3, (rows,), {})
    assert eight.execute_all_sync("each", muster.each(rows))[3] == (3, (3,), {})
    assert eight.each(muster.each(rows))[3] == (3, (3,), {})
    assert eight.execute_all_sync("each", muster.same(rows))[3] == (3, (rows,), {})
    assert eight[3].execute_all_sync("each", k=muster.same([1])) == [
        (3, (), {"k": [1]})
    ]


def test_refs_and_futures_are_divided(eight: muster.Cluster) -> None:
    rows = [1, 2, 3, 4]
    want = eight.compute(rows)
    assert len(want) == 4
    assert eight.compute(muster.put(rows)) == want
    assert eight.compute(rows=muster.put(rows)) == want
    assert eight.compute(eight.later([0, 1, 2, 3], blocking=False)) == want
    assert eight.later(eight.later(rows)).result(20) == [3, 4, 5, 6]
    assert eight.each(muster.put(list(range(8))))[3] == (3, (3,), {})
    one = eight.first_all([1], muster.same(muster.put(rows)))[0]
    assert one[3] == rows  # all of it, resolved in the worker


def test_modes_of_the_users(cluster: Callable[..., Any]) -> None:
    mode = muster.register_dispatch_mode("EVERY_OTHER", dw.every_other, dw.interleave)
    assert Dispatch.EVERY_OTHER is mode and mode in list(Dispatch)
    with pytest.raises(ValueError, match="already"):
        muster.register_dispatch_mode("EVERY_OTHER", dw.every_other, dw.interleave)

    class Local(dw.Base):
        @register(dispatch_mode=Dispatch.EVERY_OTHER)
        def work(self, rows: list[int]) -> list[Any]:
            return [(self.number, row) for row in rows]

        @register(
            dispatch_mode={
                "dispatch_fn": lambda cluster, x: ((x, len(cluster)), {}),
                "collect_fn": lambda cluster, output: ("collected", output),
            },
            execute_mode=muster.Execute.RANK_ZERO,
        )
        def first(self, x: Any, size: int) -> Any:
            return self.number, x, size

    here = cluster(Local, 3)
    assert here.work([1, 2, 3, 4]) == [(0, 1), (1, 2), (2, 3), (0, 4)]
    assert here.first([1, 2, 3]) == ("collected", (0, [1, 2, 3], 3))
    assert here.first("x", blocking=False).result(20) == ("collected", (0, "x", 3))
    muster.update_dispatch_mode(mode, dw.every_other, lambda cluster, outputs: outputs)
    assert here.work([1, 2]) == [[(0, 1)], [(1, 2)], []]


def test_random_shapes_against_the_rules(session: Any) -> None:
    """Rows over real workers of random meshes and views."""
    rng = random.Random(11)
    for mesh in ({"tp": 2}, {"pp": 3}, {"cp": 2, "pp": 2}, {"tp": 3, "cp": 2}):
        here = muster.Cluster("shape", dw.Trainer, world_size=12, mesh=mesh)
        at = [here.tp_size, here.cp_size, here.dp_size, here.pp_size]
        places = mesh_ranks(12, *at, 0)
        for _ in range(25):
            ranks = sorted(rng.sample(range(12), rng.randint(1, 12)))
            rows = [rng.random() for _ in range(rng.randint(0, 30))]
            dps = sorted({places[r][2] for r in ranks})
            want = []
            for i, dp in enumerate(dps):
                group = [r for r in ranks if places[r][2] == dp]
                speaks = min(
                    group, key=lambda r: (-places[r][3], places[r][1], places[r][0])
                )
                each, longer = divmod(len(rows), len(dps))
                begin = i * each + min(i, longer)
                want += [
                    (speaks, row) for row in rows[begin : begin + each + (i < longer)]
                ]
            assert here[ranks].compute(rows) == want
        here.destroy(grace=0.2)


# ---- blocking --------------------------------------------------------------------------


def test_a_future_of_the_joined_result(eight: muster.Cluster) -> None:
    later = eight.later([1, 2, 3])
    assert isinstance(later, muster.Future)
    assert later.result(20) == [2, 3, 4]
    assert later.done() and later.exception() is None and not later.cancelled()
    assert eight.later([1], blocking=True) == [2]
    both = [eight.compute([1, 2], blocking=False), eight.who(blocking=False)]
    assert muster.get(both, timeout=20) == [[(4, 1), (6, 2)], list(range(8))]
    done, pending = muster.wait([eight.later([5])], timeout=20)
    assert not pending and done[0].result() == [6]

    async def wait_for_it() -> Any:
        return await eight.later([7, 8])

    assert asyncio.run(wait_for_it()) == [8, 9]


def test_callbacks_of_joined_futures(
    eight: muster.Cluster, bell: Callable[[], Bell]
) -> None:
    heard, told = bell(), []

    def note(future: muster.Future) -> None:
        told.append(future.result(0))
        heard.ring()

    eight.later([1, 2]).add_done_callback(note)
    heard.hear()
    assert told == [[2, 3]]


def test_one_failure_fails_it_at_once(
    eight: muster.Cluster, bell: Callable[[], Bell]
) -> None:
    with pytest.raises(ValueError, match="rank 5 says no"):
        eight.fail([5])
    gate = bell()
    future = eight.fail([5], gate.path, blocking=False)
    with pytest.raises(ValueError, match="rank 5 says no") as failed:
        future.result(20)  # the others wait for the gate
    assert isinstance(failed.value, muster.RemoteError)
    assert "eight/5@" in failed.value.where
    assert future.done() and isinstance(future.exception(), ValueError)
    for _ in range(7):
        gate.ring()
    assert eight.who() == list(range(8))


def test_cancel_cancels_all(
    cluster: Callable[..., Any], bell: Callable[[], Bell]
) -> None:
    here = cluster(dw.Trainer, 2)
    started, gate = bell(), bell()
    running = here.hang(started.path, blocking=False)
    for _ in range(2):
        started.hear()
    waiting = here.fail([0, 1], gate.path, blocking=False)
    with pytest.raises(muster.DeadlineExceeded, match="have not answered"):
        waiting.result(0.01)
    assert waiting.cancel()
    with pytest.raises(muster.Cancelled):
        waiting.result(20)
    assert waiting.cancelled() and not waiting.cancel()
    assert not running.done()


def test_streams(eight: muster.Cluster) -> None:
    streams = eight.stream(3)
    assert [list(s) for s in streams] == [
        [10 * i + k for k in range(3)] for i in range(8)
    ]


# ---- where methods come from -----------------------------------------------------------


BY_PATH = """
import sys, muster
muster.init()
c = muster.Cluster("c", "dispatch_workers.Trainer", world_size=4)
assert "dispatch_workers" not in sys.modules
assert c.compute([1, 2, 3]) == [(0, 1), (1, 2), (2, 3)]
assert c.who() == [0, 1, 2, 3] and "who" in dir(c)
handle = muster.get_cluster("c")
assert handle.who() == [0, 1, 2, 3]
assert "dispatch_workers" not in sys.modules
engine = c.create_engine("reward", "dispatch_workers.Reward")
assert engine.score(["a", "bb", "ccc", "dddd", "eeeee"]) == [1, 2, 3, 4, 5]
assert "dispatch_workers" not in sys.modules
assert c.own([5, 6]) == [(0, 5), (1, 6)]  # its functions are there
print("fine")
"""


def test_by_import_path_nothing_is_imported_here(tmp_path: Path) -> None:
    one = Driver(BY_PATH, tmp_path)
    assert one.line() == "fine"
    assert one.end()[0] == 0
    assert one.left() == []


def test_of_main_and_inherited(cluster: Callable[..., Any]) -> None:
    class Local(dw.Base):
        @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
        def double(self, rows: list[int]) -> list[int]:
            return [2 * row for row in rows]

    here = cluster(Local, 3)
    assert here.double([1, 2, 3, 4]) == [2, 4, 6, 8]
    assert here.who() == [0, 1, 2]
    with pytest.raises(AttributeError, match="execute_all_sync"):
        here.nothing_such()
    assert not hasattr(here, "_private")


def test_async_classes(cluster: Callable[..., Any]) -> None:
    here = cluster(dw.AsyncTrainer, 2)
    assert here.compute([1, 2, 3]) == [(0, 1), (0, 2), (1, 3)]
    assert here.plain([1, 2, 3]) == [1, 2, 3]


@pytest.mark.parametrize("cls", [dw.Collides, "dispatch_workers.Collides"])
def test_a_name_of_the_cluster_is_refused(
    cluster: Callable[..., Any], cls: Any
) -> None:
    with pytest.raises(muster.ClusterError, match="'destroy' cannot be bound"):
        cluster(cls, 1)


def test_bad_registrations() -> None:
    with pytest.raises(AttributeError, match="no dispatch mode 'EVERYBODY'"):
        register(dispatch_mode="EVERYBODY")
    with pytest.raises(TypeError, match="dispatch_fn"):
        register(dispatch_mode={"dispatch_fn": len})
    with pytest.raises(TypeError, match=r"missing .* 'dispatch_mode'"):
        register()  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="execute_mode"):
        register(Dispatch.ONE_TO_ALL, execute_mode="SOME")


# ---- meshes ----------------------------------------------------------------------------


def test_places_that_the_workers_tell(cluster: Callable[..., Any]) -> None:
    here = cluster(dw.RollWorker, 8)
    assert (here.dp_size, here.tp_size) == (8, 1)
    here.initialize(2, 2)
    assert (here.dp_size, here.tp_size, here.pp_size, here.cp_size) == (2, 2, 2, 1)
    # dp outermost: ranks 2 and 6 are the last stage
    assert here.compute([1, 2, 3]) == [(2, 1), (2, 2), (6, 3)]
    here.execute_all_sync("initialize", 1, 1)
    assert here.dp_size == 8
    assert here.compute([1, 2]) == [(0, 1), (1, 2)]


def test_an_initialize_is_seen_by_handles_in_other_processes(
    cluster: Callable[..., Any],
) -> None:
    here = cluster(dw.RollWorker, 8)
    user = cluster(dw.HandleUser, 1)[0]
    user.execute_rank_zero_sync("take", here, here[:4])
    rows = [1, 2]
    assert user.execute_rank_zero_sync("compute", rows) == [(0, 1), (1, 2)]
    assert user.execute_rank_zero_sync("compute_in_part", rows) == [(0, 1), (1, 2)]

    here.initialize(2, 2)
    assert user.execute_rank_zero_sync("compute", rows) == [(2, 1), (6, 2)]
    assert user.execute_rank_zero_sync("compute_in_part", rows) == [(2, 1), (2, 2)]

    here.execute_all_sync("initialize", 1, 1)
    assert user.execute_rank_zero_sync("compute", rows) == [(0, 1), (1, 2)]
    user.execute_rank_zero_sync("initialize_cluster", 2, 2)
    assert here.compute(rows) == [(2, 1), (6, 2)]


def test_several_meshes_in_one_cluster(cluster: Callable[..., Any]) -> None:
    here = cluster(dw.Meshes, 8)
    assert here.train([0, 1, 1, 2]) == [1, 3]
    assert here.infer([5, 6, 7, 9]) == [11, 16]
    assert here[4:8].train_who([1, 2]) == [(4, 1), (4, 2)]
    with pytest.raises(muster.ClusterError, match="rank 0 has not registered"):
        here.nobody([1])
    bound = here._bound
    assert [dp for dp, _ in bound.registered(here, "train")] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [dp for dp, _ in bound.registered(here, "infer")] == [0, 0, 1, 1, 0, 0, 1, 1]


@pytest.mark.parametrize("said", ["", "say", "say_later"])
def test_engines_have_meshes_of_their_own(
    cluster: Callable[..., Any], said: str
) -> None:
    here = cluster(dw.Moves, 2)
    other = here.create_engine("other", dw.Turned, args=(not said,))
    if said:
        other.execute_all_sync(said)
    assert here.work([1, 2]) == [(0, 1), (1, 2)]
    assert other.work([1, 2]) == [(1, 1), (0, 2)]
    here.destroy_engine("other")
    other = here.create_engine("other", dw.Turned, args=(False,))
    with pytest.raises(muster.ClusterError, match="has not registered"):
        other.work([1, 2])


def test_a_replaced_rank_is_asked_again(cluster: Callable[..., Any]) -> None:
    here = cluster(dw.Moves, 2)
    assert here.work([1, 2]) == [(0, 1), (1, 2)]
    here.execute_all_sync("move")  # nobody asks
    assert here.work([1, 2]) == [(0, 1), (1, 2)]
    here.replace(0)
    here.execute_rank_zero_sync("move")
    assert here.work([1, 2]) == [(1, 2)]  # rank 0 collects no more
    fixed = cluster(dw.Trainer, 2, mesh={"tp": 2})
    assert fixed.compute([1, 2]) == [(0, 1), (0, 2)]
    fixed.replace(1)
    assert fixed.compute([1, 2]) == [(0, 1), (0, 2)]


# ---- views, engines, handles -----------------------------------------------------------


def test_views_have_the_methods(eight: muster.Cluster) -> None:
    assert eight[2:5].who() == [2, 3, 4]
    assert eight[3].who() == [3]
    # the first stage alone: dp groups {0, 1} and {2, 3}
    assert eight[0:4].compute([1, 2, 3]) == [(0, 1), (0, 2), (2, 3)]
    # one dp group: rows to its first stage, results from its last
    assert eight[[2, 3, 6, 7]].compute([1, 2]) == [(6, 1), (6, 2)]
    assert eight[[6, 7]].compute([1, 2]) == [(6, 1), (6, 2)]
    got = eight[[2, 3, 6, 7]].first_all(dw.Batch([1, 2]))
    assert [batch for _, batch, *_ in got] == [[1, 2], None, None, None]
    assert eight[5].zero("x") == (5, "x")


def test_engines_have_their_own(cluster: Callable[..., Any]) -> None:
    here = cluster(dw.Trainer, 2)
    reward = here.create_engine("reward", dw.Reward)
    assert reward.score(["a", "bb", "ccc"]) == [1, 2, 3]
    assert here.options(engine="reward").score(["a"]) == [1]
    assert here.options(timeout=20).who() == [0, 1]
    assert not hasattr(here, "score") and not hasattr(reward, "compute")
    assert pickle.loads(pickle.dumps(reward)).score(["a", "bb"]) == [1, 2]


def test_handles_in_workers(cluster: Callable[..., Any], eight: muster.Cluster) -> None:
    here = cluster(dw.Trainer, 2)
    assert here.ask([1, 2, 3], eight) == [(4, 1), (6, 2), (4, 3)]  # two calls
    assert here.ask([1, 2, 3], eight[0:2]) == [(0, 1), (0, 2), (0, 3)]
    assert pickle.loads(pickle.dumps(eight)).compute([1]) == [(4, 1)]
    assert muster.get_cluster("eight").compute([1, 2]) == [(4, 1), (6, 2)]
    assert muster.get_cluster("eight").tp_size == 2


# ---- the beginning and the end ---------------------------------------------------------


def test_the_reasons_of_all_ranks(session: Any) -> None:
    with pytest.raises(KeyError, match="no key") as caught:
        muster.Cluster("picky", dw.Picky, world_size=5)
    assert isinstance(caught.value, muster.RemoteError)
    assert sorted(caught.value.failures or ()) == [1, 2, 3]
    notes = caught.value.__notes__
    assert "3 workers failed:" in notes
    assert "  rank 2, 3: ValueError: no value" in notes
    muster.Cluster("picky", dw.Base, world_size=1).destroy()


@pytest.mark.parametrize("cls", [dw.Leaves, dw.AsyncLeaves])
def test_all_clean_up_at_once_and_rank_zero_ends_last(
    session: Any, short_path: Path, cls: type
) -> None:
    here = muster.Cluster("leaves", cls, world_size=4, args=(str(short_path),))
    here.execute_rank_zero_sync("know", here.pids[1:])
    here.destroy(grace=20)
    assert [(short_path / str(rank)).read_text() for rank in range(4)] == ["met"] * 4
    assert (short_path / "last").read_text() == "[]"


def test_the_end_is_within_one_window(session: Any) -> None:
    here = muster.Cluster("stays", dw.Stays, world_size=3)
    began = time.monotonic()
    here.destroy(grace=0.5)
    assert time.monotonic() - began < 5


# ---- what a plan is made from ------------------------------------------------------------


def test_what_is_for_all_is_no_placeholder(eight: Any) -> None:
    rows, whole = dw.Batch([1, 2]), dw.Batch([7, 8, 9])
    for _, _, _, more in eight.first_all(rows, muster.same(whole)):
        assert more.batch == [7, 8, 9]
    for _, _, _, more in eight.first_all(rows, more=muster.same(whole)):
        assert more.batch == [7, 8, 9]


def test_rank_zero_of_one_rank(session: Any) -> None:
    with muster.Cluster("alone", dw.OwnZero) as one:
        assert one.zero(5) == ("collected", 5)
        assert one.zero([5]) == ("collected", [5])


def test_a_built_in_mode_with_other_functions(session: Any) -> None:
    mode = Dispatch.ONE_TO_ALL_ONE
    before = dict(vars(mode))
    with muster.Cluster("two", dw.Trainer, world_size=2) as two:
        assert two.one([1, 2, 3]) == (0, [1, 2, 3])
        try:
            muster.update_dispatch_mode(mode, dw.every_other, lambda _, got: got)
            assert two.one([1, 2, 3]) == [(0, [1, 3]), (1, [2])]
        finally:
            for field, value in before.items():
                setattr(mode, field, value)
        assert two.one([1, 2, 3]) == (0, [1, 2, 3])
