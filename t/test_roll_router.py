"""Requests under ROLL's names, on real workers."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from generate_workers import Engine, answer
from muster import roll

Make = Callable[..., Any]
WAIT_S = 60.0
PROMPT = [5, 6, 7]


def request(n: int, **sampling: Any) -> roll.DataProto:
    """A prompt of four places, the first of which is padding."""
    config = {"num_return_sequences": n, "max_new_tokens": 99, "pad_token_id": 0}
    return roll.DataProto.from_dict(
        {
            "input_ids": np.array([[0, *PROMPT]]),
            "attention_mask": np.array([[0, 1, 1, 1]]),
        },
        non_tensors={"domain": np.array(["math"], dtype=object)},
        meta_info={"generation_config": config | sampling},
    )


def run(main: Callable[[roll.RouterManager], Any], cluster: Any) -> None:
    async def whole() -> None:
        manager = roll.RouterManager(cluster, None, 0)
        await manager.initialize()
        try:
            await main(manager)
        finally:
            await manager.shutdown()
        gone = {"input_ids": PROMPT, "sampling_params": {"max_new_tokens": 9}}
        assert await manager.generate_request(gone, "late", 0) is None

    asyncio.run(asyncio.wait_for(whole(), WAIT_S))


def test_requests_as_dataprotos(cluster: Make) -> None:
    async def main(manager: roll.RouterManager) -> None:
        client = await manager.create_client()
        req = request(2, length=6)
        got = await client.generate_request(req, "a", 1)
        assert got.meta_info["output_token_ids"] == [
            answer(PROMPT, seq, 6) for seq in (0, 1)
        ]
        assert got.meta_info["finish_reasons"] == ["stop", "stop"]
        assert roll.is_report_data_finished(got)
        rows = roll.postprocess_output_data(req, got, sequence_length=12)
        assert len(rows) == 2 and list(rows.non_tensor_batch["domain"]) == ["math"] * 2
        assert rows.batch["responses"][1].tolist() == [*answer(PROMPT, 1, 6), 0, 0]
        assert rows.batch["attention_mask"][0].tolist() == [0] + [1] * 9 + [0] * 2
        assert rows.batch["response_mask"].sum() == 12
        assert rows.batch["infer_logprobs"].shape == (2, 11)
        assert [len(one) for one in roll.expand_responses([rows, rows])] == [1] * 4
        each = roll.expand_requests(request(4), 4, True)
        assert [
            e.meta_info["generation_config"]["num_return_sequences"] for e in each
        ] == [1] * 4
        with pytest.raises(ValueError, match="max_new_tokens"):
            await manager.generate_request({"input_ids": PROMPT}, "b", 1)
        assert manager.size() == 0

    run(main, cluster(Engine, 2))


def test_an_aborted_request_goes_on(cluster: Make) -> None:
    async def main(manager: roll.RouterManager) -> None:
        client = manager.create_client_sync()
        first = request(1, length=40, pace=0.05)
        task = asyncio.ensure_future(client.generate_request(first, "a", 1))
        while manager.scheduler.stats()["replicas"][0]["tokens"] < 3:
            await asyncio.sleep(0.01)
        manager.suspend()
        await manager.abort_requests(["unknown"], 1)
        await manager.abort_requests(["a"], 1)
        got = await task
        await manager.wait_complete()
        assert not roll.is_report_data_finished(got)
        [tokens] = got.meta_info["output_token_ids"]
        assert 0 < len(tokens) < 40 and tokens == answer(PROMPT, 0, len(tokens))

        again = roll.postprocess_paused_data(first, got, 64, 4)
        task = asyncio.ensure_future(client.generate_request(again, "a", 1))
        await asyncio.sleep(0)
        assert manager.size() == 0 and not task.done()  # it is suspended
        manager.resume()
        response = await task
        assert response.meta_info["output_token_ids"] == [
            answer(PROMPT, 0, 40)[len(tokens) :]
        ]
        # it is sent as one that has tokens: first, and learnt as a whole
        assert manager.scheduler.stats()["resumed"] == 1
        rows = roll.postprocess_output_data(again, response, 64)
        assert rows.batch["prompts"].shape == (1, 4)
        assert rows.batch["responses"][0, :40].tolist() == answer(PROMPT, 0, 40)

    run(main, cluster(Engine, 1))


def test_threads_and_routers(cluster: Make) -> None:
    async def main(manager: roll.RouterManager) -> None:
        client = manager.create_client_sync()
        assert client.meta == {"router_name": "PromptAffinityRouter"}
        ask = client.generate_request_sync
        got = await asyncio.to_thread(ask, request(1, length=3), "a", 1)
        assert got.meta_info["output_token_ids"] == [answer(PROMPT, 0, 3)]

    engines = cluster(Engine, 1)
    run(main, engines)
    with pytest.raises(ValueError, match="HttpEngine"):
        roll.RouterManager(engines, SimpleNamespace(router_name="SglangRouter"), 0)
    with pytest.raises(ValueError, match="router_config: histroy"):
        args = SimpleNamespace(router_config={"histroy": "lengths"})
        roll.RouterManager(engines, args, 0)


def test_prompts_are_filtered_by_their_rewards() -> None:
    class Rule:
        type = "mean_filter"
        filter_args = {"threshold_down": 0.1, "threshold_up": 0.9}

    class Config:
        rewards = {"math": type("Reward", (), {"query_filter_config": Rule})}

    def samples(*rewards: float) -> list[roll.DataProto]:
        return [
            roll.DataProto.from_dict(
                {"response_level_rewards": np.array([reward])},
                non_tensors={"domain": np.array(["math"], dtype=object)},
            )
            for reward in rewards
        ]

    assert roll.query_filter(samples(0, 1), Config)
    assert not roll.query_filter(samples(1, 1), Config)
    assert not roll.query_filter(samples(0, 0), Config)
