"""DynamicSamplingScheduler on real workers: batches, filters, aborts, and a replica's end."""

import asyncio
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import muster
import numpy as np
import pytest
from muster import roll
from rollout_workers import BatchActor, Countdown, Reward

WAIT_S = 120.0
PLACES, SEQUENCE = 4, 64


class Collect:
    """Columns of items: a prompt of four places, the first ones padding."""

    def __init__(self, tokenizer: Any, **given: Any) -> None:
        pass

    def __call__(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        ids = np.zeros((len(items), PLACES), np.int64)
        ids[:, -1] = [item["start"] for item in items]
        return {
            "input_ids": ids,
            "attention_mask": (ids != 0).astype(np.int64),
            "domain": np.array([i["domain"] for i in items], dtype=object),
        }


def config(**more: Any) -> Any:
    rule = SimpleNamespace(type="no_filter", filter_args={})
    reward = SimpleNamespace(query_filter_config=rule)
    given = {
        "seed": 7,
        "sequence_length": SEQUENCE,
        "val_sequence_length": SEQUENCE,
        "prompt_length": PLACES,
        "async_generation_ratio": 0,
        "is_num_return_sequences_expand": True,
        "rewards": {"math": reward, "code": reward},
    }
    return SimpleNamespace(**{**given, **more})


def asked(n: int = 2, **sampling: Any) -> roll.DataProto:
    generation = {"num_return_sequences": n, "max_new_tokens": 60, "pad_token_id": 0}
    return roll.DataProto(meta_info={"generation_config": generation | sampling})


DATASET = [{"start": i, "domain": "math" if i % 2 else "code"} for i in range(5, 45)]


@pytest.fixture
def roles(session: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    actor = roll.Cluster(
        "actor_infer", Countdown, None, roll.WorkerConfig(world_size=2)
    )
    reward = roll.Cluster("reward", Reward, None, roll.WorkerConfig(world_size=2))
    yield actor, {"math": reward, "code": reward}
    actor.destroy()
    reward.destroy()


def run(
    main: Callable[[roll.DynamicSamplingScheduler], Any],
    roles: tuple[Any, dict[str, Any]],
    given: Any = None,
    **more: Any,
) -> None:
    async def whole() -> None:
        scheduler = roll.DynamicSamplingScheduler(
            given or config(), *roles, DATASET, Collect, {}, **more
        )
        await scheduler.initialize()
        try:
            await main(scheduler)
        finally:
            await scheduler.shutdown()
        assert not scheduler.running_tasks and scheduler.router_manager.size() == 0

    asyncio.run(asyncio.wait_for(whole(), WAIT_S))


def starts(batch: roll.DataProto) -> list[int]:
    """Each row's prompt, after a look at its response."""
    prompts = np.asarray(batch.batch["prompts"])[:, -1]
    for start, response in zip(
        prompts, np.asarray(batch.batch["responses"]), strict=True
    ):
        whole = list(range(int(start) - 1, 0, -1))
        assert response.tolist() == whole + [0] * (len(response) - len(whole))
    return [int(one) for one in prompts]


def test_steps_of_a_synchronous_job(roles: Any) -> None:
    async def main(scheduler: roll.DynamicSamplingScheduler) -> None:
        seen: list[int] = []
        for step in range(3):
            batch = await scheduler.get_batch(asked(), step, 4)
            rows = starts(batch)
            assert len(rows) == 8 and len(set(rows)) == 4
            seen += set(rows)
            rewards = np.asarray(batch.batch["response_level_rewards"])
            assert rewards.tolist() == [start - 1 for start in rows]
            metrics = batch.meta_info["metrics"]
            assert metrics["scheduler/collect_query_count"] == 4
            assert metrics["scheduler/off_policy_ratio"] == 0
            spent = [f"scheduler/{d}/time/reward/count" for d in ("math", "code")]
            assert sum(metrics[name] for name in spent) == 8
            assert scheduler.router_manager.size() == 0
        assert len(set(seen)) == 12  # no item came twice
        state = scheduler.get_scheduler_state()
        assert state == {"dataset_iter_count": 12}
        again = roll.DynamicSamplingScheduler(
            config(), *roles, DATASET, Collect, {}, state=state
        )
        assert again.get_next_dataset_item() == scheduler.get_next_dataset_item()
        await again.shutdown()
        items = scheduler.get_next_data_item_by_dataloader(3)
        assert len(items) == 3 and scheduler.dataset_iter_count == 16
        with pytest.raises(AssertionError, match="step 2 after 2"):
            await scheduler.get_batch(asked(), 2, 4)

    run(main, roles)


class Twice:
    """A loop of one's own: the first answer is aborted, the second one is rewarded."""

    async def process_new_prompt(self, context: roll.RolloutContext) -> Any:
        request, domain = context.get_request_data(context.meta_info)
        with pytest.raises(RuntimeError, match="has its data"):
            context.get_request_data(context.meta_info)
        with pytest.raises(AssertionError, match="do_generate_and_reward"):
            await context.generate(request, domain)
        request.meta_info["generation_config"]["pace"] = 30
        async with context.do_generate_and_reward(max_concurrency=1):
            first = asyncio.create_task(context.generate(request, domain))
            while not context.inflight_requests:
                await asyncio.sleep(0)
            await context.abort_running_requests()
            aborted = await first
            assert aborted is not None and not roll.is_report_data_finished(aborted)
            request.meta_info["generation_config"]["pace"] = 0
            response = await context.generate(request, domain)
            assert response is not None
            length = context.sequence_length
            rows = roll.postprocess_output_data(request, response, length)
            rows.union(await context.compute_rewards(rows, domain))
        return rows


def test_a_loop_of_ones_own(roles: Any) -> None:
    async def main(scheduler: roll.DynamicSamplingScheduler) -> None:
        batch = await scheduler.get_batch(asked(), 0, 3)
        assert len(starts(batch)) == 6

    run(main, roles, config(user_defined_rollout_loop_cls=f"{__name__}.Twice"))


def test_a_filtered_prompt_is_replaced(roles: Any) -> None:
    rule = SimpleNamespace(type="mean_filter", filter_args={"threshold_up": 20})
    reward = SimpleNamespace(query_filter_config=rule)
    given = config(rewards={"math": reward, "code": reward})

    async def main(scheduler: roll.DynamicSamplingScheduler) -> None:
        batch = await scheduler.get_batch(asked(), 0, 8)
        assert max(starts(batch)) <= 20 and len(batch) == 16
        assert scheduler.dataset_iter_count > 8

    run(main, roles, given)


def test_rejected_samples_are_generated_again(
    roles: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample of an even start is accepted at its second try, one of 9 never is: that
    prompt is given up and replaced."""
    tries: dict[int, int] = {}

    def accepts(sample: roll.DataProto, _config: Any) -> bool:
        start = int(np.asarray(sample.batch["prompts"])[0, -1])
        tries[start] = tries.get(start, 0) + 1
        return start != 9 and (start % 2 == 1 or tries[start] > 2)

    monkeypatch.setattr("muster.roll.rollout_loop.response_filter", accepts)

    async def main(scheduler: roll.DynamicSamplingScheduler) -> None:
        batch = await scheduler.get_batch(asked(), 0, len(DATASET) - 1)
        rows = starts(batch)
        assert sorted(rows.count(row) for row in set(rows)) == [2] * (len(DATASET) - 1)
        assert 9 not in rows and tries[9] == 10
        assert all(tries[row] == (2 if row % 2 else 4) for row in set(rows))

    run(main, roles)


def test_a_killed_replica_and_an_update_of_the_weights(roles: Any) -> None:
    """With an async ratio requests go on behind their tokens after the update, and on the
    other replica after a kill -9."""
    actor = roles[0]

    async def main(scheduler: roll.DynamicSamplingScheduler) -> None:
        first = await scheduler.get_batch(asked(pace=0.05), 0, 4)
        starts(first)
        while scheduler.router_manager.size() == 0:  # the next step's run ahead
            await asyncio.sleep(0.01)
        await scheduler.pause_sampling()
        await asyncio.gather(*actor.execute_all_async("set_weights", 1))
        stats = scheduler.router_manager.scheduler.stats
        before = stats()["replicas"][1]["tokens"]
        step = asyncio.create_task(scheduler.get_batch(asked(pace=0.05), 1, 4))
        while stats()["replicas"][1]["tokens"] == before:
            await asyncio.sleep(0.01)
        os.kill(actor[1].execute_rank_zero_sync("pid"), signal.SIGKILL)
        batch = await step
        assert len(starts(batch)) == 8
        assert np.asarray(batch.batch["versions"]).max() == 1
        await scheduler.pause_sampling()
        last = await scheduler.get_batch(asked(), 2, 4)
        rows = starts(first) + starts(batch) + starts(last)
        assert sorted(rows.count(row) for row in set(rows)) == [2] * 12
        assert last.meta_info["metrics"]["scheduler/off_policy_ratio"] <= 1

    run(main, roles, config(async_generation_ratio=1))


@pytest.mark.parametrize("ratio", [0, 0.5, 2.5])
def test_more_prompts_than_the_budget(roles: Any, ratio: float) -> None:
    """With additional prompts and any ratio a batch has what was asked for, none too old."""
    given = config(
        async_generation_ratio=ratio,
        is_use_additional_prompts=True,
        max_additional_running_prompts=12,
    )

    async def main(scheduler: roll.DynamicSamplingScheduler) -> None:
        for step in range(5):
            batch = await scheduler.get_batch(asked(pace=0.001), step, 4)
            assert len(starts(batch)) == 8
            metrics = batch.meta_info["metrics"]
            assert metrics["scheduler/off_policy_ratio"] <= ratio + 1
            await scheduler.pause_sampling()

    run(main, roles, given)


def test_validation(roles: Any) -> None:
    rule = SimpleNamespace(type="mean_filter", filter_args={"threshold_up": 0})
    reward = SimpleNamespace(query_filter_config=rule)
    given = config(async_generation_ratio=2, rewards={"math": reward, "code": reward})

    async def main(scheduler: roll.DynamicSamplingScheduler) -> None:
        batch = await scheduler.get_batch(asked(n=1), 0, len(DATASET))
        assert sorted(starts(batch)) == [item["start"] for item in DATASET]

    run(main, roles, given, is_val=True)


def test_batches_by_the_actors_own_generate(roles: Any) -> None:
    rule = SimpleNamespace(type="mean_filter", filter_args={"threshold_up": 20})
    reward = SimpleNamespace(query_filter_config=rule)
    rewards = {"math": reward, "code": reward}
    actor = roll.Cluster("batch", BatchActor, None, roll.WorkerConfig(world_size=2))

    async def main(scheduler: roll.DynamicSamplingScheduler) -> None:
        batch = await scheduler.get_batch(asked(), 0, 5)
        assert len(batch) == 10 and max(starts(batch)) <= 20
        told = np.asarray(batch.batch["response_level_rewards"]).tolist()
        assert told == [start - 1 for start in starts(batch)]
        metrics = batch.meta_info["metrics"]
        assert metrics["scheduler/collect_query_count"] == 5
        assert metrics["scheduler/query_filter_count"] > 0

    async def none_is_good(scheduler: roll.DynamicSamplingScheduler) -> None:
        what = "5 prompts of step 0 were not there within 1 s"
        with pytest.raises(muster.DeadlineExceeded, match=what):
            await scheduler.get_batch(asked(), 0, 5, timeout=1)

    run(main, (actor, roles[1]), config(generate_opt_level=0, rewards=rewards))
    rule.filter_args["threshold_up"] = 0
    run(none_is_good, (actor, roles[1]), config(generate_opt_level=0, rewards=rewards))
    actor.destroy()


def test_a_reward_worker_that_dies_is_raised(roles: Any) -> None:
    async def main(scheduler: roll.DynamicSamplingScheduler) -> None:
        os.kill(roles[1]["math"][0].execute_rank_zero_sync("pid"), signal.SIGKILL)
        with pytest.raises(muster.WorkerDied):
            await scheduler.get_batch(asked(), 0, 4)

    run(main, roles)


def test_a_failure_is_raised_at_once(roles: Any) -> None:
    async def main(scheduler: roll.DynamicSamplingScheduler) -> None:
        roles[1]["math"].execute_all_sync("set_bad", 3)
        with pytest.raises(ValueError, match="token 3 cannot be rewarded"):
            await scheduler.get_batch(asked(), 0, 4)

    run(main, roles)


def test_what_prompts_did_in_earlier_epochs_is_known(
    roles: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By their place in the dataset; also in the next run, from the file of its history."""
    monkeypatch.setattr(f"{__name__}.DATASET", DATASET[:4])
    options = {"history": tmp_path / "lengths", "kv_tokens": 10**6, "silence": 30}
    given = config(router_args=SimpleNamespace(router_config=options))

    async def told(scheduler: roll.DynamicSamplingScheduler, step: int) -> list[float]:
        """What the history is worth of each prompt of this step's samples."""
        manager, seen = scheduler.router_manager, []
        submit = manager.scheduler.submit

        def asked_for(*args: Any, **more: Any) -> Any:
            group = submit(*args, **more)
            seen.append(manager.scheduler.explain(group.rids[0])["history"])
            return group

        monkeypatch.setattr(manager.scheduler, "submit", asked_for)
        assert len(starts(await scheduler.get_batch(asked(), step, 4))) == 8
        monkeypatch.undo()
        monkeypatch.setattr(f"{__name__}.DATASET", DATASET[:4])
        return seen

    async def first(scheduler: roll.DynamicSamplingScheduler) -> None:
        assert (await told(scheduler, 0)).count(0) >= 4  # the first of each prompt
        assert min(await told(scheduler, 1)) >= 1

    async def second(scheduler: roll.DynamicSamplingScheduler) -> None:
        assert min(await told(scheduler, 0)) >= 1

    with monkeypatch.context() as job:  # with what the router chooses by itself
        job.setenv("MUSTER_CHECKPOINT", str(tmp_path / "job"))
        run(first, roles, config())
    job_files = [path.name for path in (tmp_path / "job").iterdir()]
    assert job_files == ["lengths-actor_infer.code+math"]
    shutil.rmtree(tmp_path / "job")
    run(first, roles, given)
    assert [path.name for path in tmp_path.iterdir()] == ["lengths.code+math"]
    run(second, roles, given)


def test_waits_have_deadlines(roles: Any) -> None:
    async def main(scheduler: roll.DynamicSamplingScheduler) -> None:
        with pytest.raises(
            muster.DeadlineExceeded,
            match=r"8 samples were not there within 0.2 s: step 0",
        ):
            await scheduler.get_batch(asked(pace=30), 0, 4, timeout=0.2)
        manager = scheduler.router_manager
        manager.suspend()
        with pytest.raises(
            muster.DeadlineExceeded, match=r"requests did not end within 0.1 s"
        ):
            await manager.wait_complete(0.1)
        with pytest.raises(muster.DeadlineExceeded, match=r"suspended.* within 0.1 s"):
            await manager.on_send_request("one", timeout=0.1)

    run(main, roles)


def test_a_batch_that_was_late_is_asked_for_again(roles: Any) -> None:
    """Also if it was there, and requests of somebody else did not end."""

    async def main(scheduler: roll.DynamicSamplingScheduler) -> None:
        with pytest.raises(muster.DeadlineExceeded, match="8 samples were not there"):
            await scheduler.get_batch(asked(pace=0.05), 0, 4, timeout=0.01)
        first = starts(await scheduler.get_batch(asked(pace=0.05), 0, 4))
        manager = scheduler.router_manager
        sent = asyncio.create_task(manager.on_send_request("one"))
        said = ""
        while "requests did not end" not in said:
            with pytest.raises(muster.DeadlineExceeded) as e:
                await scheduler.get_batch(asked(), 1, 4, timeout=1)
            said = str(e.value)
        await sent
        await manager.on_request_routed("one")
        second = starts(await scheduler.get_batch(asked(), 1, 4))
        rows = first + second
        assert sorted(rows.count(row) for row in set(rows)) == [2] * 8
        assert scheduler.dataset_iter_count == 8  # nothing was begun anew
        with pytest.raises(AssertionError, match="step 1 after 1"):
            await scheduler.get_batch(asked(), 1, 4)

    run(main, roles)


def test_shutdown_has_one_deadline(roles: Any) -> None:
    async def main(scheduler: roll.DynamicSamplingScheduler) -> None:
        manager, sending = scheduler.router_manager, scheduler.async_sending_task
        manager.resume()
        await manager.on_send_request("one")
        with pytest.raises(muster.DeadlineExceeded, match=r"did not end within 0.1 s"):
            await scheduler.shutdown(timeout=0.1)
        assert sending is not None and sending.done()
        await manager.on_request_routed("one")

    run(main, roles)


def test_rewards_of_a_batch(roles: Any) -> None:
    domains = ["math", "code", "math"]
    data = roll.DataProto.from_dict(
        {"responses": np.array([[1, 0, 0], [1, 2, 0], [1, 2, 3]])},
        non_tensors={"domain": np.array(domains, dtype=object)},
    )
    compute = roll.RewardScheduler().compute_rewards
    rewards = asyncio.run(compute(data, roles[1], config()))
    assert np.asarray(rewards.batch["scores"]).tolist() == [1, 2, 3]
    with pytest.raises(KeyError, match="law"):
        data.non_tensor_batch["domain"][1] = "law"
        asyncio.run(compute(data, roles[1], config()))
